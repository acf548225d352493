"""TcpProxy: what proxies before a Redis have in common, whatever they do with what passes."""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from tests.support import HOST


class TcpProxy(ABC):
    """A context manager; `port` is where it listens."""

    def __init__(self, port: int) -> None:
        self._target = HOST, port
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        #: Connections that were made to it.
        self.connected = 0
        self._sockets: list[socket.socket] = []

    @abstractmethod
    def _ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        """What passes on the bytes of a new connection, to the server and back, each in a thread of its own."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        end(self._listener, *self._sockets)
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connected += 1
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for way in self._ways(client, server):
                    threading.Thread(target=way, daemon=True).start()


def end(*sockets: socket.socket) -> None:
    """Ends both directions of connections, as far as they are there."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
