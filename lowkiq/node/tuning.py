"""Tuning: what a node asks of the interpreter and of the kernel while it runs."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def tuned() -> Iterator[None]:
    """For threads that are started within, once all that lives as long as the node has been made."""
    with _frozen(), _batch():
        yield


@contextlib.contextmanager
def _frozen() -> Iterator[None]:
    """
    What there is now is nothing to the garbage collector. Claimed jobs make it look again and again at all there is,
    modules and all, which took a third of the time of blank ones.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _batch() -> Iterator[None]:
    """
    Threads that wake up take the core of nobody: of no other worker thread, and not Redis's beside them. That makes a
    busy node a quarter faster, and costs an idle one nothing (sched(7), SCHED_BATCH). It asks for no privilege, and a
    policy that somebody has chosen stays.
    """
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    with contextlib.suppress(OSError):  # a container may refuse it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
