"""What is kept of an error: its message, the user's frames in few bytes, and never a variable."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq.codec import MAX_ERROR_CHARS, format_error
from lowkiq.failure import HEAD, MAX_TRACEBACK_CHARS, kept_text, main_line, parts_of, place_of, traceback_of


def caught(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def kept(call: Callable[[], Any], frames: int = 20) -> str:
    return kept_text(caught(call), format_error, frames)


def charge(card: str) -> None:
    raise ValueError("no such card")


def pay() -> None:
    charge("4111-secret")


def nested(depth: int) -> None:
    if depth == 0:
        raise ValueError("deep")
    nested(depth - 1)


def from_a_cause() -> None:
    try:
        pay()
    except ValueError as error:
        raise RuntimeError("order 17") from error


def meanwhile() -> None:
    try:
        pay()
    except ValueError:
        raise RuntimeError("order 17")  # noqa: B904 (that is what is tried)


def test_frames_stand_behind_the_message_and_variables_nowhere() -> None:
    text = kept(pay)
    assert text.startswith(f"ValueError: no such card\n\n{HEAD}  File ")
    assert re.search(r'File "[^"]+test_failure\.py", line \d+, in charge\n    raise ValueError\("no such card"\)', text)
    assert '    charge("4111-secret")\n' in text, "a source line, which is code"
    error, frames = parts_of(text)
    assert error == "ValueError: no such card"
    assert frames is not None and frames.startswith(HEAD)
    assert frames.endswith('raise ValueError("no such card")\nValueError: no such card'), "as Python tells it"

    def holds_a_secret() -> None:
        password = "hunter2"[::-1]
        charge(password)

    assert "2retnuh" not in kept(holds_a_secret)


def test_causes_are_kept_in_short() -> None:
    for call, link in (
        (from_a_cause, "The above exception was the direct cause of the following exception:"),
        (meanwhile, "During handling of the above exception, another exception occurred:"),
    ):
        error, frames = parts_of(kept(call))
        assert error == "RuntimeError: order 17"
        assert frames is not None
        first, _, last = frames.partition(f"\n\n{link}\n\n")
        assert first.startswith(HEAD) and first.endswith("ValueError: no such card")
        assert last.startswith(HEAD) and last.endswith("RuntimeError: order 17")

    def long_chain() -> None:
        errors = [ValueError(str(number)) for number in range(50)]
        for cause, error in itertools.pairwise(errors):
            error.__cause__ = cause
        raise errors[-1]

    assert kept(long_chain).count("direct cause") == 3

    def circle() -> None:
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__cause__ = second, first
        raise first

    assert kept(circle).count("direct cause") == 1


def test_a_group_of_exceptions_tells_those_in_it() -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(pay))

    error, frames = parts_of(kept(lambda: asyncio.run(work())))
    assert error.startswith("ExceptionGroup: unhandled errors in a TaskGroup")
    assert frames is not None
    assert "in charge" in frames
    assert "one of the following group" in frames


def test_recursion_is_folded_and_many_frames_are_cut_in_the_middle() -> None:
    text = kept(lambda: nested(500))
    assert "[Previous line repeated 499 more times]" in text
    assert len(text) < 1_500
    source = "\n".join(f"def f{n}(): f{n + 1}()" for n in range(60)) + "\ndef f60(): raise ValueError('x')"
    names: dict[str, Any] = {}
    exec(source, names)
    text = kept(names["f0"], frames=8)
    assert [text.count(f"in f{n}\n") for n in (0, 1, 30, 55, 56, 60)] == [1, 0, 0, 1, 1, 1]
    assert "frames left out]" in text
    assert text.count("  File ") == 8


def test_it_is_bounded_whatever_is_raised() -> None:
    names: dict[str, Any] = {}
    long = "x" * 5_000
    source = "\n".join(f"def f{n}{long}(): f{n + 1}{long}()" for n in range(100)) + f"\ndef f100{long}(): 1 / 0"
    exec(compile(source, "y" * 5_000, "exec"), names)
    assert len(traceback_of(caught(names[f"f0{long}"]), 100)) <= MAX_TRACEBACK_CHARS + len(HEAD)

    def huge() -> None:
        raise ValueError("z" * 10_000_000) from caught(names[f"f0{long}"])

    text = kept(huge)
    assert len(text) <= MAX_ERROR_CHARS
    assert "in huge" in text

    class Hostile(Exception):
        @property
        def __cause__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no")

        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert kept(lambda: charge_with(Hostile())) == "Hostile (which could not be formatted: RuntimeError)"
    assert kept(lambda: charge_with(ValueError("\ud800"))).startswith("ValueError: \\ud800\n\n")


def charge_with(error: BaseException) -> None:
    raise error


def test_what_has_no_frames_has_no_traceback() -> None:
    assert kept_text(ValueError("never raised"), format_error, 20) == "ValueError: never raised"
    assert kept_text("a text", format_error, 20) == "a text"
    assert kept(pay, frames=0) == "ValueError: no such card"
    caused = ValueError("given")
    caused.__cause__ = caught(pay)
    assert parts_of(kept_text(caused, format_error, 20))[0] == "ValueError: given"


@pytest.mark.parametrize(
    ("text", "error", "line", "has_more"),
    [
        ("E: a", "E: a", "E: a", False),
        ("E: a\n", "E: a\n", "E: a", False),
        ("E: a\nb", "E: a\nb", "E: a", True),
        (f"E: a\nb\n\n{HEAD}  File x", "E: a\nb", "E: a", True),
        (f"{HEAD}  File x\nE: a", "E: a", "E: a", True),
        ("", "", "", False),
    ],
)
def test_parts_of_whatever_was_kept(text: str, error: str, line: str, has_more: bool) -> None:
    found, more = parts_of(text)
    assert (found, main_line(found), more is not None) == (error, line, has_more)


def test_ones_own_format_says_all_of_it() -> None:
    assert kept_text(caught(pay), lambda error: f"mine\nall of {error}", 20) == "mine\nall of no such card"


def test_the_place_is_the_last_frame_of_ones_own_code() -> None:
    own = test_the_place_is_the_last_frame_of_ones_own_code.__code__
    place = place_of(caught(lambda: json.loads("{")))
    assert place.rpartition(":")[0] == own.co_filename
    assert place_of(ValueError()) == ""
