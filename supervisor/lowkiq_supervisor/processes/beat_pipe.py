"""
The beat pipe: a process sends the supervisor its state, one line each, about once a second.

A line is the state, how many threads and tasks are busy, how many jobs have ended, for how many shards the node stands
by, how full it is, and by how many milliseconds its oldest queued job is late. Numbers that a line lacks count as 0,
and words after them are ignored.

In place of a state, a line may have what the node asks for (lowkiq/process/asks.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple

#: In place of a state: the application has the hook node_ended.
HAS_END_HOOK = "has_node_ended"
#: The same: it has a splitter of its own, which deals the shards to a fixed number of nodes.
HAS_SPLITTER = "has_build_splitter"
#: Bytes of a line that has no end yet.
MOST_REST = 4096


class Beat(NamedTuple):
    state: str
    busy: int = 0
    jobs: int = 0
    #: Shards of the node that another one holds.
    waits: int = 0
    #: Thousandths of its threads that are busy; or of the places on its event loop, if more of those are taken.
    full: int = 0
    #: Milliseconds by which the oldest job is late that is due in its shards, as far as the node knows.
    late: int = 0


class BeatWriter:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    def __call__(self, line: str) -> None:
        """
        Send a line. Never waits: beats are worth less than a job.

        A supervisor that is gone is noticed here where the kernel doesn't tell (see process/parent.py): drain then.
        """
        try:
            os.write(self._descriptor, f"{line}\n".encode())
        except BlockingIOError:
            pass
        except BrokenPipeError:
            os.kill(os.getpid(), signal.SIGTERM)


class BeatReader:
    """The supervisor's end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        #: The other end is closed: nothing more will come, and a selector would report it for ever.
        self.ended = False

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> list[Beat]:
        """The beats since the last look, oldest first; incomplete lines wait for their end."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._descriptor, 65536):
                self._rest += chunk
            self.ended = True
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest[:MOST_REST]
        words = (line.decode(errors="replace").split() for line in lines)
        return [
            Beat(found[0], *(int(word) if word.isdecimal() else 0 for word in found[1:6])) for found in words if found
        ]

    def close(self) -> None:
        os.close(self._descriptor)
