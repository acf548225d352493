"""Tripwire: watches the sockets that lead from Lowkiq to Redis, and strikes at one call of one process."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import hiredis
from redis.connection import UnixDomainSocketConnection

from lowkiq.queue import scripts

#: What happens at the call. Killed: the process is gone. Lost: only the connection is.
HOWS = ("killed before it", "killed before its reply", "killed after its reply", "request lost", "reply lost")

#: How a connection introduces itself is no call.
GREETINGS = frozenset({"CLIENT", "HELLO", "SELECT", "AUTH"})


def make_scripts_unknown(mark: str) -> None:
    """Scripts of this process differ from all that the server has, so that it has to load them."""
    read = scripts._read
    scripts._read = lambda path: f"{read(path)}\n-- {mark}\n"


class Tripwire:
    """
    Args:
        call: name of the calls to strike at: what goes in one round trip, such as "settle+claim". None: at none.
        number: at which of them, from 1.
        how: one of HOWS.
    """

    def __init__(self, call: str | None = None, number: int = 0, how: str = "") -> None:
        self._at = (call, number)
        self.how = how
        self.calls: Counter[str] = Counter()
        known = [scripts.load(flags=flags) for flags in (True, False)]
        self._scripts = {script.sha.decode(): name for some in known for name, script in some.items()}
        self._lock = threading.Lock()

    def install(self) -> None:
        """Watches this process, for good. Connections that have no name are left alone: they are the test's own."""
        connect: Any = UnixDomainSocketConnection._connect

        def _connect(connection: Any) -> Any:
            plain = connect(connection)
            if not connection.client_name:
                return plain
            timeout = plain.gettimeout()
            watched = WatchedSocket(fileno=plain.detach())
            watched.settimeout(timeout)
            watched.tripwire = self
            return watched

        UnixDomainSocketConnection._connect = _connect  # type: ignore[method-assign]

    def names(self, data: bytes) -> list[str]:
        """The commands that begin in data, scripts by their names. Nothing for what goes on with a large command."""
        names = []
        for name, *words in _commands(data):
            if name not in GREETINGS:
                names.append(self._scripts.get(words[0], name) if name == "EVALSHA" and words else name)
        return names

    def is_here(self, call: str) -> bool:
        """Counts a call; whether it is the one."""
        with self._lock:
            self.calls[call] += 1
            return (call, self.calls[call]) == self._at


class WatchedSocket(socket.socket):
    tripwire: Tripwire

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._awaited = 0
        self._reader: Any = None
        #: Whether nothing has been read since something was sent: a large pipeline is sent in pieces.
        self._is_sending = False

    def sendall(self, data: Any, *flags: int) -> None:
        self._send(super().sendall, data, *flags)

    def send(self, data: Any, *flags: int) -> int:
        return int(self._send(super().send, data, *flags))

    def _send(self, send: Callable[..., Any], data: Any, *flags: int) -> Any:
        names = self.tripwire.names(bytes(data))
        is_new, self._is_sending = bool(names) and not self._is_sending, True
        how = self.tripwire.how if is_new and self.tripwire.is_here(_label(names)) else None
        if how == "killed before it":
            _die()
        if how == "request lost":
            self._break()
        sent = send(data, *flags)
        if how == "killed before its reply":
            _die()
        if how:
            self._reader = hiredis.Reader()
        if how or self._awaited:
            self._awaited += len(names)
        return sent

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        self._receive(data, flags)
        return data

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        received = super().recv_into(buffer, size, flags)
        self._receive(bytes(buffer[:received]), flags)
        return received

    def _receive(self, data: bytes, flags: int) -> None:
        self._is_sending = False
        if not self._awaited or flags & socket.MSG_PEEK:
            return
        self._reader.feed(data)
        while self._awaited and self._reader.gets() is not False:
            self._awaited -= 1
        if not self._awaited:
            if self.tripwire.how == "killed after its reply":
                _die()
            self._break()

    def _break(self) -> None:
        self.shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError("cut by the test")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _commands(data: bytes) -> Iterator[list[str]]:
    """The first two words of each command, as far as they are there: a large command comes in pieces."""
    at = 0
    while data[at : at + 1] == b"*":
        count, at = _length(data, at)
        words = []
        for position in range(count):
            if at >= len(data):
                break
            length, at = _length(data, at)
            if position < 2:
                words.append(data[at : at + length].decode())
            at += length + 2
        yield words


def _length(data: bytes, at: int) -> tuple[int, int]:
    """The number behind a `*` or `$`, and where its line ends."""
    end = data.index(b"\r\n", at)
    return int(data[at + 1 : end]), end + 2


def _label(names: list[str]) -> str:
    """Repeated ones once: how many shards are acquired, or scripts loaded, makes no other call."""
    return "+".join(dict.fromkeys(names))
