"""
Processes that nobody started here, but that end up as ours: what nodes have started and left behind.

A supervisor that is process 1 of a container, or a subreaper, becomes their parent, and has to reap them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Container

#: prctl(2): orphaned descendants become children of this process.
_PR_SET_CHILD_SUBREAPER = 36


def adopt() -> bool:
    """Become the parent of what nodes leave behind, so that it doesn't pile up as zombies. False: not possible here."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap_ended(known: Container[int], reap_known: Callable[[int], None]) -> int:
    """
    Reap every child that has ended. Only looks first, so that nobody's status is taken by the wrong one.

    Args:
        known: pids that have an owner here …
        reap_known: … who is called to take the status; it must do so.

    Returns:
        How many strangers were reaped.
    """
    strangers = 0
    with contextlib.suppress(ChildProcessError):  # there are no children
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in known:
                reap_known(ended.si_pid)
            else:
                os.waitpid(ended.si_pid, os.WNOHANG)
                strangers += 1
    return strangers
