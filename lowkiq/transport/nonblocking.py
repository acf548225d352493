"""A connection for an event loop, which it never blocks: made in a thread, then read and written as the loop says."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from typing import Any, Final

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lowkiq import clock
from lowkiq.transport.patience import Patience

_PENDING: Final = object()
_AT_ONCE: Final = 65_536
_LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class NonBlocking:
    """
    Sends commands and hears their replies, one exchange at a time.

    Args:
        pool: knows how to connect, and introduce itself; the connection is none of those that it counts.
    """

    def __init__(self, pool: redis.ConnectionPool, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._process = loop, os.getpid()
        self._connection: Any = pool.connection_class(**pool.connection_kwargs)
        self._connection.retry = Retry(NoBackoff(), 0)  # what fails here goes the usual way, which repeats
        self._reader: Any = hiredis.Reader(  # its types know no buffer that is used again
            protocolError=redis.InvalidResponse, replyError=redis.ResponseError, notEnoughData=_PENDING
        )
        self._buffer = bytearray(_AT_ONCE)
        self._socket: Any = None
        self._unsent: deque[memoryview] = deque()
        self._replies: list[Any] = []
        self._expected = 0
        self._answer: asyncio.Future[list[Any]] | None = None
        #: When Redis was last heard, or last had nothing to answer.
        self.heard_at = clock.monotonic()

    @property
    def is_open(self) -> bool:
        """False once it is closed, by either side; it can't be used again."""
        return self._socket is not None

    async def open(self, seconds: float) -> None:
        """Connects and introduces itself, in a thread that has so many seconds. Raises redis.RedisError."""
        await asyncio.to_thread(self._connect, seconds)
        self._socket = self._connection._sock
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)

    def begin(self, count: int) -> asyncio.Future[list[Any]]:
        """Expects so many replies to what is written next. The future gives them, errors of the server among them."""
        self._expected, self._replies, self.heard_at = count, [], clock.monotonic()
        self._answer = self._loop.create_future()
        if not self.is_open:
            self._answer.set_exception(redis.ConnectionError("Redis has closed the connection"))
        return self._answer

    def write(self, packed: bytes) -> None:
        """Sends what fits now, and the rest when it does."""
        if not self.is_open:
            return
        if not self._unsent:
            try:
                length = self._socket.send(packed)
            except _LATER:
                length = 0
            except OSError as error:
                self.close(error)
                return
            if length == len(packed):
                return
            self._loop.add_writer(self._socket, self._write)
            self._unsent.append(memoryview(packed)[length:])
        else:
            self._unsent.append(memoryview(packed))

    def close(self, error: Exception | None = None) -> None:
        """Closes it; what is awaited ends with the error."""
        is_ours = self._process == os.getpid()  # in a fork the loop's selector is the parent's still
        if self._socket is not None and is_ours and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket = None
        self._unsent.clear()
        self._connection.disconnect()
        if is_ours and self._answer and not self._answer.done() and not self._loop.is_closed():
            self._answer.set_exception(error or redis.ConnectionError("the connection was closed"))

    def _connect(self, seconds: float) -> None:
        with Patience(seconds):
            self._connection.connect()

    def _write(self) -> None:
        try:
            while self._unsent:
                left = self._unsent[0]
                sent = self._socket.send(left)
                if sent == len(left):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = left[sent:]
        except _LATER:
            return
        except OSError as error:
            self.close(error)
            return
        self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            while len(self._replies) < self._expected or not self._expected:
                length = self._socket.recv_into(self._buffer)
                if not length:
                    raise redis.ConnectionError("Redis has closed the connection")
                self._reader.feed(self._buffer, 0, length)
                while (reply := self._reader.gets()) is not _PENDING:
                    self._replies.append(reply)
        except _LATER:
            pass
        except (OSError, redis.RedisError) as error:
            self.close(error)
            return
        self.heard_at = clock.monotonic()
        if len(self._replies) > self._expected:
            self.close(redis.InvalidResponse("Redis has answered what nobody asked"))
        elif self._answer and self._expected and len(self._replies) == self._expected and not self._answer.done():
            self._expected, replies, self._replies = 0, self._replies, []
            self._answer.set_result(replies)
