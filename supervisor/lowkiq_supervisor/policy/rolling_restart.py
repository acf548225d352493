"""
Rolling restart: replacing processes on purpose, one at a time. One is told to drain, its successor is started when it
has ended, and only when that is ready comes the next.

Responsible for the order of rolling restarts and of recycling, which share it so that never two nodes are away at
once. It stops processes and empties its queue; the arbiter starts successors, as after any end.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable

import structlog

from lowkiq_supervisor.processes.slots import Slot, State

log = structlog.stdlib.get_logger("supervisor")


class RollingRestart:
    """
    The queue of slots to renew.

    Args:
        on_roll: called with True when a rolling restart begins, with False when it is over.
    """

    def __init__(self, on_roll: Callable[[bool], None]) -> None:
        self._on_roll = on_roll
        self._queue: deque[tuple[Slot, str]] = deque()
        self.current: Slot | None = None
        #: A person asked for it, or a service manager; recycling is not reported as a rolling restart.
        self.rolling = False

    @property
    def idle(self) -> bool:
        """True if nothing is being replaced."""
        return self.current is None and not self._queue

    def roll(self, slots: Iterable[Slot], why: str) -> None:
        """
        Renew these. A slot that already waits for its turn isn't queued twice: asked again during a roll, everything
        that was started before is renewed once more, and nothing else.
        """
        waiting = [slot for slot, _ in self._queue]
        being_stopped = [self.current] if self.current is not None and self.current.replaced_for else []
        self._queue.extend((slot, why) for slot in slots if slot not in [*waiting, *being_stopped])
        if not self.rolling and not self.idle:
            self.rolling = True
            log.info("rolling_restart", why=why, slots=[slot.title for slot, _ in self._queue])
            self._on_roll(True)

    def recycle(self, slot: Slot, why: str) -> None:
        """Renew this one, if nothing else is being renewed."""
        if self.idle:
            self._queue.append((slot, why))

    def advance(self) -> None:
        """Begin with the next one, if it is time for that."""
        while self.current is None and self._queue:
            slot, why = self._queue.popleft()
            self._renew(slot, why)
        self._finish_when_empty()

    def became_ready(self, slot: Slot) -> None:
        """A process has become ready: if it is the successor, the next may go."""
        if slot is self.current and not slot.replaced_for:
            self.current = None

    def failed(self, slot: Slot) -> None:
        """A process has ended by itself: if it is the successor, the others are better left running."""
        if slot is not self.current:
            return
        left = [other.title for other, _ in self._queue]
        log.error("successor_failed", slot=slot.title, left=left, hint="the others are left as they are")
        self.cancel()

    def cancel(self) -> None:
        self._queue.clear()
        self.current = None
        self._finish_when_empty()

    def _renew(self, slot: Slot, why: str) -> None:
        now = time.monotonic()
        if slot.child is not None:
            self.current = slot
            log.info("replacing", slot=slot.title, pid=slot.child.pid, why=why)
            slot.make_room(why, now + slot.grace)
            slot.child.send(signal.SIGTERM)
        elif slot.given_up:
            self.current = slot
            slot.revive(now)
        elif slot.state is State.BACKOFF:
            self.current = slot
            slot.schedule(now)

    def _finish_when_empty(self) -> None:
        if self.rolling and self.idle:
            self.rolling = False
            log.info("rolling_restart_over")
            self._on_roll(False)
