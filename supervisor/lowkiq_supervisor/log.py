"""
Logging set-up: readable on a terminal, JSON lines otherwise, always to stderr.

Done before the first fork, so that nodes write the same way.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

import structlog


class _Unbreakable:
    """Standard error that may be gone: a closed terminal must not stop a drain half way."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return _stderr().write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            _stderr().flush()


def configure() -> None:
    """Choose the renderer by where standard error goes."""
    readable = _stderr().isatty()
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if readable:
        # Local variables, which richer tracebacks show, hold payloads and passwords.
        renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if readable else "iso", utc=not readable),
            *([] if readable else [structlog.processors.format_exc_info]),
            renderer,
        ],
        # One write a line: lines of many processes share the stream and must not mix.
        logger_factory=structlog.WriteLoggerFactory(file=_Unbreakable()),  # type: ignore[arg-type]
    )


def _stderr() -> TextIO:
    return sys.stderr
