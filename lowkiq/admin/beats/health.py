"""The health of a node as its heartbeat tells it, and what it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from lowkiq.admin.words import printable
from lowkiq.codec import encodable
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, chunked, pairs
from lowkiq.queue.unreadable import Unreadable, parsed, quoted

#: Seconds between beats.
BEAT_INTERVAL = 5.0
#: Seconds after which a node that has not beaten is late: two beats were lost.
LATE_AFTER = 2.5 * BEAT_INTERVAL
#: Seconds after which it is forgotten, and its number missing.
BEAT_TTL = 30
#: Nodes that are gone of which the last beat is kept, for a day, and seconds of that.
MOST_GONE, GONE_KEPT = 200, 86_400
#: Node numbers that can be missing: a heartbeat is only what somebody has written into Redis.
MOST_NODES: Final = 10_000
#: Seconds of lateness after which an event loop counts as blocked.
LOOP_BLOCKED: Final = 1.0
#: Where a batch runs that is a task, as its `name` has it.
EVENT_LOOP: Final = "event loop"
#: Ids of a batch that a heartbeat names, and characters of each.
NAMED_IDS, ID_CHARS = 10, 200
#: Beats in a row at which a node holds more memory than it may, and people are told: a minute.
TOO_LARGE_BEATS: Final = 12
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
    """A worker thread and the batch that it performs; or a batch that runs as a task."""

    #: The thread's, or "event loop".
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
    #: Since when it has been asked to stop, by a cancel or as it takes longer than its worker's perform_timeout.
    to_stop_seconds: Seconds | None = None
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
    #: Nodes share the shards among themselves: its number is only a name.
    is_elastic: bool = False
    #: "ready", "quiet", "draining" or "retiring".
    state: Text
    started_at: Seconds
    beat_at: Seconds
    version: Text
    #: The queues that it runs; None: an older version, which doesn't tell.
    queues: Annotated[list[Text], Meta(max_length=10_000)] | None = None
    #: Those of them that have weights, as it goes by them now.
    weights: Annotated[dict[Text, Count], Meta(max_length=10_000)] = {}
    #: Those of them that it leaves alone, as Redis knows them otherwise → why.
    refused: Annotated[dict[Text, Text], Meta(max_length=10_000)] = {}
    #: Queue → shards.
    owned: Shards
    #: Queue → shard → threads that it keeps busy, over about 15 s.
    loads: Annotated[dict[Text, dict[Count, Annotated[float, Meta(ge=0, le=1e6)]]], Meta(max_length=10_000)] = {}
    #: Those of them that are another node's part, for which this one stands in.
    fostered: Shards = {}
    #: Holder → queue → shards that are this node's part, and that the holder has; "" is nobody known.
    waited_for: Annotated[dict[Text, Shards], Meta(max_length=MOST_NODES)]
    threads: Annotated[list[ThreadHealth], Meta(max_length=1_000)]
    #: Batches that run as tasks on the event loop; None: none of its workers is async.
    tasks: Count | None = None
    #: Those of them that have run for longest.
    longest_tasks: Annotated[list[ThreadHealth], Meta(max_length=1_000)] = []
    #: Seconds by which the loop is late, as something blocks it.
    loop_lag: Seconds = 0.0
    processed: Count
    failed: Count
    #: Bytes.
    rss: Count
    #: Bytes from which on its supervisor replaces it; None: it does not.
    rss_limit: Count | None = None
    cpu_percent: Annotated[float, Meta(ge=0, le=1e9)]
    #: Seconds of the last beat's call, None before the first.
    redis_round_trip: Seconds | None
    #: The last error of Redis that its threads have met, and not yet got over.
    redis_error: Text = ""
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

    @property
    def batches(self) -> list[Running]:
        """Batches that it performs, as far as it tells, the longest first."""
        found = [Running(self, row) for row in (*self.threads, *self.longest_tasks) if row.queue is not None]
        return sorted(found, key=lambda running: -running.thread.seconds)

    @property
    def is_blocked(self) -> bool:
        """True if something keeps its event loop from going on, and with it all its tasks."""
        return self.tasks is not None and self.loop_lag > LOOP_BLOCKED

    @property
    def is_too_large(self) -> bool:
        """True if it has held more memory than its supervisor allows for a minute."""
        lately = self.rss_history[-TOO_LARGE_BEATS:]
        return len(lately) == TOO_LARGE_BEATS and self.rss_limit is not None and min(lately) > self.rss_limit

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
    """A batch that a thread, or the event loop, performs."""

    node: NodeHealth
    thread: ThreadHealth

    @property
    def seconds(self) -> float:
        """For how long: one that had run longer than a beat is taken to go on, else we know of the last beat only."""
        return self.thread.seconds + (self.node.beat_age if self.thread.seconds > BEAT_INTERVAL else 0.0)

    @property
    def jobs(self) -> str:
        """The first of its ids, and how many more there are."""
        first, more = printable(next(iter(self.thread.ids), "a job"), 60), self.thread.jobs - 1
        return f"{first} and {more:,} more" if more > 0 else first

    @property
    def runs_on(self) -> bool:
        """True if it was asked to stop longer ago than a beat, and has not."""
        return (self.thread.to_stop_seconds or 0.0) > BEAT_INTERVAL

    @property
    def place(self) -> str:
        """Where on its node it runs, in words."""
        where = "its event loop" if self.thread.name == EVENT_LOOP else f"thread {printable(self.thread.name, 60)}"
        return f"{where} in process {self.thread.pid}" if self.thread.pid else where

    def has(self, id: str) -> bool | None:
        """True if an id is of the batch; None if the batch is too large for its beat to name them all."""
        if name_id(id) in self.thread.ids:
            return True
        return None if self.thread.jobs > len(self.thread.ids) else False


def name_id(id: str) -> str:
    """An id as heartbeats name it: cut, and without bytes that are no UTF-8, which would keep the node from beating."""
    return encodable(id[:ID_CHARS])


def owner_name(nodes: Mapping[str, NodeHealth], owner: str | None) -> str:
    """An owner in few words: its number among these nodes by name, where several machines have nodes also its host."""
    node = nodes.get(owner or "")
    if node is None:
        return printable(owner, 80) if owner else "nobody"
    has_hosts = any(other.host != node.host for other in nodes.values())
    return f"node {node.node_number}" + (f" on {printable(node.host, 60)}" if has_hosts else "")


def running_batches(nodes: Iterable[NodeHealth]) -> dict[tuple[str, int], list[Running]]:
    """Queue and shard → what is performed of it, the longest first; if several nodes name it, by the last heartbeat."""
    found: dict[tuple[str, int], list[Running]] = {}
    for node in sorted(nodes, key=lambda node: node.beat_age):
        for running in node.batches:
            if running.thread.queue is not None and running.thread.shard is not None:
                batches = found.setdefault((running.thread.queue, running.thread.shard), [])
                if not batches or batches[0].node is node:
                    batches.append(running)
    return found


def batch_of(id: str, batches: Sequence[Running]) -> Running | None:
    """The batch that an id is of, else one that is too large for its beat to name all its ids, and may have it."""
    named = (batch for batch in batches if batch.has(id))
    return next(named, None) or next((batch for batch in batches if batch.has(id) is None), None)


def beat(caller: Caller, namespace: str, health: NodeHealth) -> None:
    """Writes a heartbeat. It is kept for a day, so that what is missing can be told of."""
    _tell(caller, namespace, health.node, is_over=False)
    caller.command("SET", keys.node(namespace, health.node), msgspec.json.encode(health), "EX", GONE_KEPT)


def forget(caller: Caller, namespace: str, node: str) -> None:
    """The node is gone, and need not be waited for."""
    _tell(caller, namespace, node, is_over=True)
    caller.command("UNLINK", keys.node(namespace, node))


def _tell(caller: Caller, namespace: str, node: str, *, is_over: bool) -> None:
    _, *surplus = caller.run(Call("beat", [keys.nodes(namespace)], [node, int(is_over), BEAT_TTL, MOST_GONE], list))
    for name in surplus:  # one by one: in Redis Cluster they may be anywhere
        caller.command("UNLINK", _key_of(namespace, name))


def read_health(caller: Caller, namespace: str) -> list[NodeHealth]:
    """The heartbeats of nodes that have beaten lately, by node number."""
    ages = {name: age for name, age in _ages(caller, namespace).items() if age <= BEAT_TTL}
    return sorted(read_beats(caller, namespace, ages), key=lambda node: (node.node_number, node.started_at))


def is_alive(caller: Caller, namespace: str, node: str) -> bool:
    """Returns whether a node has beaten lately."""
    time, at = caller.read([("TIME",), ("ZSCORE", keys.nodes(namespace), node)], b"")
    return bool(at) and time[0] + time[1] / 1e6 - float(at) <= BEAT_TTL


def read_gone(caller: Caller, namespace: str) -> list[NodeHealth]:
    """The last heartbeats of nodes that have not beaten lately, within a day: the last to beat come first."""
    ages = {name: age for name, age in _ages(caller, namespace).items() if BEAT_TTL < age <= GONE_KEPT}
    return read_beats(caller, namespace, dict(list(ages.items())[:MOST_GONE]))


def _ages(caller: Caller, namespace: str) -> dict[bytes, float]:
    """Node → seconds since its last beat, by Redis's clock, which may have been set back; the last come first."""
    newest = ("ZREVRANGE", keys.nodes(namespace), 0, MOST_BEATS - 1, "WITHSCORES")
    time, beats = caller.read([("TIME",), newest], [])
    now = time[0] + time[1] / 1e6
    return {name: max(now - float(at), 0.0) for name, at in pairs(beats)}


def read_beats(caller: Caller, namespace: str, ages: Mapping[bytes, float]) -> list[NodeHealth]:
    """The last heartbeats of these nodes, each with the seconds since then."""
    key, found, unreadable, bytes_read = keys.nodes(namespace), list[NodeHealth](), list[Unreadable](), 0
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
