"""Policies: when a failed job is tried again, and how often, as its worker's `retry` says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lowkiq.errors import LONGEST_DELAY, Bury, Decision, Discard, SettingsError, short

#: Retries of a job, at most.
MOST_RETRIES: Final = 1_000_000


@dataclass(frozen=True)
class Exponential:
    """
    Tries again after base + nᵖᵒʷᵉʳ seconds, n being 0 after the first failure, as in `retry_in`.

    Args:
        limit: retries at most; None: `max_retry_count`.
    """

    base: float = 30
    power: float = 5
    limit: int | None = None

    def __post_init__(self) -> None:
        _check(self, "base", 0, LONGEST_DELAY)
        _check(self, "power", 0, 100)
        _check_limit(self, "limit", self.limit)

    def delay(self, retry_count: int) -> float:
        """Seconds until the next try."""
        try:
            return min(self.base + math.pow(retry_count, self.power), LONGEST_DELAY)
        except OverflowError:
            return LONGEST_DELAY


@dataclass(frozen=True)
class Every:
    """
    Tries again after so many seconds each time.

    Args:
        times: retries at most; None: `max_retry_count`.
    """

    seconds: float
    times: int | None = None

    def __post_init__(self) -> None:
        _check(self, "seconds", 0, LONGEST_DELAY)
        _check_limit(self, "times", self.times)

    @property
    def limit(self) -> int | None:
        """Retries at most."""
        return self.times

    def delay(self, _: int) -> float:
        """Seconds until the next try."""
        return float(self.seconds)


Policy: TypeAlias = Exponential | Every
#: What becomes of jobs that fail with an error of a class.
Rule: TypeAlias = Policy | Bury | Discard | type[Bury] | type[Discard]
#: A worker's `retry`; None: its `retry_in`.
Retry: TypeAlias = Policy | Mapping[type[BaseException], Rule] | None

_RULES = "Exponential(…), Every(…), Bury or Discard"


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
        return {kind: _unlimited(rule) if isinstance(rule, Policy) else rule for kind, rule in retry.items()}
    return _unlimited(retry) if retry else None


def _unlimited(policy: Policy) -> Policy:
    return replace(policy, limit=None) if isinstance(policy, Exponential) else replace(policy, times=None)


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
    if not isinstance(rule, Exponential | Every):
        return max_retry_count if rule is None else 0
    return max_retry_count if rule.limit is None else rule.limit


def check_retry(label: str, retry: Any) -> None:
    """Raises SettingsError for what can't be a worker's `retry`."""
    if retry is None:
        return
    if isinstance(retry, Mapping):
        for kind, rule in retry.items():
            _check_rule(label, kind, rule)
    elif not isinstance(retry, Exponential | Every):
        raise SettingsError(
            f"{label} is {short(retry)}, it must be Exponential(…), Every(…), or a mapping from classes of "
            f"exceptions to {_RULES}"
        )


def _check_rule(label: str, kind: Any, rule: Any) -> None:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)) or issubclass(kind, Decision):
        raise SettingsError(
            f"{label} has the key {short(kind)}, it must be a class of exceptions, such as TimeoutError"
        )
    is_decision = rule in (Bury, Discard) or isinstance(rule, Bury | Discard)
    if not is_decision and not isinstance(rule, Exponential | Every):
        hint = f": say {rule.__name__}(…)" if rule in (Exponential, Every) else ""
        raise SettingsError(f"{label} has {short(rule)} for {kind.__name__}, it must be {_RULES}{hint}")


def _check(policy: Policy, name: str, low: float, high: float) -> None:
    value = getattr(policy, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (is_number and low <= value <= high):
        kind = type(policy).__name__
        raise SettingsError(f"{kind}: {name} is {short(value)}, it must be a number from {low:,} to {high:,.0f}")


def _check_limit(policy: Policy, name: str, value: Any) -> None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RETRIES
    if value is not None and not is_count:
        kind = type(policy).__name__
        raise SettingsError(
            f"{kind}: {name} is {short(value)}, it must be an integer from 0 to {MOST_RETRIES:,}, or None"
        )
