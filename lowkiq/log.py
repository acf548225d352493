"""
Logs of commands, nodes and the supervisor: readable on a terminal, JSON for machines, to stderr, so that what a
command prints can be piped, or to a file. They name ids and sizes, never payloads.

structlog is imported with the first line, or by who configures it: it takes a third of what whoever pushes imports.
"""

from __future__ import annotations

import datetime
import io
import json
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from lowkiq.errors import class_name
from lowkiq.process.lines import Lines
from lowkiq.variables import misspelt

if TYPE_CHECKING:
    from structlog.typing import Processor

#: The lowest level that is written, unless somebody says otherwise.
DEFAULT_LEVEL: Final = "info"
#: Seconds after which it is told again that lines can't be logged as the application wants it.
REMIND: Final = 60.0
#: Characters of an error, and different errors of a log, that are told.
ERROR_CHARS, MOST_ERRORS = 300, 20
ADVICE: Final = "a processor, renderer or logger of the application's log configuration raises: it must take any field"


class Logger:
    """
    Writes lines, of which none hurts whoever writes it. How lines look is for the application to say, so what says it
    may raise; such a line goes to where lines go by default, and what was wrong with it is told (`Troubles`).
    """

    def __init__(self, name: str, fields: Mapping[str, Any] | None = None) -> None:
        self._name, self._fields = name, dict(fields or {})

    @cached_property
    def _inner(self) -> Any:
        import structlog  # noqa: PLC0415 (here, and below, as above)

        return structlog.get_logger(self._name)

    def bind(self, **fields: Any) -> Logger:
        """One whose lines have these fields as well."""
        return Logger(self._name, {**self._fields, **fields})

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error, with the exception that is being handled."""
        self._write("exception", event, fields)

    def _write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        fields = {**self._fields, **fields}
        handled = sys.exception() if level == "exception" else None
        try:
            getattr(self._inner, level)(event, **fields)
        except BaseException as error:
            if _is_interrupt(error):
                raise
            TROUBLES.met(error)
            more = {"exception": _safe(_traceback, handled)} if handled else {}
            TROUBLES.write("error" if level == "exception" else level, event, {**fields, **more})


class Troubles:
    """What was wrong with the application's way to log: told on stderr once in a while, and to who asks, once each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}
        self._new: list[str] = []
        #: Where lines go that the application's configuration can't write.
        self.lines: Lines | None = None

    def met(self, error: BaseException) -> None:
        """Notes that a line could not be logged."""
        text = f"{class_name(error)}: {_safe(str, error)}"[:ERROR_CHARS]
        now = time.monotonic()
        with self._lock:
            is_known = text in self._told_at or len(self._told_at) >= MOST_ERRORS
            if is_known and now - self._told_at.get(text, now) < REMIND:
                return
            self._told_at[text] = now
            if not is_known:
                self._new.append(text)
        frames = traceback.extract_tb(error.__traceback__)[-1:]
        at = [f"{frame.filename}:{frame.lineno}" for frame in frames]
        self.write("error", "log_failed", {"error": text, "at": at, "advice": ADVICE})

    def take(self) -> list[str]:
        """The errors that nobody has asked for yet, each once in a process's life."""
        with self._lock:
            taken, self._new = self._new, []
        return taken

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """Writes a line, as a machine reads it. It never fails."""
        at = datetime.datetime.now(datetime.UTC).isoformat()
        structlog: Any = sys.modules.get("structlog")  # who has not got it has bound nothing by it
        row = {**(structlog.contextvars.get_contextvars() if structlog else {}), **fields}
        row = {**row, "event": event, "level": level, "timestamp": at}
        with self._lock:
            self.lines = self.lines or Lines(None, lambda _: None)
        try:
            self.lines.msg(json.dumps(row, default=lambda value: _safe(repr, value), sort_keys=True))
        except (TypeError, ValueError, RecursionError, OSError):  # fields that hold themselves, say
            return


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _safe(text_of: Any, value: object) -> str:
    try:
        return str(text_of(value))
    except BaseException as error:  # noqa: BLE001 (it is anybody's, and a line must not end who writes it)
        return f"<{class_name(value)}, whose text can't be had: {class_name(error)}>"


def _is_interrupt(error: BaseException) -> bool:
    """Returns whether somebody has pressed Ctrl-C, and Python is to end for it."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and is_default and threading.current_thread() is threading.main_thread()


TROUBLES: Final = Troubles()


def get_logger(name: str = "lowkiq") -> Logger:
    """The logger of a part of Lowkiq."""
    return Logger(name)


def set_level(level: str) -> None:
    """Changes the lowest level that is written, and nothing else."""
    import structlog  # noqa: PLC0415

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


def _escaped_traceback(out: TextIO, error: Any) -> None:
    """A traceback whose messages, which may be anybody's, do nothing to the terminal."""
    from structlog.dev import plain_traceback  # noqa: PLC0415

    plain = io.StringIO()
    plain_traceback(plain, error)
    shown = (char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in plain.getvalue())
    out.write("".join(shown))


#: What was chosen last: the level, and the file, if it is one.
chosen: tuple[str, Path | None] = (DEFAULT_LEVEL, None)


def configure(level: str = DEFAULT_LEVEL, path: Path | None = None) -> None:
    """
    Chooses the renderer by where lines go; `level` is the lowest that is written, also of what the application logs.

    The supervisor does it before it forks, so that all write alike. No line waits for a reader: see `Lines`.

    Args:
        path: the file to write to instead of stderr.

    Raises:
        OSError: the file can't be written, or isn't ours.
    """
    import structlog  # noqa: PLC0415

    global chosen  # noqa: PLW0603 (for a process that begins anew and is to write alike)
    chosen = level, path
    is_terminal = path is None and sys.stderr is not None and sys.stderr.isatty()
    lines = Lines(path, lambda count: get_logger().warning("log_lines_dropped", count=count))
    TROUBLES.lines = lines
    # Both without local variables, which richer tracebacks show: they hold payloads and passwords.
    render: list[Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=_escaped_traceback)]
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
        get_logger().warning("variable_unknown", variable=name, did_you_mean=meant)
