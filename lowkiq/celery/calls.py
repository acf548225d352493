"""
Calls: the arguments of a task as a payload, and its id; and the call that a payload stands for;
when, and how often, it is tried again, by Celery's rules.
"""

from __future__ import annotations

import datetime
import inspect
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn
from uuid import uuid4

from lowkiq.celery.refusals import MaxRetriesExceededError
from lowkiq.codec import error_text
from lowkiq.errors import InvalidJob, RetryIn, SettingsError, short
from lowkiq.job import NewJob
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


#: Key of a payload that tells calls with equal arguments apart. No parameter is called so.
TOKEN: Final = "__call__"  # noqa: S105 (it is no secret)
Key = str | Callable[..., Any]


class Call(NamedTuple):
    """The call that a payload stands for."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    token: str | None


class Calls:
    """
    The calls of one function. A payload is the arguments by their names, however they were given: so equal calls merge,
    and a worker of Lowkiq that takes over the queue one day can read it.

    Args:
        skipped: parameters at the front that nobody gives (self).
    """

    def __init__(self, name: str, function: Callable[..., Any], key: Key, *, skipped: int, merge: bool) -> None:
        self._name = name
        self._key = key
        self._merge = merge
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[skipped:]
        self._signature = signature.replace(parameters=parameters)
        #: Its parameter for other keywords.
        self._more = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), None)
        if isinstance(key, str) and key not in self._signature.parameters:
            named = ", ".join(self._signature.parameters) or "none"
            raise SettingsError(f"task {name}: key={key!r} is none of its arguments ({named}), nor a function of them")

    def job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """
        The job that a call becomes.

        Raises:
            TypeError: the function can't be called so.
            InvalidJob: the call has no id.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self._name}: {error}") from None
        payload = dict(bound.arguments)
        if not self._merge:
            payload[TOKEN] = uuid4().hex
        return {"id": self._id(bound), "payload": payload}

    def call(self, payload: Any) -> Call:
        """The call of a payload. Raises TypeError for what is none of this function."""
        if not isinstance(payload, dict):
            raise TypeError(f"task {self._name} can't be called with {short(payload)}: it takes its arguments by name")
        arguments = dict(payload)
        token = arguments.pop(TOKEN, None)
        if strange := arguments.keys() - self._signature.parameters.keys():
            raise TypeError(f"task {self._name} takes no argument {', '.join(sorted(strange))}")
        # In the order of the parameters: Redis has them by their names, and that of its dict may be another.
        ordered = {name: arguments[name] for name in self._signature.parameters if name in arguments}
        bound = inspect.BoundArguments(self._signature, ordered)
        # Checked once more: an argument may be missing, and what follows a gap is then given by its name.
        self._signature.bind(*bound.args, **bound.kwargs)
        return Call(bound.args, bound.kwargs, token)

    def _id(self, bound: inspect.BoundArguments) -> Any:
        named = inspect.BoundArguments(self._signature, dict(bound.arguments))  # defaults are not pushed
        named.apply_defaults()
        if isinstance(self._key, str):
            id = named.arguments[self._key]
        else:
            arguments = dict(named.arguments)
            more = arguments.pop(self._more, {}) if self._more else {}
            try:
                id = self._key(**arguments, **more)
            except Exception as error:
                raise InvalidJob(f"task {self._name}: key= failed: {error_text(error)}") from error
        id = usual(id)
        if isinstance(id, bool) or not isinstance(id, str | int):
            raise InvalidJob(
                f"task {self._name}: key={short(self._key)} gave {short(id)} ({type(id).__name__}): it must give a "
                "string or an integer, as `key=lambda order_id, **_: str(order_id)` does"
            )
        return id
