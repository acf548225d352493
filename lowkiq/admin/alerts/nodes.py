"""Alerts of nodes: none there, missing, late, doubled; and what a node, or its supervisor, says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from lowkiq.admin import words
from lowkiq.admin.alerts.alert import NAMED, SEE_STACK, START_NODES, Alert, Severity
from lowkiq.admin.alerts.queues import is_passing
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.beats.health import BEAT_INTERVAL, BEAT_TTL, EVENT_LOOP, NodeHealth, Running
from lowkiq.admin.beats.nodes import Group
from lowkiq.admin.words import age, moment, plural, printable


class _Rule(NamedTuple):
    severity: Severity
    do: str
    command: str = "lowkiq-supervisor status"


#: Kind → what follows. A notice begins with its kind and a colon (the supervisor's notices.py); a peer of an older
#: version tells none, or shows it as the beginning of the sentence.
RULES: Final[Mapping[str, _Rule]] = {
    "crash loop": _Rule("bad", "See its log there and mend the cause: it is started again by itself"),
    "roll stopped": _Rule(
        "warn", "Mend the cause, then go on with the rest there", "lowkiq-supervisor restart --resume"
    ),
    "recycling": _Rule("warn", "Give its jobs more time (--drain-timeout), or make them shorter; see the log there"),
    "supervisor": _Rule("warn", "See `lowkiq-supervisor status` there, and its log"),
}


def of_supervisors(now: Situation) -> Iterator[Alert]:
    """Each notice once, though all nodes of a supervisor carry it."""
    told = {(node.host, notice) for node in now.nodes.nodes for notice in node.notices}
    for host, notice in sorted(told):
        kind, _, text = notice.partition(": ")
        if kind not in RULES:
            kind, text = "supervisor", notice
        rule, on = RULES[kind], printable(host, 60)
        says = f"On {on}, {printable(text, 900)}"
        yield Alert(kind, rule.severity, on, says, rule.do, None, "/nodes", rule.command, text.partition(" since ")[0])


#: Seconds which a node may begin later than another.
STARTING: Final = 3 * BEAT_INTERVAL


def of_nodes(now: Situation) -> Iterator[Alert]:
    found = now.nodes
    if not (found.nodes or now.is_back):
        yield _none(now)
    groups = found.groups
    yield from (_missing(now, group, groups) for group in groups if group.missing and not _starts(now, group))
    yield from (_away(now, *row) for group in groups for row in group.away if not _boots(now, row[0]))
    yield from (_late(now, node) for group in groups for node in group.nodes if _is_missed(now, node, group))
    yield from (_doubled(number, group) for group in groups for number in group.doubled)
    refusals = Counter(refusal for node in found.nodes for refusal in node.refused.items())
    yield from (_refused(queue, why, nodes) for (queue, why), nodes in refusals.most_common())
    yield from (_trouble(node) for node in found.nodes if node.redis_error and not node.is_late)
    yield from (_memory(node, found.nodes) for node in found.nodes if node.is_too_large and not node.is_late)
    yield from (_blocked(now, node) for node in found.nodes if node.is_blocked)
    yield from _running_on(now, found.running_on)


def _name(node: NodeHealth) -> str:
    return f"{node.node_number} on {printable(node.host, 60)}"


# ── away ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _none(now: Situation) -> Alert:
    """The one alert that stands for all that does not run."""
    waiting = {queue: row for queue, row in now.queues.items() if row.lag or row.busy}
    last, stopped = max(now.gone, default=None), now.stopped_at
    says = "No node is there: nothing runs"
    if last is not None and (stopped is None or last > stopped):
        says = f"No node has been heard of for {age(now.at - last)}: nothing runs"
    elif stopped is not None:
        says, last = (
            f"All nodes have ended: the last was stopped by command at {moment(stopped)}; nothing runs",
            stopped,
        )
    if waiting:
        lag = max(row.lag for row in waiting.values())
        late = f"; the oldest job is {age(lag)} late" if lag else ""
        says = f"{says}, and {plural(len(waiting), 'queue')} {'have' if len(waiting) > 1 else 'has'} jobs due{late}"
    if in_hand := sum(row.busy for row in waiting.values()):
        jobs = "job is" if in_hand == 1 else "jobs are"
        says = f"{says}; {in_hand:,} {jobs} in the hands of nodes that are gone, and run again once a node comes"
    command = "lowkiq-supervisor --nodes 4 -r MODULE"
    return Alert("no nodes", "bad", "", says, START_NODES, last, "/nodes", command)


def _starts(now: Situation, group: Group) -> bool:
    """True as long as all that say how many there are have just begun: the others are on their way."""
    first = min(node.started_at for node in group.numbered if node.number_of_nodes >= group.size)
    return 0 <= now.at - first < STARTING


def _missing(now: Situation, group: Group, groups: Sequence[Group]) -> Alert:
    numbers, of = group.missing, f"{group.size}{_of_queues(group, groups)}"
    several = len(numbers) > 1
    which = f"Nodes {words.ranges(numbers)} of {of} are missing" if several else f"Node {numbers[0]} of {of} is missing"
    it = "them" if several else "it"
    return Alert(
        "missing", "bad", "", f"{which}: {_stand_ins(now, group, it)}",
        f"Start {it}, or lower NUMBER_OF_NODES to how many there are", _last_beat(now), "/nodes", "lowkiq nodes",
        mark=mark_of_missing(group, groups),
    )  # fmt: skip


def _boots(now: Situation, node: NodeHealth) -> bool:
    return 0 <= now.at - node.started_at < STARTING


def _away(now: Situation, other: NodeHealth, number: int) -> Alert:
    host = printable(other.host, 60)
    says = f"Node {number} of {other.number_of_nodes} on {host} is missing: the others share its shards"
    do = "See what its supervisor says of it, and have it started again"
    command = f"lowkiq-supervisor restart {number}"
    mark = f"{number} {host} {other.supervisor_pid}"
    return Alert("missing", "bad", "", says, do, _last_beat(now), "/nodes", command, mark)


def mark_of_missing(group: Group, groups: Sequence[Group]) -> str:
    """Tells a group's alert from those of others."""
    return ",".join(group.queues) if len(groups) > 1 else ""


def _stand_ins(now: Situation, group: Group, it: str) -> str:
    """Says who has the shards of missing nodes at this moment."""
    living = {node.node for node in now.nodes.nodes}
    waiting = [
        shard
        for shard in now.nodes.unowned
        if is_passing(now, shard.queue) and shard.owner not in living and group.runs(shard.queue)
    ]
    if waiting:
        have = "shard with due jobs has" if len(waiting) == 1 else "shards with due jobs have"
        return f"{len(waiting):,} {have} no node yet; others stand in within seconds"
    fostered = sum(len(shards) for node in group.nodes if not node.is_late for shards in node.fostered.values())
    if fostered:
        return f"others stand in for {it}, with {plural(fostered, 'shard')}"
    return f"others stand in for {it} once jobs are due there"


def _last_beat(now: Situation) -> float | None:
    """The last beat of the node whose number has just gone missing, if it was not forgotten in an orderly way."""
    longest = BEAT_TTL + 3 * BEAT_INTERVAL
    return max((beat for beat in now.gone if BEAT_TTL - 1 <= now.at - beat <= longest), default=None)


def _of_queues(group: Group, groups: Sequence[Group]) -> str:
    """Says which nodes are meant, where there are several groups."""
    if len(groups) == 1:
        return ""
    more = ["others"] if len(group.queues) > NAMED else []
    return f" for {words.listed([*(printable(queue, 60) for queue in group.queues[:NAMED]), *more])}"


def _is_missed(now: Situation, node: NodeHealth, group: Group) -> bool:
    """
    True for a late node that anybody misses. One that has no shards, and whose number another has, is none: it died, or
    its supervisor did, and its successor is there; or it was one too many.
    """
    has_heir = any(other.node_number == node.node_number and not other.is_late for other in group.nodes)
    return node.is_late and not (has_heir and node.node not in now.held and node.node not in now.left)


def _late(now: Situation, node: NodeHealth) -> Alert:
    says = f"Node {_name(node)} has not been heard of for {age(node.beat_age)}; {_its_shards(now, node)}"
    do = "See its machine and its log; once half a minute has passed, its number counts as missing"
    return Alert("late", "bad", _name(node), says, do, now.at - node.beat_age, "/nodes", "lowkiq nodes", node.node)


def _its_shards(now: Situation, node: NodeHealth) -> str:
    """Says who has the shards of a late node at this moment."""
    if held := now.held.get(node.node):
        rest = max(shard.lease_rest for shard in held)
        move = "moves" if len(held) == 1 else "move"
        return f"its {plural(len(held), 'shard')} {move} on when its lease ends, in {age(rest)}"
    if left := now.left.get(node.node):
        has = "shard with due jobs has" if len(left) == 1 else "shards with due jobs have"
        return f"{len(left):,} {has} no node yet; others stand in within seconds"
    return "others have its shards" if any(node.owned.values()) else "it has no shards"


# ── doubled ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _doubled(number: int, group: Group) -> Alert:
    """Names the process to stop: of those with one number, each but the one with the most shards, or the oldest."""
    living = [node for node in group.nodes if node.node_number == number and not (node.is_late or node.is_leaving)]
    by_place = {node.supervisor: node for node in sorted(living, key=_shards)}
    first, *others = sorted(by_place.values(), key=lambda node: (-_shards(node), node.started_at))
    hosts = sorted({printable(node.host, 60) for node in by_place.values()})
    stand_by = words.listed([_process(node) for node in others[:NAMED]])
    says = (
        f"{len(by_place)} nodes have the number {number}, on {words.listed(hosts)}: {stand_by} "
        f"stand{'s' if len(others) == 1 else ''} by, {_process(first)} has {plural(_shards(first), 'shard')}"
    )
    do = f"Stop {stand_by}, or give each machine its own NODE_NUMBER; during a rolling update this passes"
    command = f"kill -TERM {others[0].supervisor_pid or others[0].pid}" if len(others) == 1 else ""
    return Alert("doubled", "warn", "", says, do, None, "/nodes", command, f"{number}:{','.join(hosts)}")


def _shards(node: NodeHealth) -> int:
    return sum(map(len, node.owned.values()))


def _process(node: NodeHealth) -> str:
    """A node's process, or its supervisor's: one that is killed alone would be started again."""
    of = f" of supervisor {node.supervisor_pid}" if node.supervisor_pid else ""
    return f"process {node.pid}{of} on {printable(node.host, 60)}"


# ── what a node says of itself ──────────────────────────────────────────────────────────────────────────────────────


def _refused(queue: str, why: str, nodes: int) -> Alert:
    who = "1 node leaves" if nodes == 1 else f"{nodes} nodes leave"
    says = f"{who} queue {printable(queue, 60)} alone: {printable(why, 300)}"
    do = "Nodes take it up by themselves once that is mended"
    return Alert("refused", "bad", queue, says, do, None, "/nodes", "lowkiq doctor -r MODULE", why[:100])


def _trouble(node: NodeHealth) -> Alert:
    """It beats, and yet its threads get errors: nothing of its shards runs, or settles."""
    says = f"Node {_name(node)} beats, but can't use Redis: {printable(node.redis_error, 300)}"
    do = "See `redis_trouble` in its log, and what Redis refuses; `lowkiq doctor` tries all that a node needs"
    return Alert("trouble", "bad", _name(node), says, do, None, "/nodes", "lowkiq doctor", node.node)


def _memory(node: NodeHealth, nodes: Sequence[NodeHealth]) -> Alert:
    """Its supervisor replaces one node at a time: another may be in its way."""
    says = f"Node {_name(node)} holds {node.rss >> 20:,} of {(node.rss_limit or 0) >> 20:,} MiB of memory"
    before = [other for other in nodes if other.supervisor == node.supervisor and other.is_leaving]
    if node.is_leaving:
        says += ", and ends once its jobs have"
    elif before:
        says += f"; it is replaced once node {before[0].node_number} has ended"
    if runs := next((batch for other in (node, *before) if other.is_leaving for batch in other.batches), None):
        says += (
            f", which {runs.jobs} of {printable(runs.thread.queue or '', 60)} holds up, for {age(runs.seconds)} so far"
        )
    do = "See that job, cancel it, or give the node more memory (--max-rss)"
    return Alert("memory", "warn", _name(node), says, do, None, "/nodes", "lowkiq-supervisor status", node.node)


def _blocked(now: Situation, node: NodeHealth) -> Alert:
    tasks = f"its {node.tasks:,} tasks stand" if node.tasks != 1 else "its task stands"
    says = f"The event loop of node {_name(node)} is blocked, for {age(node.loop_lag)} so far: {tasks} still"
    do = f"{SEE_STACK}, as does event_loop_blocked in the log: await what takes long, or call it by asyncio.to_thread"
    since = now.at - node.loop_lag - node.beat_age
    return Alert("event loop", "bad", _name(node), says, do, since, "/nodes", "lowkiq-supervisor dump", node.node)


def _running_on(now: Situation, found: Sequence[Running]) -> Iterator[Alert]:
    """An alert a job that does not stop, for those that have run for longest."""
    for running in found[:NAMED]:
        queue, seconds = running.thread.queue or "", running.thread.to_stop_seconds or 0.0
        says = (
            f"{running.jobs} of {printable(queue, 60)} runs on, for {age(running.seconds)} so far, "
            f"{age(seconds)} after it was to stop, by a cancel or its perform_timeout: "
            f"node {_name(running.node)}, {running.place}"
        )
        since = now.at - seconds - running.node.beat_age
        yield Alert(
            "runs on", "warn", queue, says, f"{SEE_STACK}. {_how_to_end(running)}", since, in_flight(queue),
            "lowkiq-supervisor dump", mark_of(running),
        )  # fmt: skip
    if len(found) > NAMED:
        says = f"{len(found) - NAMED:,} more batches run on though they were to stop"
        yield Alert("runs on", "warn", "", says, "See `lowkiq nodes`", where="/nodes", command="lowkiq nodes")


def in_flight(queue: str) -> str:
    """The page of what runs of a queue."""
    return f"/queues/{queue}?view=in_flight"


def mark_of(running: Running) -> str:
    """A batch's node and first job, which no other has at the same time."""
    return f"{running.node.node}:{next(iter(running.thread.ids), '')}"


def _how_to_end(running: Running) -> str:
    if running.thread.name == EVENT_LOOP:
        return "An async job ends once it awaits, and lets CancelledError pass"
    if running.thread.pid:
        return f"Its process {running.thread.pid} should be dead: kill it, and see the node's log for why it is not"
    return (
        "A thread ends only by itself: have the job ask current().cancelled, "
        'or make its worker async, or isolation="process"'
    )
