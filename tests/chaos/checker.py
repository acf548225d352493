"""
Checker: judges a history. Each of its parts looks for one kind of violation:

lost         a payload whose push was acknowledged, that no job has written, and that is neither queued nor buried
out of order a job starts a payload while a lower one of its id, acknowledged before it was pushed, is not written
overlap      a job starts while another of its id runs; explained if the other's node had outlived its lease, knew it,
             and the database has refused what that job wrote afterwards
duplicate    a payload is written twice; explained if a fault hit the first one's node, or its connection, before Redis
             could know of it: within the claim window before the fault, or as long as the fault lasted
innocent     an id is buried for deaths of nodes, but none of its payloads kills; explained if faults struck its runs as
             often as that takes
stale        a run is given a checkpoint of a payload that it is not to do
came back    a job starts long after it was cancelled
crowded      more batches of a queue run at once than its max_running; explained if a fault has struck one of them
overfull     more jobs start in a window than their rate allows; explained if a process was stopped on their way
paused       a job starts while its queue is paused, after that was confirmed; explained if its process was stopped
             between its taking the job and its start
not kept     where only the last payload is kept, a job gets several, or one after a higher one (fewer_runs.py)
too early    an id starts within its throttle after its last start; explained if that one's process had been stopped
             between its taking the job and its start
too soon     a job starts before others that it waits for are done (consequences.py)
out of time  a job that recurs starts at none of its times, or before it, or does so no more
not dry      queues whose jobs are not long have not run dry soon after the last fault
garbled      a job is given what nobody has pushed: the bytes of a payload, say
miscounted   a tag is counted otherwise than the jobs that are left have it
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from lowkiq import Rate
from tests.chaos.causes import UNEXPLAINED, Causes
from tests.chaos.consequences import out_of_time, too_soon
from tests.chaos.crowding import crowds
from tests.chaos.fewer_runs import not_kept, superseded, too_early
from tests.chaos.history import History, Payload, Row, commits, is_cancelled
from tests.chaos.meetings import meetings
from tests.chaos.world.queues import RATES, RECURRING

#: Deaths alone on a node for which an id is buried.
ALONE: Final = 2
#: How many of each kind are described.
SHOWN: Final = 20
#: Seconds within which what was claimed when it was cancelled has started, or never will: a pause, and a lease.
CLAIMED: Final = 30.0
#: Seconds within which what had been taken has begun, on a machine that is busy.
TAKEN: Final = 0.2
#: Seconds within which a start is written, on such a machine.
WRITTEN: Final = 0.3
#: Seconds after the last fault in which what is not long is done.
DRY_WITHIN: Final = 30.0


@dataclass
class Verdict:
    payloads: int = 0
    performed: int = 0
    buried: int = 0
    queued: int = 0
    unsure: int = 0
    lost: list[Payload] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    #: Overlaps whose lower token was refused, or whose job has died before it wrote.
    refused: int = 0
    overlaps: list[str] = field(default_factory=list)
    #: Cause → how many.
    duplicates: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    #: Lost to a failover, where those may lose: how many, and how long before and after it began the first and the
    #: last of them were acknowledged.
    lost_to_failover: int = 0
    loss_before: float = 0.0
    loss_after: float = 0.0
    #: Buried for the deaths of nodes that they have not killed.
    innocents: list[str] = field(default_factory=list)
    #: Runs that were given a checkpoint, and those whose checkpoint was of something else; ids that were cancelled, and
    #: those that came back.
    resumed: int = 0
    stale: list[str] = field(default_factory=list)
    cancelled: int = 0
    came_back: list[str] = field(default_factory=list)
    #: Times in which a queue was paused; and what has started then, and of that what a stopped process explains.
    paused: int = 0
    started_paused: list[str] = field(default_factory=list)
    paused_explained: int = 0
    #: Batches that began beside as many as may run; and those of them that a fault explains.
    crowded: list[str] = field(default_factory=list)
    crowded_explained: int = 0
    #: Jobs of queues with a rate that were started; and windows that had more of them than they may, and of those what
    #: a stopped process explains.
    rated: int = 0
    overfull: list[str] = field(default_factory=list)
    overfull_explained: int = 0
    #: Payloads that a higher one has superseded, and runs of what should have been; starts within a throttle, and those
    #: that a stopped process explains.
    superseded: int = 0
    not_kept: list[str] = field(default_factory=list)
    too_early: list[str] = field(default_factory=list)
    too_early_explained: int = 0
    #: Jobs that wait for others, those of them that somebody has let go, and starts before what they wait for was done;
    #: runs of those that recur, and what is wrong with them.
    waiting: int = 0
    let_go: int = 0
    too_soon: list[str] = field(default_factory=list)
    recurred: int = 0
    out_of_time: list[str] = field(default_factory=list)
    #: The same, when faults have struck so often while they ran that it looks as if they had.
    framed: int = 0
    #: Seconds after the last fault in which all was done that is not long.
    dry_after: float = 0.0
    #: What jobs were given that nobody has pushed.
    garbled: list[str] = field(default_factory=list)
    #: Tags that are counted otherwise than jobs have them.
    miscounted: list[str] = field(default_factory=list)
    #: Started beside its own run, of which Redis may just have lost that it was claimed.
    doubled_by_failover: int = 0
    #: Started before a lower one of which Redis may just have lost the push.
    disordered_by_failover: int = 0

    #: What broke → capability → jobs that had it.
    met: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """A world in which nothing was done has shown nothing."""
        return self.performed > 0 and not (
            self.lost
            or self.out_of_order
            or self.overlaps
            or self.unexplained
            or self.queued
            or self.innocents
            or self.stale
            or self.came_back
            or self.garbled
            or self.miscounted
            or self.started_paused
            or self.crowded
            or self.overfull
            or self.not_kept
            or self.too_early
            or self.too_soon
            or self.out_of_time
            or self.dry_after > DRY_WITHIN
        )


def check(history: History, *, may_lose: bool = False) -> Verdict:
    """Judges. Where a failover may lose what was acknowledged before it, that is counted apart."""
    verdict = Verdict(
        payloads=sum(push.acked_at is not None for push in history.pushes.values()),
        unsure=sum(push.acked_at is None for push in history.pushes.values()),
        buried=len(history.morgue),
        queued=len(history.queued),
        garbled=history.garbled,
        miscounted=history.tags,
        dry_after=history.dry_after,
        waiting=len(history.waits),
        let_go=len(history.let_go),
        out_of_time=list(history.stopped),
        paused=len(history.pauses),
        met=meetings(history),
    )
    causes, written_at = Causes(history), _written(history)
    gone = _check_lost(verdict, history, causes, set(written_at), may_lose=may_lose)
    owed = _owed(history, gone)
    for row, records in history.rows.items():
        # A failover may have lost their push, though a node had them in hand.
        numbers = owed.get(row, [])
        shaky = {number for number in numbers if may_lose and causes.of_loss(history.pushes[*row, number]) is not None}
        _check_order(verdict, row, records, numbers, shaky, keeps_last=row[0] in history.keeping)
        _check_row(verdict, row, records, history, causes)
        verdict.too_soon += too_soon(row, records, history, written_at, gone, causes)
    found = crowds(history, causes)
    verdict.crowded = [crowd.says for crowd in found if not crowd.is_explained]
    verdict.crowded_explained = len(found) - len(verdict.crowded)
    for queue, rate in RATES.items():
        _check_rate(verdict, queue, rate, history, causes)
    return verdict


def _check_row(verdict: Verdict, row: Row, records: list[dict[str, Any]], history: History, causes: Causes) -> None:
    """All that the records of an id tell by themselves."""
    _check_overlaps(verdict, row, records, history, causes)
    _check_duplicates(verdict, row, records, causes)
    _check_burials(verdict, row, records, history, causes)
    _check_checkpoints(verdict, row, records)
    _check_cancels(verdict, row, records, history, causes)
    _check_pauses(verdict, row, records, history, causes)
    _check_fewer(verdict, row, records, history, causes)
    if row[0] == RECURRING:
        verdict.recurred += sum(record["k"] == "begin" for record in records)
        verdict.out_of_time += out_of_time(row, records)


def _check_fewer(verdict: Verdict, row: Row, records: list[dict[str, Any]], history: History, causes: Causes) -> None:
    if row[0] in history.keeping:
        verdict.not_kept += not_kept(row, records, history, causes)
    if row[0] in history.throttles:
        for what, is_explained in too_early(row, records, history, causes):
            if is_explained:
                verdict.too_early_explained += 1
            else:
                verdict.too_early.append(what)


# ── lost ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _written(history: History) -> dict[Payload, float]:
    """When each payload was written first."""
    found: dict[Payload, float] = {}
    for row, records in history.rows.items():
        for number, at in commits(records):
            found.setdefault((*row, number), at)
    return found


def _check_lost(
    verdict: Verdict, history: History, causes: Causes, written: set[Payload], *, may_lose: bool
) -> set[Payload]:  # fmt: skip
    """Payloads that need not run: a higher one has superseded them, or they are lost, and waited for by nobody."""
    gone = superseded(history, written | history.morgue | history.queued) - written
    verdict.superseded = len(gone)
    lost = [
        payload
        for payload, push in history.pushes.items()
        if push.acked_at is not None
        and payload not in written
        and payload not in history.morgue
        and payload not in history.queued
        and payload not in gone
        and not is_cancelled(history, payload)
    ]
    _judge_losses(verdict, lost, history, causes, may_lose=may_lose)
    return gone | set(lost)


def _judge_losses(verdict: Verdict, lost: list[Payload], history: History, causes: Causes, *, may_lose: bool) -> None:
    for payload in lost:
        gap = causes.of_loss(history.pushes[payload]) if may_lose else None
        if gap is None:
            verdict.lost.append(payload)
        else:
            verdict.lost_to_failover += 1
            verdict.loss_before = max(verdict.loss_before, gap)
            verdict.loss_after = max(verdict.loss_after, -gap)


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _owed(history: History, lost: set[Payload]) -> dict[Row, list[int]]:
    """Numbers of each row that must be written, in order. One producer pushes a row's numbers one after the other."""
    owed: dict[Row, list[int]] = defaultdict(list)
    for payload, push in history.pushes.items():
        is_settled = payload in history.morgue or payload in lost or is_cancelled(history, payload)
        if push.acked_at is not None and not is_settled:
            owed[payload[:2]].append(payload[2])
    return {row: sorted(numbers) for row, numbers in owed.items()}


def _check_order(
    verdict: Verdict, row: Row, records: list[dict[str, Any]], owed: list[int], shaky: set[int], *, keeps_last: bool
) -> None:
    written: set[int] = set()
    first = 0
    for record in records:
        if not record.get("a"):
            continue
        numbers = record.get("n", [])
        if record["k"] == "commit":
            written.update(numbers)
            verdict.performed += len(numbers)
            while first < len(owed) and owed[first] in written:
                first += 1
        elif record["k"] == "begin":
            overtaken = [number for number in takewhile(max(numbers).__gt__, owed[first:])
                         if number not in written and number not in numbers]  # fmt: skip
            if numbers != sorted(numbers):
                verdict.out_of_order.append(f"{row}: run {record['r']} got {numbers}")
            elif set(overtaken) - shaky and not (keeps_last and shaky.issuperset(numbers)):
                verdict.out_of_order.append(f"{row}: run {record['r']} started {numbers} before {overtaken}")
            else:
                verdict.disordered_by_failover += bool(overtaken)


# ── overlaps ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_overlaps(
    verdict: Verdict, row: Row, records: list[dict[str, Any]], history: History, causes: Causes
) -> None:
    ended = {record["r"]: record for record in records if record["k"] == "ended"}
    last = {record["r"]: record for record in records if record["k"] in {"commit", "fail"}}
    running: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["k"] in {"commit", "fail"}:
            running.pop(record["r"], None)
        if record["k"] != "begin":
            continue
        if not record["a"]:
            _judge_stale(verdict, row, record, records, ended, causes)
            continue
        for name, other in list(running.items()):
            if name not in last and not _is_alive(history, name, record["t"]):
                del running[name]
            elif other["e"] == record["e"] and causes.is_after_failover(record["t"]):
                verdict.doubled_by_failover += 1
            elif other["e"] == record["e"]:
                verdict.overlaps.append(f"{row}: runs {name} and {record['r']} have one token, {record['e']}")
            else:
                _judge_overlap(verdict, row, other, record, last, ended, causes)
                del running[name]  # the next one overlaps with its successor
        running[record["r"]] = record


def _is_alive(history: History, run: str, at: float) -> bool:
    node = history.nodes.get(run.rpartition(".")[0])
    return node is None or node.until > at


def _judge_stale(
    verdict: Verdict,
    row: Row,
    record: dict[str, Any],
    records: list[dict[str, Any]],
    ended: dict[str, dict[str, Any]],
    causes: Causes,
) -> None:
    """Tokens of shards that a failover has lost, with the reshard that made them, were ahead of the clock."""
    end = ended.get(record["r"])
    higher = [other["t"] for other in records if other["k"] == "begin" and other["a"] and other["e"] > record["e"]]
    is_lost = any(causes.before_failover(at) is not None for at in higher if at < record["t"])
    if end is None or end["lost"] or is_lost or causes.is_after_failover(record["t"]):
        verdict.refused += 1
    else:
        verdict.overlaps.append(f"{row}: run {record['r']} started with a refused token {record['e']}, its lease held")


def _judge_overlap(
    verdict: Verdict,
    row: Row,
    lower: dict[str, Any],
    higher: dict[str, Any],
    last: dict[str, dict[str, Any]],
    ended: dict[str, dict[str, Any]],
    causes: Causes,
) -> None:
    what = f"{row}: runs {lower['r']} (token {lower['e']}) and {higher['r']} (token {higher['e']})"
    write, end = last.get(lower["r"]), ended.get(lower["r"])
    if write is not None and write["a"]:
        verdict.overlaps.append(f"{what}: both wrote")
    elif end is not None and not end["lost"] and not causes.is_after_failover(higher["t"]):
        verdict.overlaps.append(f"{what}: the lower one's node thinks that its lease holds")
    else:
        verdict.refused += 1


# ── burials ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_burials(verdict: Verdict, row: Row, records: list[dict[str, Any]], history: History, causes: Causes) -> None:
    """An id goes to the morgue as a whole, so one of what it had in hand must have killed its nodes."""
    buried = {number for queue, id, number in history.killers if (queue, id) == row}
    if not buried or any(_is_poison(history, (*row, number)) for number in buried):
        return
    # One that has ended is struck too if Redis could not know of its end: it was paused, or Redis was away.
    ended = {record["r"]: record["t"] for record in records if record["k"] in {"commit", "fail"}}
    begun = [record for record in records if record["k"] == "begin" and buried.intersection(record["n"])]
    until = [record["t"] for record in begun[1:]] + [math.inf]
    struck = sum(
        causes.has_struck(record["r"], record["t"], ended.get(record["r"], again_at), again_at)
        for record, again_at in zip(begun, until, strict=True)
    )
    if struck >= ALONE:
        verdict.framed += 1
    else:
        verdict.innocents.append(f"{row}: {sorted(buried)} were buried, struck {struck} times")


def _is_poison(history: History, payload: Payload) -> bool:
    push = history.pushes.get(payload)
    return push is not None and push.is_poison


# ── checkpoints and cancels ─────────────────────────────────────────────────────────────────────────────────────────


def _check_checkpoints(verdict: Verdict, row: Row, records: list[dict[str, Any]]) -> None:
    """What a run is given must be of a payload that it is to do."""
    for record in records:
        if record["k"] == "begin" and record.get("kept") is not None:
            verdict.resumed += 1
            if record["kept"] not in record["n"]:
                verdict.stale.append(f"{row}: run {record['r']} of {record['n']} was given checkpoint {record['kept']}")


def _check_cancels(verdict: Verdict, row: Row, records: list[dict[str, Any]], history: History, causes: Causes) -> None:
    """What was cancelled may run on where it runs, or start where it was claimed; it must not come back later."""
    known = [cancel for cancel in history.cancels.get(row, ()) if cancel.known_at is not None]
    verdict.cancelled += len(known)
    for record in records:
        if record["k"] == "begin" and record["a"]:
            back = [
                cancel.number
                for cancel in known
                if cancel.known_at is not None
                and record["t"] > cancel.known_at + CLAIMED
                and min(record["n"]) <= cancel.number
                and not causes.is_after_failover(cancel.known_at)
            ]
            if back:
                verdict.came_back.append(f"{row}: run {record['r']} of {record['n']}, cancelled up to {back}")


def _check_pauses(verdict: Verdict, row: Row, records: list[dict[str, Any]], history: History, causes: Causes) -> None:
    """What a thread or the loop had taken when a pause was confirmed may begin a moment later."""
    pauses = [pause for pause in history.pauses if pause.queue == row[0]]
    for record in records:
        if record["k"] != "begin":
            continue
        for pause in pauses:
            if not pause.since + TAKEN < record["t"] < pause.until or causes.is_after_failover(record["t"]):
                continue
            if causes.has_stood_still(record["r"], pause.since, record["t"]):
                verdict.paused_explained += 1
            else:
                since = record["t"] - pause.since
                verdict.started_paused.append(f"{row}: run {record['r']} began {since:.3f} s after a confirmed pause")


def _check_rate(verdict: Verdict, queue: str, rate: Rate, history: History, causes: Causes) -> None:
    """Starts are written a little later than they are: so windows are looked at that are shorter by that."""
    begun = sorted(
        (record["t"], record["r"])
        for row, records in history.rows.items()
        for record in records
        if row[0] == queue and record["k"] == "begin"
    )
    verdict.rated += len(begun)
    most = math.floor(rate.limit * 1.01)
    for (since, first), (until, last) in zip(begun, begun[most:], strict=False):
        if until - since >= rate.per - WRITTEN or causes.is_after_failover(until):
            continue
        if any(causes.has_stood_still(run, since - rate.per, until) for run in (first, last)):
            verdict.overfull_explained += 1
        else:
            verdict.overfull.append(f"{queue}: more than {most} starts in {until - since:.3f} s until run {last}")


# ── duplicates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_duplicates(verdict: Verdict, row: Row, records: list[dict[str, Any]], causes: Causes) -> None:
    begun = {record["r"]: record for record in records if record["k"] == "begin"}
    written: dict[int, dict[str, Any]] = {}
    for record in records:
        if record["k"] != "commit" or not record["a"]:
            continue
        for number in record["n"]:
            if number in written:
                first, second = written[number], begun.get(record["r"], record)
                cause = causes.of_duplicate((*row, number), begun.get(first["r"], first)["t"], first, second)
                verdict.duplicates[cause] += 1
                if cause == UNEXPLAINED:
                    verdict.unexplained.append(
                        f"{row}: {number} written by run {first['r']} at {first['t']} (token {first['e']}), "
                        f"and by {record['r']} from {second['t']} (token {second['e']})"
                    )
            written[number] = record
