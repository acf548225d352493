"""
Failure: the text that is kept of an error, and its parts. Its type and message come first, then where it was raised:
frames of the user's code and of what that has called, with their source lines, and never a variable.
"""

from __future__ import annotations

import itertools
import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from lowkiq.codec import MAX_ERROR_CHARS, encodable, error_text, format_error

#: Begins a traceback, as in Python; and with it what stands between an error and its traceback.
HEAD: Final = "Traceback (most recent call last):\n"
MARK: Final = f"\n\n{HEAD}"
#: Characters of a traceback: with the longest lines the innermost ten frames have room.
MAX_TRACEBACK_CHARS: Final = 8_192
#: Characters of a file's name, a function's and a source line.
MAX_LINE_CHARS: Final = 240
#: Errors that led to the one that is kept, frames of each of these, and characters of its message.
CAUSES, FRAMES_OF_CAUSE, MESSAGE_OF_CAUSE = 3, 5, 300
#: Characters of a group of errors, and of an error that are looked at for its group.
GROUP_CHARS, LOOKED_AT = 200, 1_000

_DIRECT: Final = "The above exception was the direct cause of the following exception:"
_MEANWHILE: Final = "During handling of the above exception, another exception occurred:"
_PART: Final = "The above exception is one of the following group:"

_PACKAGE: Final = str(Path(__file__).parent)
_LIBRARY: Final = sysconfig.get_path("stdlib")
#: Where frames are that lead to `perform`, and are the same for all jobs.
_MACHINERY: Final = tuple(f"{_PACKAGE}/ {_LIBRARY}/asyncio/ {_LIBRARY}/concurrent/ {_LIBRARY}/threading.py".split(" "))
#: Where code is that is nobody's own.
_INSTALLED: Final = (f"{_PACKAGE}/", f"{_LIBRARY}/", "<")
_PACKAGES: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")

#: What differs from one error of a kind to the next → what stands for it. In this order: a UUID is made of numbers.
_MASKS: Final = (
    (re.compile(r"""(?<!\w)[bBrRuU]{0,2}('(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")(?!\w)"""), "'\N{HORIZONTAL ELLIPSIS}'"),
    (re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"), "#"),
    (re.compile(r"(?<![0-9A-Za-z])(?:0x[0-9A-Fa-f]+|[0-9A-Fa-f]{8,})(?![0-9A-Za-z])"), "#"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "#"),
)


class Frame(NamedTuple):
    """A call on the way to where an error was raised."""

    file: str
    line: int
    function: str
    source: str

    @property
    def text(self) -> str:
        """As Python's tracebacks have it."""
        head = f'  File "{self.file}", line {self.line}, in {self.function}\n'
        return f"{head}    {self.source}\n" if self.source else head


def kept_text(error: BaseException | str, format: Callable[[BaseException], str], most_frames: int) -> str:
    """All that is kept of an error. Somebody's own `format` says all of it. It never fails."""
    if isinstance(error, str):
        return encodable(error[:MAX_ERROR_CHARS])
    text = error_text(error, format)
    if format is not format_error or not most_frames:
        return text
    found = traceback_of(error, most_frames)
    return f"{text[: MAX_ERROR_CHARS - len(found) - 2]}\n\n{found}" if found else text


def parts_of(text: str) -> tuple[str, str | None]:
    """The error, and its traceback in full, of a text that was kept; None if there is no more to it than the error."""
    error, mark, frames = text.partition(MARK)
    if mark:
        return error, f"{HEAD}{frames.rstrip()}\n{error}"
    if text.startswith(HEAD.rstrip()):
        return main_line(text), text
    return text, text if len(text.strip().splitlines()) > 1 else None


def main_line(error: str | None) -> str:
    """The line of an error that says most: the first, of a traceback the last."""
    text = (error or "").partition(MARK)[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[-1] if lines[0].startswith("Traceback ") else lines[0]


def group_of(error: str | None) -> str:
    """The text that errors of one kind share: their main line, with quoted texts, UUIDs, hex and numbers masked."""
    return _masked(_masked(main_line(error)[:LOOKED_AT])[:GROUP_CHARS])[:GROUP_CHARS]  # what was cut is its own group


def _masked(text: str) -> str:
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def traceback_of(error: BaseException, most_frames: int) -> str:
    """
    Where an error was raised, and in short the errors that led to it; "" if nothing is known of it. Unlike Python's it
    does not end with the error itself. It never fails.
    """
    with suppress(BaseException):  # anything can stand behind an exception's attributes
        text = _stack(error, most_frames)
        text = f"{HEAD}{text}" if text else ""
        for cause, link in itertools.islice(_causes(error), CAUSES):
            line = error_text(cause)[:MESSAGE_OF_CAUSE]
            frames = _stack(cause, min(most_frames, FRAMES_OF_CAUSE)) or "  (it was not raised)\n"
            block = f"{HEAD}{frames}{line}\n\n{link}\n\n"
            if len(block) + len(text) > MAX_TRACEBACK_CHARS:
                break
            text = block + text
        return encodable(text)
    return ""


def place_of(error: BaseException) -> str:
    """The file and line of the user's last frame, else of the last one; "" if it has none. It never fails."""
    with suppress(BaseException):
        frames = _frames(error)
        own = [frame for frame in frames if not frame.file.startswith(_INSTALLED) and not _PACKAGES.search(frame.file)]
        for frame in (own or frames)[-1:]:
            return encodable(f"{frame.file}:{frame.line}")
    return ""


def _causes(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """The errors that led to one, each with how it did, the nearest first. Of a group, its first exceptions."""
    seen = {id(error)}
    if isinstance(error, BaseExceptionGroup):
        yield from ((part, _PART) for part in error.exceptions[:CAUSES])
    while True:
        cause, link = error.__cause__, _DIRECT
        if cause is None and not error.__suppress_context__:
            cause, link = error.__context__, _MEANWHILE
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause, link
        error = cause


def _stack(error: BaseException, most: int) -> str:
    """Its frames as text: of too many the first few and the last, as far as there is room."""
    frames = _folded(_frames(error))
    while len(text := "".join(_cut(frames, most))) > MAX_TRACEBACK_CHARS and most > 1:
        most = most * 3 // 4
    return text


def _cut(frames: list[str], most: int) -> list[str]:
    if len(frames) <= most:
        return frames
    first = most // 4
    left_out = len(frames) - most
    return [*frames[:first], f"  [{left_out:,} frames left out]\n", *frames[first + left_out :]]


def _folded(frames: list[Frame]) -> list[str]:
    """Texts of frames; what calls itself is told once, with how often it has."""
    texts: list[str] = []
    for text, same in itertools.groupby(frame.text for frame in frames):
        more = sum(1 for _ in same) - 1
        texts.append(f"{text}  [Previous line repeated {more:,} more times]\n" if more else text)
    return texts


def _frames(error: BaseException) -> list[Frame]:
    """Frames from `perform` on: those that lead to it are the same for all jobs."""
    found = itertools.dropwhile(
        lambda row: row[0].f_code.co_filename.startswith(_MACHINERY), traceback.walk_tb(error.__traceback__)
    )
    return [
        Frame(
            frame.f_code.co_filename[-MAX_LINE_CHARS:],
            line or 0,
            frame.f_code.co_name[:MAX_LINE_CHARS],
            linecache.getline(frame.f_code.co_filename, line or 0, frame.f_globals).strip()[:MAX_LINE_CHARS],
        )
        for frame, line in found
    ]
