"""
Preloading: the application is imported once, before the fork, and its pages are shared by all nodes.

The one exception to the rule that the supervisor knows no user code; so it makes sure that nothing of it keeps running
here: a thread would be missing in every node, with whatever locks it held locked for ever.
"""

from __future__ import annotations

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
    Import the application, as nodes would.

    Args:
        app: as given to --require.
        environment: the variables that nodes will have: settings are read when the application is made.

    Raises:
        BootError: it can't be imported, or has started threads.
    """
    os.environ.update(environment)
    sockets = _sockets()
    try:
        from lowkiq.importing import load_app  # noqa: PLC0415 - only with --preload
        from lowkiq.node import node  # noqa: F401, PLC0415 - what every node needs, too

        load_app(app)
    except Exception as error:
        raise BootError(f"can't preload {app}: {type(error).__name__}: {error}") from error
    _refuse_threads(app)
    if opened := _sockets() - sockets:
        log.warning("preload_opened_connections", app=app, sockets=len(opened), hint="nodes must not share them")
    gc.collect()
    gc.freeze()  # nodes' collections leave the shared pages alone
    log.info("preloaded", app=app, hint="a rolling restart (HUP) keeps this code, to change it restart the supervisor")


def _refuse_threads(app: str) -> None:
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    native = _native_threads() - len(names)
    if names or native > 0:
        found = ", ".join([*names, *([f"{native} not started by Python"] if native > 0 else [])])
        raise BootError(
            f"importing {app} starts threads ({found}), which forked nodes would not have: start them in "
            "on_server_init, or run without --preload"
        )


def _native_threads() -> int:
    """Threads besides the main one, as the kernel counts them."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) - 1 if tasks.is_dir() else threading.active_count() - 1


def _sockets() -> set[str]:
    if sys.platform != "linux":
        return set()
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:  # the one that lists the directory
            continue
    return {link for link in links if link.startswith("socket:")}
