"""
Children: every process of the supervisor, from its fork to its reaping.

Responsible for the mechanics: forking into a slot, reading its beats, noticing its end, and for the descriptors that
takes. What follows from any of it is for others to decide.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial

from lowkiq.log import get_logger
from lowkiq.process.asks import IS_ASK, RESTART_ME
from lowkiq_supervisor.loop import Loop
from lowkiq_supervisor.processes.child import Child, describe_exit
from lowkiq_supervisor.processes.slots import BY_BEAT, Slot, Slots
from lowkiq_supervisor.restart_policy import End

#: Seconds between two requests of a process that are heard.
ASK_INTERVAL = 1.0

log = get_logger("supervisor")


class Children:
    """
    The processes in the slots.

    Args:
        on_ready: called when a slot's process has got through its boot.
        on_exit: called when it has ended; the slot is empty then.
        on_ask: called with a slot and the id of its process's request to be replaced.
        on_no_fork: called when none could be started, for want of processes or descriptors.
    """

    def __init__(
        self,
        slots: Slots,
        loop: Loop,
        *,
        on_ready: Callable[[Slot], None],
        on_exit: Callable[[Slot, End, Child], None],
        on_ask: Callable[[Slot, str], None],
        on_no_fork: Callable[[Slot, OSError], None],
    ) -> None:
        self._slots = slots
        self._loop = loop
        self._on_ready = on_ready
        self._on_exit = on_exit
        self._on_ask = on_ask
        self._on_no_fork = on_no_fork

    def start(self, slot: Slot) -> None:
        """Fork a process into an empty slot."""
        slot.start_at = None
        try:
            child = slot.launch(slot)
        except OSError as error:  # no process or descriptor to be had
            self._on_no_fork(slot, error)
            return
        slot.filled(child)
        # By the child: while one replaces another, they change places.
        self._loop.add(child.beats, partial(self._read_beats, child))
        if child.pidfd is not None:
            self._loop.add(child.pidfd, partial(self._reap, child))
        log.info("started", slot=slot.title, pid=child.pid)

    def reap_ended(self) -> None:
        """After a SIGCHLD, which names no process: reap known and unknown children that have ended."""
        known = {slot.child.pid: slot.child for slot in self._slots.all if slot.child is not None}
        if not hasattr(os, "waitid"):
            for child in known.values():
                self._reap(child)
            return
        with contextlib.suppress(ChildProcessError):  # there are no children
            # Only looks first, so that no status is taken by the wrong part.
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in known:
                    self._reap(known[ended.si_pid])
                else:  # left behind by a node, and ours as process 1 of a container, or as a subreaper
                    os.waitpid(ended.si_pid, os.WNOHANG)

    def end_all(self) -> None:
        """Nothing outlives the supervisor: in the normal case, nothing is left to kill here."""
        for slot in self._slots.all:
            if slot.child is not None:
                slot.child.kill()
                os.waitpid(slot.child.pid, 0)
                child = slot.child
                slot.emptied("killed with the supervisor")
                self._forget(child)

    def close(self) -> None:
        """In a forked child: close what belongs to the others."""
        for slot in self._slots.all:
            if slot.child is not None:
                slot.child.close()

    def _slot_of(self, child: Child) -> Slot | None:
        """Its slot; None: it was reaped earlier in this turn."""
        return next((slot for slot in self._slots.all if slot.child is child), None)

    def _read_beats(self, child: Child) -> None:
        if self._slot_of(child) is None:
            return
        for beat in child.beats.read():
            slot = self._slot_of(child)
            if beat.state.startswith(RESTART_ME):
                self._hear(child, slot, beat.state)
                continue
            child.note(beat)
            state = BY_BEAT.get(beat.state)
            if state is not None and slot is not None and slot.enter(state):
                self._on_ready(slot)
        if child.beats.ended:
            self._loop.drop(child.beats)

    def _hear(self, child: Child, slot: Slot | None, asked: str) -> None:
        """Passes on what a process asks for. What is none of its words, or comes too fast, is as if it wasn't said."""
        ask, now = IS_ASK.fullmatch(asked), time.monotonic()
        if ask and slot is not None and now - child.asked_at >= ASK_INTERVAL:
            child.asked_at = now
            self._on_ask(slot, ask[1])

    def _reap(self, child: Child) -> None:
        if self._slot_of(child) is None:
            return
        code = child.reap()
        if code is None:
            return
        child.is_reaped = True
        self._read_beats(child)  # it may have become ready and ended since the last look
        slot, end = self._slot_of(child), child.end(code)
        assert slot is not None  # noqa: S101 - a beat moves a child to another slot, never out of all
        slot.emptied(child.ended_for or describe_exit(code))
        self._forget(child)
        self._on_exit(slot, end, child)

    def _forget(self, child: Child) -> None:
        self._loop.drop(child.beats)
        if child.pidfd is not None:
            self._loop.drop(child.pidfd)
        child.close()
