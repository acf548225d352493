"""A connection whose reply may take long, for a thread that waits for other things as well."""

from __future__ import annotations

import select
import ssl
from collections.abc import Sequence
from typing import Any, Final

import hiredis
import redis
from hiredis import pack_command

#: There is no reply yet.
PENDING: Final = object()
_AT_ONCE: Final = 1 << 16
#: Messages that a server sends unasked, about its maintenance for one (hiredis before 3.2 has no such type).
_NEWS: Final = getattr(hiredis, "PushNotification", ())


class Listener:
    """
    Reads, for one thread, without blocking from a connection that a pool has made and authenticated. A client's own
    read asks the socket twice and makes ten calls, which after a sleep take longer than Redis does.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool: Any = pool
        connection: Any = self._pool.get_connection()
        self._connection, self._socket = connection, connection._sock
        self._socket.setblocking(False)
        self._buffer = bytearray(_AT_ONCE)
        self._reader: Any = hiredis.Reader(  # its types know no buffer that is used again
            protocolError=redis.InvalidResponse, replyError=redis.ResponseError, notEnoughData=PENDING
        )

    @property
    def is_current(self) -> bool:
        """False once it is a parent's, before a fork, or Sentinel has named another primary."""
        return bool(self._pool.owns_connection(self._connection))

    def send(self, commands: Sequence[tuple[Any, ...]]) -> None:
        """Sends short commands: they must fit into the socket's buffer."""
        packed = b"".join([pack_command(command) for command in commands])
        # No health check, which would read its reply here.
        self._connection.send_packed_command([packed], check_health=False)

    def receive(self) -> Any:
        """The next reply, which may be an error, or PENDING. Raises redis.ConnectionError."""
        while (reply := self._reader.gets()) is PENDING or isinstance(reply, _NEWS):
            if reply is PENDING:
                try:
                    length = self._socket.recv_into(self._buffer)
                except (BlockingIOError, ssl.SSLWantReadError):
                    return PENDING
                if not length:
                    raise redis.ConnectionError("Redis has closed the connection")
                self._reader.feed(self._buffer, 0, length)
        return reply

    def wait(self, seconds: float) -> Any:
        """The next reply, which may be an error. Raises redis.TimeoutError when none comes in time."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while (reply := self.receive()) is PENDING:
            if not poll.poll(seconds * 1000):
                raise redis.TimeoutError("Redis does not answer")
        return reply

    def fileno(self) -> int:
        """A descriptor that becomes readable when `receive` may have a reply to read."""
        return int(self._socket.fileno())

    def close(self) -> None:
        """Closes the connection; replies on their way are lost."""
        self._connection.disconnect()
        self._pool.release(self._connection)
