"""
Logs of commands, nodes and the supervisor: readable on a terminal, JSON for machines, to stderr, so that what a
command prints can be piped, or to a file. They name ids and sizes, never payloads.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from lowkiq.process.lines import Lines
from lowkiq.variables import misspelt

#: The lowest level that is written, unless somebody says otherwise.
DEFAULT_LEVEL: Final = "info"


def set_level(level: str) -> None:
    """Changes the lowest level that is written, and nothing else."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


def configure(level: str = DEFAULT_LEVEL, path: Path | None = None) -> None:
    """
    Chooses the renderer by where lines go; `level` is the lowest that is written, also of what the application logs.

    The supervisor does it before it forks, so that all write alike. No line waits for a reader: see `Lines`.

    Args:
        path: the file to write to instead of stderr.

    Raises:
        OSError: the file can't be written, or isn't ours.
    """
    is_terminal = path is None and sys.stderr is not None and sys.stderr.isatty()
    lines = Lines(path, lambda count: structlog.get_logger().warning("log_lines_dropped", count=count))
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
        logger_factory=lambda *_: lines,
    )


def warn_of_misspelt(environment: Mapping[str, str]) -> None:
    """Warns of variables that nobody reads, though they are nearly some that are read."""
    for name, meant in misspelt(environment).items():
        structlog.get_logger("lowkiq").warning("variable_unknown", name=name, did_you_mean=meant)
