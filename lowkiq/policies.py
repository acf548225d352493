"""Policies: when a failed job is tried again, and how often, as its worker's `retry` says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

from lowkiq.errors import LONGEST_DELAY, Bury, Decision, Discard, SettingsError, short

#: Retries of a job, at most.
MOST_RETRIES: Final = 1_000_000


@dataclass(frozen=True)
class Policy:
    """
    When a job is tried again.

    Args:
        limit: retries at most; None: `max_retry_count`.
    """

    limit: int | None = field(default=None, kw_only=True)

    #: From what to what each number may be.
    _RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __post_init__(self) -> None:
        for name, (low, high) in self._RANGES.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (is_number and low <= value <= high):
                raise SettingsError(
                    f"{type(self).__name__}: {name} is {short(value)}, it must be a number from {low:,} to {high:,.0f}"
                )
        is_count = isinstance(self.limit, int) and not isinstance(self.limit, bool) and 0 <= self.limit <= MOST_RETRIES
        if self.limit is not None and not is_count:
            raise SettingsError(
                f"{type(self).__name__}: limit is {short(self.limit)}, it must be an integer from 0 to "
                f"{MOST_RETRIES:,}, or None"
            )

    def delay(self, retry_count: int) -> float:
        """Seconds until the next try; `retry_count` is 0 after the first failure."""
        try:
            return min(self._seconds(retry_count), LONGEST_DELAY)
        except OverflowError:
            return LONGEST_DELAY

    def _seconds(self, retry_count: int) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class Exponential(Policy):
    """
    Tries again after base · factorⁿ seconds, n being 0 after the first failure: with the defaults after 15, 30, 60 …

    Args:
        base: seconds until the first retry.
        at_most: seconds between two tries, however many there were.
    """

    base: float = 15
    factor: float = 2
    at_most: float = 86_400
    _RANGES: ClassVar = {"base": (0, LONGEST_DELAY), "factor": (1, 100), "at_most": (0, LONGEST_DELAY)}

    def delay(self, retry_count: int) -> float:
        return min(super().delay(retry_count), float(self.at_most))

    def _seconds(self, retry_count: int) -> float:
        return self.base and self.base * math.pow(self.factor, retry_count)


@dataclass(frozen=True)
class Polynomial(Policy):
    """
    Tries again after base + nᵖᵒʷᵉʳ seconds, n being 0 after the first failure, as `retry_in` does with 15 and 4, and
    some jitter.
    """

    base: float = 30
    power: float = 5
    _RANGES: ClassVar = {"base": (0, LONGEST_DELAY), "power": (0, 100)}

    def _seconds(self, retry_count: int) -> float:
        return self.base + math.pow(retry_count, self.power)


@dataclass(frozen=True)
class Fixed(Policy):
    """Tries again after so many seconds each time."""

    seconds: float
    _RANGES: ClassVar = {"seconds": (0, LONGEST_DELAY)}

    def _seconds(self, _: int) -> float:
        return float(self.seconds)


#: What becomes of jobs that fail with an error of a class.
Rule: TypeAlias = Policy | Bury | Discard | type[Bury] | type[Discard]
#: A worker's `retry`; None: its `retry_in`.
Retry: TypeAlias = Policy | Mapping[type[BaseException], Rule] | None

_POLICIES: Final = "Exponential(…), Polynomial(…), Fixed(…)"
_RULES: Final = f"{_POLICIES}, Bury or Discard"


def rule_for(retry: Retry, error: BaseException | str) -> Policy | Bury | Discard | None:
    """The rule for an error: of a mapping, that of its nearest class. None: it has none."""
    if not isinstance(retry, Mapping):
        return retry
    # An error that is but a text, as PartialFailure may have it, is of no class.
    found = next((retry[kind] for kind in type(error).__mro__ if kind in retry), None)
    return found() if isinstance(found, type) else found


def without_limits(retry: Retry) -> Retry:
    """A worker's `retry` where people have set max_retry_count live: that is the limit of all of its policies."""
    if isinstance(retry, Mapping):
        return {kind: replace(rule, limit=None) if isinstance(rule, Policy) else rule for kind, rule in retry.items()}
    return replace(retry, limit=None) if retry else None


def most_retries(retry: Retry, max_retry_count: int) -> int | None:
    """How often a failing job is tried again; None if that depends on its error."""
    if isinstance(retry, Mapping):
        limits = {_limit(rule, max_retry_count) for rule in retry.values()} | {max_retry_count}
        return max_retry_count if len(limits) == 1 else None
    return _limit(retry, max_retry_count)


def fewest_retries(retry: Retry, max_retry_count: int) -> int:
    """After how many retries, at the earliest, a job may be given up."""
    rules = retry.values() if isinstance(retry, Mapping) else [retry]
    return min([max_retry_count, *(_limit(rule, max_retry_count) for rule in rules)])


def _limit(rule: Rule | None, max_retry_count: int) -> int:
    if not isinstance(rule, Policy):
        return max_retry_count if rule is None else 0
    return max_retry_count if rule.limit is None else rule.limit


def check_retry(label: str, retry: Any) -> None:
    """Raises SettingsError for what can't be a worker's `retry`."""
    if retry is None:
        return
    if isinstance(retry, Mapping):
        for kind, rule in retry.items():
            _check_rule(label, kind, rule)
    elif not isinstance(retry, Policy):
        raise SettingsError(
            f"{label} is {short(retry)}, it must be {_POLICIES}, or a mapping from classes of exceptions to {_RULES}"
        )


def _check_rule(label: str, kind: Any, rule: Any) -> None:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)) or issubclass(kind, Decision):
        raise SettingsError(
            f"{label} has the key {short(kind)}, it must be a class of exceptions, such as TimeoutError"
        )
    is_decision = rule in (Bury, Discard) or isinstance(rule, Bury | Discard)
    if not is_decision and not isinstance(rule, Policy):
        hint = f": say {rule.__name__}(…)" if isinstance(rule, type) and issubclass(rule, Policy) else ""
        raise SettingsError(f"{label} has {short(rule)} for {kind.__name__}, it must be {_RULES}{hint}")
