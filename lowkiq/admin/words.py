"""Times, numbers and untrusted texts within sentences for people: on a page, on a terminal, in a report."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar

T = TypeVar("T")

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


def short_seconds(value: float) -> str:
    """A measured length of time, with as many digits as mean something: 12.3 ms, 4.56 s, 3 min 20 s."""
    if value >= 60:  # noqa: PLR2004 (a minute)
        return seconds(value)
    size, unit = next((row for row in ((1, "s"), (1e-3, "ms"), (1e-6, "\N{MICRO SIGN}s")) if value >= row[0]), (1, ""))
    return f"{value / size:.3g} {unit}" if unit else "< 1 \N{MICRO SIGN}s"


def age(value: float) -> str:
    """A length of time in whole seconds: what changes each second need not show more."""
    return seconds(value) if value >= 1 else f"{max(int(value), 0)} s"


def moment(at: float) -> str:
    """A Unix time to the second, in UTC: the only zone that all machines and readers have in common."""
    date = date_of(at)
    return date.strftime("%Y-%m-%d %H:%M:%S UTC") if date else f"{at:g}"


def date_of(at: float) -> datetime.datetime | None:
    """The same as a date; None of a number that is no time."""
    try:
        return datetime.datetime.fromtimestamp(at, datetime.UTC)
    except (ValueError, OverflowError, OSError):  # a score, or a due time, may be any number
        return None


def times(count: int) -> str:
    """A count of times: once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def tries(max_retry_count: int) -> int:
    """How often a job is tried that fails each time: at first, and then its retries."""
    return max_retry_count + 1


#: Fate of a job after its last try → what it does then; and where it is.
_FATES: Final[Mapping[str, tuple[str, str]]] = {
    "bury": ("goes to the morgue", "the morgue"),
    "block": ("is blocked", "blocked"),
    "discard": ("is discarded", "discarded"),
}


def goes(fate: str) -> str:
    """The end of a job after its last try, as its worker's when_exhausted says."""
    return _FATES[fate][0]


def failed(retry_count: int, max_retry_count: int | None, fate: str = "bury", *, runs: bool = False) -> str:
    """
    How often a job has failed, how often it is still tried, and its fate then; `runs`: it is in flight, so it is tried
    just now.
    """
    failures = retry_count + 1
    so_far = times(failures) if failures else "never"
    if max_retry_count is None:
        return so_far
    # One that its worker's options would have buried by now is tried once more.
    in_all = max(tries(max_retry_count), failures + 1)
    if runs:
        return f"{so_far}; this is try {failures + 1:,} of {in_all:,}"
    left = in_all - failures
    return f"{so_far}; {left:,} {'try' if left == 1 else 'tries'} left, then {_FATES[fate][1]}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def first_of(named: Sequence[T], most: int, say: Callable[[T], str]) -> str:
    """The first of several, each as `say` has it, and how many more there are: a, b and 7 more."""
    rest = len(named) - most
    return listed([*map(say, named[:most]), *([f"{rest:,} more"] if rest > 0 else [])])


def behind_newer(ids: Sequence[str], most: int = 5) -> str:
    """The order that reviving jobs would break."""
    named = first_of(ids, most, lambda one: printable(one, 80))
    whose, died = ("its id", "it died") if len(ids) == 1 else ("their ids", "they died")
    return f"{named} would run behind newer payloads of {whose}, which run now or have gone on since {died}"


def waited_for(ids: Sequence[str], most: int = 10) -> str:
    """Those for whose end other jobs wait."""
    rest = len(ids) - most
    named = ", ".join([*(printable(id, 60) for id in ids[:most]), *([f"{rest:,} more"] if rest > 0 else [])])
    return f"Other jobs wait for {named}: they run once nothing is left of {'it' if len(ids) == 1 else 'those'}"


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
        step = numbers[end - 1] - numbers[start]
        if end - start < RUN or (end - start == RUN and step > RUN - 1):
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


def plural(count: int, one: str, many: str | None = None) -> str:
    """1 job, 2 jobs."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
