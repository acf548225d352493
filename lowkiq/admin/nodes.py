"""The health of nodes by their heartbeats, and which are late, missing or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from lowkiq.admin.metrics import ShardMetrics, known_queues, read_shards
from lowkiq.codec import encodable
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, pairs
from lowkiq.queue.shard import shards_of

#: Seconds between beats.
BEAT_INTERVAL = 5.0
#: Seconds after which a node that has not beaten is late: two beats were lost.
LATE_AFTER = 2.5 * BEAT_INTERVAL
#: Seconds after which it is forgotten, and its number missing.
BEAT_TTL = 30
#: Node numbers that can be missing: a heartbeat is only what somebody has written into Redis.
MOST_NODES: Final = 10_000
#: Ids of a batch that a heartbeat names, and characters of each.
NAMED_IDS, ID_CHARS = 10, 200


class ThreadHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A worker thread and what it performs."""

    name: str
    worker: str | None = None
    queue: str | None = None
    shard: int | None = None
    #: The first ids of the batch, cut.
    ids: list[str] = []
    #: How many ids the batch has.
    jobs: int = 0
    #: Since when it has been performed.
    seconds: float = 0.0


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat."""

    node: str
    boot_id: str
    host: str
    pid: int
    supervisor_pid: int | None
    node_number: int
    number_of_nodes: int
    slot: int | None
    #: "ready", "quiet", "draining" or "retiring".
    state: str
    started_at: float
    beat_at: float
    version: str
    #: The queues that it runs; None: an older version, which doesn't tell.
    queues: list[str] | None = None
    #: Those of them that it leaves alone, as Redis knows them otherwise → why.
    refused: dict[str, str] = {}
    #: Queue → shards.
    owned: dict[str, list[int]]
    #: Those of them that are another node's part, for which this one stands in.
    fostered: dict[str, list[int]] = {}
    #: Holder → queue → shards that are this node's part, and that the holder has; "" is nobody known.
    waited_for: dict[str, dict[str, list[int]]]
    threads: list[ThreadHealth]
    processed: int
    failed: int
    #: Bytes.
    rss: int
    cpu_percent: float
    #: Seconds of the last beat's call, None before the first.
    redis_round_trip: float | None
    restarts: int
    #: How the last process of its slot ended, and why.
    last_exit: str | None
    #: Its supervisor's sentences on what is wrong with the nodes there.
    notices: list[str] = []
    #: `rss` and `cpu_percent` of the last beats, oldest first.
    rss_history: list[int] = []
    cpu_history: list[float] = []
    #: Seconds since the last beat by Redis's clock; filled in by who reads it.
    beat_age: float = 0.0

    @property
    def is_late(self) -> bool:
        """True when two beats have been lost."""
        return self.beat_age > LATE_AFTER

    def runs(self, queue: str) -> bool:
        """Returns whether it runs that queue, as far as it tells."""
        return (self.queues is None or queue in self.queues) and queue not in self.refused

    @property
    def is_leaving(self) -> bool:
        """True when it hands its shards over."""
        return self.state in {"draining", "retiring"}

    @property
    def supervisor(self) -> tuple[str, int] | str:
        """Its supervisor, of which several processes may have one number while one replaces another; else itself."""
        return self.node if self.supervisor_pid is None else (f"{self.host} {self.boot_id}", self.supervisor_pid)


class Running(NamedTuple):
    """A batch that a thread performs."""

    node: NodeHealth
    thread: ThreadHealth

    @property
    def seconds(self) -> float:
        """For how long: one that had run longer than a beat is taken to go on, else we know of the last beat only."""
        return self.thread.seconds + (self.node.beat_age if self.thread.seconds > BEAT_INTERVAL else 0.0)

    def has(self, id: str) -> bool | None:
        """True if an id is of the batch; None if the batch is too large for its beat to name them all."""
        if name_id(id) in self.thread.ids:
            return True
        return None if self.thread.jobs > len(self.thread.ids) else False


class Heartbeats(NamedTuple):
    """The heartbeats of all nodes."""

    #: By node number.
    readable: list[NodeHealth]
    #: Names of nodes whose beat can't be read: of another version, or somebody else's writing.
    unreadable: list[str]


class Group(NamedTuple):
    """Nodes that share queues, and so count their numbers together. Mostly all nodes are one group."""

    nodes: list[NodeHealth]

    @property
    def queues(self) -> list[str]:
        """The queues that its nodes run, as far as they tell."""
        return sorted({queue for node in self.nodes for queue in node.queues or ()})

    @property
    def size(self) -> int:
        """How many nodes there should be."""
        return min(max(node.number_of_nodes for node in self.nodes), MOST_NODES)

    @property
    def missing(self) -> list[int]:
        """Numbers from which no beat comes."""
        numbers = {node.node_number for node in self.nodes}
        return [number for number in range(self.size) if number not in numbers]

    @property
    def doubled(self) -> list[int]:
        """Numbers that several nodes have. One that a supervisor has started to replace another only stands by."""
        places = {(node.node_number, node.supervisor) for node in self.nodes if not (node.is_late or node.is_leaving)}
        several = Counter(number for number, _ in places)
        return sorted(number for number, count in several.items() if count > 1)


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of a namespace, and what is wrong."""

    #: By node number.
    nodes: list[NodeHealth]
    #: Names of nodes that have not beaten lately.
    late: list[str]
    #: Numbers below number_of_nodes from which no beat comes, of whichever group.
    missing: list[int]
    #: Numbers that several nodes have, and go on having: the second stands by.
    doubled: list[int]
    #: Shards with due jobs whose lease nobody has.
    unowned: list[ShardMetrics]
    unreadable: list[str] = []

    @property
    def groups(self) -> list[Group]:
        """The nodes by the queues that they share."""
        return groups_of(self.nodes)

    @property
    def is_well(self) -> bool:
        """True when nothing is wrong."""
        troubles = self.late, self.missing, self.doubled, self.unowned, self.unreadable
        return not any(troubles) and not any(node.refused for node in self.nodes)


def groups_of(nodes: Iterable[NodeHealth]) -> list[Group]:
    """Nodes by the queues that they share, directly or through others. One that doesn't tell has them all."""
    found: list[tuple[set[str] | None, Group]] = []
    for node in nodes:
        queues = None if node.queues is None else set(node.queues)
        joined = [row for row in found if queues is None or row[0] is None or row[0] & queues]
        for row in joined:
            found.remove(row)
            queues = None if queues is None or row[0] is None else queues | row[0]
        found.append((queues, Group([*(one for _, group in joined for one in group.nodes), node])))
    return [group for _, group in found]


def name_id(id: str) -> str:
    """An id as heartbeats name it: cut, and without bytes that are no UTF-8, which would keep the node from beating."""
    return encodable(id[:ID_CHARS])


def running_batches(nodes: Iterable[NodeHealth]) -> dict[tuple[str, int], Running]:
    """Queue and shard → what is performed of it. If several nodes name one, the last heartbeat is right."""
    latest_last = sorted(nodes, key=lambda node: node.beat_age, reverse=True)
    return {
        (thread.queue, thread.shard): Running(node, thread)
        for node in latest_last
        for thread in node.threads
        if thread.queue is not None and thread.shard is not None
    }


def beat(caller: Caller, namespace: str, health: NodeHealth) -> None:
    """Writes a heartbeat."""
    caller.run(Call("beat", [keys.nodes(namespace)], [health.node, 0], bytes))
    caller.command("SET", keys.node(namespace, health.node), msgspec.json.encode(health), "EX", BEAT_TTL)


def forget(caller: Caller, namespace: str, node: str) -> None:
    """The node is gone, and need not be waited for."""
    caller.run(Call("beat", [keys.nodes(namespace)], [node, 1], bytes))
    caller.command("UNLINK", keys.node(namespace, node))


def read_nodes(caller: Caller, namespace: str) -> Nodes:
    """All nodes that have beaten lately."""
    shards = read_shards(caller, shards_of(namespace, known_queues(caller, namespace)))
    return judge(read_health(caller, namespace), shards)


def read_health(caller: Caller, namespace: str) -> Heartbeats:
    """The heartbeats of nodes that have beaten lately."""
    time, beats = caller.commands([("TIME",), ("ZRANGE", keys.nodes(namespace), 0, -1, "WITHSCORES")])
    now = time[0] + time[1] / 1e6
    ages = {name: now - float(at) for name, at in pairs(beats)}
    texts = caller.commands([("GET", keys.node(namespace, "").encode() + name) for name in ages])
    found = Heartbeats([], [])
    for (name, age), text in zip(ages.items(), texts, strict=True):
        # Redis forgets a beat by its clock too, and so too late if that was set back.
        if text is None or age > BEAT_TTL:
            continue
        try:
            health = msgspec.json.decode(text, type=NodeHealth)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found.unreadable.append(name.decode("utf-8", "backslashreplace"))
        else:
            found.readable.append(msgspec.structs.replace(health, beat_age=max(age, 0.0)))
    found.readable.sort(key=lambda node: (node.node_number, node.started_at))
    return found


def judge(heartbeats: Heartbeats, shards: Sequence[ShardMetrics]) -> Nodes:
    """The nodes with what is wrong, by their heartbeats and the numbers of all shards."""
    nodes, unreadable = heartbeats
    groups = groups_of(nodes)
    return Nodes(
        nodes=nodes,
        late=[node.node for node in nodes if node.is_late],
        missing=sorted({number for group in groups for number in group.missing}),
        doubled=sorted({number for group in groups for number in group.doubled}),
        unowned=[shard for shard in shards if shard.is_unowned],
        unreadable=unreadable,
    )
