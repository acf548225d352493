"""
The control socket: commands from people and probes, served inside the supervisor's loop.

One JSON object a line each way: `{"command": "status"}` gets `{"ok": true, …}`, or `{"ok": false, "error": …}`. Nothing
here ever waits: a client that is slow, silent, greedy or talks nonsense is closed. Only its user can connect.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowkiq.log import get_logger
from lowkiq.process.own_files import identity
from lowkiq_supervisor.errors import BootError, CommandRefused
from lowkiq_supervisor.loop import Loop

#: Clients at a time; more than any number of probes and people, far less than descriptors.
MOST_CLIENTS = 16
#: Bytes of a request.
LONGEST_REQUEST = 4096
#: Seconds a client may take for its requests.
CLIENT_TIME = 10.0
#: Seconds after which a client makes room for another one, where there are that many: who asks, asks at once.
IDLE_TIME = 1.0
#: Bytes the kernel takes for an answer at once: a client that doesn't read isn't waited for.
ANSWER_ROOM = 1 << 20

#: Seconds without listening, when there are no descriptors for clients: a waiting one would turn the loop for nothing.
PAUSE = 1.0
#: Errors that say that there are none.
LACK = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

#: Does what a request asks for. None: the answer comes when everything has ended.
Handler = Callable[[dict[str, Any]], dict[str, Any] | None]

log = get_logger("supervisor")


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
        #: The socket's file: another one of that name is somebody else's.
        self._identity: tuple[int, int] | None = None
        #: Given up for one client when there are no more descriptors: somebody may want to say stop.
        self._spare: int | None = None
        #: When to listen again, after there was not even that.
        self._listen_at: float | None = None
        self._last_trouble = ""
        self._clients: dict[int, _Client] = {}

    def open(self) -> None:
        """Listen. The caller holds the directory's lock, so a socket found here is a dead one's: nobody answers."""
        try:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(self._path.lstat().st_mode):
                    raise BootError(f"{self._path} is in the way and is no socket: remove it")
                if self._is_answered():
                    raise BootError(f"another supervisor answers at {self._path}, whose lock was deleted: stop it")
                self._path.unlink()
            self._listener = self._bind()
            self._identity = identity(self._path.lstat())
        except OSError as error:
            raise BootError(f"can't listen on {self._path}: {error}; set LOWKIQ_STATE_DIR elsewhere") from error
        self._loop.add(self._listener, self._accept)
        self._fill_spare()

    def keep(self) -> None:
        """Listen again, if somebody has deleted the socket, or put another one in its place."""
        if self._is_in_place():
            return
        self._stop_listening()
        trouble = ""
        try:
            self.open()
        except BootError as error:
            trouble = str(error)
        if not trouble:
            log.warning("control_socket_made_again", path=str(self._path), hint="somebody has deleted it")
        elif trouble != self._last_trouble:
            log.error("control_socket_lost", error=trouble)
        self._last_trouble = trouble

    def _is_in_place(self) -> bool:
        with contextlib.suppress(OSError):
            return self._listener is not None and identity(self._path.lstat()) == self._identity
        return False

    def _is_answered(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # so many wait for it
                connection.connect(os.fspath(self._path))
            return True
        return False

    def _stop_listening(self) -> None:
        """Close the listener, and remove its file if it is still that."""
        if self._listener is None:
            return
        self._loop.drop(self._listener)
        if self._is_in_place():
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._listener.close()
        self._listener = None

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
        times = [client.close_at for client in self._clients.values()] + [self._listen_at]
        return [at for at in times if at is not None]

    def drop_overdue(self) -> None:
        """Close clients that have had their time; listen again, if it is time for that."""
        now = time.monotonic()
        if self._listen_at is not None and self._listen_at <= now:
            self._listen_at = None
            if self._listener is not None:
                self._loop.add(self._listener, self._accept)
        for client in list(self._clients.values()):
            if client.close_at is not None and client.close_at <= now:
                self._drop(client)

    def end(self, last_answer: dict[str, Any]) -> None:
        """Answer the clients that wait for the end, and listen no more."""
        for client in list(self._clients.values()):
            if client.close_at is None:
                self._answer(client, last_answer)
            self._drop(client)
        self._stop_listening()
        self.close()

    def close(self) -> None:
        """Close the descriptors; in a forked child, without touching the supervisor's socket."""
        for client in self._clients.values():
            client.connection.close()
        self._clients.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._close_spare()

    def _fill_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _close_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in LACK:
                self._do_without(error)
            return  # else it has gone away again
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ANSWER_ROOM)
        client = _Client(connection)
        if len(self._clients) >= MOST_CLIENTS and not self._make_room():
            self._answer(client, _refusal(f"too many clients: {MOST_CLIENTS} are served at a time"))
            connection.close()
            self._fill_spare()
            return
        self._clients[connection.fileno()] = client
        self._loop.add(connection, lambda: self._read(client))

    def _make_room(self) -> bool:
        """Close the client that has been there for longest, if it does not wait for the end; False: all are new."""
        latest = time.monotonic() + CLIENT_TIME - IDLE_TIME
        idle = (one for one in self._clients.values() if one.close_at is not None and one.close_at <= latest)
        if oldest := next(idle, None):
            self._drop(oldest)
        return oldest is not None

    def _do_without(self, error: OSError) -> None:
        """There are no descriptors: take one client by the spare one, or stop listening for a while."""
        if self._spare is not None:
            self._close_spare()
            self._accept()
            return
        assert self._listener is not None  # noqa: S101 - it has just refused
        log.error("control_socket_pauses", error=str(error), seconds=PAUSE)
        self._loop.drop(self._listener)
        self._listen_at = time.monotonic() + PAUSE

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
        self._fill_spare()


def _refusal(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}
