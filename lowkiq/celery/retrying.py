"""Retrying: when, and how often, a call of a task is tried again, by Celery's rules."""

from __future__ import annotations

import datetime
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from lowkiq.celery.refusals import MaxRetriesExceededError
from lowkiq.errors import RetryIn, SettingsError, short
from lowkiq.usual import is_nan, usual

Errors = tuple[type[BaseException], ...]


@dataclass(frozen=True)
class Rules:
    """The options of a task that say how it is retried, with Celery's names and defaults."""

    #: None: for ever.
    max_retries: int | None = 3
    #: Seconds.
    default_retry_delay: float = 180
    autoretry_for: Collection[type[BaseException]] = ()
    dont_autoretry_for: Collection[type[BaseException]] = ()
    #: countdown and max_retries of what is retried by itself.
    retry_kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: True, or a factor: waits 1, 2, 4 … seconds, times the factor.
    retry_backoff: bool | float = False
    retry_backoff_max: float = 600
    #: Waits a random part of that.
    retry_jitter: bool = True

    def __post_init__(self) -> None:
        for name in ("autoretry_for", "dont_autoretry_for"):
            for kind in getattr(self, name):
                if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                    raise SettingsError(f"{name} has {short(kind)}, it must be a tuple of classes of exceptions")
        if unknown := self.retry_kwargs.keys() - {"countdown", "max_retries"}:
            raise SettingsError(f"retry_kwargs has {', '.join(sorted(unknown))}: it may have countdown and max_retries")
        if self.max_retries is not None and (not isinstance(self.max_retries, int) or self.max_retries < 0):
            raise SettingsError(f"max_retries is {short(self.max_retries)}, it must be an integer from 0, or None")

    def retries_by_itself(self, error: BaseException) -> bool:
        """True for an error that `autoretry_for` names."""
        return isinstance(error, tuple(self.autoretry_for)) and not isinstance(error, tuple(self.dont_autoretry_for))

    def again_by_itself(self, retries: int, error: BaseException) -> NoReturn:
        """Raises what has a call that failed tried again by itself, after so many retries."""
        countdown = self.retry_kwargs.get("countdown")
        if self.retry_backoff:
            countdown = self._backoff(retries)
        self.again(retries, error, countdown, None, self.retry_kwargs.get("max_retries"))

    def again(
        self,
        retries: int,
        error: BaseException | None,
        countdown: float | None,
        eta: datetime.datetime | None,
        max_retries: int | None,
    ) -> NoReturn:
        """Raises what has a call tried again; the error, or MaxRetriesExceededError, after its last try."""
        limit = self.max_retries if max_retries is None else max_retries
        if limit is not None and retries >= limit:
            raise error or MaxRetriesExceededError(f"it has had its {limit} retries")
        raise RetryIn(max(0.0, self._seconds(countdown, eta))) from error

    def _seconds(self, countdown: float | None, eta: datetime.datetime | None) -> float:
        if eta is None:
            return float(self.default_retry_delay if countdown is None else countdown)
        eta = usual(eta)
        if is_nan(eta) or eta.utcoffset() is None:
            raise ValueError(f"eta {eta} has no time zone: give it one, or say countdown=seconds")
        return (eta - datetime.datetime.now(datetime.UTC)).total_seconds()

    def _backoff(self, retries: int) -> float:
        seconds = min(self.retry_backoff_max, max(1.0, float(self.retry_backoff)) * 2 ** min(retries, 60))
        return random.uniform(0, seconds) if self.retry_jitter else seconds  # noqa: S311 (spreads load, guards nothing)
