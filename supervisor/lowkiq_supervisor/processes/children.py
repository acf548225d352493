"""
The crew: every process of the supervisor, from its fork to its reaping.

Responsible for the mechanics: forking into a slot, reading its beats, noticing its end, and for the descriptors that
takes. What follows from any of it is for whoever listens to decide.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Protocol

import structlog

from lowkiq.environment import ExitCode
from lowkiq_supervisor.loop import Watch
from lowkiq_supervisor.processes import orphans
from lowkiq_supervisor.processes.child import Child, describe_exit
from lowkiq_supervisor.processes.slot import BEATEN, Slot

log = structlog.stdlib.get_logger("supervisor")


class Listener(Protocol):
    """Whoever wants to know what happens to the crew."""

    def became_ready(self, slot: Slot) -> None:
        """A slot's process has got through its boot."""

    def ended(self, slot: Slot, code: int, child: Child | None) -> None:
        """A slot's process has ended, or couldn't be started; the slot is empty."""


class Crew:
    """The slots with what is in them."""

    def __init__(self, slots: list[Slot], watch: Watch, listener: Listener) -> None:
        self._slots = slots
        self._watch = watch
        self._listener = listener

    def start(self, slot: Slot) -> None:
        """Fork a process into an empty slot."""
        slot.start_at = None
        try:
            child = slot.launch(slot)
        except OSError as error:  # no process or descriptor to be had: as good as a crash
            log.error("can't fork", slot=slot.title, error=str(error))
            slot.last_exit = f"can't fork: {error}"
            self._listener.ended(slot, ExitCode.INTERNAL, None)
            return
        slot.filled(child)
        self._watch.add(child.beats, partial(self._read_beats, slot, child))
        if child.pidfd is not None:
            self._watch.add(child.pidfd, partial(self._reap, slot, child))
        log.info("started", slot=slot.title, pid=child.pid)

    def reap_ended(self) -> None:
        """After a SIGCHLD, which doesn't say who: reap known and unknown children that have ended."""
        known = {slot.child.pid: (slot, slot.child) for slot in self._slots if slot.child is not None}
        if hasattr(os, "waitid"):
            orphans.reap_ended(known, lambda pid: self._reap(*known[pid]))
            return
        for slot, child in known.values():
            self._reap(slot, child)

    def end_all(self) -> None:
        """Nothing outlives the supervisor: in the normal case, nothing is left to kill here."""
        for slot in self._slots:
            if slot.child is not None:
                slot.child.kill()
                os.waitpid(slot.child.pid, 0)
                self._forget(slot.child)
                slot.emptied("killed with the supervisor")

    def close(self) -> None:
        """In a forked child: close what belongs to the others."""
        for slot in self._slots:
            if slot.child is not None:
                slot.child.close()

    def _read_beats(self, slot: Slot, child: Child) -> None:
        if slot.child is not child:  # reaped earlier in this turn
            return
        for told in child.beats.read():
            child.heard(told)
            state = BEATEN.get(told.state)
            if state is not None and slot.says(state):
                self._listener.became_ready(slot)
        if child.beats.ended:
            self._watch.drop(child.beats)

    def _reap(self, slot: Slot, child: Child) -> None:
        if slot.child is not child:
            return
        code = child.reap()
        if code is None:
            return
        self._read_beats(slot, child)  # it may have become ready and ended since the last look
        self._forget(child)
        slot.emptied(child.ended_for or describe_exit(code))
        self._listener.ended(slot, code, child)

    def _forget(self, child: Child) -> None:
        self._watch.drop(child.beats)
        if child.pidfd is not None:
            self._watch.drop(child.pidfd)
        child.close()
