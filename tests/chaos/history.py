"""History: what was pushed, what jobs wrote, which faults came, and what was left, read from a world's directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos import journal
from tests.chaos.world.queues import FOLLOWING, LIMITS, LOADS, RECURRING, RECURS

#: A payload: queue, id, number.
Payload = tuple[str, str, int]
#: A row of the database: queue, id.
Row = tuple[str, str]


class Push(NamedTuple):
    sent_at: float
    #: None: never acknowledged, so it may be there or not.
    acked_at: float | None = None
    attempts: int = 1
    via: str = "direct"
    #: It kills whatever performs it.
    is_poison: bool = False
    #: When that was acknowledged from which it comes: what was deleted and is back, or what it follows from.
    of_acked_at: float | None = None
    #: Capabilities that it has, beside those of its queue (meetings.py).
    uses: frozenset[str] = frozenset()


class Window(NamedTuple):
    """A fault, from when to when."""

    kind: str
    since: float
    until: float
    #: The processes that it hit; none: whoever talks to Redis …
    pids: Sequence[int] = ()
    #: … by this way, "" for any.
    via: str = ""
    #: Until when what was acknowledged may be lost to it; None: until its end.
    loses_until: float | None = None


class Pause(NamedTuple):
    """A time in which nothing of a queue may start."""

    queue: str
    since: float
    until: float


class Wait(NamedTuple):
    """A job waits for all payloads of an id that were acknowledged by then."""

    queue: str
    id: str
    since: float


class Cancel(NamedTuple):
    """All payloads of an id up to a number."""

    number: int
    #: None: nobody knows whether.
    known_at: float | None


@dataclass
class Node:
    """The life of a node's process."""

    name: str
    pid: int
    parent: int
    via: str
    since: float
    #: Its last sign of life.
    until: float
    stalls: list[Window] = field(default_factory=list)
    #: When a job of it killed it.
    died_at: float | None = None
    #: Of a helper process, its node's pid.
    helps: int | None = None


@dataclass
class History:
    pushes: dict[Payload, Push] = field(default_factory=dict)
    rows: dict[Row, list[dict[str, Any]]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    faults: list[Window] = field(default_factory=list)
    morgue: set[Payload] = field(default_factory=set)
    queued: set[Payload] = field(default_factory=set)
    #: Row → what was cancelled of it, and when Redis knew that.
    cancels: dict[Row, list[Cancel]] = field(default_factory=dict)
    pauses: list[Pause] = field(default_factory=list)
    #: Queue → when it was to get another number of shards; and rows that somebody has held.
    reshards: dict[str, list[float]] = field(default_factory=dict)
    holds: set[Row] = field(default_factory=set)
    #: Row → what it waits for; and rows that somebody has had run without waiting any longer.
    waits: dict[Row, list[Wait]] = field(default_factory=dict)
    let_go: set[Row] = field(default_factory=set)
    #: Ids that recur, and do so no more though nobody has stopped them.
    stopped: list[str] = field(default_factory=list)
    #: Queue → batches of it that may run at once.
    limits: dict[str, int] = field(default_factory=lambda: dict(LIMITS))
    #: Queues that keep the last payload of an id; and throttled ones, with the seconds between two starts of an id.
    keeping: set[str] = field(default_factory=set)
    throttles: dict[str, float] = field(default_factory=dict)
    #: What jobs were given that nobody has pushed.
    garbled: list[str] = field(default_factory=list)
    #: Tags that are counted otherwise than jobs have them.
    tags: list[str] = field(default_factory=list)
    #: Seconds after the last fault in which all queues ran dry whose jobs are not long; 0.0: nobody can say.
    dry_after: float = 0.0
    #: Those in the morgue that are said to have killed their nodes.
    killers: set[Payload] = field(default_factory=set)


def is_cancelled(history: History, payload: Payload) -> bool:
    """True if a payload need not run, since its id was cancelled after it was sent."""
    queue, id, number = payload
    return any(number <= cancel.number for cancel in history.cancels.get((queue, id), ()))


def commits(records: Iterable[dict[str, Any]]) -> Iterator[tuple[int, float]]:
    """Numbers of the payloads that were written, and when."""
    for record in records:
        if record["k"] == "commit" and record["a"]:
            yield from ((number, record["t"]) for number in record["n"])


def read(directory: Path) -> History:
    history = History(
        keeping={queue.name for load in LOADS.values() for queue in load.queues if queue.keeps_last},
        throttles={queue.name: queue.throttle for load in LOADS.values() for queue in load.queues if queue.throttle},
    )
    for path in sorted((directory / "producers").glob("*.jsonl")):
        _read_producer(history, path)
    for path in sorted((directory / "rows").glob("*.log")):
        queue, _, id = path.name.removesuffix(".log").partition(".")
        history.rows[queue, id] = list(journal.read(path))
    for path in sorted((directory / "nodes").glob("*.jsonl")):
        if path.stat().st_size:  # else it was killed in its first steps, and ran nothing
            node = _node(path)
            history.nodes[node.name] = node
            garbled = [record for record in journal.read(path) if record["k"] == "garbled"]
            history.garbled += [f"{record['q']} {record['id']} got {record['got']}" for record in garbled]
    for name in ("faults.jsonl", "outages.jsonl"):
        history.faults += [_window(record) for record in journal.read(directory / name)]
    _read_pauses(history, directory / "pauses.jsonl")
    left = directory / "left.json"
    if left.exists():
        told = json.loads(left.read_text())
        history.morgue = {(queue, id, number) for queue, id, number in told["morgue"]}
        history.killers = {(queue, id, number) for queue, id, number in told["killers"]}
        history.tags = told.get("tags", [])
        history.dry_after = told.get("dry_after", 0.0)
        history.queued = {(queue, id, number) for queue, id, number in told["queued"]}
    history.let_go = {(record["q"], record["id"]) for record in journal.read(directory / "world.jsonl")}
    for queue in FOLLOWING:
        history.pushes |= dict(_followed(history, queue))
    recurring = list(journal.read(directory / "recurring.jsonl"))
    firsts, lasts = ({record["id"]: record for record in recurring if record["k"] == k} for k in ("first", "last"))
    history.stopped = [f"{id} recurs no more" for id in firsts if not lasts.get(id, {}).get("goes_on")]
    history.pushes |= dict(_recurred(history, firsts, lasts))
    return history


def _read_producer(history: History, path: Path) -> None:
    history.pushes.update(_pushes(journal.read(path)))
    for record in journal.read(path):
        if record["k"] in {"cancel", "cancelled"}:
            known_at = record["t"] if record["k"] == "cancelled" else None
            history.cancels.setdefault((record["q"], record["id"]), []).append(Cancel(record["n"], known_at))
        elif record["k"] == "back":
            _put_back(history, record)
        elif record["k"] == "after":
            waits = history.waits.setdefault((record["q"], record["id"]), [])
            waits += [Wait(queue, id, record["t"]) for queue, id in record["of"]]


def _read_pauses(history: History, path: Path) -> None:
    for record in journal.read(path):
        match record["k"]:
            case "pause":
                history.pauses.append(Pause(record["q"], record["since"], record["until"]))
            case "reshard":
                history.reshards.setdefault(record["q"], []).append(record["t"])
            case "hold":
                history.holds |= {(record["q"], id) for id in record["ids"]}


def _recurred(
    history: History, firsts: dict[str, dict[str, Any]], lasts: dict[str, dict[str, Any]]
) -> Iterator[tuple[Payload, Push]]:
    """
    The times for which ids recurred, as pushes by milliseconds: those that were done, and of ids that make up for what
    they have missed all from the first to the last.
    """
    for id, first in firsts.items():
        times = {number for number, _ in commits(history.rows.get((RECURRING, id), ()))}
        every, since = round(RECURS[id].every * 1_000), round(first["at"] * 1_000)
        last_at = lasts.get(id, {}).get("at")
        if RECURS[id].missed == "all" and last_at is not None:
            times.update(range(since, round(last_at * 1_000) + 1, every))
        for number in times:
            at = number / 1_000 - first["ahead"]
            yield (RECURRING, id, number), Push(at, at)


def _followed(history: History, queue: str) -> Iterator[tuple[Payload, Push]]:
    """
    What follows is as good as pushed by the last run that has written it: that one was settled, or it would have run
    again; unless it was cancelled or buried in between. What was pushed twice, and so ran twice, follows twice.
    """
    for id, records in [(id, records) for (name, id), records in history.rows.items() if name == queue]:
        written: dict[int, list[float]] = {}
        for number, at in commits(records):
            written.setdefault(number, []).append(at)
        for number, times in written.items():
            payload = (queue, id, number)
            is_sure = not (payload in history.morgue or payload in history.queued or is_cancelled(history, payload))
            source = history.pushes.get(payload)
            push = Push(times[-1], times[-1] if is_sure else None, of_acked_at=source and source.acked_at)
            if is_sure and len(times) > 1 and payload in history.pushes:
                push = history.pushes[payload]
            yield (FOLLOWING[queue], id, number), push


def _put_back(history: History, record: dict[str, Any]) -> None:
    """What was deleted is back: it is to run, and as good as pushed just now."""
    row, number = (record["q"], record["id"]), record["n"]
    history.cancels[row].remove(Cancel(number, None))
    for payload in [(*row, each) for each in range(1, number + 1)]:
        push = history.pushes.get(payload)
        if push and push.acked_at is not None and not is_cancelled(history, payload):
            acked_at = max(push.acked_at, record["t"])
            history.pushes[payload] = push._replace(
                acked_at=acked_at, of_acked_at=push.of_acked_at or push.acked_at, uses=push.uses | {"delete", "undo"}
            )


def _pushes(records: Iterator[dict[str, Any]]) -> Iterator[tuple[Payload, Push]]:
    via = "direct"
    open_: list[tuple[Payload, Push]] = []
    for record in records:
        match record["k"]:
            case "start":
                via = record["via"]
            case "push":
                yield from open_  # of a producer that was killed
                open_ = [
                    (
                        (record["q"], id, number),
                        Push(record["t"], None, 1, via, what == "kill", uses=frozenset(uses)),
                    )
                    for id, number, what, *uses in record["sent"]
                ]
            case "ack":  # of all, or of one that was awaited beside others
                acked = {"acked_at": record["t"], "attempts": record["attempts"]}
                one = record.get("one")
                mine = [each for each in open_ if not one or each[0][1:] == tuple(one)]
                yield from ((payload, push._replace(**acked)) for payload, push in mine)
                open_ = [each for each in open_ if each not in mine]
    yield from open_


def _node(path: Path) -> Node:
    records = list(journal.read(path))
    boot = records[0]
    last = max(record["t"] for record in records)
    alive = path.with_suffix(".alive")
    if alive.exists():
        last = max(last, float(alive.read_text() or 0))
    node = Node(boot["p"], boot["pid"], boot["parent"], boot["via"], boot["t"], last, helps=boot.get("helps"))
    for record in records:
        if record["k"] == "stall":
            node.stalls.append(Window(record.get("why", "stall of the machine"), record["since"], record["until"]))
        elif record["k"] == "die":
            node.died_at = record["t"]
    return node


def _window(record: dict[str, Any]) -> Window:
    pids, via = record.get("pids", ()), record.get("via", "")
    return Window(record["k"], record["since"], record["until"], pids, via, record.get("loses_until"))
