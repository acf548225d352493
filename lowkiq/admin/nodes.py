"""The health of nodes by their heartbeats, and which are late, missing or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from lowkiq.admin.metrics import ShardMetrics, known_queues, read_shards
from lowkiq.codec import encodable
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, chunked, pairs
from lowkiq.queue.shard import shards_of
from lowkiq.queue.unreadable import Unreadable, parsed, quoted

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
#: Heartbeats that are read, the newest, and bytes of one: a thousand threads have room in it.
MOST_BEATS, MOST_BEAT_BYTES = 1_000, 4 << 20
#: Heartbeats of a round trip, and bytes after which no more are read.
BEATS_AT_ONCE, MOST_BYTES_IN_ALL = 50, 64 << 20

# A heartbeat is only what somebody has written into Redis: what it may say is bounded.
Text = Annotated[str, Meta(max_length=2_000)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=-1e11, le=1e11)]
#: Queue → shards.
Shards = Annotated[dict[Text, Annotated[list[Count], Meta(max_length=keys.MOST_SHARDS)]], Meta(max_length=10_000)]


class ThreadHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A worker thread, or the event loop, and a batch that it performs."""

    name: Text
    worker: Text | None = None
    queue: Text | None = None
    shard: Count | None = None
    #: The first ids of the batch, cut.
    ids: Annotated[list[Text], Meta(max_length=NAMED_IDS)] = []
    #: How many ids the batch has.
    jobs: Count = 0
    #: Since when it has been performed.
    seconds: Seconds = 0.0
    #: How far it is, from 0 to 1, and in words, as far as it has told.
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    note: Text = ""
    #: It was cancelled, or takes longer than its worker's perform_timeout, and runs on.
    is_to_stop: bool = False
    #: The process that performs it, if that is not the node.
    pid: Count | None = None


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat."""

    node: Text
    boot_id: Text
    host: Text
    pid: Count
    supervisor_pid: Count | None
    node_number: Count
    number_of_nodes: Count
    slot: Count | None
    #: "ready", "quiet", "draining" or "retiring".
    state: Text
    started_at: Seconds
    beat_at: Seconds
    version: Text
    #: The queues that it runs; None: an older version, which doesn't tell.
    queues: Annotated[list[Text], Meta(max_length=10_000)] | None = None
    #: Those of them that it leaves alone, as Redis knows them otherwise → why.
    refused: Annotated[dict[Text, Text], Meta(max_length=10_000)] = {}
    #: Queue → shards.
    owned: Shards
    #: Those of them that are another node's part, for which this one stands in.
    fostered: Shards = {}
    #: Holder → queue → shards that are this node's part, and that the holder has; "" is nobody known.
    waited_for: Annotated[dict[Text, Shards], Meta(max_length=MOST_NODES)]
    threads: Annotated[list[ThreadHealth], Meta(max_length=1_000)]
    #: Batches that run on the event loop, of which `threads` has the longest; None: it has no loop.
    tasks: Count | None = None
    #: Seconds by which the loop is late, as something blocks it.
    loop_lag: Seconds = 0.0
    processed: Count
    failed: Count
    #: Bytes.
    rss: Count
    cpu_percent: Annotated[float, Meta(ge=0, le=1e9)]
    #: Seconds of the last beat's call, None before the first.
    redis_round_trip: Seconds | None
    restarts: Count
    #: How the last process of its slot ended, and why.
    last_exit: Text | None
    #: Its supervisor's sentences on what is wrong with the nodes there.
    notices: Annotated[list[Text], Meta(max_length=100)] = []
    #: `rss` and `cpu_percent` of the last beats, oldest first.
    rss_history: Annotated[list[Count], Meta(max_length=1_000)] = []
    cpu_history: Annotated[list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(max_length=1_000)] = []
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
    #: Values in Redis that can't be read.
    unreadable: list[Unreadable] = []

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


def running_batches(nodes: Iterable[NodeHealth]) -> dict[tuple[str, int], list[Running]]:
    """Queue and shard → what is performed of it, the longest first; if several nodes name it, by the last heartbeat."""
    found: dict[tuple[str, int], list[Running]] = {}
    for node in sorted(nodes, key=lambda node: node.beat_age):
        for thread in sorted(node.threads, key=lambda thread: -thread.seconds):
            if thread.queue is not None and thread.shard is not None:
                batches = found.setdefault((thread.queue, thread.shard), [])
                if not batches or batches[0].node is node:
                    batches.append(Running(node, thread))
    return found


def batch_of(id: str, batches: Sequence[Running]) -> Running | None:
    """The batch that an id is of, else one that is too large for its beat to name all its ids, and may have it."""
    named = (batch for batch in batches if batch.has(id))
    return next(named, None) or next((batch for batch in batches if batch.has(id) is None), None)


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
    return judge(read_health(caller, namespace), shards, caller.met.now())


def read_health(caller: Caller, namespace: str) -> list[NodeHealth]:
    """The heartbeats of nodes that have beaten lately, by node number."""
    key = keys.nodes(namespace)
    time, beats = caller.read([("TIME",), ("ZREVRANGE", key, 0, MOST_BEATS - 1, "WITHSCORES")], [])
    now = time[0] + time[1] / 1e6
    # Redis forgets a beat by its clock too, and so too late if that was set back.
    ages = {name: age for name, at in pairs(beats) if (age := max(now - float(at), 0.0)) <= BEAT_TTL}
    found, unreadable, bytes_read = list[NodeHealth](), list[Unreadable](), 0
    for names in chunked(ages, BEATS_AT_ONCE):
        texts = caller.read([("GETRANGE", _key_of(namespace, name), 0, MOST_BEAT_BYTES) for name in names], b"")
        for name, text in zip(names, texts, strict=True):
            bytes_read += len(text)
            if text and (health := _read_beat(_key_of(namespace, name), text, unreadable)):
                found.append(msgspec.structs.replace(health, beat_age=ages[name]))
        if bytes_read > MOST_BYTES_IN_ALL:
            why = f"its nodes' heartbeats have more than {MOST_BYTES_IN_ALL >> 20} MiB"
            unreadable.append(Unreadable(quoted(key), why, f"UNLINK {quoted(key)}"))
            break
    found.sort(key=lambda node: (node.node_number, node.started_at))
    caller.met.tell(key, unreadable)
    return found


def _key_of(namespace: str, node: bytes) -> bytes:
    return keys.node(namespace, "").encode() + node


def _read_beat(key: bytes, text: bytes, met: list[Unreadable]) -> NodeHealth | None:
    if len(text) > MOST_BEAT_BYTES:
        met.append(Unreadable(quoted(key), f"it has more than {MOST_BEAT_BYTES >> 20} MiB", f"UNLINK {quoted(key)}"))
        return None
    return parsed(met, quoted(key), f"UNLINK {quoted(key)}", _BEAT.decode, text)


_BEAT: Final = msgspec.json.Decoder(NodeHealth)


def judge(nodes: list[NodeHealth], shards: Sequence[ShardMetrics], unreadable: Sequence[Unreadable]) -> Nodes:
    """The nodes with what is wrong, by their heartbeats, the numbers of all shards, and what can't be read."""
    groups = groups_of(nodes)
    return Nodes(
        nodes=nodes,
        late=[node.node for node in nodes if node.is_late],
        missing=sorted({number for group in groups for number in group.missing}),
        doubled=sorted({number for group in groups for number in group.doubled}),
        unowned=[shard for shard in shards if shard.is_unowned],
        unreadable=list(unreadable),
    )
