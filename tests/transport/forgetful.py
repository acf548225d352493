"""Forgetful: a TCP proxy before a Redis, which can forget its connections in silence, as NAT and firewalls do."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

from tests.support import HOST


class Forgetful:
    """Passes bytes on. A context manager; `port` is where it listens."""

    def __init__(self, port: int) -> None:
        self._target = HOST, port
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._forgotten: set[socket.socket] = set()
        #: Connections that were made to it.
        self.connected = 0

    def forget(self) -> None:
        """What is sent over the connections of now goes nowhere, and nobody is told; new ones are well."""
        self._forgotten.update(self._sockets)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connected += 1
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if source not in self._forgotten:
                    target.sendall(data)
        if source not in self._forgotten:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
