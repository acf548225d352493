"""
Logs of commands, nodes and the supervisor: readable on a terminal, JSON for machines, always to stderr, so that what a
command prints can be piped. They name ids and sizes, never payloads.
"""

from __future__ import annotations

import contextlib
import sys

import structlog


class _Unbreakable:
    """Standard error that may be gone: a closed terminal must not stop a drain half way."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return sys.stderr.write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(level: str = "info") -> None:
    """
    Chooses the renderer by where stderr goes; `level` is the lowest that is written, also of what the application logs.

    The supervisor does it before it forks, so that all write alike.
    """
    is_terminal = sys.stderr.isatty()
    # Both without local variables, which richer tracebacks show: they hold payloads and passwords.
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if is_terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not is_terminal),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # One write a line: lines of many processes share the stream and must not mix.
        logger_factory=structlog.WriteLoggerFactory(file=_Unbreakable()),  # type: ignore[arg-type]
    )
