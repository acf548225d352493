"""
Preloading: the application is imported once, before the fork, and its pages are shared by all nodes.

The one exception to the rule that the supervisor knows no user code; so it makes sure that nothing of it keeps running
here: a thread would be missing in every node, with whatever locks it held locked for ever.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq.process import unforkable
from lowkiq.process.held_signals import hold_back, release
from lowkiq.process.signals import disarm, leave_on
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.processes.check import CODES, check_app

log = get_logger("supervisor")


def preload(app: str, environment: Mapping[str, str], boot_timeout: float) -> None:
    """
    Import the application, as nodes would.

    A child imports it first: one that hangs, for whatever reason, can be killed. What hangs only here is ended too, by
    a signal or an alarm, unless it is C code that never returns.

    Args:
        environment: the variables that nodes will have: settings are read when the application is made.
        boot_timeout: seconds for each of the two imports; 0: no limit.

    Raises:
        BootError: it can't be imported in that time, or it starts threads.
        EndedEarly: a signal came.
    """
    limit = boot_timeout or math.inf
    if not check_app(lambda: _import(app), app, environment, limit):
        raise BootError(f"can't preload {app}: it can't be imported within --boot-timeout {boot_timeout:g}: see above")
    os.environ.update(environment)
    sockets = _sockets()
    with _bounded(app, boot_timeout):
        try:
            _import(app)
        except Exception as error:
            raise BootError(f"can't preload {app}: {type(error).__name__}: {error}", ExitCode.INTERNAL) from error
    if opened := _sockets() - sockets:
        log.warning("preload_opened_connections", app=app, sockets=len(opened), hint="nodes must not share them")
    gc.collect()
    gc.freeze()  # nodes' collections leave the shared pages alone
    log.info("preloaded", app=app, hint="a rolling restart (HUP) keeps this code, to change it restart the supervisor")


def _import(app: str) -> None:
    """Import it, with what every node needs, too; BootError: it starts threads."""
    from lowkiq.importing import load_app  # noqa: PLC0415 - only with --preload
    from lowkiq.node import node  # noqa: F401, PLC0415

    load_app(app)
    if found := unforkable.threads():
        raise BootError(
            f"importing {app} starts threads ({', '.join(found)}), which forked nodes would not have: start them in "
            "on_server_init, or run without --preload"
        )


@contextlib.contextmanager
def _bounded(app: str, seconds: float) -> Iterator[None]:
    """Let signals in, and the time run, for what should not need it."""

    def too_late(*_: object) -> None:
        log.error("cannot_start", error=f"can't preload {app}: it can't be imported within {seconds:g} s")
        os._exit(ExitCode.BOOT)

    disarm()
    leave_on(CODES)
    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    release()
    try:
        yield
    finally:
        hold_back()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (*CODES, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)


def _sockets() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir() if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # the one that lists the directory
            found.add(str(entry.readlink()))
    return {link for link in found if link.startswith("socket:")}
