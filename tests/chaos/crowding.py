"""Crowding: a queue with max_running has more batches at once than it may, by what jobs have recorded."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, NamedTuple

from tests.chaos.causes import Causes
from tests.chaos.history import History


class Crowd(NamedTuple):
    """A batch that began when as many as may ran already."""

    says: str
    #: Faults have struck so many of them that the others may run: those may have lost their places.
    is_explained: bool


def crowds(history: History, causes: Causes) -> list[Crowd]:
    """All such batches. They run at least from their first record to their last, or to the death of their node."""
    found: list[Crowd] = []
    for queue, most in history.limits.items():
        runs = sorted(_runs(history, queue).items(), key=lambda run: run[1])
        running: dict[str, tuple[float, float]] = {}
        for name, (since, until) in runs:
            running = {other: times for other, times in running.items() if times[1] > since}
            running[name] = (since, until)
            if len(running) > most:
                says = f"{queue}: run {name} began at {since}, beside {sorted(running.keys() - {name})}"
                struck = sum(causes.has_struck(other, begun, since, since) for other, (begun, _) in running.items())
                found.append(Crowd(says, len(running) - struck <= most or causes.is_after_failover(since)))
    return found


def _runs(history: History, queue: str) -> dict[str, tuple[float, float]]:
    """Run → from when to when it was one."""
    begun: dict[str, list[float]] = defaultdict(list)
    ended: dict[str, list[float]] = defaultdict(list)
    for (of, _), records in history.rows.items():
        for record in records if of == queue else ():
            _note(record, begun, ended)
    return {name: (min(times), _end(history, name, len(times), ended[name])) for name, times in begun.items()}


def _note(record: dict[str, Any], begun: dict[str, list[float]], ended: dict[str, list[float]]) -> None:
    if record["k"] == "begin":
        begun[record["r"]].append(record["t"])
    elif (record["k"] in {"commit", "fail"} and record["a"]) or record["k"] == "ended":
        ended[record["r"]].append(record["t"])


def _end(history: History, name: str, ids: int, ended: list[float]) -> float:
    node = history.nodes.get(name.rpartition(".")[0])
    if len(ended) >= ids:
        return max(ended)
    return node.until if node else max(ended, default=-math.inf)
