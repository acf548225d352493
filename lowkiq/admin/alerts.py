"""Alerts: what is wrong with nodes, shards and Redis, in the words of the page, the command line and the doctor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from lowkiq.admin import words
from lowkiq.admin.beats.health import EVENT_LOOP, NodeHealth, Running
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.nodes import Group, Nodes
from lowkiq.queue.call import Caller
from lowkiq.queue.unreadable import Unreadable
from lowkiq.transport.connect import evicting_policy, is_too_old, server_name

#: Share of maxmemory from which people should know.
NEARLY_FULL: Final = 0.8
#: Values that can't be read, and queues that are refused, that are named.
NAMED: Final = 10

SEE_STACK: Final = "`lowkiq-supervisor dump` (TTIN) shows where it is"
START_NODES: Final = "Start nodes: lowkiq-supervisor --nodes N -r MODULE"


class Alert(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    #: "no nodes", "unreadable", "missing", "late", "doubled", "supervisor", "refused", "event loop", "runs on",
    #: "unowned" or "Redis".
    kind: str
    #: "bad": jobs do not run, or are lost. "warn": they may, later.
    severity: Literal["bad", "warn"]
    #: The queue of "refused", "unowned" and "runs on"; of Redis "version", "role", "persistence" or "memory"; else "".
    subject: str
    #: A sentence without its full stop.
    says: str
    #: The next step, likewise.
    do: str

    @property
    def text(self) -> str:
        """Both sentences."""
        return f"{self.says}. {self.do}."


class RedisHealth(msgspec.Struct, frozen=True):
    """A server's version, memory, clients, persistence and alerts."""

    version: str
    #: Bytes.
    memory: int
    #: Bytes, 0 for no limit.
    max_memory: int
    clients: int
    #: In words.
    persistence: str
    alerts: list[Alert]
    #: Seconds.
    uptime: int


def read_redis_health(caller: Caller) -> RedisHealth:
    """The health of the server; of Redis Cluster, of the node that answers."""
    info = caller.command("INFO")
    persistence = "snapshots, or none" if info.get("rdb_last_save_time") else "unknown"
    return RedisHealth(
        version=server_name(info),
        memory=int(info.get("used_memory", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        clients=int(info.get("connected_clients", 0)),
        persistence="append-only file" if info.get("aof_enabled") else persistence,
        alerts=alerts_of_redis(info),
        uptime=int(info.get("uptime_in_seconds", 0)),
    )


def alerts_of(nodes: Nodes) -> list[Alert]:
    """Alerts of nodes and shards."""
    return [*_of_nodes(nodes), *_of_shards(nodes), *alerts_of_unreadable(nodes.unreadable)]


def alerts_of_unreadable(found: Sequence[Unreadable]) -> Iterator[Alert]:
    """An alert a value, for the first ones."""
    for one in found[:NAMED]:
        says = f"Redis holds something under {one.key} that Lowkiq can't read: {one.why}"
        do = f"See whether another version of Lowkiq wrote it; else remove it: {one.remedy}"
        yield Alert("unreadable", "bad", "", says, do)
    if len(found) > NAMED:
        says = f"Redis holds {len(found) - NAMED:,} more values that Lowkiq can't read"
        yield Alert("unreadable", "bad", "", says, "See what else writes into this namespace")


def alerts_of_redis(info: Mapping[str, Any]) -> list[Alert]:
    """Alerts of a Redis server, by its INFO."""
    return [Alert("Redis", *found) for found in (*_kind(info), *_persistence(info), *_memory(info))]


def _of_nodes(found: Nodes) -> Iterator[Alert]:
    if not found.nodes:
        yield Alert("no nodes", "bad", "", "No node has been heard of for half a minute: nothing runs", START_NODES)
    groups = found.groups
    yield from (_missing(group, _of_queues(group, groups)) for group in groups if group.missing)
    yield from (_late(node) for node in found.nodes if node.is_late)
    yield from (_doubled(number, group) for group in groups for number in group.doubled)
    yield from _notices(found.nodes)
    refusals = Counter(refusal for node in found.nodes for refusal in node.refused.items())
    yield from (_refused(queue, why, nodes) for (queue, why), nodes in refusals.most_common(NAMED))
    yield from (_blocked(node) for node in found.nodes if node.is_blocked)
    yield from _running_on(found.running_on)


def _of_queues(group: Group, groups: Sequence[Group]) -> str:
    """Says which nodes are meant, where there are several groups."""
    if len(groups) == 1:
        return ""
    more = ["others"] if len(group.queues) > NAMED else []
    return f" for {words.listed([*(words.printable(queue, 60) for queue in group.queues[:NAMED]), *more])}"


def _missing(group: Group, of_queues: str) -> Alert:
    numbers, of, them = group.missing, f"{group.size}{of_queues}", "them"
    says = f"Nodes {words.ranges(numbers)} of {of} are missing: others stand in for them as soon as their leases end"
    if len(numbers) == 1:
        says, them = f"Node {numbers[0]} of {of} is missing: others stand in for it as soon as its leases end", "it"
    return Alert("missing", "bad", "", says, f"Start {them}, or lower NUMBER_OF_NODES to how many there are")


def _name(node: NodeHealth) -> str:
    return f"{node.node_number} on {words.printable(node.host, 60)}"


def _late(node: NodeHealth) -> Alert:
    name, ago = _name(node), words.age(node.beat_age)
    says = f"Node {name} has not been heard of for {ago}; its shards move on when its lease ends"
    return Alert("late", "bad", "", says, "See its machine and its log")


def _doubled(number: int, group: Group) -> Alert:
    doubled = [node for node in group.nodes if node.node_number == number and not (node.is_late or node.is_leaving)]
    hosts = [words.printable(node.host, 60) for node in {node.supervisor: node for node in doubled}.values()]
    says = f"{len(hosts)} nodes have the number {number}, on {words.listed(sorted(set(hosts)))}: all but one stand by"
    do = "Give each machine its own NODE_NUMBER; during a rolling update this passes"
    return Alert("doubled", "warn", "", says, do)


def _notices(nodes: Sequence[NodeHealth]) -> Iterator[Alert]:
    """Supervisors' notices: each once, though all nodes of a supervisor carry it."""
    told = {(node.host, notice) for node in nodes for notice in node.notices}
    for host, notice in sorted(told)[:NAMED]:
        says = f"On {words.printable(host, 60)}, {words.printable(notice, 300)}"
        yield Alert("supervisor", "warn", "", says, "See `lowkiq-supervisor status` there, and its log")


def _refused(queue: str, why: str, nodes: int) -> Alert:
    who = "1 node leaves" if nodes == 1 else f"{nodes} nodes leave"
    says = f"{who} queue {words.printable(queue, 60)} alone: {words.printable(why, 300)}"
    return Alert("refused", "bad", queue, says, "Nodes take it up by themselves once that is mended")


def _blocked(node: NodeHealth) -> Alert:
    tasks = f"its {node.tasks:,} tasks stand" if node.tasks != 1 else "its task stands"
    says = f"The event loop of node {_name(node)} is blocked, for {words.age(node.loop_lag)} so far: {tasks} still"
    do = f"{SEE_STACK}, as does event_loop_blocked in the log: await what takes long, or call it by asyncio.to_thread"
    return Alert("event loop", "bad", "", says, do)


def _running_on(found: Sequence[Running]) -> Iterator[Alert]:
    """An alert a job that does not stop, for those that have run for longest."""
    for running in found[:NAMED]:
        queue, asked = running.thread.queue or "", words.age(running.thread.to_stop_seconds or 0.0)
        says = (
            f"{running.jobs} of {words.printable(queue, 60)} runs on, for {words.age(running.seconds)} so far, "
            f"{asked} after it was to stop, by a cancel or its perform_timeout: "
            f"node {_name(running.node)}, {running.place}"
        )
        yield Alert("runs on", "warn", queue, says, f"{SEE_STACK}. {_how_to_end(running)}")
    if len(found) > NAMED:
        says = f"{len(found) - NAMED:,} more batches run on though they were to stop"
        yield Alert("runs on", "warn", "", says, "See `lowkiq nodes`")


def _how_to_end(running: Running) -> str:
    if running.thread.name == EVENT_LOOP:
        return "An async job ends once it awaits, and lets CancelledError pass"
    if running.thread.pid:
        return f"Its process {running.thread.pid} should be dead: kill it, and see the node's log for why it is not"
    return (
        "A thread ends only by itself: have the job ask current().cancelled, "
        'or make its worker async, or isolation="process"'
    )


def _of_shards(found: Nodes) -> Iterator[Alert]:
    """An alert a queue, that with the most shards first: a thousand shards can lose their node at once."""
    by_queue: dict[str, list[ShardMetrics]] = {}
    for shard in found.unowned:
        by_queue.setdefault(shard.queue, []).append(shard)
    do = "See `lowkiq nodes` for numbers that are missing, and whether the nodes have this queue's worker"
    do = do if found.nodes else START_NODES
    for queue, shards in sorted(by_queue.items(), key=lambda row: -len(row[1])):
        yield Alert("unowned", "bad", queue, _unowned(words.printable(queue, 60), shards), do)


def _unowned(queue: str, shards: Sequence[ShardMetrics]) -> str:
    numbers = words.ranges(shard.shard for shard in shards)
    many = f"{len(shards):,} shards of {queue} ({numbers}) have"
    which = many if len(shards) > 1 else f"Shard {numbers} of {queue} has"
    lag, in_hand = max(shard.lag for shard in shards), sum(shard.busy for shard in shards)
    due = f"jobs due and no node; the oldest is {words.age(lag)} late" if lag else "jobs in hand and no node"
    gone = f"; {in_hand:,} jobs are in the hands of nodes that are gone, and run again once a node comes"
    return f"{which} {due}{gone if in_hand else ''}"


_Found = tuple[Literal["bad", "warn"], str, str, str]


def _kind(info: Mapping[str, Any]) -> Iterator[_Found]:
    if is_too_old(info):
        says = f"{server_name(info)} is too old, so nodes refuse it"
        yield "bad", "version", says, "Upgrade it to 6.2 or later, or to Valkey"
    if info.get("role", "master") != "master":
        yield "bad", "role", "This Redis is a replica: jobs can't be written to it", "Give the URL of its primary"
    if info.get("loading"):
        yield "warn", "role", "Redis is still reading its data", "Wait: nodes do the same"


def _persistence(info: Mapping[str, Any]) -> Iterator[_Found]:
    if not info.get("aof_enabled"):
        says = "No append-only file: what was accepted since the last snapshot is lost when Redis dies"
        yield "warn", "persistence", says, "CONFIG SET appendonly yes, and the same in redis.conf"
    elif info.get("aof_last_write_status", "ok") != "ok":
        says = "The append-only file can't be written, so Redis refuses all writes"
        yield "bad", "persistence", says, "See Redis's log, and whether its disk is full"
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        do = "See Redis's log: its disk may be full, or memory too short to fork (vm.overcommit_memory=1)"
        yield "warn", "persistence", "The last snapshot failed; by default Redis then refuses writes", do


def _memory(info: Mapping[str, Any]) -> Iterator[_Found]:
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if policy := evicting_policy(info):
        says = f"maxmemory-policy is {policy}: when memory is full it throws jobs away, so nodes refuse it"
        do = "CONFIG SET maxmemory-policy noeviction, or give Lowkiq a Redis of its own"
        yield "bad", "memory", says, do
    if limit and used > limit * NEARLY_FULL:
        says = f"Memory is {used / limit:.0%} full: when it is full, pushes are refused"
        yield "warn", "memory", says, "Raise maxmemory, or run more nodes to work the queues off"
