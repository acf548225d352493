"""ListBell: the list that pushes to a thread's idle shards ring, and on which that thread blocks."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import Any, Final

import msgspec
import redis
import structlog
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.queue.claims import Handed
from lowkiq.transport.connection import Line
from lowkiq.transport.errors import advice
from lowkiq.transport.listener import PENDING, Listener
from lowkiq.transport.server import Command

logger = structlog.get_logger("lowkiq")

#: Seconds after which Redis says that nobody has rung, and how much later a connection that has not is given up.
LISTEN: Final = 5
GRACE: Final = 5


class Ring(msgspec.Struct, frozen=True):
    """A push, or an operator, says that a shard has work."""

    #: The prefix of the shard's keys.
    shard: bytes
    #: Seconds until it is due.
    due_in: float
    #: Whether it took `idle` away.
    was_idle: bool
    #: The work, if it came along.
    handed: Handed | None = None


class Heard(msgspec.Struct, frozen=True):
    """What came of a wait."""

    ring: Ring | None = None
    #: Whether jobs may have been handed over of which nothing was heard: the connection was lost.
    is_unsure: bool = False


class ListBell:
    """
    A thread hears of a push in one wake-up: Redis answers its waiting BLPOP. (A doorbell that another thread listens to
    costs a second one.) While it waits there is a key beside the list that says so, `idle`: then the push may hand its
    job over with the ring (one.lua). Each ring takes that key away, so nothing more is handed to a thread that is
    busy.

    `ring` is for any thread, all else for the one whose bell it is. Nothing is raised: of trouble the polls tell, which
    also find what the bell does not.
    """

    def __init__(self, line: Line, key: str) -> None:
        self.key = key
        #: Whether jobs may be handed over at any moment.
        self.is_idle = False
        self._idle_key = key + ":idle"
        self._idle_until = self._idle_again_at = 0.0
        self._line = line
        self._listener: Listener | None = None
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
            if self._is_unsure:
                return self._reassure()
            if self._is_refused and clock.monotonic() < self._listens_since + LISTEN:
                return self._wait(seconds, None)
            return self._listen(seconds, is_idle and not self._is_refused and clock.monotonic() >= self._idle_again_at)
        except (RedisError, OSError):
            return self._lose() or self._wait(seconds, None)

    def be_busy(self) -> Heard:
        """From here on nothing is handed over."""
        if not self.is_idle:
            return Heard()
        self._is_unsure = True  # until this is over
        try:
            self.is_idle = not self._command("UNLINK", self._idle_key)
            heard = Heard(self._await_ring() if self.is_idle else None)
        except (RedisError, OSError):
            return self._lose() or Heard()
        self._is_unsure = False
        return heard

    def close(self) -> None:
        """The thread ends: nothing more is handed over. What was is given back with the lease."""
        with contextlib.suppress(RedisError, OSError):
            if self.is_idle:
                self._command("UNLINK", self._idle_key)
        self._disconnect()

    # ── listening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _listen(self, seconds: float, is_idle: bool) -> Heard:
        if not (self._listener and self._is_listening):
            return self._wait(seconds, self._start(is_idle=is_idle))
        if clock.monotonic() > self._listens_since + LISTEN + GRACE:
            raise redis.TimeoutError("a wait for the bell was never answered")
        if is_idle and not self.is_idle:
            if (reply := self._listener.receive()) is not PENDING:
                return Heard(self._understand(reply))
            self.is_idle = True
            self._command(*self._say_idle())
        return self._wait(seconds, self._listener)

    def _start(self, *, is_idle: bool) -> Listener:
        """Has Redis wait for a ring."""
        commands: list[Command] = [("BLPOP", self.key, LISTEN)]
        if is_idle:
            # Once said it is only said to last: a ring may have come since.
            commands.insert(0, (*self._say_idle(), "XX") if self.is_idle else self._say_idle())
        listener = self._listener = self._listener or Listener(self._line.pool)
        self._is_listening, self._listens_since, self.is_idle = True, clock.monotonic(), is_idle
        listener.send(commands)
        if is_idle:
            self.is_idle = isinstance(listener.wait(GRACE), bytes)  # memory may be full
        return listener

    def _say_idle(self) -> Command:
        self._idle_until = clock.monotonic() + LISTEN + GRACE
        return ("SET", self._idle_key, 1, "PX", int((LISTEN + GRACE) * 1000))

    def _await_ring(self) -> Ring:
        """One that is on its way."""
        if clock.monotonic() > self._idle_until:
            raise redis.TimeoutError("what took it away may have been time")
        ring = None
        while ring is None:
            listener = self._listener if self._listener and self._is_listening else self._start(is_idle=False)
            ring = self._understand(listener.wait(GRACE))
        return ring

    def _wait(self, seconds: float, listener: Listener | None) -> Heard:
        reply = listener.receive() if listener else PENDING
        if reply is PENDING:
            poll = select.poll()
            poll.register(self._woken, select.POLLIN)
            if listener:
                poll.register(listener, select.POLLIN)
            for ready, _ in poll.poll(seconds * 1000):
                if ready == self._woken:
                    os.read(self._woken, 1 << 16)
                elif listener:
                    reply = listener.receive()
        return Heard(None if reply is PENDING else self._understand(reply))

    def _understand(self, reply: Any) -> Ring | None:
        """None when nobody has rung for so long."""
        self._is_listening = False
        if isinstance(reply, Exception):
            self._refused(reply)
            raise reply
        self._is_refused = False
        if reply is None:
            return None
        try:
            ring = parse_ring(reply[1])
        except ValueError:  # of another version, perhaps: then what it hands over is found by claims
            raise redis.InvalidResponse(f"no ring: {reply[1][:100]!r}") from None
        self.is_idle = self.is_idle and not ring.was_idle
        return ring

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
            return self._reassure() if self._is_unsure else None
        return None

    def _reassure(self) -> Heard:
        """After a loss, as soon as Redis is there: nothing more is handed over, and what was may be unheard of."""
        self._command("UNLINK", self._idle_key)
        self._is_unsure = False
        return Heard(is_unsure=True)

    def _command(self, *words: Any) -> Any:
        (reply,) = self._line.exchange([words])
        if isinstance(reply, Exception):  # memory is full
            raise reply
        return reply

    def _disconnect(self) -> None:
        self._is_listening = self.is_idle = False
        if listener := self._listener:
            self._listener = None
            listener.close()


class LocalBell:
    """Rung within the node only: nothing is handed over, and the node's doorbell listens to pushes."""

    key = ""
    is_idle = False

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """Ends a wait, or the next one."""
        self._event.set()

    def wait(self, seconds: float, *, is_idle: bool) -> Heard:  # noqa: ARG002 (nothing is handed over)
        """Until it is rung, or the time is over."""
        self._event.wait(seconds)
        self._event.clear()
        return Heard()

    def be_busy(self) -> Heard:
        """Nothing was handed over."""
        return Heard()

    def close(self) -> None:
        """Nothing is open."""


def parse_ring(message: bytes) -> Ring:
    """As scripts say it: a shard, a delay, whether it was idle, and if so perhaps a job that is handed over."""
    shard, due_in, was_idle, *rest = message.split(b" ", 7)
    if not rest:
        return Ring(shard, float(due_in), was_idle == b"1")
    epoch, number, at, length, job = rest
    end = int(length)
    return Ring(shard, 0.0, True, Handed(epoch.decode(), int(number), job[:end], job[end:], at))
