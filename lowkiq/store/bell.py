"""ListBell: the list that pushes to a thread's idle shards ring, and on which that thread blocks."""

from __future__ import annotations

import contextlib
import os
import select
from typing import Any, Final, Self

import redis
import structlog
from redis.exceptions import RedisError, ResponseError

from lowkiq import clock
from lowkiq.store.advice import advice
from lowkiq.store.line import Line

logger = structlog.get_logger("lowkiq")

#: Seconds after which Redis says that nobody has rung, and how much later a connection that has not is given up.
LISTEN: Final = 20
GRACE: Final = 10.0


class ListBell:
    """
    A thread hears of a push in one wake-up: Redis answers its waiting BLPOP. (A doorbell that another thread listens to
    costs a second one.) One command waits at a time, and stays when the thread is called away: what is rung meanwhile
    is heard when it is idle again.

    `ring` is for any thread, all else for the one whose bell it is. Nothing is raised: of trouble the polls tell, which
    also find what the bell does not.
    """

    def __init__(self, pool: redis.ConnectionPool, key: str) -> None:
        self.key = key
        self._pool = pool
        self._connection: Any = None
        self._asked_at = 0.0
        self._is_waiting = self._is_refused = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)

    @classmethod
    def of(cls, client: object, key: str) -> Self | None:
        """None where shards and the list are not on one server: scripts can't ring it there."""
        line = Line.of(client)
        return cls(line.pool, key) if line else None

    def ring(self) -> None:
        """Ends a wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # full of rings that have not been heard
            os.write(self._waker, b"!")

    def wait(self, seconds: float) -> list[bytes]:
        """Until it is rung or the time is over. Gives what pushes have said."""
        try:
            return self._wait(seconds, self._listen())
        except (RedisError, OSError) as error:
            self._give_up(error)
            return self._wait(seconds, None)

    def close(self) -> None:
        """The thread ends."""
        self._disconnect()

    def _listen(self) -> int:
        """Asks, unless that is on its way; gives the descriptor that the answer comes on."""
        if self._is_waiting and clock.monotonic() > self._asked_at + LISTEN + GRACE:
            self._disconnect()
        if self._connection is None:
            self._connection = self._pool.get_connection()
        if not self._is_waiting:
            self._connection.send_command("BLPOP", self.key, LISTEN)
            self._is_waiting, self._asked_at = True, clock.monotonic()
        return int(self._connection._sock.fileno())

    def _wait(self, seconds: float, line: int | None) -> list[bytes]:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if line is not None:
            poll.register(line, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._woken in ready:
            os.read(self._woken, 1 << 16)
        return self._hear() if line in ready else []

    def _hear(self) -> list[bytes]:
        if isinstance(self._connection, redis.SSLConnection) and not self._connection.can_read(timeout=0):
            return []  # TLS had something to say to itself
        reply = self._connection.read_response()
        self._is_waiting = self._is_refused = False
        return [reply[1]] if reply else []

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, ResponseError) and not self._is_refused:
            logger.warning("bell_refused", error=str(error)[:300], advice=advice(error))
            self._is_refused = True
        self._disconnect()

    def _disconnect(self) -> None:
        self._is_waiting = False
        if connection := self._connection:
            self._connection = None
            connection.disconnect()
            self._pool.release(connection)
