"""Recurrence: when a recurring job is due, by an interval or as cron has it."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import importlib
import math
import re
import zoneinfo
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from lowkiq.errors import SettingsError, short

#: What becomes of runs whose time has passed while nobody could fire them: one run, one for each, or none.
Missed: TypeAlias = Literal["merge", "all", "skip"]
MISSED: Final = ("merge", "all", "skip")
#: Runs that are made up for with missed="all", unless the entry says otherwise, and at most.
BACKLOG: Final = 100
MOST_BACKLOG: Final = 1_000
#: Seconds by which a run may be late that is not skipped (missed="skip"): a node may have been restarted meanwhile.
GRACE: Final = 60.0
#: Seconds of the shortest interval, and of the longest.
SHORTEST: Final = 0.1
LONGEST: Final = 366 * 86_400.0
#: Microseconds of a second: times are whole ones.
SECOND: Final = 1_000_000
#: Characters of cron's fields, at most.
MOST_CHARS: Final = 1_000

#: How many fields cron has; a sixth, in front, is that of seconds.
FIELDS: Final = (5, 6)
_NEITHER: Final = 'which is neither an interval such as 300 or "15m", nor five fields of cron such as "*/5 * * * *"'

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_INTERVAL: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw] ?)+")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
#: Names of cron for common times.
_NAMED: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip

Every: TypeAlias = "str | float | datetime.timedelta"


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    When a job recurs. An interval counts from the start of 1970 in UTC on: all nodes agree on it, whenever it was set.
    """

    #: Seconds, or the five fields of cron.
    every: float | str
    #: Seconds by which an interval is shifted.
    offset: float = 0.0
    #: The time zone that cron's fields are in.
    tz: str = "UTC"
    missed: Missed = "merge"
    #: Runs that are made up for with missed="all", at most; the latest count.
    backlog: int = BACKLOG

    def after(self, at: float) -> float:
        """The first time after that one (Unix time, seconds)."""
        if isinstance(self.every, str):
            return next(self._fields(at)).timestamp()
        return self._tick(self._number(_us(at)) + 1) / SECOND

    def due(self, expected: float, now: float) -> list[float]:
        """The times for which it is run now, as one that was to be run at `expected`, which has come."""
        if self.missed == "merge":
            return [expected]
        if self.missed == "skip":
            return [at for at in self._latest(expected, now, 1) if now - at <= GRACE]
        return self._latest(expected, now, min(self.backlog, MOST_BACKLOG))  # whoever has written it

    def _latest(self, expected: float, now: float, most: int) -> list[float]:
        """The last ones of its times from `expected` up to now."""
        found: deque[float] = deque()
        before = self._before(now)
        while len(found) < most and _us(at := next(before)) > _us(expected):
            found.appendleft(at)
        if len(found) < most:
            found.appendleft(expected)
        return list(found)

    def _before(self, now: float) -> Iterator[float]:
        """Its times up to that one, the last first."""
        if isinstance(self.every, str):
            # One that is due right now is after the moment before.
            yield from (at.timestamp() for at in self._fields(math.floor(now) + 1, is_backwards=True))
            return
        number = self._number(_us(now))
        while True:
            yield self._tick(number) / SECOND
            number -= 1

    def _tick(self, number: int) -> int:
        """The time of that number in whole microseconds, as Redis keeps it; exact, however long the interval counts."""
        every, shift, unit = self._ratio
        return (2 * SECOND * (number * every + shift) + unit) // (2 * unit)

    def _number(self, at: int) -> int:
        """The number of its last time up to that one, in microseconds."""
        every, shift, unit = self._ratio
        number = (at * unit - shift * SECOND) // (SECOND * every)
        return next(one for one in (number + 1, number, number - 1) if self._tick(one) <= at)

    @property
    def _ratio(self) -> tuple[int, int, int]:
        """An interval and its offset as integers, and how many of them are a second: just what the doubles say."""
        (every, of), (offset, of_offset) = float(self.every).as_integer_ratio(), float(self.offset).as_integer_ratio()
        return every * of_offset, offset * of, of * of_offset

    def _fields(self, at: float, *, is_backwards: bool = False) -> Iterator[datetime.datetime]:
        start = datetime.datetime.fromtimestamp(at, _zone(self.tz))
        fields: Iterator[datetime.datetime] = _cron().CronSim(self.every, start, reverse=is_backwards)
        return fields

    @property
    def text(self) -> str:
        """`every`, as people write it: "300", or the fields of cron."""
        return self.every if isinstance(self.every, str) else f"{self.every:.15g}"

    @property
    def words(self) -> str:
        """The rule for people."""
        if not isinstance(self.every, str):
            shift = f", {_seconds_text(self.offset)} after" if self.offset else ""
            return f"every {_seconds_text(self.every)}{shift}"
        try:
            told = str(_cron().CronSim(self.every, datetime.datetime.now(datetime.UTC)).explain())
        except (ValueError, SettingsError):  # a newer Lowkiq has written it, or the package is not here
            told = self.every
        return f"{told} ({self.tz})"


def _us(at: float) -> int:
    """A time in whole microseconds, as Redis has it: what comes from there is the same again."""
    return round(at * SECOND)


def make_rule(
    every: Every, *, offset: float = 0.0, tz: str | None = None, missed: Missed = "merge", backlog: int = BACKLOG
) -> Rule:
    """
    The rule of an entry.

    Args:
        every: seconds, also as text, a timedelta, "90s", "15m" or "1h 30m"; or the five fields of cron, or "@daily".
        offset: seconds by which an interval is shifted.
        tz: the time zone of cron's fields, UTC by default.
        missed: what becomes of runs that nobody could fire in time.
        backlog: how many of these are made up for with missed="all".

    Raises:
        SettingsError: names what can't be, and what may be.
    """
    if missed not in MISSED:
        raise SettingsError(f'missed is {short(missed)}, it must be "merge", "all" or "skip"')
    if isinstance(backlog, bool) or not isinstance(backlog, int) or not 1 <= backlog <= MOST_BACKLOG:
        raise SettingsError(f"backlog is {short(backlog)}, it must be from 1 to {MOST_BACKLOG:,} runs")
    seconds = interval(every)
    if seconds is None:
        return _of_cron(str(every), offset, tz or "UTC", missed, backlog)
    if tz is not None:
        raise SettingsError(
            f"every {short(every)} is an interval, which no time zone shifts: leave tz out, or use cron"
        )
    if not SHORTEST <= seconds <= LONGEST:
        raise SettingsError(f"every is {short(every)}, it must be from {SHORTEST} to {LONGEST:,.0f} seconds")
    if isinstance(offset, bool) or not isinstance(offset, int | float) or not 0 <= offset < seconds:
        raise SettingsError(
            f"offset is {short(offset)}, it must be less than the {seconds:g} seconds of every, and not negative"
        )
    return Rule(seconds, float(offset), "UTC", missed, backlog)


def _of_cron(text: str, offset: float, tz: str, missed: Missed, backlog: int) -> Rule:
    if offset:
        raise SettingsError(f"offset={short(offset)} is for intervals: put the minute into the fields {short(text)}")
    if len(text) > MOST_CHARS:
        raise SettingsError(f"every has {len(text):,} characters, it may have {MOST_CHARS:,}")
    fields = _NAMED.get(text.strip(), text.strip())
    _zone(tz)
    try:
        cron = _cron()
    except SettingsError as error:
        if len(fields.split()) not in FIELDS:
            raise SettingsError(f"every is {short(text)}, {_NEITHER}") from None
        raise SettingsError(f"every is {short(text)}: {error}") from None
    try:
        next(cron.CronSim(fields, datetime.datetime.now(datetime.UTC)))
    except cron.CronSimError as error:
        raise SettingsError(f"every is {short(text)}, {_NEITHER}: {error}") from None
    except StopIteration:
        raise SettingsError(f"every is {short(text)}, a time that never comes") from None
    return Rule(fields, 0.0, tz, missed, backlog)


def interval(every: Any) -> float | None:
    """The seconds of an interval; None if it is none."""
    if isinstance(every, datetime.timedelta):
        return every.total_seconds()
    if isinstance(every, str):
        if _NUMBER.fullmatch(every.strip()):
            return float(every)
        if not _INTERVAL.fullmatch(every.strip()):
            return None
        return sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(every))
    if isinstance(every, bool) or not isinstance(every, int | float) or not math.isfinite(every):
        raise SettingsError(f'every is {short(every)}, it must be seconds, a timedelta, "15m", or fields of cron')
    return float(every)


def _zone(name: Any) -> zoneinfo.ZoneInfo:
    with contextlib.suppress(OSError, ValueError, TypeError, zoneinfo.ZoneInfoNotFoundError):
        return zoneinfo.ZoneInfo(name)
    known = zoneinfo.available_timezones()
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else "it must be one of IANA's, such as Europe/Berlin"
    if not known:
        hint = 'none is known here: pip install "lowkiq[cron]" brings them'
    raise SettingsError(f"tz is {short(name)}, which is no time zone here: {hint}")


def _cron() -> Any:
    try:
        return importlib.import_module("cronsim")
    except ImportError:
        raise SettingsError('fields of cron need a package: pip install "lowkiq[cron]"; intervals need none') from None


def _seconds_text(seconds: float) -> str:
    for unit, size in reversed(_UNITS.items()):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
