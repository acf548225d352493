"""
Python processes that begin with their imports done: a server that has imported all of Lowkiq forks them.

Importing is most of what a short process costs, and to take the interpreter down most of the rest; the tests start a
thousand. They are children of the tests' own process and differ from others in nothing that a test looks at: at the end
they do what is registered for it, and leave the objects to the kernel. Tests of a boot's first moments, and programs
that measure, start theirs cold.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import setproctitle

from lowkiq.process.ending import run_exit_functions
from lowkiq.queue import scripts

#: Sources that the server has imported from: children that have others are started cold.
SOURCES = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "supervisor")]
#: What servers import: as much as their children would, for what nobody needs costs time at each fork and end.
MODULES = {
    "supervisor": ["lowkiq_supervisor.cli"],
    "library": [f"lowkiq.cli.{file.stem}" for file in Path(SOURCES[0], "lowkiq/cli").glob("[!_]*.py")],
}
#: What typer loads once it parses, where pydantic happens to be installed.
LOADED_LATE = "typer._adapters"
#: Variables that Python or the loader read before any line of ours.
READ_EARLY = ("LD_", "PYTHON", "LANG", "LC_")
#: … of which these can still be followed after that, or change nothing of what tests look at.
FOLLOWED = {"PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
#: The variable of processes that are started cold all the same, as all are with `TEST_COLD=1 make test`.
COLD = {"TEST_COLD": "1"}
#: Descriptors are kept from here up until each has its place.
ASIDE = 200
#: Bytes of a request, at most.
MOST = 1 << 20
PR_SET_CHILD_SUBREAPER = 36


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """`subprocess.Popen` of this Python with `-c CODE`, `-m MODULE` or a script; warm if it may be."""
    given = {name: str(value) for name, value in (options.get("env") or os.environ).items()}
    return (_Warm if _may_be_warm(command, given) else subprocess.Popen)(command, **options)


def run(
    command: Sequence[str], *, timeout: float = 60, capture_output: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run`, likewise; as text, and without a check of the exit code."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with popen(command, text=True, **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(command), process.returncode, stdout, stderr)


def _may_be_warm(command: Sequence[str], environment: dict[str, str]) -> bool:
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    early = {name for name in environment if name.startswith(READ_EARLY)} - FOLLOWED
    return (
        sys.platform == "linux"
        and not COLD.keys() & {*environment, *os.environ}
        and command[0] == sys.executable
        and path[0] == SOURCES[0]
        and all(environment[name] == os.environ.get(name) for name in early)
    )


class _Warm(subprocess.Popen[Any]):
    """Is the child of this process that a Popen has; only made in another way."""

    def _execute_child(  # the one method of Popen that makes the process, as it is since Python 3.11
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *others,
    ):  # fmt: skip
        descriptors = {0: p2cread, 1: c2pwrite, 2: errwrite} | {number: number for number in pass_fds}
        given = {number: number if own == -1 else own for number, own in descriptors.items()}
        kind = "supervisor" if any("supervis" in word for word in map(str, args[:3])) else "library"
        self.pid = _server(kind).fork(
            {
                "command": list(map(str, args[1:])),
                "cwd": os.fspath(cwd or Path.cwd()),
                "environment": {name: str(value) for name, value in (os.environ if env is None else env).items()},
                "descriptors": list(given),
            },
            list(given.values()),
        )
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


class _Server:
    """The process that forks, as this process sees it."""

    def __init__(self, kind: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        serve = f"from tests.warm import leaving, serve\nwith leaving(): exec(*serve({theirs.fileno()}, {kind!r}))"
        code = f"import sys; sys.path[:0] = {SOURCES}\n{serve}"
        kept = {name: value for name, value in os.environ.items() if name not in FOLLOWED}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=[theirs.fileno()], env=kept, stdin=subprocess.DEVNULL
            )
        self._socket = ours
        self._lock = threading.Lock()
        self._prctl = ctypes.CDLL(None).prctl
        atexit.register(self._end)

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Returns the pid. The child's parent ends at once, so that it becomes a child of this process."""
        with self._lock:
            self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                return int(self._socket.recv(MOST))
            finally:
                self._prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _server(kind: str) -> _Server:
    return _Server(kind)


# ── in the server ───────────────────────────────────────────────────────────────────────────────────────────────────


def serve(descriptor: int, kind: str) -> tuple[CodeType, dict[str, Any]]:
    """Imports, and forks whenever it is asked to; returns in the child, with the code that it is to run."""
    for name in MODULES[kind]:
        __import__(name)
    with suppress(ImportError):
        __import__(LOADED_LATE)
    setproctitle.getproctitle()  # it finds its place before the environment is another
    if kind == "library":
        scripts.load(flags=True)
        importlib.metadata.version = cache(importlib.metadata.version)  # which redis-py reads with each connection
    del sys.path[: 1 + len(SOURCES)]  # the first is of `-c`
    # The children share what is there by now: a collection would write to it.
    gc.collect()
    gc.freeze()
    server = socket.socket(fileno=descriptor)
    while True:
        try:
            request, descriptors, _, _ = socket.recv_fds(server, MOST, ASIDE)
        except KeyboardInterrupt:
            os._exit(130)
        if not request:
            os._exit(0)
        if (pid := _fork_away()) == 0:
            server.close()
            return _become(json.loads(request), descriptors)
        for each in descriptors:
            os.close(each)
        server.send(str(pid).encode())


@contextmanager
def leaving() -> Iterator[None]:
    """Ends the process as soon as the code in it has, but for an error, which is the interpreter's to tell."""
    code = 0
    try:
        yield
    except SystemExit as ended:
        if not isinstance(ended.code or 0, int):
            raise
        code = int(ended.code or 0) & 0xFF
    run_exit_functions(code, 600.0)
    os._exit(code)


def _fork_away() -> int:
    """Forks a child that is none of this process; 0 in the child."""
    reader, writer = os.pipe()
    if (between := os.fork()) == 0:
        between = os.getpid()
        if (pid := os.fork()) == 0:
            os.close(reader)
            os.close(writer)
            while os.getppid() == between:
                time.sleep(0.0005)
            return 0
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(between, 0)
    pid = int(os.read(reader, 20))
    os.close(reader)
    return pid


def _become(request: dict[str, Any], descriptors: list[int]) -> tuple[CodeType, dict[str, Any]]:
    """Makes this process what `python COMMAND …` is at its first line."""
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, ASIDE) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for own, number in zip(aside, request["descriptors"], strict=True):
        os.dup2(own, number)
        os.close(own)
    os.chdir(request["cwd"])
    environment = request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    first, *rest = request["command"]
    if first == "-c":
        place, name, source, sys.argv = "", "<string>", rest[0], ["-c", *rest[1:]]
    elif first == "-m":
        source = f"import runpy; runpy.run_module({rest[0]!r}, run_name='__main__', alter_sys=True)"
        place, name, sys.argv = request["cwd"], "<string>", rest
    else:
        place, name, source, sys.argv = str(Path(first).parent), first, Path(first).read_text(), [first, *rest]
    before = [] if environment.get("PYTHONSAFEPATH") else [place]
    sys.path[:0] = [*before, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__file__ = name
    return compile(source, name, "exec"), module.__dict__
