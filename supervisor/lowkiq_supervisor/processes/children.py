"""
Children: every process of the supervisor, from its fork to its reaping.

Responsible for the mechanics: forking into a slot, reading its beats, noticing its end, and for the descriptors that
takes. What follows from any of it is for others to decide.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial

import structlog

from lowkiq.environment import ExitCode
from lowkiq_supervisor.loop import Loop
from lowkiq_supervisor.processes.child import Child, describe_exit
from lowkiq_supervisor.processes.slots import BY_BEAT, Slot

log = structlog.stdlib.get_logger("supervisor")


class Children:
    """
    The processes in the slots.

    Args:
        on_ready: called when a slot's process has got through its boot.
        on_exit: called when it has ended, or could not be started (without a child); the slot is empty then.
    """

    def __init__(
        self,
        slots: list[Slot],
        loop: Loop,
        *,
        on_ready: Callable[[Slot], None],
        on_exit: Callable[[Slot, int, Child | None], None],
    ) -> None:
        self._slots = slots
        self._loop = loop
        self._on_ready = on_ready
        self._on_exit = on_exit

    def start(self, slot: Slot) -> None:
        """Fork a process into an empty slot."""
        slot.start_at = None
        try:
            child = slot.launch(slot)
        except OSError as error:  # no process or descriptor to be had: as good as a crash
            log.error("cannot_fork", slot=slot.title, error=str(error))
            slot.last_exit = f"can't fork: {error}"
            self._on_exit(slot, ExitCode.INTERNAL, None)
            return
        slot.filled(child)
        self._loop.add(child.beats, partial(self._read_beats, slot, child))
        if child.pidfd is not None:
            self._loop.add(child.pidfd, partial(self._reap, slot, child))
        log.info("started", slot=slot.title, pid=child.pid)

    def reap_ended(self) -> None:
        """After a SIGCHLD, which names no process: reap known and unknown children that have ended."""
        known = {slot.child.pid: (slot, slot.child) for slot in self._slots if slot.child is not None}
        if not hasattr(os, "waitid"):
            for slot, child in known.values():
                self._reap(slot, child)
            return
        with contextlib.suppress(ChildProcessError):  # there are no children
            # Only looks first, so that no status is taken by the wrong part.
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in known:
                    self._reap(*known[ended.si_pid])
                else:  # left behind by a node, and ours as process 1 of a container, or as a subreaper
                    os.waitpid(ended.si_pid, os.WNOHANG)

    def end_all(self) -> None:
        """Nothing outlives the supervisor: in the normal case, nothing is left to kill here."""
        for slot in self._slots:
            if slot.child is not None:
                slot.child.kill()
                os.waitpid(slot.child.pid, 0)
                child = slot.child
                slot.emptied("killed with the supervisor")
                self._forget(child)

    def close(self) -> None:
        """In a forked child: close what belongs to the others."""
        for slot in self._slots:
            if slot.child is not None:
                slot.child.close()

    def _read_beats(self, slot: Slot, child: Child) -> None:
        if slot.child is not child:  # reaped earlier in this turn
            return
        for beat in child.beats.read():
            child.note(beat)
            state = BY_BEAT.get(beat.state)
            if state is not None and slot.enter(state):
                self._on_ready(slot)
        if child.beats.ended:
            self._loop.drop(child.beats)

    def _reap(self, slot: Slot, child: Child) -> None:
        if slot.child is not child:
            return
        code = child.reap()
        if code is None:
            return
        self._read_beats(slot, child)  # it may have become ready and ended since the last look
        slot.emptied(child.ended_for or describe_exit(code))
        self._forget(child)
        self._on_exit(slot, code, child)

    def _forget(self, child: Child) -> None:
        self._loop.drop(child.beats)
        if child.pidfd is not None:
            self._loop.drop(child.pidfd)
        child.close()
