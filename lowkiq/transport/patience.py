"""Patience: how long a push waits for an answer: for a free connection, a new one, a reply, and repetitions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, Token
from typing import Any, Final, Self, TypeVar

import redis
from redis.backoff import AbstractBackoff
from redis.retry import Retry

from lowkiq import clock
from lowkiq.transport.addresses import ByAddress

T = TypeVar("T")

#: The part of its time that a push's first try has: a connection that something between has forgotten in silence looks
#: like a server that is slow. What is repeated is applied once.
FIRST_TRY: Final = 0.5

#: Seconds for a reply that should be there already.
AT_ONCE: Final = 0.01

#: That of the push which this thread or task is at; None for all else that talks to Redis.
_current: Final[ContextVar[Patience | None]] = ContextVar("patience", default=None)


class Patience:
    """While it is entered, what this thread or task sends to Redis waits for at most so many seconds for an answer."""

    __slots__ = ("_token", "first_try", "seconds", "since", "was_sent")

    def __init__(self, seconds: float) -> None:
        self.seconds, self.first_try = seconds, seconds * FIRST_TRY
        #: True once Redis may have got some of what is pushed.
        self.was_sent = False
        self.since = clock.monotonic()

    def __enter__(self) -> Self:
        self._token: Token[Patience | None] = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    @property
    def until(self) -> float:
        """The time until which it waits, unless Redis answers."""
        return self.since + self.seconds

    def answered(self) -> None:
        """Redis has answered: waiting begins anew."""
        self.since = clock.monotonic()

    @property
    def left(self) -> float:
        """Seconds that are left: at first all of them, so that most pushes find a socket's timeout set already."""
        waited = clock.monotonic() - self.since
        return self.seconds if waited < self.seconds / 20 else max(0.0, self.seconds - waited)


def is_over() -> bool:
    """Returns whether the push has no time left."""
    held = _current.get()
    return held is not None and not held.left


def within(seconds: float | None) -> float | None:
    """So many seconds, or fewer if the push has no more. Raises redis.TimeoutError if it has none."""
    if not (held := _current.get()):
        return seconds
    if not (left := held.left):
        raise redis.TimeoutError(f"no answer within {held.seconds:g} s")
    return left if seconds is None else min(seconds, left)


def sending(connection: Any, is_first: bool = False, waited: float = 0.0) -> None:
    """
    Has a connection wait for its replies no longer than may be; called right before something is sent, `is_first` if it
    would be sent again; or once others have been waited for, for so many seconds since then.
    """
    timeout = connection.socket_timeout
    if waited and timeout:
        timeout = max(timeout - waited, AT_ONCE)
    if held := _current.get():
        timeout = within(timeout)
        if is_first and timeout and timeout > (most := max(held.first_try - waited, AT_ONCE)):
            timeout = most
        held.was_sent = True
    socket = connection._sock
    if socket.gettimeout() != timeout:
        socket.settimeout(timeout)


def sent() -> None:
    """From here on, Redis may have got what is pushed."""
    if held := _current.get():
        held.was_sent = True


def in_time(do: Callable[[], T]) -> T:
    """
    The result of what connects by itself, and knows of no push. A push has it done in a thread, and leaves that alone
    when it has no time left: raises redis.TimeoutError.
    """
    held = _current.get()
    if not held:
        return do()
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(do())
        except BaseException as error:  # noqa: BLE001 (it is for whoever waits)
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="connect").start()
    try:
        return result.result(held.left)
    except TimeoutError:
        raise redis.TimeoutError(f"no answer within {held.seconds:g} s") from None


class Patient:
    """Mixed into redis-py's connections: connecting takes no longer than the push has that needs the connection."""

    socket_connect_timeout: float | None
    socket_timeout: float | None

    def _connect(self) -> Any:
        usual = self.socket_connect_timeout, self.socket_timeout
        connect: Callable[[], Any] = super()._connect  # type: ignore[misc]
        try:
            self.socket_connect_timeout, self.socket_timeout = (within(seconds) for seconds in usual)
            return connect()
        finally:
            self.socket_connect_timeout, self.socket_timeout = usual


class _TcpConnection(Patient, ByAddress):
    pass


class _TlsConnection(Patient, redis.SSLConnection, ByAddress):
    pass


class _UnixConnection(Patient, redis.UnixDomainSocketConnection):
    pass


#: redis-py's class of connections → ours.
PATIENT: Final[dict[type, type]] = {
    redis.Connection: _TcpConnection,
    redis.SSLConnection: _TlsConnection,
    redis.UnixDomainSocketConnection: _UnixConnection,
}


def make_patient(pool: Any) -> Any:
    """Has a pool that redis-py has made open such connections from now on."""
    pool.connection_class = PATIENT.get(pool.connection_class, pool.connection_class)
    return pool


class PatientBackoff(AbstractBackoff):
    """Pauses as another does, but no longer than the push has time."""

    def __init__(self, backoff: AbstractBackoff) -> None:
        self._backoff = backoff

    def reset(self) -> None:
        self._backoff.reset()  # type: ignore[no-untyped-call]

    def compute(self, failures: int) -> float:
        pause: float = self._backoff.compute(failures)
        held = _current.get()
        return min(pause, held.left) if held else pause


class PatientRetry(Retry):
    """Repeats nothing for which the push has no time."""

    def call_with_retry(self, do: Callable[[], Any], fail: Callable[..., Any], *rest: Any, **options: Any) -> Any:
        errors: list[Exception] = []

        def attempt() -> Any:
            if errors and is_over():
                raise errors[-1]  # it says more than that there is no time
            return do()

        def failed(error: Exception, *count: int) -> None:
            fail(error, *count)
            errors.append(error)
            if is_over():
                raise error

        return super().call_with_retry(attempt, failed, *rest, **options)
