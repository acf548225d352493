"""Clock: Redis's clock as a fake has it. It never goes back, and goes ahead when a test says so."""

from __future__ import annotations

import datetime
import re
from typing import Final, TypeAlias

from lowkiq import clock
from lowkiq.errors import short
from lowkiq.job import FIRST_TIME
from lowkiq.testing.model.shard_state import SECOND

#: A moment: "+1h30m" from now on, a timedelta from now on, a datetime with a time zone, or a Unix time.
Moment: TypeAlias = str | float | datetime.datetime | datetime.timedelta

#: A Unix time from this on, which is 30,000 years ahead, is in milliseconds, if it is any.
_NO_TIME: Final = 1e12
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_MAY_BE: Final = (
    'it may be a time from now on, such as "+90s" or "+1h30m", a timedelta, a datetime with a time zone, or a Unix time'
)


class Clock:
    """
    Microseconds, all of them whole.

    Args:
        at: the time at which it stands still. None: it begins at this machine's, and follows that as jobs are pushed,
            so that what is due an hour after `time.time()` is due within the hour.
    """

    def __init__(self, at: float | datetime.datetime | None = None) -> None:
        self._follows = at is None
        self.now = _machine_time() if at is None else _moment(at, 0)

    def tick(self) -> int:
        """Goes on a little: of two jobs the one that is pushed later is due later."""
        self.now = max(self.now + 1, _machine_time() if self._follows else 0)
        return self.now

    def move_to(self, moment: int) -> None:
        """Goes ahead to a moment; one that is over changes nothing."""
        self.now = max(self.now, moment)

    def moment(self, told: Moment | None) -> int:
        """
        The moment that is told; None for now.

        Raises:
            ValueError: it is none, or is over.
        """
        if told is None:
            return self.now
        found = _moment(told, self.now)
        if found < self.now:
            raise ValueError(f"until is {short(told)}, which is over: it is {self.now / SECOND:.6f} (jobs.now)")
        return found


def _machine_time() -> int:
    return round(clock.real() * SECOND)


def _moment(told: Moment, now: int) -> int:
    if isinstance(told, datetime.timedelta):
        return now + round(told.total_seconds() * SECOND)
    if isinstance(told, datetime.datetime):
        if told.utcoffset() is None:
            raise ValueError(f"{told} has no time zone: {_MAY_BE}")
        return round(told.timestamp() * SECOND)
    if isinstance(told, str):
        return now + round(_seconds(told) * SECOND)
    if isinstance(told, bool) or not isinstance(told, int | float) or not FIRST_TIME <= told < _NO_TIME:
        raise ValueError(f"{short(told)} is no moment: {_MAY_BE}")
    return round(told * SECOND)


def _seconds(told: str) -> float:
    parts = _PART.findall(told)
    if not parts or "+" + "".join(number + unit for number, unit in parts) != told:
        raise ValueError(f"{short(told)} is no moment: {_MAY_BE}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
