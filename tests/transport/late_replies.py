"""LateReplies: a TCP proxy before a Redis, which keeps a reply until the same connection asks again."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial

from tests.transport.tcp_proxy import TcpProxy, end


class LateReplies(TcpProxy):
    """Passes bytes on."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        #: True: the next reply is kept.
        self.keeps_next = False

    def _ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        kept: list[bytes] = []
        return partial(self._ask, client, server, kept), partial(self._answer, server, client, kept)

    def _ask(self, client: socket.socket, server: socket.socket, kept: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                while kept:
                    client.sendall(kept.pop(0))
                server.sendall(data)
        end(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, kept: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self.keeps_next:
                    self.keeps_next = False
                    kept.append(data)
                else:
                    client.sendall(data)
        end(server, client)
