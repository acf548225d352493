"""
Checks of queues whose ids run less often, from outside. Of a queue that keeps the last payload no run has several, none
starts a payload that was accepted before a higher one was taken and done, and the highest accepted is done at last. Of
a throttled one, no id starts sooner than that after its last start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Final

from tests.chaos.causes import Causes
from tests.chaos.history import History, Payload, Row

#: Seconds for which what was claimed may have waited for its thread, on a machine that is busy.
WAITED: Final = 0.7
#: Seconds for which what was claimed waits for a suspect that is tried, at most, after a process stood still.
SUSPECT: Final = 2.5


def superseded(history: History, done: Collection[Payload]) -> set[Payload]:
    """Payloads of queues that keep the last of which a higher one is done."""
    highest: dict[Row, int] = defaultdict(int)
    for queue, id, number in done:
        highest[queue, id] = max(highest[queue, id], number)
    return {
        (queue, id, number)
        for queue, id, number in history.pushes
        if queue in history.keeping and number < highest[queue, id]
    }


def not_kept(row: Row, records: list[dict[str, Any]], history: History, causes: Causes) -> Iterator[str]:
    """Runs of several payloads, or of one after a higher one."""
    taken_at: dict[str, float] = {}
    #: The highest number that is done, and when its run began.
    highest, since = 0, 0.0
    for record in records:
        if not record.get("a"):
            continue
        numbers = record.get("n", [])
        if record["k"] == "begin":
            taken_at[record["r"]] = record["t"]
            push = history.pushes.get((*row, numbers[0]))
            acked_at = push.acked_at if push else None
            is_older = numbers[0] < highest and acked_at is not None and acked_at < since
            if len(numbers) > 1:
                yield f"{row}: run {record['r']} got {numbers}"
            elif is_older and not causes.is_after_failover(record["t"]):
                yield f"{row}: run {record['r']} started {numbers[0]} after {highest}"
        elif record["k"] == "commit" and max(numbers) > highest:
            highest, since = max(numbers), taken_at.get(record["r"], record["t"])


def too_early(row: Row, records: list[dict[str, Any]], history: History, causes: Causes) -> Iterator[tuple[str, bool]]:
    """Starts that came too soon after another, and whether a stopped process explains it."""
    throttle, last = history.throttles[row[0]], None
    for record in records:
        if record["k"] != "begin":
            continue
        if last is not None and record["t"] - last["t"] < throttle - WAITED:
            # The one before had been taken, and then its process stood still, or waited for a suspect, before it
            # began; or that had only just started itself, with all that it has to load.
            is_explained = causes.has_stood_still(last["r"], last["t"] - throttle - SUSPECT, last["t"])
            is_explained = is_explained or causes.has_just_started(last["r"], last["t"] - SUSPECT)
            is_explained = is_explained or causes.is_after_failover(record["t"])
            yield f"{row}: {record['r']} began {record['t'] - last['t']:.3f} s after {last['r']}", is_explained
        last = record
