"""Rate: how many jobs of a queue, or of each key of it, may start within a time, over all nodes."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lowkiq.errors import SettingsError, short

#: Jobs of a rate, and seconds: a year.
MOST_JOBS: Final = 1_000_000
SHORTEST: Final = 0.1
LONGEST: Final = 366 * 86_400

# The arithmetic of it. Starts are spaced by s = per / limit · (1 + SPARE), as nominal times (GCRA). A job starts at most
# `tolerance` before its nominal time, since one that comes early need not come twice, and the burst after a late one is as
# short; and at most `fresh` after it, since a node asks again before it starts what it was granted earlier. So of n starts
# within a time t the first and the last are (n − 1)·s apart nominally, and (n − 1)·s ≤ t + tolerance + fresh. That no
# window of `per` has more than `most`, n = most + 1 must be impossible for t < per:
#
#     most · s ≥ per + tolerance + fresh,   so   tolerance + fresh ≤ per · ((1 + SPARE) · most / limit − 1)
#
# `most` is what the promise allows, floor(limit · 1.01): below a limit of 100 the limit itself, so there they share
# SPARE · per, 12.5 ms of a second; from 100 on it is 17.6 to 22.6 ms. A tenth of that is kept for what no check sees: the
# way from the last one into the handler.
#
# Places in the line are PLANNED apart, a little more than s, so that the line catches up after a start that was late: of
# the rate 1 / (1 + PLANNED) = 98.5 % is used while jobs wait, half a percent of it in hand for late starts.
SPARE: Final = 0.0125
PLANNED: Final = 0.015
#: What any window may have, of the limit.
MOST: Final = 1.01
#: Shares of what the arithmetic leaves.
EARLY, LATE = 0.55, 0.35

Key: TypeAlias = str | int
_SET: Final = re.compile(r"([0-9]{1,7})(?:/([0-9]{1,8}(?:\.[0-9]{1,6})?))?")


@dataclass(frozen=True)
class Rate:
    """
    At most so many jobs start in any `per` seconds, evenly spread, over all nodes.

    Args:
        limit: jobs. One is an id, with the payloads that it is handed over with.
        per: seconds.
        by: the key of a job, by its id and its lowest payload: each key has the rate for itself. None: the queue has it.
    """

    limit: int
    per: float = 1.0
    by: Callable[[Any, Any], Key] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or not 1 <= self.limit <= MOST_JOBS:
            raise SettingsError(f"Rate: limit is {short(self.limit)}, it must be an integer from 1 to {MOST_JOBS:,}")
        is_number = isinstance(self.per, int | float) and not isinstance(self.per, bool)
        if not (is_number and SHORTEST <= self.per <= LONGEST):
            raise SettingsError(
                f"Rate: per is {short(self.per)}, it must be a number of seconds from {SHORTEST} to {LONGEST:,}"
            )
        _check_by(self.by)

    @property
    def text(self) -> str:
        """As people set it: 100/60."""
        return f"{self.limit}/{self.per:g}"

    @property
    def spacing(self) -> float:
        """Seconds between two starts."""
        return self.per / self.limit * (1 + SPARE)

    @property
    def place(self) -> float:
        """Seconds between two places in the line."""
        return self.per / self.limit * (1 + PLANNED)

    @property
    def tolerance(self) -> float:
        """Seconds by which a job may start before its nominal time."""
        return self._slack * EARLY

    @property
    def fresh(self) -> float:
        """Seconds for which a job that may start now may do so."""
        return self._slack * LATE

    @property
    def most(self) -> int:
        """Starts that any window of `per` may have."""
        return math.floor(self.limit * MOST + 1e-9)

    @property
    def _slack(self) -> float:
        return self.per * ((1 + SPARE) * self.most / self.limit - 1)


def parse_rate(label: str, text: object) -> Rate:
    """The rate that people have set live, as in 100/60. Raises SettingsError for what is none."""
    match = _SET.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise SettingsError(f"{label}: rate is {short(text)}, it must be JOBS/SECONDS, such as 100/60, or none")
    try:
        return Rate(int(match[1]), float(match[2] or 1))
    except SettingsError as error:
        raise SettingsError(f"{label}: {error}") from None


def _check_by(by: object) -> None:
    may_be = 'it must be a function of an id and its lowest payload, such as `lambda id, payload: payload["tenant"]`'
    if by is None:
        return
    if not callable(by) or inspect.iscoroutinefunction(by):
        raise SettingsError(f"Rate: by is {short(by)}: {may_be}")
    try:
        inspect.signature(by).bind(None, None)
    except TypeError as error:
        raise SettingsError(f"Rate: by can't be called with an id and a payload ({error}): {may_be}") from error
    except ValueError:  # of what is written in C
        return
