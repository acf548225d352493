"""LateReplies: a TCP proxy before a Redis, which keeps a reply until the same connection asks again."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

from tests.support import HOST


class LateReplies:
    """Passes bytes on. A context manager; `port` is where it listens."""

    def __init__(self, port: int) -> None:
        self._target = HOST, port
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        #: True: the next reply is kept.
        self.keeps_next = False
        #: Connections that were made to it.
        self.connected = 0
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener, *self._sockets)
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connected += 1
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                kept: list[bytes] = []
                threading.Thread(target=self._ask, args=(client, server, kept), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, kept), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, kept: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                while kept:
                    client.sendall(kept.pop(0))
                server.sendall(data)
        _end(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, kept: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self.keeps_next:
                    self.keeps_next = False
                    kept.append(data)
                else:
                    client.sendall(data)
        _end(server, client)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
