"""Rate: how many jobs of a queue, or of each key of it, may start within a time, over all nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lowkiq.checks import FunctionOf
from lowkiq.codec import error_text
from lowkiq.errors import LowkiqError, SettingsError, checked_key, short

#: Jobs of a rate, and seconds: a year.
MOST_JOBS: Final = 1_000_000
SHORTEST: Final = 0.1
LONGEST: Final = 366 * 86_400

# The arithmetic of it. Redis knows when it has let jobs start, and lets another one once `window` has passed since the
# one that is `most` before it. A job starts at most `fresh` after that, as its node asks again for what was granted
# earlier. So of most + 1 starts the first and the last are at least window - fresh apart; fresh is below window - per:
# no `per` seconds, whenever they begin, have more than `most`. The window is per · (1 + SPARE), and fresh nine tenths
# of the spare, 7 ms of a second: the last tenth is for what no check sees, the way from it into the handler. A node
# whose answers come later than that says by how much it may be late beside: its starts are known by when they may
# have come at the latest, and from there the windows are counted.
#
# Of a limit from 200 on, only each `group`-th start is known by its time, a hundred to two hundred in all; what that
# says of the others errs by up to group - 1 of them, on the late side. Those are added to the limit: most = limit +
# group - 1, at most 1.01 · limit, and at least the limit is had in each window.
#
# Places in the line are PLANNED apart: of the rate 1 / (1 + PLANNED) = 98.5 % is used while jobs wait. That is less
# than a window allows, by 7 ms of a second. So late nodes make up at once for places that they have missed; a window
# later those who come in time may have to wait for a moment, as long as those were late less the 7 ms, in their node's
# hand.
SPARE: Final = 0.008
PLANNED: Final = 0.015
FRESH: Final = 0.9
#: Starts that are known by their time, at least, of a limit that has so many.
KNOWN: Final = 100
#: A job may start so much before its place, as a share of `per`, and in seconds: else it would come once more.
EARLY: Final = (0.01, 0.002)

Key: TypeAlias = str | int
_OF_LOWEST: Final = FunctionOf("an id and its lowest payload", 'lambda id, payload: payload["tenant"]')
_SET: Final = re.compile(r"([0-9]{1,7})(?:/([0-9]{1,8}(?:\.[0-9]{1,6})?))?")


@dataclass(frozen=True)
class Rate:
    """
    At most so many jobs start in any `per` seconds, evenly spread, over all nodes.

    Args:
        limit: jobs. One is an id, with the payloads that it is handed over with.
        per: seconds.
        by: gives a job's key, by its id and its lowest payload: each key has the rate for itself. None: the queue has.
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
        if self.by is not None:
            _OF_LOWEST("Rate: by", self.by)

    def __str__(self) -> str:
        """As people set it, 100/60; one by key is told so."""
        return f"{self.limit}/{self.per:.12g}" + (",by-key" if self.by else "")

    def key_of(self, id: str, payload: Any, load_id: Callable[[str], Any] | None) -> str:
        """The key of a job; "": the queue has the rate. Raises LowkiqError where `by` fails, or gives what is none."""
        try:
            key = self.by(load_id(id) if load_id else id, payload) if self.by else ""
        except Exception as error:
            raise LowkiqError(f"the rate's `by` failed: {error_text(error)[:200]}") from error
        try:
            return checked_key(key)
        except ValueError as error:
            raise LowkiqError(f"the rate's `by` gave what can be no key: {error}") from None

    @property
    def window(self) -> float:
        """Seconds in which at most `most` jobs are let start."""
        return self.per * (1 + SPARE)

    @property
    def fresh(self) -> float:
        """Seconds for which a job that may start now may do so."""
        return self.per * SPARE * FRESH

    @property
    def group(self) -> int:
        """Starts that are known by one time."""
        return max(self.limit // KNOWN, 1)

    @property
    def most(self) -> int:
        """Starts that a window may have."""
        return self.limit + self.group - 1

    @property
    def place(self) -> float:
        """Seconds between two places in the line."""
        return self.per / self.limit * (1 + PLANNED)

    @property
    def early(self) -> float:
        """Seconds by which a job may start before its place."""
        share, most = EARLY
        return min(self.per * share, most)


def parse_rate(label: str, text: object) -> Rate:
    """The rate that people have set live, as in 100/60. Raises SettingsError for what is none."""
    match = _SET.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise SettingsError(f"{label}: rate is {short(text)}, it must be JOBS/SECONDS, such as 100/60, or none")
    try:
        return Rate(int(match[1]), float(match[2] or 1))
    except SettingsError as error:
        raise SettingsError(f"{label}: {error}") from None
