"""
Fewer runs: debounce, throttle and keep, as a worker or a job has them, and their word for the push script. It tells
what becomes of equal payloads, too.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_args

from lowkiq.checks import OneOf
from lowkiq.errors import LONGEST_DELAY, SettingsError, short

#: Payloads of an id that are kept while it is queued: all, or only that with the highest or the lowest score.
Keep: TypeAlias = Literal["all", "last", "first"]
KEEPS: Final = OneOf(get_args(Keep))
#: The place of an equal payload that is pushed again while its id is queued: its latest, or its first (the original's).
Equal: TypeAlias = Literal["last", "first"]
EQUALS: Final = get_args(Equal)
#: Keys of a job for the same.
FEWER_KEYS: Final = frozenset({"debounce", "throttle", "keep"})
#: Keys of a job that say when it is due, of which it has one.
TIMES: Final = ("at", "delay", "perform_in")
#: The shortest time that is waited for, in seconds.
SHORTEST: Final = 0.001


@dataclass(frozen=True)
class Debounce:
    """
    Waits until nothing has been pushed to an id for `wait` seconds, but `at_most` so long after the first push.

    Raises:
        SettingsError: one of them is no such number.
    """

    wait: float
    at_most: float

    def __post_init__(self) -> None:
        for name in ("wait", "at_most"):
            _check_seconds(f"Debounce: {name}", getattr(self, name))
        if self.at_most < self.wait:
            raise SettingsError(f"Debounce: at_most is {self.at_most}, it must not be less than wait, {self.wait}")


@dataclass(frozen=True)
class Fewer:
    """The options of a worker, for its jobs that do not say otherwise."""

    debounce: Debounce | None = None
    throttle: float | None = None
    keep: Keep = "all"
    equal: Equal = "last"

    def __bool__(self) -> bool:
        return (self.debounce, self.throttle, self.keep, self.equal) != (None, None, "all", "last")

    def word_of(self, job: Mapping[str, Any]) -> str:
        """
        The word of a job for fewer.lua; "" for none. A job with a time of its own is not debounced.

        Raises:
            ValueError: the job asks for what can't be.
        """
        time = next((key for key in TIMES if key in job), None)
        if FEWER_KEYS.isdisjoint(job):
            return self._timed if time else self._usual
        debounce = job.get("debounce", None if time else self.debounce)
        throttle, keep = job.get("throttle", self.throttle), job.get("keep", self.keep)
        if debounce is not None:
            check_debounce("debounce", debounce)
        if throttle is not None:
            check_throttle("throttle", throttle)
        KEEPS("keep", keep)
        if time and debounce is not None:
            raise ValueError(f"debounce and {time} both say when it is due: give one of them")
        return _word(
            debounce,
            f"{throttle:.6f}" if throttle is not None else "0" if "throttle" in job else "",
            self._kept(keep) or ("all" if "keep" in job else ""),
        )

    @cached_property
    def _usual(self) -> str:
        return self._of_worker(self.debounce)

    @cached_property
    def _timed(self) -> str:
        return self._of_worker(None)

    def _of_worker(self, debounce: Debounce | None) -> str:
        throttle = "" if self.throttle is None else f"{self.throttle:.6f}"
        return _word(debounce, throttle, self._kept(self.keep))

    def _kept(self, keep: Keep) -> str:
        """The rule of a job that keeps these; "" for the usual one."""
        if keep == "all":
            return "lowest" if self.equal == "first" else ""
        return keep


def _word(debounce: Debounce | None, throttle: str, keep: str) -> str:
    times = ("", "") if debounce is None else (f"{debounce.wait:.6f}", f"{debounce.at_most:.6f}")
    words = (*times, throttle, keep)
    return ":".join(words) if any(words) else ""


#: Options of most workers.
NONE: Final = Fewer()


def check_debounce(label: str, debounce: Any) -> None:
    """Raises SettingsError, with the label in front, for what can't be when an id is due."""
    if not isinstance(debounce, Debounce):
        is_number = isinstance(debounce, int | float) and not isinstance(debounce, bool)
        hint = f", such as Debounce({debounce}, at_most={debounce * 10})" if is_number else ""
        raise SettingsError(f"{label} is {short(debounce)}, it must be Debounce(wait, at_most=…){hint}, or None")


def check_throttle(label: str, throttle: Any) -> None:
    """The same for what can't be between two starts."""
    _check_seconds(label, throttle, ", or None")


def check_equal(label: str, value: Any) -> None:
    """Raises SettingsError, with the label in front, for what can't become of equal payloads."""
    if not isinstance(value, str) or value not in EQUALS:
        close = difflib.get_close_matches(str(value), EQUALS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise SettingsError(
            f'{label} is {short(value)}, it must be "last": an equal payload that is pushed again is the last word; or '
            f'"first", as the original has it: it stays where it was{hint}'
        )


def _check_seconds(label: str, value: Any, alternative: str = "") -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (is_number and SHORTEST <= value <= LONGEST_DELAY):
        raise SettingsError(
            f"{label} is {short(value)}, it must be a number of seconds from {SHORTEST} to {LONGEST_DELAY:,.0f}"
            f"{alternative}"
        )
