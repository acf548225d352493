"""ListBell: a Redis list that wakes an idle thread. Pushes to its shards ring it, and the thread blocks on it."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import Any, Final

import msgspec
import redis
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.log import get_logger
from lowkiq.queue.claims import Handed
from lowkiq.transport.errors import advice
from lowkiq.transport.listener import PENDING, Listener
from lowkiq.transport.server import Command, Connections

logger = get_logger()

#: Seconds that Redis waits for a ring, and how much longer its answer may take before the connection is given up.
LISTEN: Final = 5
GRACE: Final = 5


class Ring(msgspec.Struct, frozen=True):
    """A wake-up by a push or an operator: a shard has work."""

    #: The prefix of the shard's keys.
    shard: bytes
    #: Seconds until it is due.
    due_in: float
    #: True if it took `idle` away.
    was_idle: bool
    #: The job itself, if the push handed it over.
    handed: Handed | None = None


class Heard(msgspec.Struct, frozen=True):
    """The outcome of a wait."""

    ring: Ring | None = None
    #: True if the connection was lost, and with it perhaps a ring that handed a job over.
    is_unsure: bool = False


class ListBell:
    """
    A push wakes the thread at once: Redis answers its waiting BLPOP. (The doorbell, which another thread listens to,
    takes two wake-ups.) While the thread waits, the key `idle` beside the list says so: then a push may hand its job
    over with the ring (push.lua). Each ring removes that key, so a busy thread is handed nothing more.

    Any thread may call `ring`, only the bell's own thread the rest. Errors are not raised: polls meet them too, and
    find the jobs that the bell has missed.
    """

    def __init__(self, connections: Connections, key: str) -> None:
        self.key = key
        #: True while jobs may be handed over at any moment.
        self.is_idle = False
        self._idle_key = key + ":idle"
        self._idle_until = self._idle_again_at = 0.0
        self._connections = connections
        self._listener: Listener | None = None
        self._listens_since = 0.0
        self._is_listening = self._is_refused = self._is_unsure = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)

    def ring(self) -> None:
        """Ends a wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # full of rings that nobody has read yet
            os.write(self._waker, b"!")

    def wait(self, seconds: float, *, is_idle: bool) -> Heard:
        """Waits for a ring, from Redis or by `ring`, or the time to end. With `is_idle` jobs may be handed over."""
        try:
            if self._is_unsure:
                return self._reassure()
            if self._is_refused and clock.monotonic() < self._listens_since + LISTEN:
                return self._wait(seconds, None)
            return self._listen(seconds, is_idle and not self._is_refused and clock.monotonic() >= self._idle_again_at)
        except (RedisError, OSError):
            return self._lose() or self._wait(seconds, None)

    def be_busy(self) -> Heard:
        """Ends the handing over; gives a ring that came before."""
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
        """Ends the handing over with the thread. A job that was handed over goes back with the lease."""
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
        """Sends the BLPOP, and with `is_idle` says so first."""
        if self._listener and not self._listener.is_current:
            raise redis.ConnectionError("another server is the primary now")
        commands: list[Command] = [("BLPOP", self.key, LISTEN)]
        if is_idle:
            # If it is said already, it is only prolonged: a ring may have taken it away since.
            commands.insert(0, (*self._say_idle(), "XX") if self.is_idle else self._say_idle())
        listener = self._listener = self._listener or Listener(self._connections.pool)
        self._is_listening, self._listens_since, self.is_idle = True, clock.monotonic(), is_idle
        listener.send(commands)
        if is_idle:
            self.is_idle = isinstance(listener.wait(GRACE), bytes)  # memory may be full
        return listener

    def _say_idle(self) -> Command:
        self._idle_until = clock.monotonic() + LISTEN + GRACE
        return ("SET", self._idle_key, 1, "PX", int((LISTEN + GRACE) * 1000))

    def _await_ring(self) -> Ring:
        """Waits for a ring that is on its way."""
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
        """The ring that a reply to BLPOP holds; None when its time was over."""
        self._is_listening = False
        if isinstance(reply, Exception):
            if not self._is_refused:
                logger.warning("bell_refused", error=str(reply)[:300], advice=advice(reply))
                self._is_refused = True
            raise reply
        self._is_refused = False
        if reply is None:
            return None
        try:
            ring = parse_ring(reply[1])
        except ValueError:  # of another version, perhaps: then claims find the job that it hands over
            raise redis.InvalidResponse(f"no ring: {reply[1][:100]!r}") from None
        self.is_idle = self.is_idle and not ring.was_idle
        return ring

    # ── trouble ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lose(self) -> Heard | None:
        """Gives the connection up. Redis may think it alive for as long as it waits there, and send a ring to it."""
        self._is_unsure |= self.is_idle
        self._disconnect()
        self._idle_again_at = clock.monotonic() + LISTEN
        with contextlib.suppress(RedisError, OSError):
            return self._reassure() if self._is_unsure else None
        return None

    def _reassure(self) -> Heard:
        """Ends the handing over after a loss, once Redis is back; a ring may have been lost with the connection."""
        self._command("UNLINK", self._idle_key)
        self._is_unsure = False
        return Heard(is_unsure=True)

    def _command(self, *words: Any) -> Any:
        (reply,) = self._connections.pipeline([words])
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
        self._event.set()

    def wait(self, seconds: float, *, is_idle: bool) -> Heard:  # noqa: ARG002 (nothing is handed over)
        self._event.wait(seconds)
        self._event.clear()
        return Heard()

    def be_busy(self) -> Heard:
        """Nothing was handed over."""
        return Heard()

    def close(self) -> None:
        """Nothing is open."""


def parse_ring(message: bytes) -> Ring:
    """A ring as scripts write it: a shard, a delay, whether it was idle, and if so perhaps a job."""
    shard, due_in, was_idle, *rest = message.split(b" ", 7)
    if not rest:
        return Ring(shard, float(due_in), was_idle == b"1")
    epoch, number, at, length, job = rest
    end = int(length)
    return Ring(shard, 0.0, True, Handed(epoch.decode(), int(number), job[:end], job[end:], at))
