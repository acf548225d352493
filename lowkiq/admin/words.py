"""Times, numbers and untrusted texts within sentences for people: on a page, on a terminal, in a report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

#: Characters of an id, an error's line or the like that a list shows.
LINE: Final = 160
#: Pieces of a list of shards that are shown.
PIECES: Final = 12
#: A run of so many numbers is written as a range.
RUN: Final = 3
UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def seconds(value: float) -> str:
    """A length of time in its two highest units: 3 min 20 s."""
    if value < 0:
        return f"\N{MINUS SIGN}{seconds(-value)}"
    if value < 1:
        return "0 s" if value < 0.0005 else f"{value * 1000:.0f} ms"  # noqa: PLR2004 (half a millisecond)
    if value < 10:  # noqa: PLR2004 (where a decimal means something)
        return f"{value:.1f} s"
    whole = int(value)
    (unit, size), (lower, lower_size), *_ = (*(row for row in UNITS if whole >= row[1]), ("s", 1))
    high, rest = divmod(whole, size)
    return f"{high:,} {unit} {rest // lower_size} {lower}" if rest >= lower_size else f"{high:,} {unit}"


def age(value: float) -> str:
    """A length of time in whole seconds: what changes each second need not show more."""
    return seconds(value) if value >= 1 else f"{max(int(value), 0)} s"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def ranges(numbers: Iterable[int], most: int = PIECES) -> str:
    """
    Numbers in few words: "0-19, 24", and of equal steps, as the splitter deals shards out, "3, 53 … 953".

    What is more than `most` pieces is only counted.
    """
    pieces = [_piece(run) for run in _runs(sorted(set(numbers)))]
    rest = len(pieces) - most
    return ", ".join([*pieces[:most], f"and {rest:,} more"] if rest > 0 else pieces)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Splits into runs of equal steps; what is shorter than RUN is cut into single numbers."""
    runs: list[list[int]] = []
    start = 0
    while start < len(numbers):
        end = start + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == numbers[start + 1] - numbers[start]:
            end += 1
        if end - start < RUN:
            end = start + 1
        runs.append(list(numbers[start:end]))
        start = end
    return runs


def _piece(run: Sequence[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = next(high - low for low, high in pairwise(run))
    return f"{run[0]}\N{EN DASH}{run[-1]}" if step == 1 else f"{run[0]}, {run[1]} … {run[-1]}"


_UNPRINTABLE: Final = re.compile(r"[^ -~]")


def printable(text: str, most: int | None = LINE) -> str:
    """
    One line of text that nobody has to trust: control, bidirectional and other invisible characters are shown as
    escapes, and what is longer than `most` is cut (None: nothing is).
    """
    cut = text[:most]
    safe = _UNPRINTABLE.sub(_escaped, cut)
    return f"{safe}…" if len(cut) < len(text) else safe


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")
