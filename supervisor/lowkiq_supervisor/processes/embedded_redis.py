"""
The embedded Redis: a private, real server for people who have named none, in a slot like any other process.

Responsible for its files, its configuration and for telling whether it answers. It listens on a unix socket only, keeps
everything on disk and evicts nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import psutil

from lowkiq.log import get_logger
from lowkiq.process.own_files import make_own_directory, open_own
from lowkiq.process.place import EMBEDDED_SOCKET
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.processes.child import spawn
from lowkiq_supervisor.processes.redis_servers import find_server
from lowkiq_supervisor.processes.slots import Slot, State
from lowkiq_supervisor.restart_policy import RestartHistory, RestartMode, RestartPolicy
from lowkiq_supervisor.state_dir import Lock, make_private, refuse_a_long_path, refuse_another_user_s, usable

#: Seconds to wait for the server of a supervisor that was killed: it notices, writes what it has, and ends.
LEFTOVER_LIMIT = 5.0
#: Seconds for an answer to PING; a server that reads its data back answers between two chunks.
PING_LIMIT = 0.05
#: Seconds it may take to start: it reads back everything it holds.
BOOT_LIMIT = 120.0
#: Seconds between two looks at a starting server.
LOOK_INTERVAL = 0.02
#: Seconds to write what it has and end; it usually takes a few milliseconds.
GRACE = 10.0
#: Paths are relative to the directory, so that no character in them needs quoting.
CONFIGURATION = {
    "port": "0",  # no network
    "unixsocket": "redis.sock",
    "unixsocketperm": "700",
    "dir": ".",
    "logfile": "redis.log",
    "daemonize": "no",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",  # the append-only file is the one copy
    "maxmemory-policy": "noeviction",
}

log = get_logger("supervisor")


class EmbeddedRedis:
    """The server's place in the state directory. One supervisor at a time: a lock says so."""

    def __init__(self, state_dir: Path, *, server: Path | None = None) -> None:
        self._state_dir = state_dir
        self._directory = state_dir / "redis"
        self._server = server
        self._log_path = self._directory / "redis.log"
        #: Where it listens; the library looks here by itself in the same directory.
        self.socket_path = Path(f"{state_dir}{EMBEDDED_SOCKET}")
        #: The variables by which nodes find it.
        self.environment = {"LOWKIQ_REDIS_URL": f"unix://{quote(str(self.socket_path))}"}
        self._lock = Lock(self._directory / "lock")
        #: Gives this process's hold on the lock back; other processes keep theirs.
        self.close = self._lock.close

    def prepare(self) -> None:
        """Find a server, make the directory, take the lock, and choose the server that reads what is in there."""
        refuse_a_long_path(self.socket_path)
        among = [self._server] if self._server else None
        find_server(among=among)
        with usable():
            make_private(self._state_dir)
            refuse_another_user_s(self._state_dir)
            make_own_directory(self._directory)
        self._take_lock()
        if self.answers():
            raise BootError(
                f"a Redis server that isn't ours answers on {self.socket_path}: stop it, or use it by setting "
                f"LOWKIQ_REDIS_URL=unix://{self.socket_path}, or set another LOWKIQ_STATE_DIR"
            )
        self._server = find_server(self._directory, among)

    def become_server(self) -> int:
        """Turn this process, a forked child, into the server. Returns only by an exception."""
        assert self._server is not None  # noqa: S101 - prepare() has found it
        os.chdir(self._directory)
        os.umask(0o077)  # for its files, wherever somebody may move them
        output = open_own(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        if self._lock.descriptor is not None:
            # The lock lives as long as anybody holds it. So the next supervisor waits for a server that has outlived
            # this one, instead of starting a second one on the same files.
            os.set_inheritable(self._lock.descriptor, True)
        # A TERM for all processes of a service, as systemd sends it, would end the server before nodes have drained. A
        # program that is executed keeps what is blocked: this one ends on INT, which the supervisor sends.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        options = [word for name, value in CONFIGURATION.items() for word in (f"--{name}", value)]
        os.execv(self._server, [str(self._server), *options])  # noqa: S606 - no shell is wanted

    def answers(self) -> bool:
        """True if a server answers PING on the socket, ready to work."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PING_LIMIT)
            connection.connect(str(self.socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False

    def last_lines(self, count: int = 5) -> str:
        """The end of the server's log."""
        with contextlib.suppress(OSError):
            return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-count:])
        return ""

    def _take_lock(self) -> None:
        deadline = time.monotonic() + LEFTOVER_LIMIT
        while holder := self._take_lock_once():
            if (holder.isdecimal() and psutil.pid_exists(int(holder))) or time.monotonic() > deadline:
                raise BootError(
                    f"another supervisor (process {holder}) runs an embedded Redis in {self._state_dir}: "
                    "stop it, or give this one its own --state-dir, or let both share a server by LOWKIQ_REDIS_URL"
                )
            time.sleep(0.02)

    def _take_lock_once(self) -> str | None:
        with usable():
            return self._lock.take()


def redis_slot(embedded: EmbeddedRedis, policy: RestartPolicy, close_foreign: Callable[[], None]) -> Slot:
    """The slot; whatever was asked for the nodes, it is always refilled, for they can do nothing without it."""
    return Slot(
        title="redis",
        history=RestartHistory(replace(policy, mode=RestartMode.ALWAYS, burst=False)),
        launch=lambda _: spawn(
            lambda _: embedded.become_server(),
            close_foreign=close_foreign,
            # When the supervisor is killed, nodes are simply gone; the server first writes what it has.
            death_signal=signal.SIGINT,
        ),
        end_signal=signal.SIGINT,
        grace=GRACE,
    )


def has_become_ready(slot: Slot, embedded: EmbeddedRedis) -> bool:
    """Look whether a starting server answers now. It can't beat; so it is asked, until its boot limit."""
    if slot.child is None or slot.state is not State.STARTING:
        return False
    if embedded.answers():
        slot.kill_at = None
        return slot.enter(State.READY)
    slot.kill_at = slot.child.started_at + BOOT_LIMIT
    return False
