"""Forgetful: a TCP proxy before a Redis, which can forget its connections in silence, as NAT and firewalls do."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial

from tests.transport.tcp_proxy import TcpProxy, end


class Forgetful(TcpProxy):
    """Passes bytes on."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._forgotten: set[socket.socket] = set()

    def forget(self) -> None:
        """What is sent over the connections of now goes nowhere, and nobody is told; new ones are well."""
        self._forgotten.update(self._sockets)

    def _ways(self, client: socket.socket, server: socket.socket) -> tuple[Callable[[], None], Callable[[], None]]:
        return partial(self._pass, client, server), partial(self._pass, server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if source not in self._forgotten:
                    target.sendall(data)
        if source not in self._forgotten:
            end(target)
