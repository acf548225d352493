"""Logs of the command line: readable on a terminal, JSON for machines. They name ids and sizes, never payloads."""

from __future__ import annotations

import sys

import structlog


def configure() -> None:
    """To stderr, so that what a command prints can be piped."""
    is_terminal = sys.stderr.isatty()
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if is_terminal
        else [_tracebacks(), structlog.processors.JSONRenderer(sort_keys=True)]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not is_terminal),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def _tracebacks() -> structlog.typing.Processor:
    """Without local variables, which hold payloads and passwords."""
    return structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
