"""
Holding signals back: while a process sets out or ends, a signal waits until there is somebody to act on it.

Imports next to nothing: it is the first thing that a command does.
"""

from __future__ import annotations

import signal

#: The process itself has caused these, and can't go on.
FAULTS = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS,
}  # fmt: skip


def hold_back() -> None:
    """Keep every signal pending that somebody may send: one that comes while the process sets out isn't lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)


def release() -> None:
    """Take those that were held back, and more."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
