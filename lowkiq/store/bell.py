"""ListBell: the list that pushes to a thread's idle shards ring, and on which that thread blocks."""

from __future__ import annotations

import contextlib
import os
import select
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
GRACE: Final = 5
#: Seconds after which a ring is forgotten that nobody hears (doorbell.lua's FORGET).
FORGET: Final = 60


class Handed(NamedTuple):
    """A job that a push has put into an open claim (hand_over.lua)."""

    epoch: str
    number: int
    #: What the claim would have replied.
    reply: list[bytes]


class Ring(NamedTuple):
    """A push, or an operator, says that a shard has work."""

    #: The prefix of the shard's keys.
    shard: bytes
    #: Seconds until it is due.
    due_in: float
    #: The work, if it came along.
    handed: Handed | None = None


class Heard(NamedTuple):
    """What came of a wait."""

    ring: Ring | None = None
    #: Whether jobs may have been handed over of which nothing was heard: the connection was lost.
    is_unsure: bool = False


class ListBell:
    """
    A thread hears of a push in one wake-up: Redis answers its waiting BLPOP. (A doorbell that another thread listens to
    costs a second one.) While it waits there is a key beside the list that says so, `idle`: then the push may hand its
    job over with the ring (hand_over.lua). Each ring takes that key away, so nothing more is handed to a thread that is
    busy.

    `ring` is for any thread, all else for the one whose bell it is. Nothing is raised: of trouble the polls tell, which
    also find what the bell does not.
    """

    def __init__(self, line: Line, key: str) -> None:
        self.key = key
        #: Whether jobs may be handed over at any moment.
        self.is_idle = False
        self._idle_key = key + ":idle"
        self._idle_again_at = 0.0
        self._line = line
        self._connection: Any = None
        self._listens_since = 0.0
        self._is_listening = self._is_refused = self._is_unsure = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)

    def ring(self) -> None:
        """Ends a wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # full of rings that have not been heard
            os.write(self._waker, b"!")

    def wait(self, seconds: float, *, is_idle: bool) -> Heard:
        """Until it is rung, in one way or the other, or the time is over. With `is_idle` jobs may be handed over."""
        try:
            return self._reassure() or self._wait(seconds, self._listen(is_idle))
        except (RedisError, OSError):
            return self._lose() or self._wait(seconds, None)

    def be_busy(self) -> Heard:
        """From here on nothing is handed over."""
        if not self.is_idle:
            return Heard()
        self._is_unsure = True  # until something is heard
        try:
            self._command(("UNLINK", self._idle_key), ("RPUSH", self.key, b""), ("EXPIRE", self.key, FORGET))
            while True:
                if not self._is_listening:
                    self._start(is_idle=False)
                if (message := self._read()) is not None:
                    self.is_idle = self._is_unsure = False
                    return Heard(heard(message))
        except (RedisError, OSError):
            return self._lose() or Heard()

    def close(self) -> None:
        """The thread ends."""
        self._disconnect()

    # ── listening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _listen(self, is_idle: bool) -> int | None:
        """Has Redis wait for a ring, unless it does; gives the descriptor that its answer comes on."""
        now = clock.monotonic()
        if self._is_listening and now > self._listens_since + LISTEN + GRACE:
            raise redis.TimeoutError("a wait for the bell was never answered")
        if self._is_refused and now < self._listens_since + LISTEN:
            return None
        if not self._is_listening:
            self._start(is_idle=is_idle and not self._is_refused and now >= self._idle_again_at)
        return int(self._connection._sock.fileno())

    def _start(self, *, is_idle: bool) -> None:
        commands: list[Command] = [("BLPOP", self.key, LISTEN)]
        if is_idle:
            # Once said it is only said to last: a ring may have come since.
            lasts: Command = ("XX",) if self.is_idle else ()
            commands.insert(0, ("SET", self._idle_key, 1, "PX", int((LISTEN + GRACE) * 1000), *lasts))
        if self._connection is None:
            self._connection = self._line.pool.get_connection()
        self._is_listening, self._listens_since, self.is_idle = True, clock.monotonic(), is_idle
        self._connection.send_packed_command([pack_all(commands)])
        if is_idle:
            (said,) = read_replies(self._connection, 1)
            self.is_idle = isinstance(said, bytes)  # memory may be full

    def _wait(self, seconds: float, line: int | None) -> Heard:
        if line is not None and self._can_read():  # it came along with another reply
            return self._hear()
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if line is not None:
            poll.register(line, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._woken in ready:
            os.read(self._woken, 1 << 16)
        if line not in ready or (isinstance(self._connection, redis.SSLConnection) and not self._can_read()):
            return Heard()  # TLS may have had something to say to itself
        return self._hear()

    def _can_read(self) -> bool:
        return bool(self._connection.can_read(timeout=0))

    def _hear(self) -> Heard:
        message = self._read()
        if message:
            self.is_idle = False
        return Heard(heard(message) if message else None)

    def _read(self) -> bytes | None:
        """What was said, "" by ourselves; None when nobody has said anything for so long."""
        (reply,) = read_replies(self._connection, 1)
        self._is_listening = False
        if isinstance(reply, Exception):
            self._refused(reply)
            raise reply
        self._is_refused = False
        return reply[1] if reply else None

    # ── trouble ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _refused(self, error: Exception) -> None:
        if not self._is_refused:
            logger.warning("bell_refused", error=str(error)[:300], advice=advice(error))
            self._is_refused = True

    def _lose(self) -> Heard | None:
        """Gives the connection up. Redis may take it for alive for as long as it listens, and tell it what is rung."""
        self._is_unsure |= self.is_idle
        self._disconnect()
        self._idle_again_at = clock.monotonic() + LISTEN
        with contextlib.suppress(RedisError, OSError):
            return self._reassure()
        return None

    def _reassure(self) -> Heard | None:
        """After a loss, as soon as Redis is there: nothing more is handed over, and what was may be unheard of."""
        if not self._is_unsure:
            return None
        self._command(("UNLINK", self._idle_key))
        self._is_unsure = False
        return Heard(is_unsure=True)

    def _command(self, *commands: Command) -> None:
        for reply in self._line.exchange(commands):
            if isinstance(reply, Exception):  # memory is full
                raise reply

    def _disconnect(self) -> None:
        self._is_listening = self.is_idle = False
        if connection := self._connection:
            self._connection = None
            connection.disconnect()
            self._line.pool.release(connection)


def heard(message: bytes) -> Ring | None:
    """As scripts say it: a shard, a delay, and for a job that is handed over all that hand_over.lua adds."""
    if not message:
        return None
    shard, due_in, *rest = message.split(b" ", 6)
    if not rest:
        return Ring(shard, float(due_in))
    epoch, number, now, next_due, job = rest
    length, _, job = job.partition(b" ")
    id, record = job[: int(length)], job[int(length) :]
    return Ring(shard, float(due_in), Handed(epoch.decode(), int(number), [now, next_due, id, record]))
