"""A forked child: what it settles with the kernel in its first steps, and its end. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

#: prctl(2): the signal this process gets when its parent dies; its orphaned descendants become its children.
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: Exit code of a child that came too late (ExitCode.INTERNAL).
_ORPHAN = 1

# Loaded before any fork: a child between fork and its first step should not open libraries.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel for this signal when the thread that has forked this process ends; elsewhere than on Linux not."""
    if _libc is not None and _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the request: nobody will send the signal
        os._exit(_ORPHAN)


def adopt_orphans() -> None:
    """Become the parent of what children leave behind, where that is possible."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def offer_to_kernel(expendable: int) -> None:
    """Raise this process's oom_score_adj, which what it starts inherits: the kernel rather takes it than its parent."""
    with contextlib.suppress(OSError, ValueError):
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(min(1000, int(score.read_text()) + max(0, expendable))))


def killed_by(number: int) -> str:
    """A death by this signal in words."""
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(number).name}"
    return f"killed by signal {number}"


def kill_group(group: int) -> None:
    """Kill all processes of a group, if there are any."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
