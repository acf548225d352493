"""SilentProxy: a TCP proxy before a server, which falls silent when it is told to, as a frozen one does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit


class SilentProxy:
    """Passes bytes on, in the manner of `how`; `url` is where it listens."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._target = str(address.hostname), int(address.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        #: "open"; "silent": takes requests, and gives no answer; "mid-body": gives the first bytes of each answer only.
        self.how = "open"
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener)
        self.recover()
        for thread in self._threads:
            thread.join(60)
        for each in (self._listener, *self._sockets):
            each.close()

    def recover(self) -> None:
        """Passes all on again; connections of which bytes may be lost end."""
        self.how = "open"
        for each in list(self._sockets):
            _end(each)

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                self._start(self._pass, client, server, False)
                self._start(self._pass, server, client, True)

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.how == "mid-body" and is_answer and data.startswith(b"HTTP/"):
                    target.sendall(data[: data.find(b"\r\n\r\n") + 40])
                elif self.how == "open" or (self.how == "mid-body" and not is_answer):
                    target.sendall(data)
        _end(source)
        _end(target)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
