"""
The guardian: a process that outlives a supervisor that was killed, and ends what its nodes' jobs have started.

The kernel ends the nodes themselves, but not their children: a job that is repeated elsewhere would meet its own
leftovers. What has left its node's process group, by setsid, is out of reach.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq.process.title import set_title
from lowkiq_supervisor.processes.child import Child, spawn

log = get_logger("supervisor")


class Guardian:
    """
    The supervisor's end of the pipe, whose closing tells the guardian that the supervisor is gone.

    Args:
        close_foreign: called in the guardian; closes what belongs to the supervisor and to other children.
    """

    def __init__(self, close_foreign: Callable[[], None]) -> None:
        self._close_foreign = close_foreign
        self._child: Child | None = None
        self._writer: int | None = None
        self._told: set[int] = set()

    def tell(self, groups: Iterable[int]) -> None:
        """These process groups are to end with the supervisor; all of them each time."""
        if (groups := set(groups)) == self._told:
            return
        try:
            if self._writer is None:
                self._start()
            os.write(self._writer or 0, f"{' '.join(map(str, groups))}\n".encode())
            self._told = groups
        except BlockingIOError:
            pass  # it is stopped: with the next change, all are told again
        except OSError as error:  # it was killed, or can't be started: with the next change
            log.warning("no_guardian", error=str(error), hint="tried again with the next process")
            self.close()

    def end(self) -> None:
        """Nothing is left to end: let it go."""
        self.tell(())
        if self._child is not None:
            self._child.end_now()
        self.close()

    def close(self) -> None:
        """Close the descriptors; in a forked child, without touching the supervisor's guardian."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None
        if self._child is not None:
            self._child.close()
            self._child = None
        self._told = set()

    def _start(self) -> None:
        reader, writer = os.pipe()
        try:
            self._child = spawn(
                lambda _: _guard(reader, writer),
                close_foreign=self._close_foreign,
                death_signal=signal.SIGCONT,  # it is to live on
            )
        except OSError:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        os.set_blocking(writer, False)
        self._writer = writer


def _guard(reader: int, writer: int) -> int:
    """Wait for the supervisor's end, whatever else comes, and then end the groups that it has named last."""
    os.close(writer)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    set_title("lowkiq: guardian of what jobs start")
    told, groups = b"", b""
    while chunk := os.read(reader, 65536):
        *lines, told = (told + chunk).split(b"\n")
        groups = lines[-1] if lines else groups
    for group in map(int, groups.split()):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    return ExitCode.DRAINED
