"""Causes: which fault explains that a payload was done twice, or was lost."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Any, Final

from tests.chaos.history import History, Node, Payload, Push, Window

UNEXPLAINED: Final = "unexplained"

#: Seconds between a job's end and Redis's knowing of it: the claim window of 0.05, a round trip, a busy machine.
CLAIM_WINDOW: Final = 0.5
#: Seconds after a trouble with Redis until a thread has tried again: its longest delay with jitter, and a round trip.
RECOVERY: Final = 2.0
#: Seconds after a failover until every client has found the new primary.
FAILOVER_RECOVERY: Final = 15.0

#: Seconds that no fault of Redis exceeds.
LONGEST: Final = 60.0

#: Seconds before a failover in which acknowledged writes may not have reached the replica.
LOSS_WINDOW: Final = 2.0
#: Kinds of faults by which acknowledged writes may be lost, where that may be.
FAILOVERS: Final = ("kill primary", "fail over")
#: Those of Redis as a whole.
OUTAGES: Final = ("redis away", "kill redis", *FAILOVERS, "move slots")
#: Those of the proxy that can cost a node its leases. A delay or a reset alone must not.
CUTS: Final = ("drop replies", "drop requests", "late")
#: Those of a node. One that is told to drain, or whose supervisor is paused, has no excuse.
HITS: Final = ("kill node", "kill supervisor", "kill tree", "pause node", "kill fork server", "kill helper")
#: Faults that end a process.
ENDS: Final = ("kill node", "kill supervisor", "kill tree", "kill fork server", "kill helper")


class Causes:
    def __init__(self, history: History) -> None:
        self._history = history
        self._of_pid: dict[int, list[Window]] = defaultdict(list)
        for fault in history.faults:
            if fault.kind in HITS:
                for pid in fault.pids:
                    self._of_pid[pid].append(fault)
        #: When jobs killed the nodes of a pid; and when those stalled.
        self._deaths_of: dict[int, list[float]] = defaultdict(list)
        self._stalls_of: dict[int, list[Window]] = defaultdict(list)
        for node in history.nodes.values():
            self._stalls_of[node.pid] += node.stalls
            if node.died_at is not None:
                self._deaths_of[node.pid].append(node.died_at)
        self._outages = _Windows([fault for fault in history.faults if fault.kind in OUTAGES])
        weathers = [fault for fault in history.faults if fault.via == "proxy"]
        self._delays = [fault for fault in weathers if fault.kind == "delay"]
        self._cuts = _Windows([fault for fault in weathers if fault.kind in CUTS])
        self._failovers = sorted(
            (fault for fault in history.faults if fault.kind in FAILOVERS), key=lambda fault: fault.since
        )

    def of_duplicate(self, payload: Payload, begun_at: float, first: dict[str, Any], second: dict[str, Any]) -> str:
        """Cause of a payload that `first` wrote, begun then, being done again by the run that began with `second`."""
        node = self._history.nodes.get(first["r"].rpartition(".")[0])
        # A helper that dies takes its batch along, under the same token.
        has_moved = first["e"] != second["e"] or (node is not None and node.helps is not None)
        cause = self._of_lost_claim(node, begun_at, first["t"], second["t"]) if node and has_moved else None
        if cause:
            return cause
        for fault in self._failovers:  # it was settled, under whatever token, and that was lost
            if fault.since - CLAIM_WINDOW - LOSS_WINDOW <= first["t"] <= fault.until + RECOVERY:
                return fault.kind
        return "pushed again" if self._was_pushed_again(payload) else UNEXPLAINED

    def _of_lost_claim(self, node: Node, begun_at: float, written_at: float, again_at: float) -> str | None:
        """Fault that kept a node from settling what was begun and written then, before somebody else took it."""
        wrote_at = written_at
        if node.via == "proxy":  # a settle that is delayed meets what comes during the delay
            delays = [delay.until for delay in self._delays if delay.since - CLAIM_WINDOW <= written_at <= delay.until]
            written_at = max([written_at, *delays])
        # With its fork server, which is its parent, a node retires, and its helpers go.
        of_its_node = self._of_pid[node.helps] + self._of_pid[node.parent] if node.helps else []
        for fault in self._of_pid[node.pid] + of_its_node:
            # A pid may have been another process's before.
            if fault.until >= node.since and _explains(fault, begun_at, written_at, again_at, CLAIM_WINDOW):
                return fault.kind
        if node.died_at is not None and wrote_at <= node.died_at <= written_at + CLAIM_WINDOW:
            return "a job killed the node"
        # A helper lives for some milliseconds longer than its node.
        if any(
            wrote_at - CLAIM_WINDOW <= died_at <= written_at + CLAIM_WINDOW
            for died_at in self._deaths_of[node.helps or 0]
        ):
            return "a job killed the node"
        for stall in node.stalls + self._stalls_of[node.helps or 0]:
            if _explains(stall, begun_at, written_at, again_at, CLAIM_WINDOW):
                return stall.kind
        cut = self._cuts.explaining(begun_at, written_at, again_at) if node.via == "proxy" else None
        found = cut or self._outages.explaining(begun_at, written_at, again_at)
        return found.kind if found else None

    def has_struck(self, run: str, begun_at: float, ended_at: float, again_at: float) -> bool:
        """True if a fault from outside may have ended that run, or its node's lease before Redis knew of its end."""
        node = self._history.nodes.get(run.rpartition(".")[0])
        return node is not None and self._of_lost_claim(node, begun_at, ended_at, again_at) is not None

    def has_just_started(self, run: str, since: float) -> bool:
        """True if the process of that run started after that."""
        node = self._history.nodes.get(run.rpartition(".")[0])
        return node is not None and node.since > since

    def has_stood_still(self, run: str, since: float, until: float) -> bool:
        """True if the process of that run, or its node's, was stopped at a moment between these."""
        node = self._history.nodes.get(run.rpartition(".")[0])
        if node is None:
            return False
        pids = [node.pid, *([node.helps] if node.helps else [])]
        windows = [window for pid in pids for window in (*self._of_pid[pid], *self._stalls_of[pid])]
        return any(window.since <= until and window.until + CLAIM_WINDOW >= since for window in windows)

    def _was_pushed_again(self, payload: Payload) -> bool:
        """True if its push has failed, and was made anew: what the library repeats by itself is applied once."""
        push = self._history.pushes.get(payload)
        return push is not None and (push.attempts > 1 or push.acked_at is None)

    def of_loss(self, push: Push) -> float | None:
        """As `before_failover`, of that from which it came if it was not itself."""
        gap = self.before_failover(push.acked_at)
        return self.before_failover(push.of_acked_at) if gap is None else gap

    def before_failover(self, acked_at: float | None) -> float | None:
        """
        Seconds from an acknowledgement to the beginning of the failover that may have lost it, negative if it came
        while that went on; None: there was none.
        """
        for fault in self._failovers:
            until = fault.until if fault.loses_until is None else fault.loses_until
            if acked_at is not None and fault.since - LOSS_WINDOW <= acked_at <= until:
                return fault.since - acked_at
        return None

    def is_after_failover(self, at: float) -> bool:
        """True if Redis may just have forgotten who holds a lease."""
        return any(fault.since <= at <= fault.until + FAILOVER_RECOVERY for fault in self._failovers)


def _explains(fault: Window, begun_at: float, written_at: float, again_at: float, recovery: float) -> bool:
    """
    True if a job that was begun and written then may have been lost to that fault: it ran when the fault came, or had
    ended within the claim window before, or it ran before all was well again.
    """
    return fault.since <= again_at and written_at >= fault.since - CLAIM_WINDOW and begun_at <= fault.until + recovery


class _Windows:
    """Faults that hit everybody who talks to Redis."""

    def __init__(self, windows: list[Window]) -> None:
        self._windows = sorted(windows, key=lambda window: window.since)
        self._starts = [window.since for window in self._windows]

    def explaining(self, begun_at: float, written_at: float, again_at: float) -> Window | None:
        """One that may have kept what was begun and written then from being settled."""
        for window in reversed(self._windows[: bisect_right(self._starts, again_at)]):
            if _explains(window, begun_at, written_at, again_at, RECOVERY):
                return window
            if window.since < begun_at - LONGEST:
                break
        return None
