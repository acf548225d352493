"""Push: puts validated jobs into the shards of a queue, in few round trips, and tells how many were accepted."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NamedTuple

from hiredis import pack_command
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import BeingResharded, LowkiqError, Moved
from lowkiq.job import WORDS, EncodedJob, Pushed, shard_of
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller, chunked, raise_first, refusal
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.shard import Shard
from lowkiq.queue.tally import Tally
from lowkiq.queue.ways import LOOK, MOST_TIMES, Ways, sent_on
from lowkiq.settings import Settings
from lowkiq.transport.patience import Patience
from lowkiq.transport.server import Connections, Replicas

#: Jobs in one push: the script is O(batch), so this bounds how long others wait for Redis (about 5 ms).
MAX_PUSH = 1_000
#: Bytes of one push script's arguments, unless a single payload is larger.
MAX_PUSH_BYTES = 4 << 20
#: What a byte of `after` counts for: some twenty of them are a letter to be written, which takes Redis microseconds.
AFTER_BYTES = 200
#: Shards that one push script is for, where there is one server: each takes about as long as two jobs.
MAX_SHARDS = 100
#: Push scripts in one round trip.
PUSHES_AT_ONCE = 32
#: Seconds after which is tried again what a shard has refused that is still coming.
STILL_COMING = 0.05
#: Jobs by their shard.
Jobs = dict[Shard, list[EncodedJob]]


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
        self._shards_count = shards_count
        self._ways = Ways(namespace, queue, Layout(keys.LAYOUT_VERSION, shards_count))
        #: The caller's losses when Redis was known to know the queue; None: it is not known.
        self._known_at: int | None = None
        self._look_at = math.inf
        #: The way of a single job right to a socket; None until the queue is registered.
        self._connections: Connections | None = None

    @property
    def is_registered(self) -> bool:
        """
        True once Redis knows the queue, by this process. A failover may lose the beginning of a reshard: who pushed on
        by a layout that Redis has forgotten would push to shards that nobody owns.
        """
        return self._known_at == self._caller.losses

    def note_loss(self) -> None:
        """Notes that a connection of somebody else's was lost, who pushes for it."""
        self._known_at = None

    def register(self) -> None:
        """Makes the queue known, and follows the layout that it has in Redis. Raises OtherLayout if it can't."""
        losses = self._caller.losses
        (found,) = opened(self._caller, self._namespace, {self._queue: self._shards_count}).values()
        if isinstance(found, Exception):
            raise found
        if found != self._ways.layout:
            self._ways = Ways(self._namespace, self._queue, found)
        self._known_at = losses
        self._look_at = clock.monotonic() + LOOK if found.is_moving else math.inf
        self._connections = None if self._replicas or found.is_moving else self._caller.connections

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed:
        """Puts jobs into the queue; the order within an id is kept."""
        tally: Tally | None = None
        with Patience(self._push_timeout) as patience:
            try:
                way = self._connections if len(jobs) == 1 and self.is_registered else None
                if way and (pushed := self._push_one(way, jobs[0])):
                    return pushed
                tally = Tally(len(jobs))
                self._look(patience)
                for turn in self.turns(self.by_shard(jobs)):
                    for calls in chunked(turn, PUSHES_AT_ONCE):
                        tally.add(self._run_all(calls, patience))
            except RedisError as error:
                raise (tally or Tally(1)).failed(error, was_sent=patience.was_sent) from error
        return tally.pushed

    def _look(self, patience: Patience) -> None:
        """Registers the queue if need be, and looks from time to time whether it is still being resharded."""
        if not self.is_registered or clock.monotonic() >= self._look_at:
            self.register()
            patience.was_sent = False
            patience.answered()

    def _run_all(self, calls: Sequence[Call[Any]], patience: Patience) -> list[Any]:
        """The results of calls. What a shard that was moved sends on goes there, and counts with its call."""
        results = self._caller.run_all(calls, self._replicas)
        patience.answered()
        for number, result in enumerate(results):
            calls_on, found = [calls[number]], [result]
            for _ in range(MOST_TIMES):
                moved = [sent_on(call, one) for call, one in zip(calls_on, found, strict=True)]
                jobs = [job for _, some in moved for job in some]
                if not jobs:
                    break
                if not all(self._ways.sent_on(prefix) for prefixes, _ in moved for prefix in prefixes):
                    self.register()
                calls_on = [push_call(shard, some) for shard, some in self.by_shard(jobs).items()]
                found = self._caller.run_all(calls_on, self._replicas)
                patience.answered()
                results[number] = _together_with(results[number], found)
        return results

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
        id, payload, ways = job.id, job.payload, self._ways
        index = shard_of(id, ways.count)
        head = ways.heads.get(index) or self._pack_head(ways, index)
        packed = b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (head, len(id), id, len(payload), payload)
        (reply,) = connections.send([packed], 1)
        return None if isinstance(reply, Exception) else Pushed(*reply)

    def _pack_head(self, ways: Ways, index: int) -> bytes:
        command: tuple[Any, ...] = self._caller.command_of(push_call(ways.shards[index], []))
        _, words = pack_command(command).split(b"\r\n", 1)  # how many there are comes first
        head = ways.heads[index] = b"*%d\r\n%b" % (len(command) + 2, words)
        return head

    def run(self, calls: Sequence[Call[Any]]) -> tuple[list[Any], bool]:
        """
        Sends calls for those who await them, and registers the queue first if need be.

        Returns:
            for each its result or error, also one of the connection; and whether Redis may have got any.
        """
        with Patience(self._push_timeout) as patience:
            try:
                self._look(patience)
                return self._run_all(calls, patience), True
            except (RedisError, LowkiqError) as error:
                return [error] * len(calls), patience.was_sent

    def wait(self, job: EncodedJob, others: Sequence[str], *, is_all: bool) -> bool:
        """
        Has a job that waits wait for these as well, "queue shards_count id" each; with `is_all` nothing more is to
        come. False: it waits no more, as somebody has let it go or deleted it. Raises BeingResharded if its shard still
        moves after `push_timeout`.
        """
        until = clock.monotonic() + self._push_timeout
        while True:
            try:
                return self._wait(job, others, is_all=is_all)
            except (BeingResharded, Moved):
                if clock.monotonic() >= until:
                    raise
            time.sleep(STILL_COMING)

    def _wait(self, job: EncodedJob, others: Sequence[str], *, is_all: bool) -> bool:
        with Patience(self._push_timeout) as patience:
            for _ in range(MOST_TIMES):
                self._look(patience)
                shard = self._ways.shard_of(job.id)
                call = Call("wait", [shard.prefix], [shard.layout, job.id, int(is_all), *others], bool)
                (result,) = self._caller.run_all([call], self._replicas)
                patience.answered()
                if not isinstance(result, Moved):
                    return bool(raise_first([result])[0])
                if not self._ways.sent_on(shard.prefix):
                    self._known_at = None
        raise result

    def shard_of(self, job: EncodedJob) -> Shard:
        """A job's shard."""
        return self._ways.shard_of(job.id)

    def by_shard(self, jobs: Iterable[EncodedJob], grouped: Jobs | None = None) -> Jobs:
        """Jobs by their shard, put to those that are grouped already."""
        grouped, ways = {} if grouped is None else grouped, self._ways
        if ways.layout.is_moving:
            for job in jobs:
                grouped.setdefault(ways.shard_of(job.id), []).append(job)
            return grouped
        shards, count = ways.shards, ways.count
        for job in jobs:
            grouped.setdefault(shards[shard_of(job.id, count)], []).append(job)
        return grouped

    def turns(self, jobs: Jobs) -> Iterator[Iterator[Call[tuple[Any, ...]]]]:
        """Calls with one push a shard in each turn: what comes after one that is refused is not accepted."""
        most = 1 if self._caller.is_spread or self._ways.layout.is_moving else MAX_SHARDS
        left = [_chunks(shard, group) for shard, group in jobs.items()]
        while left:
            rest: list[Iterator[Chunk]] = []
            yield map(_push_call, _together(_heads(left, rest), most))
            left = rest

    def call_apart(self, jobs: Jobs) -> Call[list[int]]:
        """Puts plain jobs, each of its own push, into the queue; gives for each, in order, 1 unless it was left."""
        return push_apart_call(list(jobs.items()))

    def call_of_id(self, jobs: Sequence[EncodedJob]) -> Call[tuple[Any, ...]]:
        """Puts jobs of one id into the queue."""
        return push_call(self.shard_of(jobs[0]), jobs)


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
            head[1] = width = _width(jobs)
            arguments = [*head, *chain.from_iterable(map(attrgetter(*WORDS[width]), jobs))]
            break
        arguments += (job.id, job.payload)
    return Call("push", [chunk.shard.prefix for chunk in chunks], arguments, _taken)


def _together_with(result: Any, found: Sequence[Any]) -> tuple[Any, ...]:
    """The result of a push together with what became of the jobs that were sent on."""
    new, merged, *errors = (0, 0) if isinstance(result, Moved) else result
    errors = [error for error in errors if not isinstance(error, Moved)]
    for one in found:
        if isinstance(one, Exception):
            errors.append(one)
        else:
            new, merged = new + one[0], merged + one[1]
            errors += one[2:]
    return new, merged, *errors


def _width(jobs: Sequence[EncodedJob]) -> int:
    """The number of words for each job in a push, as few as the one with most needs."""
    if any(job.after for job in jobs):
        return 8
    if any(job.fewer for job in jobs):
        return 7
    has_tenant, has_tags = any(job.tenant for job in jobs), any(job.tags for job in jobs)
    if has_tags or any(job.score != "" or job.perform_in != "" for job in jobs):
        return 6 if has_tenant else 5 if has_tags else 4
    return 3 if has_tenant else 2


def _taken(reply: list[Any]) -> tuple[Any, ...]:
    """The numbers that a push tells, and the error of a shard that took nothing."""
    new, merged, *errors = reply
    return new, merged, *(refusal(error.decode(errors="replace")) for error in errors)


def _chunks(shard: Shard, jobs: Iterable[EncodedJob]) -> Iterator[Chunk]:
    """Jobs of a shard, as many as one script may have."""
    chunk: list[EncodedJob] = []
    size = 0
    for job in jobs:
        length = len(job.id) + len(job.payload) + len(job.tags) + len(job.tenant) + AFTER_BYTES * len(job.after)
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
