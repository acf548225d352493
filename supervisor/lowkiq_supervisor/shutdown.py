"""
How everything ends: who is told, until when they may take their time, and what the exit code says.

Responsible for the order (nodes first, the embedded Redis last) and for never waiting without a limit. Reaping is the
arbiter's.
"""

from __future__ import annotations

import signal
import time

import structlog

from lowkiq_supervisor.exit_codes import ExitCode
from lowkiq_supervisor.slot import Slot, State

#: Seconds after the drain timeout in which a node may end by itself: it needs some to give its leases back.
DRAIN_GRACE = 2.0
#: Seconds between the order to abandon everything and the kill: two for the jobs, which is what a node gives them,
#: and some for the node to give its leases back.
ABANDON_GRACE = 2.5
#: Seconds for the embedded Redis to write what it has and end; it usually takes a few milliseconds.
REDIS_GRACE = 10.0

log = structlog.stdlib.get_logger("supervisor")


class Shutdown:
    """The way from running to gone. Before `drain` is called it only kills what has missed a deadline."""

    def __init__(self, nodes: list[Slot], redis: Slot | None, *, drain_timeout: float) -> None:
        self._nodes = nodes
        self._redis = redis
        self._drain_timeout = drain_timeout
        self._reason = ExitCode.DRAINED
        self._forced = False
        self.draining = False
        self.abandoned = False

    @property
    def exit_code(self) -> ExitCode:
        """What the supervisor should exit with now that everything has ended."""
        if self.abandoned:
            return ExitCode.ABANDONED
        if self._reason is not ExitCode.DRAINED:
            return self._reason
        if self._forced:
            return ExitCode.FORCED_KILL
        # Nobody asked it to stop: it is over because there is nothing left to run. Then a lost slot is a failure.
        if not self.draining and any(slot.given_up for slot in self._nodes):
            return ExitCode.CRASH_LOOP
        return ExitCode.DRAINED

    def drain(self, why: str, reason: ExitCode = ExitCode.DRAINED) -> None:
        """Tell every node to finish what it runs. The first reason to stop is the one that counts."""
        if self.draining:
            return
        self.draining = True
        self._reason = reason
        log.info("draining", why=why, timeout=self._drain_timeout)
        deadline = time.monotonic() + self._drain_timeout + DRAIN_GRACE
        for slot in self._nodes:
            if slot.child is not None:
                slot.child.send(signal.SIGTERM)
            slot.leave(deadline)

    def abandon(self, why: str) -> None:
        """Stop waiting for jobs: what is claimed will be run again by others."""
        if self.abandoned:
            return
        self.drain(why)
        self.abandoned = True
        log.warning("abandoning", why=why, grace=ABANDON_GRACE)
        deadline = time.monotonic() + ABANDON_GRACE
        for slot in self._nodes:
            if slot.child is not None and slot.child.booted:  # without handlers, QUIT would only leave a core file
                slot.child.send(signal.SIGQUIT)
            slot.leave(deadline)
        if self._redis is not None and self._redis.leaving:
            self._redis.leave(deadline)

    def ended(self, code: int) -> None:
        """A process that was told to end has done so; a node says with FORCED_KILL that it left jobs running."""
        self._forced |= code == ExitCode.FORCED_KILL

    def kill_what_is_overdue(self) -> None:
        """Kill each process that has missed its deadline, whoever set it."""
        now = time.monotonic()
        for slot in (*self._nodes, *([self._redis] if self._redis else [])):
            if slot.child is None or slot.kill_at is None or slot.kill_at > now:
                continue
            log.error("missed its deadline, killing it", slot=slot.title, pid=slot.child.pid, state=slot.state.value)
            slot.child.kill()
            slot.kill_at = None
            slot.state = State.KILLED
            self._forced |= slot.leaving

    def stop_redis_when_alone(self) -> None:
        """The embedded Redis goes last: draining nodes still settle their jobs in it."""
        if self._redis is None or self._redis.leaving or any(slot.state is not State.EXITED for slot in self._nodes):
            return
        if self._redis.child is not None:
            self._redis.child.send(signal.SIGTERM)
        self._redis.leave(time.monotonic() + (ABANDON_GRACE if self.abandoned else REDIS_GRACE))
