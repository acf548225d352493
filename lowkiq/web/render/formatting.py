"""Formatting: numbers, times and texts as pages show them, in plain text, which the templates escape."""

from __future__ import annotations

import math
from typing import Final

from lowkiq.admin import words
from lowkiq.admin.words import UNITS, age, date_of, printable

#: Placeholder for a missing value.
NOTHING: Final = "\N{EN DASH}"
#: Unix times that are taken for such: from 2001 to 2128. Scores are often times, but need not be.
TIMES: Final = (1e9, 5e9)

_TEN: Final = 10
#: Seconds that an axis shows at most → how its times are told.
_AXIS: Final = ((600, "%H:%M:%S"), (86_400, "%H:%M"), (120 * 86_400, "%d %b"))

plural, moment = words.plural, words.moment


def number(value: float) -> str:
    """1234567 → 1,234,567: exact."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def compact(value: float) -> str:
    """For axes, where there is no room: 1234567 → 1.23M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def rate(value: float) -> str:
    """A number a second: as many digits as mean something."""
    if value >= _TEN or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.1 else "< 0.1"  # noqa: PLR2004 (what one digit can hold)


def in_one_unit(value: float) -> str:
    """A length of time where there is little room: 1.5 h."""
    if value == 0:
        return "0"
    unit, size = next(((unit, size) for unit, size in UNITS if value >= size), ("s", 1))
    return f"{value / size:.3g} {unit}"


def ago(at: float, now: float) -> str:
    """A time relative to now: 10 s ago, in 2 min."""
    distance = now - at
    if abs(distance) < 1:
        return "now"
    return f"{age(distance)} ago" if distance > 0 else f"in {age(-distance)}"


def milliseconds(value: float) -> str:
    """A round trip: 0.4 ms."""
    return f"{value * 1000:,.1f} ms"


def size(value: float) -> str:
    """Bytes: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:  # noqa: PLR2004 (that is what a kibibyte is)
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"  # noqa: PLR2004
        value /= 1024
    return f"{value:,.1f} TiB"


def percent(part: float, whole: float) -> str:
    """A share, or nothing of nothing."""
    if not whole:
        return NOTHING
    share = 100 * part / whole
    return f"{share:.1f} %" if 0 < share < _TEN else f"{share:.0f} %"


def clock_time(at: float) -> str:
    """Only the time of day."""
    date = date_of(at)
    return date.strftime("%H:%M:%S") if date else f"{at:g}"


def days(first: float, last: float) -> str:
    """The day of a time, in UTC, or the days from one to another."""
    names = [date.strftime("%Y-%m-%d") if (date := date_of(at)) else f"{at:g}" for at in (first, last)]
    return f"{' to '.join(dict.fromkeys(names))} UTC"


def on_axis(at: float, length: float) -> str:
    """A time below a chart, of which `length` seconds are shown: the clock's, of several days the date."""
    date = date_of(at)
    form = next((form for most, form in _AXIS if length <= most), "%b %Y")
    return date.strftime(form) if date else f"{at:g}"


def machine_time(at: float) -> str | None:
    """As the `datetime` attribute of a time element wants it; None of a number that is no time."""
    date = date_of(at)
    return date.strftime("%Y-%m-%dT%H:%M:%SZ") if date else None


def is_time(score: float) -> bool:
    """True when a score may well be a Unix time."""
    return math.isfinite(score) and TIMES[0] <= score < TIMES[1]


def score(value: float) -> str:
    """A payload's score: exact, and without an exponent where that is readable."""
    return f"{value:.6f}" if is_time(value) else f"{value:.17g}"


def block(text: str, most: int = 20_000) -> str:
    """The same of several lines: line feeds and tabs stay."""
    lines = text[:most].replace("\r\n", "\n").expandtabs(4).split("\n")
    safe = "\n".join(printable(line, most) for line in lines)
    return f"{safe}…" if len(text) > most else safe
