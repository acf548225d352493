"""
Preloading: the application is imported once, before the fork, and its pages are shared by all nodes.

The one exception to the rule that the supervisor knows no user code; so it makes sure that nothing of it keeps running
here: a thread would be missing in every node, with whatever locks it held locked for ever.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from lowkiq_supervisor.errors import BootError

log = structlog.stdlib.get_logger("supervisor")


def preload(app: str, environment: Mapping[str, str]) -> None:
    """
    Import the application, as nodes would; BootError: it can't be imported, or has started threads.

    Args:
        environment: the variables that nodes will have: settings are read when the application is made.
    """
    os.environ.update(environment)
    sockets = _sockets()
    try:
        from lowkiq.importing import load_app  # noqa: PLC0415 - only with --preload
        from lowkiq.node import node  # noqa: F401, PLC0415 - what every node needs, too

        load_app(app)
    except Exception as error:
        raise BootError(f"can't preload {app}: {type(error).__name__}: {error}") from error
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    tasks = Path("/proc/self/task")  # threads as the kernel counts them
    native = len(list(tasks.iterdir())) - 1 - len(names) if tasks.is_dir() else 0
    if names or native > 0:
        found = ", ".join([*names, *([f"{native} not started by Python"] if native > 0 else [])])
        raise BootError(
            f"importing {app} starts threads ({found}), which forked nodes would not have: start them in "
            "on_server_init, or run without --preload"
        )
    if opened := _sockets() - sockets:
        log.warning("preload_opened_connections", app=app, sockets=len(opened), hint="nodes must not share them")
    gc.collect()
    gc.freeze()  # nodes' collections leave the shared pages alone
    log.info("preloaded", app=app, hint="a rolling restart (HUP) keeps this code, to change it restart the supervisor")


def _sockets() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir() if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # the one that lists the directory
            found.add(str(entry.readlink()))
    return {link for link in found if link.startswith("socket:")}
