"""Alerts of queues and their shards: without a node, late, failing, dying, paused, and jobs that take far too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec

from lowkiq.admin import words
from lowkiq.admin.alerts.alert import Alert, command_on
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.beats.health import Running
from lowkiq.admin.metrics import QueueMetrics, ShardMetrics
from lowkiq.admin.past.history import Point
from lowkiq.admin.pauses import by_whom
from lowkiq.admin.why.reasons import Reason, is_full, threads_text
from lowkiq.admin.words import age, plural, printable
from lowkiq.queue.call import grouped

#: Seconds for which shards without a node are a consequence of a node that is late or missing: others stand in after
#: two polls. From then on something is wrong with the queue itself.
PASSING: Final = 60.0
#: Share of a threshold below which an alert ends: around the threshold itself it would come and go.
ENDS_BELOW: Final = 0.8
#: Lags of so many thresholds are bad.
VERY_LATE: Final = 10.0
#: Tries that a share says something of, and seconds over which they are counted at most.
ENOUGH_TRIES: Final = 10
FAILS_OVER: Final = 300.0
#: Seconds over which fewer tries say that it has not ended.
CALM: Final = 54.0
#: Seconds within which a job must have been buried for a morgue to be growing, and over which it is measured.
STILL_GROWS, GROWS_OVER = 600.0, 3600.0
#: Seconds without a new one after which a morgue is not called growing.
QUIET: Final = 30.0
#: Seconds after which a node should have heard of a pause: it is told again with each renewal of its leases.
RESTLESS: Final = 15.0
#: Seconds for which an id may be held, and payloads that it may gather meanwhile.
HELD_LONG, MANY_PAYLOADS = 3_600.0, 100
#: Seconds that a batch must have run, however short it usually is; and if nobody knows how long others take.
LONG_FLOOR, LONG_OF_FEW = 60.0, 1_800.0


def of_queues(now: Situation) -> Iterator[Alert]:
    """Alerts of queues. Without any node there is one alert for all of them."""
    if now.nodes.nodes:
        yield from _unowned(now)
        for queue, row in now.queues.items():
            yield from _late(now, queue, row)
    for queue, row in now.queues.items():
        yield from _failing(now, queue, row)
        yield from _rate(now, queue)
        yield from _blocked(now, queue, row)
        yield from _growing_morgue(now, queue, row)
        yield from _paused(now, queue, row)
        yield from _held(now, queue)
    yield from _long_jobs(now)


def is_passing(now: Situation, queue: str) -> bool:
    """True if shards of a queue have been without a node for so short a time that others may just be standing in."""
    lag = max((shard.lag for shard in now.nodes.unowned if shard.queue == queue), default=0.0)
    since = now.noted.get(Alert("unowned", "bad", queue, "", "").key, now.at)
    return now.at - since < PASSING and lag < PASSING


# ── without a node ──────────────────────────────────────────────────────────────────────────────────────────────────


def _unowned(now: Situation) -> Iterator[Alert]:
    """An alert a queue, that with the most shards first: a thousand shards can lose their node at once."""
    by_queue = grouped((shard.queue, shard) for shard in now.nodes.unowned)
    do = "See `lowkiq nodes` for numbers that are missing, and whether the nodes have this queue's worker"
    for queue, shards in sorted(by_queue.items(), key=lambda row: -len(row[1])):
        says = _without_node(printable(queue, 60), shards)
        yield Alert("unowned", "bad", queue, says, do, None, "/nodes", "lowkiq nodes")


def _without_node(queue: str, shards: Sequence[ShardMetrics]) -> str:
    numbers = words.ranges(shard.shard for shard in shards)
    many = f"{len(shards):,} shards of {queue} ({numbers}) have"
    which = many if len(shards) > 1 else f"Shard {numbers} of {queue} has"
    lag, in_hand = max(shard.lag for shard in shards), sum(shard.busy for shard in shards)
    due = f"jobs due and no node; the oldest is {age(lag)} late" if lag else "jobs in hand and no node"
    gone = f"; {in_hand:,} jobs are in the hands of nodes that are gone, and run again once a node comes"
    return f"{which} {due}{gone if in_hand else ''}"


# ── late ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _late(now: Situation, queue: str, row: QueueMetrics) -> Iterator[Alert]:
    limit = now.thresholds.lag_of(queue)
    alert = Alert("late queue", "bad" if row.lag >= limit * VERY_LATE else "warn", queue, "", "")
    if not limit or row.lag < limit * (ENDS_BELOW if alert.key in now.noted else 1):
        return
    late = late_shards(now, queue)
    if late and all(shard.is_unowned or shard.pause for shard in late):  # which says so
        return
    says = (
        f"Queue {printable(queue, 60)} is {age(row.lag)} late: {plural(row.length, 'job')} queued, {row.busy:,} in hand"
    )
    why, do, where = why_late(now, queue)
    since = min(now.at - row.lag + limit, now.at)
    yield Alert("late queue", alert.severity, queue, f"{says}; {why}", do, since, where, "lowkiq nodes")


def late_shards(now: Situation, queue: str) -> list[ShardMetrics]:
    """Shards of a queue that are late, or nearly so."""
    least = now.thresholds.lag_of(queue) * ENDS_BELOW
    return [shard for shard in now.shards_of(queue) if shard.lag >= least]


def why_late(now: Situation, queue: str) -> tuple[str, str, str]:
    """The reason for which its latest job waits, the next step and where to take it."""
    nodes = [node for node in now.nodes.nodes if node.runs(queue) and not node.is_late]
    if not nodes:
        return "no node runs it", "Start a node that has its worker, and names it in --queues if at all", "/nodes"
    reason = now.reasons.get(queue, Reason("next", ""))
    if is_full(nodes) and reason.code in {"threads", "ahead", "next"}:
        return threads_text(nodes, "its nodes"), DO["threads"][0], "/nodes"
    if reason.code in {"next", "ahead"} and not reason.cause:
        return (
            "threads are free, so it is catching up",
            "Nothing, if the lag falls; else see what holds it up",
            "/nodes",
        )
    do, where = DO.get(reason.code, ("See what holds it up", "/nodes"))
    return reason.cause or reason.says, do.format(queue=printable(queue, 60)), where.format(queue=queue)


#: Code of a reason → the next step, and where to take it.
DO: Final[Mapping[str, tuple[str, str]]] = {
    "threads": ("Start more nodes, or give them more threads if its jobs wait for others", "/nodes"),
    "max_running": (
        "Let more of it run if what it works with bears that: lowkiq set {queue} max_running=N", "/queues/{queue}"
    ),
    "concurrency": ("Give the worker a higher concurrency, or long jobs a queue of their own", "/queues/{queue}"),
    "ahead": (
        "See what runs there: give long jobs a queue of their own, or the worker a higher concurrency",
        "/queues/{queue}?view=in_flight",
    ),
    "retiring": ("See what that node still runs: another takes the shard", "/nodes"),
    "event loop": ("See what blocks it: lowkiq-supervisor dump", "/nodes"),
    "suspect": ("See the nodes' logs for what ended them", "/queues/{queue}"),
    "quiet": ("Have the node take jobs again, or stop it: others take its shards then", "/nodes"),
}  # fmt: skip


def _rate(now: Situation, queue: str) -> Iterator[Alert]:
    """Its jobs are scheduled, so nothing is late: what they wait for is told once the line has grown."""
    line, limit = now.lines.get(queue), now.thresholds.lag_of(queue)
    is_noted = Alert("rate", "warn", queue, "", "").key in now.noted
    if not (line and limit and (line.is_growing or is_noted)):
        return
    if line.until - now.at >= limit * (ENDS_BELOW if is_noted else 1):
        says = (
            f"{plural(line.jobs, 'job')} of {printable(queue, 60)} wait for its rate, the last for another "
            f"{age(line.until - now.at)}{', and the line grows' if line.is_growing else ''}"
        )
        do = f"Raise its rate if what it works with bears that: lowkiq set {printable(queue, 60)} rate=JOBS/SECONDS"
        yield Alert("rate", "warn", queue, says, do, None, f"/queues/{queue}?view=scheduled", "lowkiq stats")


# ── paused ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _paused(now: Situation, queue: str, row: QueueMetrics) -> Iterator[Alert]:
    """Somebody has done so on purpose, and may have forgotten it."""
    shards = [shard for shard in now.shards_of(queue) if shard.pause]
    pauses = [shard.pause for shard in shards if shard.pause]
    if not pauses:
        return
    last = max(pauses, key=lambda pause: pause.since)
    since = min(pause.since for pause in pauses)
    parts = [f"Queue {printable(queue, 60)} is paused{by_whom(last)}", f"{plural(row.length, 'job')} queued"]
    if row.busy:
        parts.append(f"{row.busy:,} still in hand")
    if row.held:
        parts.append(f"{plural(row.held, 'id')} held")
    do = f"Resume it when that is over: lowkiq resume {printable(queue, 60)}"
    left = len(now.shards_of(queue)) - len(shards)
    if left:
        parts.append(f"{plural(left, 'shard')} of {left + len(shards):,} {'is' if left == 1 else 'are'} not")
        do = "Pause it again, or resume it: Redis has lost a part of that, or did not get it"
    elif row.restless and now.at - since >= RESTLESS:
        nodes = ", ".join(sorted({printable(shard.owner or "", 80) for shard in shards if shard.restless})[:3])
        parts.append(f"what {plural(row.restless, 'shard')} of {nodes} had claimed may still start")
        do = "See those nodes: they hang"
    where, command = f"/queues/{queue}", command_on(queue, "lowkiq resume")
    yield Alert("paused", "warn", queue, "; ".join(parts), do, since or None, where, command)


def _held(now: Situation, queue: str) -> Iterator[Alert]:
    """Forgotten: for long, or while payloads gather without an end."""
    long = [row for row in now.holds.get(queue, ()) if now.at - row[0].since >= HELD_LONG or row[1] > MANY_PAYLOADS]
    if not long:
        return
    first, most = min(long, key=lambda row: row[0].since)[0], max(long, key=lambda row: row[1])
    held = f"{plural(len(long), 'id')} of {printable(queue, 60)} {'is' if len(long) == 1 else 'are'} held"
    since = f"{printable(first.id, 60)} for {age(now.at - first.since)}{by_whom(first)}"
    gathered = f"; {most[1]:,} payloads wait in {printable(most[0].id, 60)}" if most[1] > MANY_PAYLOADS else ""
    do = f"Release what need not be held any longer: lowkiq release {printable(queue, 60)} ID"
    where, command = f"/queues/{queue}?view=held", command_on(queue, "lowkiq held")
    yield Alert("held", "warn", queue, f"{held}: {since}{gathered}", do, None, where, command)


# ── failing, and failed for good ────────────────────────────────────────────────────────────────────────────────────


class _Share(NamedTuple):
    failed: int
    tries: int
    seconds: float

    @property
    def value(self) -> float:
        return self.failed / self.tries


def _failing(now: Situation, queue: str, row: QueueMetrics) -> Iterator[Alert]:
    """A share of tries, not their number: a queue of a million jobs has failures each minute."""
    limit, where = now.thresholds.failing_of(queue), f"/queues/{queue}?view=retries"
    do = "See their errors: what has tries left is tried again by itself, the rest goes to the morgue, or is blocked"
    alert = Alert("failing queue", "bad", queue, "", do, None, where, command_on(queue, "lowkiq failures"))
    is_noted = alert.key in now.noted
    least = limit * ENDS_BELOW if is_noted else limit
    found = [_share(now, row, before) for before in _within(now, queue, FAILS_OVER)]
    shares = [
        share
        for share in found
        if share and share.tries >= (1 if is_noted and share.seconds >= CALM else ENOUGH_TRIES) and share.value >= least
    ]
    if limit and shares:
        worst = max(shares, key=lambda share: (share.value, share.tries))
        says = (
            f"{100 * worst.value:.0f} % of the tries of {printable(queue, 60)} have failed in the last "
            f"{age(worst.seconds)}: {worst.failed:,} of {worst.tries:,}"
        )
        yield msgspec.structs.replace(alert, says=says)


def _share(now: Situation, row: QueueMetrics, before: Point) -> _Share | None:
    """Tries since a point; None if there are none, or somebody has emptied Redis."""
    failed, done = row.failed - before.failed, row.processed - before.processed
    return _Share(failed, failed + done, now.at - before.at) if failed >= 0 <= done and failed + done else None


def _blocked(now: Situation, queue: str, row: QueueMetrics) -> Iterator[Alert]:
    """Whatever their number: nothing of their ids runs until somebody comes."""
    if row.blocked:
        which = "jobs wait" if row.blocked > 1 else "job waits"
        since = row.blocked_since or now.at
        says = (
            f"{row.blocked:,} blocked {which} in {printable(queue, 60)}, the first for {age(max(now.at - since, 0.0))}"
        )
        do = "See their errors, mend the cause, then retry them, skip their oldest payloads, or delete them"
        where, command = f"/queues/{queue}?view=blocked", command_on(queue, "lowkiq blocked list")
        yield Alert("blocked", "bad", queue, says, do, row.blocked_since, where, command)


def _growing_morgue(now: Situation, queue: str, row: QueueMetrics) -> Iterator[Alert]:
    """Over an hour, if it still grows: what was buried this morning is known."""
    limit, points = now.thresholds.morgue_of(queue), _within(now, queue, GROWS_OVER)
    recent = _within(now, queue, STILL_GROWS)
    if not limit or not recent:
        return
    # From the lowest: somebody may have emptied it meanwhile.
    lowest = min(points, key=lambda point: (point.morgue_length, -point.at))
    grown = row.morgue_length - lowest.morgue_length
    lately = row.morgue_length - min(point.morgue_length for point in recent)
    where, command = f"/queues/{queue}?view=morgue", command_on(queue, "lowkiq morgue list")
    if grown >= max(limit, 2) and lately > 0:
        says = (
            f"{plural(grown, 'job')} of {printable(queue, 60)} went to the morgue in the last "
            f"{age(now.at - lowest.at)}, {_lately(now, queue, row)}: {row.morgue_length:,} are there"
        )
        do = "See their errors, mend the cause, then revive or delete them: nothing else happens to them"
        yield Alert("growing morgue", "bad", queue, says, do, None, where, command)


def _lately(now: Situation, queue: str, row: QueueMetrics) -> str:
    """Whether a morgue still grows, as far as points tell."""
    points = sorted(now.past.get(queue, ()), key=lambda point: -point.at)
    same = [point.at for point in takewhile(lambda point: point.morgue_length >= row.morgue_length, points)]
    rest = now.at - same[-1] if same else 0.0
    return f"no new one for {age(rest)}" if rest >= QUIET else "and it still grows"


def _within(now: Situation, queue: str, seconds: float) -> list[Point]:
    """
    Points of the last so many seconds; where none reaches over half of them, also the next older one, up to twice as
    old: points come late. A point is as of the end of its step.
    """
    slack = max(seconds * 0.1, 15.0)
    points = [point for point in now.past.get(queue, ()) if 0 < now.at - point.at <= seconds * 2]
    inner = [point for point in points if now.at - point.at <= seconds + slack]
    older = [point for point in points if now.at - point.at > seconds + slack]
    reaches = any(now.at - point.at >= seconds / 2 for point in inner)
    return inner if reaches or not older else [*inner, max(older, key=lambda point: point.at)]


# ── jobs that take far longer than usual ────────────────────────────────────────────────────────────────────────────


def _long_jobs(now: Situation) -> Iterator[Alert]:
    """Batches that run for many times as long as 99 of 100 of their queue. One that is to stop is told as such."""
    for running in now.batches:
        queue = running.thread.queue or ""
        usual, times = now.usual.get(queue), now.thresholds.long_of(queue)
        if not times or running.runs_on:
            continue
        limit = LONG_OF_FEW if usual is None else max(usual * times, LONG_FLOOR)
        if running.seconds >= limit:
            yield _long(now, running, queue, usual, limit)


def _long(now: Situation, running: Running, queue: str, usual: float | None, limit: float) -> Alert:
    node = running.node
    others = "too few have run to know what is usual"
    if usual is not None:
        others = f"99 of 100 take up to {words.seconds(usual)}"
    says = (
        f"{running.jobs} of {printable(queue, 60)} has run for {age(running.seconds)}; {others}: "
        f"node {node.node_number} on {printable(node.host, 60)}, {running.place}"
    )
    do = "See its stack (`lowkiq-supervisor dump`): it may hang. A perform_timeout of its worker would end it"
    mark = f"{node.node}:{next(iter(running.thread.ids), '')}"
    where = f"/queues/{queue}?view=in_flight"
    since = now.at - running.seconds + limit
    return Alert("long job", "warn", queue, says, do, since, where, "lowkiq-supervisor dump", mark)
