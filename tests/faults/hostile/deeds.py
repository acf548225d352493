"""
Deeds: what users' code has done to the process that runs it, or to its event loop (on_loop.py). Each is done once, by
the first run of a job, and that job is done the next time; a run that returns from its deed is done right away.
"""

from __future__ import annotations

import asyncio
import ctypes
import decimal
import faulthandler
import gc
import io
import logging
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Final, NoReturn

import psutil

from lowkiq import current
from tests.chaos.journal import line

#: Where all of it is noted, outside Redis.
HERE: Final = Path(os.environ.get("HOSTILE_DIRECTORY", ""))
#: What a job may leave to those after it; innocent ones look.
TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)
#: Seconds for which a job that goes too far holds what it has taken.
HELD: Final = 1.5
#: Seconds that are longer than their perform_timeout; only a process of its own is ended for it.
HUNG: Final = 6.0
FOR_EVER: Final = 10**6
#: Bytes that are more than `--max-rss` leaves.
TOO_MUCH: Final = 800 << 20

OUTLIVED: Final = "of a job that is over"

#: What nobody ever lets go of.
kept: list[Any] = []


def write(kind: str, **details: Any) -> None:
    """A record. The journal is opened anew for each: jobs here close what they did not open."""
    journal = os.open(HERE / "journal", os.O_WRONLY | os.O_APPEND)
    os.write(journal, line(kind, pid=os.getpid(), **details))
    os.close(journal)


class Odd(BaseException):
    """What no `except Exception` catches."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise Odd("an error that can't be told")


def _fork(in_child: Callable[[], object]) -> object:
    """Its child returns from here, and so from perform, unless it is to do something else."""
    if os.fork() == 0:
        return in_child()
    time.sleep(0.3)
    return None


def raise_(error: BaseException) -> NoReturn:
    raise error


def _to_itself(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.3)


def _outlive() -> None:
    """A thread that speaks for its job until it is refused, as the job is over, and then once more."""
    context = current()

    def speak() -> None:
        with suppress(Exception):
            while True:
                context.checkpoint(OUTLIVED)
                time.sleep(0.05)
        with suppress(Exception):
            context.checkpoint(OUTLIVED)
            write("intruder")

    threading.Thread(target=speak, daemon=True).start()


def _hold_the_lock() -> None:
    ctypes.PyDLL(None).usleep(int(HELD * 1e6))


def _hang_in_c() -> None:
    until = time.monotonic() + HUNG
    while time.monotonic() < until:
        ctypes.CDLL(None).usleep(int(HUNG * 1e6))  # a signal ends it


def _overflow() -> int:
    sys.setrecursionlimit(10**7)
    return max([0], key=lambda _: _overflow())  # by way of C, whose stack has an end


def _recurse() -> None:
    _recurse()


def _allocate() -> None:
    held = bytearray(os.urandom(1)) * TOO_MUCH
    time.sleep(HELD)
    del held


def _name() -> str:
    """Begins the name of what is left: which run of this program, and which process, has made it. No `-` follows."""
    return f"{HERE.name}-{os.getpid()}-"


def _share_memory() -> None:
    kept.append(SharedMemory(f"{_name()}{threading.get_ident()}.{len(kept)}", create=True, size=4096))


def _leave_a_folder() -> None:
    kept.append(tempfile.TemporaryDirectory(prefix=_name()))


def _keep_a_pool() -> None:
    multiprocessing.current_process()._config["semprefix"] = f"/{_name()[:-1]}"  # type: ignore[attr-defined]
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    kept.append(pool)
    pool.submit(abs, -1).result()


def _keep_a_busy_thread() -> None:
    kept.append(ThreadPoolExecutor(1))  # which is waited for at the end
    kept[-1].submit(time.sleep, FOR_EVER)


def _wait_for_any() -> None:
    subprocess.Popen(["true"])
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        child.terminate()


def _take_signals() -> None:
    with suppress(ValueError):  # in a thread that is not the first one
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    faulthandler.register(signal.SIGTERM, chain=False)


def _take_all_descriptors() -> None:
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.dup(0))
    time.sleep(HELD)
    for number in taken:
        os.close(number)


def _set_context() -> None:
    TENANT.set("another's")
    decimal.getcontext().prec = 3


def _spoil_the_process() -> None:
    os.chdir(tempfile.mkdtemp(prefix=_name()))
    Path.cwd().rmdir()
    os.umask(0o777)
    socket.setdefaulttimeout(0.001)
    warnings.simplefilter("error")
    logging.disable()
    gc.disable()
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        setattr(module, name, lambda *_: raise_(Odd()))
    sys.setswitchinterval(5)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(PermissionError):
        os.setpgid(0, 0)


#: What a job does wherever it runs.
ANYWHERE: Final[dict[str, Callable[[], object]]] = {
    # Forks.
    "fork, return": lambda: _fork(lambda: None),
    "fork, raise": lambda: _fork(lambda: raise_(ValueError("in a child"))),
    "fork, exit": lambda: _fork(lambda: sys.exit(0)),
    "fork, interrupt": lambda: _fork(lambda: raise_(KeyboardInterrupt())),
    "fork, stay": lambda: _fork(lambda: time.sleep(FOR_EVER)),
    # What is left behind.
    "leave a child": lambda: kept.append(subprocess.Popen(["sleep", str(FOR_EVER)])),
    "leave a thread": lambda: threading.Thread(target=time.sleep, args=(FOR_EVER,)).start(),
    "leave a busy thread": _keep_a_busy_thread,
    "leave shared memory": _share_memory,
    "leave a folder": _leave_a_folder,
    # What the next one finds.
    "outlive": _outlive,
    "set context": _set_context,
    "spoil the process": _spoil_the_process,
    "close stderr": lambda: sys.stderr.close(),  # noqa: PLW0108 (of the process that it runs in)
    "close stdout": lambda: sys.stdout.close(),  # noqa: PLW0108
    "replace stderr": lambda: setattr(sys, "stderr", io.StringIO()),
    "close descriptors": lambda: os.closerange(3, 200),
    "alarm": lambda: signal.alarm(1),
    "timer": lambda: signal.setitimer(signal.ITIMER_REAL, 0.5),
    "timer of faulthandler": lambda: faulthandler.dump_traceback_later(0.5, exit=True),
    "take signals": _take_signals,
    # What is never over, or too much.
    "hold the lock": _hold_the_lock,
    "hang in C": _hang_in_c,
    "recurse": _recurse,
    "overflow": _overflow,
    "allocate": _allocate,
    # Ends.
    "raise what can't be told": lambda: raise_(Unspeakable()),
    "exit": lambda: sys.exit(0),
    "interrupt": lambda: raise_(KeyboardInterrupt()),
    "raise no Exception": lambda: raise_(Odd()),
    "cancel": lambda: raise_(asyncio.CancelledError()),
    "stop iterating": lambda: raise_(StopIteration()),
    "close": lambda: raise_(GeneratorExit()),
    "TERM": lambda: _to_itself(signal.SIGTERM),
    "INT": lambda: _to_itself(signal.SIGINT),
    "HUP": lambda: _to_itself(signal.SIGHUP),
    "PIPE": lambda: _to_itself(signal.SIGPIPE),
    "KILL": lambda: _to_itself(signal.SIGKILL),
    "crash": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "end": lambda: os._exit(0),
}

#: What only a job that may block does.
BLOCKING: Final[dict[str, Callable[[], object]]] = {"keep a pool": _keep_a_pool, "kill children": _kill_children}
#: What is over only in a process of its own.
APART: Final[dict[str, Callable[[], object]]] = {
    "wait for any child": _wait_for_any, "take all descriptors": _take_all_descriptors,
}  # fmt: skip
