"""Stacks of every thread on stderr, when the process has crashed or is told to abort."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import mmap
import sys

#: Bytes of the stack that signals are handled on: dozens at once have room, of 4 KB each on machines with AVX-512.
STACK = 256 << 10

_kept: list[object] = []


def dump_on_faults() -> None:
    """
    Write stacks on faults and on ABRT. For the main thread.

    Python handles every signal on the stack that faulthandler sets aside for overflows, which has room for four or so:
    a burst of more would be a fault itself. So it gets a larger one.
    """
    with contextlib.suppress(ValueError, AttributeError, OSError):  # a stderr without a descriptor
        faulthandler.enable()
    if sys.platform != "linux" or _kept:
        return
    # Private: a process that is forked from this one handles its own signals on it at the same time.
    memory = mmap.mmap(-1, STACK, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = (ctypes.c_char * STACK).from_buffer(memory)
    stack = _SignalStack(ctypes.addressof(start), 0, STACK)
    if ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0:
        _kept.extend((memory, start))


class _SignalStack(ctypes.Structure):
    """The stack_t of sigaltstack(2)."""

    _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))
