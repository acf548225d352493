"""The exception tree. A message says what is wrong, with the value, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

#: Seconds until a job is tried again, at most: a hundred years, so that times stay such that everybody can read them.
LONGEST_DELAY = 3.2e9

TYPE_CHECKING = False  # as in __init__.py
if TYPE_CHECKING:
    from typing import Any


class LowkiqError(Exception):
    """Everything that Lowkiq raises."""


class SettingsError(LowkiqError, ValueError):
    """A setting or a worker's option that can't be used."""


class UsageError(SettingsError):
    """An option or a variable of this process that can't be used, be the application's code right or not."""


class AppNotFound(LowkiqError):
    """There is no application under the name given."""


class InvalidJob(LowkiqError, ValueError):
    """A job that `perform_async` refuses. Nothing of its call was written."""


class PushFailed(LowkiqError):
    """
    Redis took only a part of a push, or none. Its text says what is known of the others: that they were not sent, that
    Redis refused them, or nothing, as no answer came. Pushing all of it again is safe: equal payloads merge.
    """

    def __init__(self, message: str, *, new: int = 0, merged: int = 0) -> None:
        super().__init__(message)
        #: What is known to have been accepted before the failure.
        self.new, self.merged = new, merged


class OtherLayout(LowkiqError):
    """Redis keeps a queue otherwise than this process would; nothing was changed."""


class ShardsCountMismatch(OtherLayout):
    """A queue was opened with another number of shards than it has; nothing was changed (I8)."""


class NewerLayout(OtherLayout):
    """A newer Lowkiq keeps the queue otherwise than this one can; nothing was changed."""


class Moved(OtherLayout):
    """The shard was moved by a reshard, to that layout; nothing was changed. Callers go there by themselves."""


class Late(LowkiqError):
    """A call that is repeated by Lowkiq itself has come later than it may; nothing was changed."""


class CheckpointFailed(LowkiqError):
    """A checkpoint was not kept, as far as is known: Redis is away, or the job runs elsewhere by now."""


class PerformTimeout(LowkiqError):
    """A batch was stopped because it took longer than its worker's `perform_timeout`."""


class ProcessDied(LowkiqError):
    """The process that a batch ran in (isolation="process") has ended in the middle of it."""


class ForkServerDied(LowkiqError):
    """A node can make no processes for jobs any more: it retires, and asks its supervisor for a successor."""


class ThreadsStuck(LowkiqError):
    """No thread of a node can run anything, and none ends: it drains, and asks its supervisor for a successor."""


class UnknownQueue(LowkiqError):
    """There is no queue of that name in Redis."""


class RedisUnsuitable(LowkiqError):
    """The Redis server is too old, or set up to throw jobs away."""


class Refused(LowkiqError):
    """A script refused to change anything."""


class BeingResharded(Refused):
    """A queue can't be resharded, or a job not be acted on, as it is being resharded just now."""


class Fenced(Refused):
    """Another node, or a later epoch, owns the shard."""


class StaleClaim(Refused):
    """A claim that comes after it was given up, from a connection thought dead."""


class Paused(Refused):
    """A claim of a shard that somebody has paused."""


class Unsettled(Refused):
    """A claim beside one that its owner does not know of, which is told by its number: it must be given back first."""


class PartialFailure(LowkiqError):
    """
    Raised by `perform` when only some ids of its batch failed. The others are done.

    Args:
        errors: the failed ids, as perform was given them, each with its error: an exception or a text.
    """

    def __init__(self, errors: Mapping[Any, BaseException | str]) -> None:
        super().__init__(f"{len(errors)} of the batch failed: {', '.join(map(repr, list(errors)[:10]))}")
        self.errors = dict(errors)


class Decision(LowkiqError):
    """
    The decision of a handler on its batch, raised by it, or on an id, as a value of PartialFailure. Middlewares should
    let it through: it is no error of the code.
    """


class Snooze(Decision):
    """
    Not a failure: the job comes back then, with all that was pushed meanwhile. Its retries and its last error stay.

    Args:
        seconds: until then, by Redis's clock.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = _seconds(type(self).__name__, seconds)

    def __str__(self) -> str:
        return f"comes back in {self.seconds:g} s"


class RateLimited(Snooze):
    """
    Not a failure: the far side has had enough (429). The job comes back then, with all that was pushed meanwhile, and
    until then nothing starts that shares its rate. Without a `rate` of its worker it is a Snooze.

    Args:
        seconds: until then, by Redis's clock.
        key: what is to rest, as the `by` of the rate tells it. None: the keys of the jobs that raise this.
    """

    def __init__(self, seconds: float, key: str | int | None = None) -> None:
        super().__init__(seconds)
        self.args = (seconds, key)
        self.key = None if key is None else checked_key(key)


class RetryIn(Decision):
    """
    A failure like any other, but the next try is then. Raised from another error, that is the one that is kept.

    Args:
        seconds: until then, by Redis's clock.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = _seconds("RetryIn", seconds)

    def __str__(self) -> str:
        return f"to be tried again in {self.seconds:g} s"


class Bury(Decision):
    """A failure that no further try would mend: all payloads that were handed over go to the morgue."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(Decision):
    """Nothing is left to do: the job is done, and counts as processed. The log says so, with the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


#: Bytes of a key of a rate.
MOST_KEY_BYTES = 200


def checked_key(key: object) -> str:
    """The text of a key of a rate. Raises ValueError for what can't be one."""
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise ValueError(f"a key of a rate must be a string or an integer, not {short(key)} ({type(key).__name__})")
    try:
        text = str(key)
        size = len(text.encode("utf-8"))
    except ValueError:  # a surrogate, or more digits than Python prints
        raise ValueError(f"key {short(key)} of a rate can't be written in UTF-8: escape it first") from None
    if size > MOST_KEY_BYTES:
        raise ValueError(f"key {short(key)} of a rate has {size:,} bytes, it may have {MOST_KEY_BYTES}: hash it")
    return text


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_DELAY:
        raise ValueError(f"{name} takes seconds from 0 to {LONGEST_DELAY:,.0f}, not {short(value)}")
    return float(value)


#: Errors of a boot that end only when a person changes the application, its settings or Redis.
_FOR_A_PERSON = (
    SettingsError, AppNotFound, ShardsCountMismatch, NewerLayout, RedisUnsuitable, ImportError, SyntaxError,
)  # fmt: skip


def needs_a_person(error: BaseException) -> bool:
    """Returns whether a boot that failed with this error would fail again; any other may heal by itself."""
    return isinstance(error, _FOR_A_PERSON)


def class_name(value: object) -> str:
    """The name of a value's class, also where a metaclass has something else to say of it, or raises."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return name


def import_refusal(app: str, error: BaseException) -> str:
    """Why an application can't be imported, in a line, with the place that has raised it."""
    if isinstance(error, LowkiqError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"importing {app} ends the process: sys.exit({error.code!r})"
    hint = "; name it as a module of its package, such as -r shop.jobs" if "relative import" in str(error) else ""
    return f"can't import {app}: {line_of(error)}{hint}"


def line_of(error: BaseException) -> str:
    """An error in a line, with the file and the line that have raised it."""
    frame, place = error.__traceback__, ""
    while frame and not isinstance(error, SyntaxError):  # which names its own
        if not frame.tb_frame.f_code.co_filename.startswith("<frozen importlib"):
            place = f" ({frame.tb_frame.f_code.co_filename}, line {frame.tb_lineno})"
        frame = frame.tb_next
    return f"{class_name(error)}: {' '.join(str(error).split())}{place}"


def short(value: object, limit: int = 60) -> str:
    """A value as an error shows it: enough to know it by, and no more."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (the value is the user's, and so is its repr)
        return f"a {class_name(value)}"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def unknown_option(kind: str, name: str, known: Iterable[str]) -> SettingsError:
    """The error for a name that is not an option, with the closest one that is."""
    close = difflib.get_close_matches(name, known := list(known), n=1, cutoff=0.6)
    hint = f"did you mean `{close[0]}`?" if close else f"known are: {', '.join(sorted(known))}"
    return SettingsError(f"unknown {kind} `{name}`, {hint}")


def unknown_queue(queue: str, known: Iterable[str]) -> UnknownQueue:
    """The error for a queue that is not among those known."""
    return UnknownQueue(f"no queue {short(queue)} here; known are: {', '.join(known) or 'none'}")
