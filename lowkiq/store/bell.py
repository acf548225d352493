"""ListBell: the list that pushes to a thread's idle shards ring, and on which that thread blocks."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import redis
import structlog
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.store.advice import advice
from lowkiq.store.line import Line, pack_all, read_replies
from lowkiq.store.wire import Command

logger = structlog.get_logger("lowkiq")

#: Seconds after which Redis says that nobody has rung, and how much later a connection that has not is given up.
LISTEN: Final = 5
GRACE: Final = 5.0
#: Seconds after which a ring is forgotten that nobody hears (doorbell.lua's FORGET).
FORGET: Final = 60

#: Gives the command that Redis runs as soon as the bell rings, if there is one.
Ask = Callable[[], Command | None]


class Heard(NamedTuple):
    """What came of a wait."""

    #: What pushes have said: each a shard's prefix, and the seconds until its job is due.
    messages: Sequence[bytes] = ()
    #: The reply to what was asked, once it is over: an exception, if Redis refused it or the reply is lost.
    answers: Sequence[Any] = ()


class ListBell:
    """
    A thread hears of a push in one wake-up: Redis answers its waiting BLPOP. (A doorbell that another thread listens to
    costs a second one.) Behind the BLPOP there waits what the thread asks as soon as it is rung, so that Redis answers
    both at once, and a round trip is saved. One command waits at a time, and stays when the thread is called away: what
    is rung meanwhile is heard when it is idle again.

    `ring` is for any thread, all else for the one whose bell it is. Nothing is raised: of trouble the polls tell, which
    also find what the bell does not.
    """

    def __init__(self, line: Line, key: str) -> None:
        self.key = key
        self._line = line
        self._connection: Any = None
        self._listens_since = 0.0
        self._is_listening = self._has_asked = self._is_refused = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)

    def ring(self) -> None:
        """Ends a wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # full of rings that have not been heard
            os.write(self._waker, b"!")

    def wait(self, seconds: float, ask: Ask) -> Heard:
        """Until it is rung, in one way or the other, or the time is over. Asks unless something asked is under way."""
        try:
            return self._wait(seconds, self._listen(ask))
        except (RedisError, OSError) as error:
            lost = self._lost(error)
            return lost if lost.answers else self._wait(seconds, None)

    def call_back(self) -> Heard:
        """Ends what was asked, if it has not ended: from here on it takes nothing more."""
        if not self._has_asked:
            return Heard()
        try:
            for reply in self._line.exchange([("RPUSH", self.key, b""), ("EXPIRE", self.key, FORGET)]):
                if isinstance(reply, Exception):  # memory is full
                    raise reply
            return self._hear()
        except (RedisError, OSError) as error:
            return self._lost(error)

    def close(self) -> None:
        """The thread ends."""
        self._disconnect()

    def _listen(self, ask: Ask) -> int | None:
        """Has Redis wait for a ring, unless it does; gives the descriptor that its answer comes on."""
        now = clock.monotonic()
        if self._is_listening and now > self._listens_since + LISTEN + GRACE:
            raise redis.TimeoutError("a wait for the bell was never answered")
        if self._is_refused and now < self._listens_since + LISTEN:
            return None
        if self._connection is None:
            self._connection = self._line.pool.get_connection()
        if not self._is_listening:
            asked = ask()
            commands: list[Command] = [("BLPOP", self.key, LISTEN), *([asked] if asked else [])]
            self._is_listening, self._has_asked, self._listens_since = True, asked is not None, now
            self._connection.send_packed_command([pack_all(commands)])
        return int(self._connection._sock.fileno())

    def _wait(self, seconds: float, line: int | None) -> Heard:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if line is not None:
            poll.register(line, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._woken in ready:
            os.read(self._woken, 1 << 16)
        if line not in ready or (isinstance(self._connection, redis.SSLConnection) and not self._can_read()):
            return Heard()
        return self._hear()

    def _can_read(self) -> bool:
        """TLS may have had something to say to itself."""
        return bool(self._connection.can_read(timeout=0))

    def _hear(self) -> Heard:
        rung, *answers = read_replies(self._connection, 1 + self._has_asked)
        self._is_listening = self._has_asked = False
        if isinstance(rung, Exception):
            self._refused(rung)
            return Heard((), tuple(answers))
        self._is_refused = False
        return Heard((rung[1],) if rung else (), tuple(answers))

    def _refused(self, error: Exception) -> None:
        if not self._is_refused:
            logger.warning("bell_refused", error=str(error)[:300], advice=advice(error))
            self._is_refused = True

    def _lost(self, error: Exception) -> Heard:
        """Gives the connection up; what was asked may have been done or not, or be done yet."""
        answers = (error,) if self._has_asked else ()
        self._disconnect()
        return Heard((), answers)

    def _disconnect(self) -> None:
        self._is_listening = self._has_asked = False
        if connection := self._connection:
            self._connection = None
            connection.disconnect()
            self._line.pool.release(connection)
