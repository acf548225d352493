"""
Meetings: which capabilities a run had in use where something broke, as the pairs of tests/pairs that were played live.

| what | what of a job is counted |
|---|---|
| death | a run of it was cut off by the end of its process |
| move | its id went on at another node, though the one before lived on |
| reshard | it waited, or ran, when its queue got another number of shards |
| failover | it waited, or ran, when Redis failed over |

Equal payloads, clocks and what is revived from the morgue are played by tests/pairs alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.chaos.history import History, Payload, Row
from tests.chaos.world.queues import FOLLOWING, LOADS, RECURRING, WAITING, Queue

#: What moves or ends something, in the order of the table.
BREAKS: Final = ("death", "move", "reshard", "failover")
FAILOVERS: Final = frozenset({"kill primary", "fail over"})
#: What ends a run otherwise than well → the capability that it shows.
ENDS: Final = {"Snooze": "snooze", "RetryIn": "retry", "Bury": "retry", "failed": "retry", "ValueError": "retry"}


def uses_of_queue(queue: Queue) -> set[str]:
    """The capabilities that each job of a queue has."""
    has = {
        "block": queue.blocks,
        "places": queue.max_running is not None,
        "rate": queue.rate is not None,
        "fair": queue.is_fair,
        "keep": queue.keeps_last,
        "throttle": queue.throttle is not None,
        "debounce": queue.debounce is not None,
        "scores": queue.is_scored,
        "sizes": queue.batch_size > 1 or queue.concurrency is not None,
        "then": queue.name in FOLLOWING or queue.name in FOLLOWING.values(),
        "after": queue.name == WAITING,
        "recur": queue.name == RECURRING,
    }
    return {f"kinds ({queue.runs})"} | {name for name, is_so in has.items() if is_so}


USES: Final = {queue.name: uses_of_queue(queue) for load in LOADS.values() for queue in load.queues}


def meetings(history: History) -> dict[str, Counter[str]]:
    """What broke → capability → jobs that had it."""
    found = {what: Counter[str]() for what in BREAKS}
    times = {"reshard": history.reshards, "failover": {"": _failovers(history)}}
    for row, records in history.rows.items():
        own = _uses_of_row(history, row)
        for what, numbers in [*_of_runs(history, records), *_of_times(history, row, records, times)]:
            found[what].update(own.union(*(_uses(history, (*row, number)) for number in numbers)))
    return found


def _of_runs(history: History, records: list[dict[str, Any]]) -> Iterator[tuple[str, list[int]]]:
    ended = {record["r"] for record in records if record["k"] != "begin"}
    last: dict[str, Any] | None = None
    for record in records:
        if record["k"] != "begin" or not record["a"]:
            continue
        if record["r"] not in ended:
            yield "death", record["n"]
        node, before = _process(record), last and _process(last)
        if last and before != node and before in history.nodes and history.nodes[before].until > record["t"]:
            yield "move", record["n"]
        last = record


def _of_times(
    history: History, row: Row, records: Iterable[dict[str, Any]], times: dict[str, dict[str, list[float]]]
) -> Iterator[tuple[str, list[int]]]:
    done: dict[int, float] = defaultdict(float)
    for record in records:
        if record["k"] == "commit":
            done.update((number, max(done[number], record["t"])) for number in record["n"])
    for number, at in done.items():
        push = history.pushes.get((*row, number))
        for what, by_queue in times.items():
            struck = by_queue.get(row[0], by_queue.get("", []))
            first = bisect_left(struck, push.sent_at) if push else len(struck)
            if first < len(struck) and struck[first] < at:
                yield what, [number]


def _failovers(history: History) -> list[float]:
    return sorted(fault.since for fault in history.faults if fault.kind in FAILOVERS)


def _uses(history: History, payload: Payload) -> Iterable[str]:
    push = history.pushes.get(payload)
    return push.uses if push else ()


def _uses_of_row(history: History, row: Row) -> set[str]:
    """What was done to an id, and to its queue, counts for all its jobs."""
    found = set(USES.get(row[0], ()))
    for record in history.rows[row]:
        if record["k"] == "fail" and (name := ENDS.get(record.get("why", ""))):
            found.add(name)
        if record.get("kept") is not None:
            found.add("checkpoint")
    if row in history.cancels:
        found.add("cancel")
    if row in history.holds:
        found.add("hold")
    if any(pause.queue == row[0] for pause in history.pauses):
        found.add("pause")
    return found


def _process(record: dict[str, Any]) -> str:
    return str(record["r"]).rpartition(".")[0]
