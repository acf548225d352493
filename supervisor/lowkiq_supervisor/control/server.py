"""
The control socket: commands from people and probes, served inside the supervisor's loop.

One JSON object a line each way: `{"command": "status"}` gets `{"ok": true, …}`, or `{"ok": false, "error": …}`. Nothing
here ever waits: a client that is slow, silent, greedy or talks nonsense is closed. Only its user can connect.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from lowkiq_supervisor.errors import BootError, CommandRefused
from lowkiq_supervisor.loop import Loop

#: Clients at a time; more than any number of probes and people, far less than descriptors.
MOST_CLIENTS = 16
#: Bytes of a request.
LONGEST_REQUEST = 4096
#: Seconds a client may take for its requests.
CLIENT_TIME = 10.0
#: Bytes the kernel takes for an answer at once: a client that doesn't read isn't waited for.
ANSWER_ROOM = 1 << 20

#: Does what a request asks for. None: the answer comes when everything has ended.
Handler = Callable[[dict[str, Any]], dict[str, Any] | None]

log = structlog.stdlib.get_logger("supervisor")


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    asked: bytes = b""
    #: None: it may stay as long as the supervisor.
    close_at: float | None = field(default_factory=lambda: time.monotonic() + CLIENT_TIME)


class Control:
    """The listening socket and its clients."""

    def __init__(self, path: Path, loop: Loop, handle: Handler) -> None:
        self._path = path
        self._loop = loop
        self._handle = handle
        self._listener: socket.socket | None = None
        self._clients: dict[int, _Client] = {}

    def open(self) -> None:
        """Listen. The caller holds the directory's lock, so a socket found here is a dead supervisor's."""
        try:
            if self._path.exists():
                if not stat.S_ISSOCK(self._path.lstat().st_mode):
                    raise BootError(f"{self._path} is in the way and is no socket: remove it")
                self._path.unlink()
            self._listener = self._bind()
        except OSError as error:
            raise BootError(f"can't listen on {self._path}: {error}; set LOWKIQ_STATE_DIR elsewhere") from error
        self._loop.add(self._listener, self._accept)

    def _bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        mask = os.umask(0o177)  # it is private from its first moment
        try:
            listener.bind(os.fspath(self._path))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(mask)
        listener.listen(MOST_CLIENTS)
        return listener

    def deadlines(self) -> list[float]:
        return [client.close_at for client in self._clients.values() if client.close_at is not None]

    def drop_overdue(self) -> None:
        """Close clients that have had their time."""
        now = time.monotonic()
        for client in list(self._clients.values()):
            if client.close_at is not None and client.close_at <= now:
                self._drop(client)

    def end(self, last_answer: dict[str, Any]) -> None:
        """Answer the clients that wait for the end, and listen no more."""
        for client in list(self._clients.values()):
            if client.close_at is None:
                self._answer(client, last_answer)
            self._drop(client)
        if self._listener is not None:
            self._loop.drop(self._listener)
            with contextlib.suppress(OSError):
                self._path.unlink()
        self.close()

    def close(self) -> None:
        """Close the descriptors; in a forked child, without touching the supervisor's socket."""
        for client in self._clients.values():
            client.connection.close()
        self._clients.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone away again, or there are no descriptors
            return
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ANSWER_ROOM)
        client = _Client(connection)
        if len(self._clients) >= MOST_CLIENTS:
            self._answer(client, _refusal(f"too many clients: {MOST_CLIENTS} are served at a time"))
            connection.close()
            return
        self._clients[connection.fileno()] = client
        self._loop.add(connection, lambda: self._read(client))

    def _read(self, client: _Client) -> None:
        try:
            received = client.connection.recv(LONGEST_REQUEST + 1)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        *requests, client.asked = (client.asked + received).split(b"\n")
        for request in requests:
            if not self._serve(client, request):
                return
        if len(client.asked) > LONGEST_REQUEST:
            self._answer(client, _refusal(f"a request has at most {LONGEST_REQUEST} bytes"))
            self._drop(client)
        elif not received:
            self._drop(client)

    def _serve(self, client: _Client, line: bytes) -> bool:
        """Answer one request; False: the client is gone."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        answer: dict[str, Any] | None = _refusal('a request is a JSON object such as {"command": "status"}')
        try:
            if isinstance(request, dict):
                answer = self._handle(request)
        except CommandRefused as error:
            answer = _refusal(str(error))
        if answer is None:
            client.close_at = None
        elif not self._answer(client, answer):
            self._drop(client)
            return False
        return True

    @staticmethod
    def _answer(client: _Client, answer: dict[str, Any]) -> bool:
        """Send it at once and as a whole, or not at all."""
        line = json.dumps(answer).encode() + b"\n"
        try:
            return client.connection.send(line) == len(line)
        except OSError:
            return False

    def _drop(self, client: _Client) -> None:
        self._clients.pop(client.connection.fileno(), None)
        self._loop.drop(client.connection)
        client.connection.close()


def _refusal(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}
