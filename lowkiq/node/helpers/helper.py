"""Helper: the node's end of a process that runs batches, one at a time."""

from __future__ import annotations

import math
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from lowkiq import clock
from lowkiq.errors import LowkiqError, ProcessDied
from lowkiq.handlers.start import Start
from lowkiq.handlers.stop import Stop
from lowkiq.node.helpers.frames import Channel, Ended, FromHelper, Ready, Rubbish, Work
from lowkiq.node.helpers.server_process import FORKED, STATUS
from lowkiq.node.helpers.tree import kill_tree
from lowkiq.process.parent import kill_group, killed_by

#: Answers what a helper asks, or acts on what it tells, while a batch runs.
Hear = Callable[[Channel[FromHelper], Any], None]


class HelperEnded(LowkiqError):
    """
    A helper can run nothing any more, and its batch has not ended.

    Args:
        error: why; None: the fork server is dead, which is no job's fault.
        stopped_for: it was killed for this.
    """

    def __init__(self, error: Exception | None, stopped_for: Stop | None = None) -> None:
        super().__init__(stopped_for.value if stopped_for else str(error or "the fork server has died"))
        self.error = error
        self.stopped_for = stopped_for
        #: The batch was sent to it.
        self.has_begun = False
        #: The fork server has died by itself, or by a job: it was not the node that ended it.
        self.is_unasked = False


class Helper:
    """
    Used by its thread; `stop` and `kill` by any. Its process is dead for sure, and the pid another's perhaps, only
    once it was closed.

    Args:
        status: tells the pid, and later how the process has ended.
        on_orphaned: called when the status ends untold, as the fork server has died; gives the error for the batch.
    """

    def __init__(
        self, end: socket.socket, status: socket.socket, on_orphaned: Callable[[], HelperEnded], kind: bytes = FORKED
    ) -> None:
        end.setblocking(False)
        self._channel: Channel[FromHelper] = Channel(end, FromHelper, self._wait)
        self._status = status
        self._on_orphaned = on_orphaned
        self._lock = threading.Lock()
        self._is_ready = self._is_closed = self._is_running = self._is_leaving = False
        self._until = math.inf
        #: Why the batch that ran last was stopped.
        self.stopped_for: Stop | None = None
        #: How its process begins (server_process.py).
        self.kind = kind
        #: The process, which may not have begun yet.
        self.pid = 0

    # ── for any thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self, reason: Stop) -> None:
        """Kills it for a reason, unless it runs nothing."""
        with self._lock:
            if self._is_running and self.stopped_for is None:
                self.stopped_for = reason
                self._kill()

    def let_end(self) -> None:
        """Has it end by itself, once it has cleaned up, unless it runs something."""
        with self._lock:
            if not self._is_running and not self._is_closed:
                self._is_leaving = True
                self._channel.end()

    def wait_for_end(self, seconds: float) -> bool:
        """Waits at most so many seconds for one that ends by itself. Returns whether it has."""
        return not self._is_leaving or self._is_closed or is_readable(self._status, seconds)

    def kill(self) -> None:
        """Kills it with all that its jobs have started."""
        with self._lock:
            self._kill()

    def _kill(self) -> None:
        if self.pid and not self._is_closed:
            kill_tree(self.pid)

    # ── for its thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def has_ended(self) -> int | None:
        """The exit code of one that has died while it had nothing to do; None: it lives."""
        if not is_readable(self._status):
            return None
        return self._read_status()

    def begin(self) -> None:
        """Begins a batch: from here on it can be stopped."""
        with self._lock:
            self.stopped_for, self._is_running = None, True

    def run(self, work: Work, seconds: float | None, hear: Hear, start: Start) -> Ended:
        """
        Has it run a batch, of which it may ask and tell meanwhile. `start` is called once it waits for the batch.

        Raises:
            NotStarted: by `start`; the helper waits on.
            HelperEnded: it is dead, be it that it was stopped, took longer than that, or died by itself.
        """
        has_begun = False
        try:
            self._start()
            start()
            has_begun = True
            self._until = math.inf if seconds is None else clock.monotonic() + seconds
            self._channel.send(work)
            while not isinstance(heard := self._channel.receive(), Ended):
                if isinstance(heard, Ready):
                    raise _unready(heard)
                hear(self._channel, heard)
                self._stop_in_time()
        except (EOFError, OSError, Rubbish) as error:
            try:
                ended = self._ended(error)
            except HelperEnded as orphaned:
                ended = orphaned
            ended.has_begun = has_begun
            raise ended from None
        finally:
            self._until = math.inf
            with self._lock:
                self._is_running = False
        return heard

    @property
    def is_running(self) -> bool:
        """True while it runs a batch."""
        return self._is_running

    def close(self) -> None:
        """Ends it, whatever it does, and gives its pid back."""
        with self._lock:
            self._is_closed = True
            self._channel.close()
            self._status.close()

    def _start(self) -> None:
        """Waits until it has begun. Raises HelperEnded."""
        if not self.pid:
            pid = self._read_status()
            if pid < 0:
                raise HelperEnded(OSError(-pid, f"no process can be had: {os.strerror(-pid)}"))
            with self._lock:
                self.pid = pid
                if self.stopped_for is not None:
                    self._kill()
        if not self._is_ready:
            heard = self._channel.receive()
            if not isinstance(heard, Ready):
                raise Rubbish("it does not begin")
            if heard.error:
                raise _unready(heard)
            self._is_ready = True

    def _wait(self, events: int) -> None:
        """Waits until its socket is ready. Raises EOFError once it is dead, and has said all that it had to say."""
        poll = select.poll()
        poll.register(self._channel, events)
        poll.register(self._status, select.POLLIN)
        rest = self._until - clock.monotonic()
        ready = dict(poll.poll(None if rest == math.inf else max(math.ceil(rest * 1000), 0)))
        if self._channel.fileno() in ready:
            return
        if ready:
            raise EOFError
        self._stop_in_time()

    def _stop_in_time(self) -> None:
        if clock.monotonic() >= self._until:
            self._until = math.inf
            self.stop(Stop.TIMED_OUT)

    def _ended(self, cause: Exception) -> HelperEnded:
        """Cause of its death; one that has sent rubbish, or closed its socket, is killed."""
        if isinstance(cause, Rubbish) and self.stopped_for is None:
            self.kill()
            return HelperEnded(ProcessDied(f"killed, as it sent rubbish: {cause}"))
        if self.pid:
            kill_group(self.pid)  # what it has left behind as well; one that is ending is past being killed
        return HelperEnded(ProcessDied(describe(self._read_status())), self.stopped_for)

    def _read_status(self) -> int:
        data = self._status.recv(STATUS.size)
        if not data:
            raise self._on_orphaned()
        (value,) = STATUS.unpack(data)
        return int(value)


def _unready(told: Ready) -> HelperEnded | Rubbish:
    return HelperEnded(ProcessDied(f"it could not begin: {told.error}")) if told.error else Rubbish("it begins twice")


def describe(code: int) -> str:
    """The end of a process in words; negative codes are signals."""
    return f"exited with status {code}" if code >= 0 else killed_by(-code)


def is_readable(end: socket.socket, seconds: float = 0) -> bool:
    """Waits at most so many seconds for something to come, or for the other end to close. Returns whether it did."""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(max(seconds, 0) * 1000))
