"""The end of a helper with everything that its jobs have started."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

from lowkiq.process.parent import kill_group

#: Looks for descendants, at most: those that were found are stopped, so a second look mostly finds none.
LOOKS = 3


def kill_tree(pid: int) -> None:
    """
    Kills a process that leads a group, that group, and all its descendants, also those that have left the group. They
    are stopped before that, since once one is dead nobody knows any more whose children its own were.
    """
    stop_group(pid)
    for child in _stopped(pid):
        with contextlib.suppress(psutil.Error, OSError):
            child.kill()
    kill_group(pid)


def stop_group(group: int) -> None:
    """Has a group stand still, until it is killed."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGSTOP)


def _stopped(pid: int) -> set[psutil.Process]:
    stopped: set[psutil.Process] = set()
    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        for _ in range(LOOKS):
            new = set(process.children(recursive=True)) - stopped
            for child in new:
                with contextlib.suppress(psutil.Error, OSError):
                    child.suspend()
            stopped |= new
            if not new:
                break
    return stopped
