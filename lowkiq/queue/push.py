"""Push: puts validated jobs into the shards of a queue, in few round trips, and tells how many were accepted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NamedTuple

from hiredis import pack_command
from redis.exceptions import RedisError

from lowkiq.errors import LowkiqError, OtherLayout, ShardsCountMismatch
from lowkiq.job import EncodedJob, Pushed, shard_of
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller, chunked, raise_first, refusal
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.queue.tally import Tally
from lowkiq.settings import Settings
from lowkiq.transport.patience import Patience
from lowkiq.transport.server import Connections, Replicas

#: Jobs in one push: the script is O(batch), so this bounds how long others wait for Redis (about 5 ms).
MAX_PUSH = 1_000
#: Bytes of one push script's arguments, unless a single payload is larger.
MAX_PUSH_BYTES = 4 << 20
#: Shards that one push script is for, where there is one server: each takes about as long as two jobs.
MAX_SHARDS = 100
#: Push scripts in one round trip.
PUSHES_AT_ONCE = 32
#: Words of a job in a push, as far as it has them; behind those, its tenant.
WORDS = ("id", "payload", "score", "perform_in", "tags")
#: Jobs by the index of their shard.
Jobs = dict[int, list[EncodedJob]]


class Chunk(NamedTuple):
    """Jobs for one shard, and their bytes."""

    shard: Shard
    jobs: Sequence[EncodedJob]
    size: int = 0


class Producer:
    """Pushes to one queue. A push counts as accepted once so many `replicas` have it."""

    def __init__(
        self,
        caller: Caller,
        namespace: str,
        queue: str,
        shards_count: int,
        replicas: Replicas | None = None,
        *,
        push_timeout: float = Settings.push_timeout,
    ) -> None:
        self._caller = caller
        self._replicas = replicas
        self._push_timeout = push_timeout
        self._namespace = namespace
        self._queue = queue
        self._shards = shards_of(namespace, {queue: shards_count})
        #: True once Redis knows the queue, by this process.
        self.is_registered = False
        #: The way of a single job right to a socket; None until the queue is registered.
        self._connections: Connections | None = None
        #: The command of such a push up to the id, by the index of the shard.
        self._heads: dict[int, bytes] = {}

    def register(self) -> None:
        """Makes the queue known. Raises ShardsCountMismatch when it is known with another shards_count."""
        raise_first(list(register(self._caller, self._namespace, {self._queue: len(self._shards)}).values()))
        self.is_registered = True
        if not self._replicas:
            self._connections = self._caller.connections

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed:
        """Puts jobs into the queue; the order within an id is kept."""
        tally: Tally | None = None
        with Patience(self._push_timeout) as patience:
            try:
                if self._connections and len(jobs) == 1 and (pushed := self._push_one(self._connections, jobs[0])):
                    return pushed
                tally = Tally(len(jobs))
                if not self.is_registered:
                    self.register()
                    patience.was_sent = False
                    patience.answered()
                for turn in self.turns(self.by_shard(jobs)):
                    for calls in chunked(turn, PUSHES_AT_ONCE):
                        tally.add(self._caller.run_all(calls, self._replicas))
                        patience.answered()
            except RedisError as error:
                raise (tally or Tally(1)).failed(error, was_sent=patience.was_sent) from error
        return tally.pushed

    def _push_one(self, connections: Connections, job: EncodedJob) -> Pushed | None:
        """
        Most pushes are of one job with the default score and due time. All of the command but the id and the payload is
        packed beforehand: a producer that has slept finds its caches cold, and each call that is not made, in Python or
        in C, takes microseconds off the way of a job to an idle node.

        Returns:
            None if it is not such a job, or Redis refuses it: the usual way makes it possible, or tells why not.
        """
        if not job.is_plain:
            return None
        id, payload = job.id, job.payload
        index = shard_of(id, len(self._shards))
        head = self._heads.get(index) or self._pack_head(index)
        packed = b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (head, len(id), id, len(payload), payload)
        (reply,) = connections.send([packed], 1)
        return None if isinstance(reply, Exception) else Pushed(*reply)

    def _pack_head(self, index: int) -> bytes:
        command: tuple[Any, ...] = self._caller.command_of(push_call(self._shards[index], []))
        _, words = pack_command(command).split(b"\r\n", 1)  # how many there are comes first
        head = self._heads[index] = b"*%d\r\n%b" % (len(command) + 2, words)
        return head

    def run(self, calls: Sequence[Call[Any]]) -> tuple[list[Any], bool]:
        """
        Sends calls for those who await them, and registers the queue first if need be.

        Returns:
            for each its result or error, also one of the connection; and whether Redis may have got any.
        """
        with Patience(self._push_timeout) as patience:
            try:
                if not self.is_registered:
                    self.register()
                    patience.was_sent = False
                    patience.answered()
                return self._caller.run_all(calls, self._replicas), True
            except (RedisError, LowkiqError) as error:
                return [error] * len(calls), patience.was_sent

    def shard_of(self, job: EncodedJob) -> int:
        """The index of a job's shard."""
        return shard_of(job.id, len(self._shards))

    def by_shard(self, jobs: Iterable[EncodedJob], grouped: Jobs | None = None) -> Jobs:
        """Jobs by the index of their shard, put to those that are grouped already."""
        grouped, shards_count = {} if grouped is None else grouped, len(self._shards)
        for job in jobs:
            grouped.setdefault(shard_of(job.id, shards_count), []).append(job)
        return grouped

    def turns(self, jobs: Jobs) -> Iterator[Iterator[Call[tuple[Any, ...]]]]:
        """Calls with one push a shard in each turn: what comes after one that is refused is not accepted."""
        most = 1 if self._caller.is_spread else MAX_SHARDS
        left = [_chunks(self._shards[index], group) for index, group in jobs.items()]
        while left:
            rest: list[Iterator[Chunk]] = []
            yield map(_push_call, _together(_heads(left, rest), most))
            left = rest

    def call_apart(self, jobs: Jobs) -> Call[list[int]]:
        """Puts plain jobs, each of its own push, into the queue; gives for each, in order, 1 unless it was left."""
        return push_apart_call([(self._shards[index], group) for index, group in jobs.items()])

    def call_of_id(self, jobs: Sequence[EncodedJob]) -> Call[tuple[Any, ...]]:
        """Puts jobs of one id into the queue."""
        return push_call(self._shards[self.shard_of(jobs[0])], jobs)


def push_apart_call(groups: Sequence[tuple[Shard, Sequence[EncodedJob]]]) -> Call[list[int]]:
    """Puts plain jobs, each of its own push, into their shards; gives for each, in order, 1 unless it was left."""
    arguments: list[Argument] = [groups[0][0].layout]
    for _, jobs in groups:
        arguments.append(len(jobs))
        for job in jobs:
            arguments += (job.id, job.payload)
    return Call("push_apart", [shard.prefix for shard, _ in groups], arguments, list)


def push_call(shard: Shard, jobs: Sequence[EncodedJob]) -> Call[tuple[Any, ...]]:
    """Puts payloads into the queue; gives the numbers of new ids and merged payloads, and what was refused."""
    return _push_call([Chunk(shard, jobs)])


def _push_call(chunks: Sequence[Chunk]) -> Call[tuple[Any, ...]]:
    head: list[Argument] = [chunks[0].shard.layout, 2]
    if len(chunks) > 1:
        head += [len(chunk.jobs) for chunk in chunks]
    arguments = head.copy()
    for job in chain.from_iterable(chunk.jobs for chunk in chunks):
        if not job.is_plain:  # in full, which few pushes need
            jobs = list(chain.from_iterable(chunk.jobs for chunk in chunks))
            fields = _fields(jobs)
            head[1] = len(fields)
            arguments = [*head, *chain.from_iterable(map(attrgetter(*fields), jobs))]
            break
        arguments += (job.id, job.payload)
    return Call("push", [chunk.shard.prefix for chunk in chunks], arguments, _taken)


def _fields(jobs: Sequence[EncodedJob]) -> Sequence[str]:
    """The words of each job in a push, but for what none has."""
    has_tenant, has_tags = any(job.tenant for job in jobs), any(job.tags for job in jobs)
    if any(job.fewer for job in jobs):
        return (*WORDS, "tenant", "fewer")
    is_full = has_tags or any(job.score != "" or job.perform_in != "" for job in jobs)
    most = (5 if has_tags or has_tenant else 4) if is_full else 2
    return (*WORDS[:most], *(["tenant"] if has_tenant else []))


def _taken(reply: list[Any]) -> tuple[Any, ...]:
    """The numbers that a push tells, and the error of a shard that took nothing."""
    new, merged, *errors = reply
    return new, merged, *(refusal(error.decode(errors="replace")) for error in errors)


def register(
    caller: Caller, namespace: str, queues: Mapping[str, int], *, raises_layout: bool = False
) -> dict[str, OtherLayout]:
    """
    Makes queues with their shards_count known, also again should Redis have lost them. Nodes raise an older layout;
    producers leave it, so that nodes of an older Lowkiq go on with the queue.

    Returns:
        by queue, ShardsCountMismatch for one that is known with another shards_count, or with what is none, and
        NewerLayout for a newer layout.
    """
    calls = [
        Call(
            "register",
            [keys.queues(namespace)],
            [queue, keys.layout(count), keys.layout(count, 1) if raises_layout else ""],
            partial(_known, namespace, queue),
        )
        for queue, count in queues.items()
    ]
    replies = caller.run_all(calls)
    raise_first([reply for reply in replies if isinstance(reply, RedisError)])
    found = zip(queues.items(), replies, strict=True)
    errors = {queue: _error(queue, layout, count) for (queue, count), layout in found}
    return {queue: error for queue, error in errors.items() if error}


def _known(namespace: str, queue: str, text: bytes) -> Layout | OtherLayout:
    try:
        return Layout.parse(text)
    except ValueError as error:  # anybody may have written it
        return ShardsCountMismatch(f"queue {queue}: {error}. Remove it: HDEL {keys.queues(namespace)} {queue}")


def _error(queue: str, layout: Layout | OtherLayout, count: int) -> OtherLayout | None:
    return layout_error(queue, layout, count) if isinstance(layout, Layout) else layout


def layout_error(queue: str, known: Layout, shards_count: int) -> OtherLayout | None:
    """ShardsCountMismatch or NewerLayout if this Lowkiq may not write to a queue that Redis knows so."""
    if known.version > keys.LAYOUT_VERSION:
        return keys.newer_layout(queue, known.version)
    if known.shards_count == shards_count:
        return None
    return ShardsCountMismatch(
        f"queue {queue} has shards_count {known.shards_count}, not {shards_count}: "
        f"set shards_count = {known.shards_count}, or choose another queue_name and let the old queue run dry"
    )


def _chunks(shard: Shard, jobs: Iterable[EncodedJob]) -> Iterator[Chunk]:
    """Jobs of a shard, as many as one script may have."""
    chunk: list[EncodedJob] = []
    size = 0
    for job in jobs:
        length = len(job.id) + len(job.payload) + len(job.tags) + len(job.tenant)
        if chunk and (len(chunk) >= MAX_PUSH or size + length > MAX_PUSH_BYTES):
            yield Chunk(shard, chunk, size)
            chunk, size = [], 0
        chunk.append(job)
        size += length
    if chunk:
        yield Chunk(shard, chunk, size)


def _heads(chunks: Iterable[Iterator[Chunk]], rest: list[Iterator[Chunk]]) -> Iterator[Chunk]:
    """The first chunk of each shard; `rest` gets what may have another."""
    for some in chunks:
        for chunk in islice(some, 1):
            rest.append(some)
            yield chunk


def _together(chunks: Iterable[Chunk], most: int) -> Iterator[list[Chunk]]:
    """Chunks of several shards, as many as one script may have."""
    some: list[Chunk] = []
    jobs = size = 0
    for chunk in chunks:
        jobs, size = jobs + len(chunk.jobs), size + chunk.size
        if some and (len(some) >= most or jobs > MAX_PUSH or size > MAX_PUSH_BYTES):
            yield some
            some, jobs, size = [], len(chunk.jobs), chunk.size
        some.append(chunk)
    if some:
        yield some
