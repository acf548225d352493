"""
The calls that push jobs: how many one may have, what it says of each, what its reply means, and how much of a push is
known to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NamedTuple

from redis.exceptions import RedisError, ResponseError

from lowkiq.errors import Late, Moved, PushFailed
from lowkiq.job import WORDS, EncodedJob, Pushed
from lowkiq.queue.call import Argument, Call, raise_first, refusal
from lowkiq.queue.senders import Stamp
from lowkiq.queue.shard import Shard
from lowkiq.transport.errors import advice, explained


class Tally:
    """The number of payloads, `of` so many, that Redis is known to have taken."""

    def __init__(self, of: int) -> None:
        self._of = of
        self._new = self._merged = 0

    @property
    def pushed(self) -> Pushed:
        """The result of the push so far."""
        return Pushed(self._new, self._merged)

    def add(self, results: Iterable[Any]) -> None:
        """Counts what calls have given; raises the first error among it."""
        errors: list[Exception] = []
        for result in results:
            if isinstance(result, Exception):
                errors.append(result)
            else:
                self._new, self._merged = self._new + result[0], self._merged + result[1]
                errors += result[2:]
        raise_first(errors)

    def failed(self, error: RedisError, *, was_sent: bool = True) -> PushFailed:
        """The error of the push, with what is known of its payloads."""
        taken = self._new + self._merged
        if not was_sent:
            known = f"none of {self._of} payloads was sent to Redis"
        elif isinstance(error, ResponseError):
            known = f"Redis took {taken} of {self._of} payloads for sure, then"
        else:
            known = f"Redis took {taken} of {self._of} payloads for sure, of the others nobody knows"
        again = "push all of them again: equal payloads merge" if was_sent else "push them again"
        if isinstance(error, ResponseError) and advice(error):
            again = f"then {again}"  # before that it would be refused again
        return PushFailed(f"{known}: {explained(error)}; {again}", new=self._new, merged=self._merged)


#: Jobs in one push: the script is O(batch), so this bounds how long others wait for Redis (about 5 ms).
MAX_PUSH = 1_000
#: Bytes of one push script's arguments, unless a single payload is larger.
MAX_PUSH_BYTES = 4 << 20
#: What a byte of `after` counts for: some twenty of them are a letter to be written, which takes Redis microseconds.
AFTER_BYTES = 200
#: Shards that one push script is for, where there is one server: each takes about as long as two jobs.
MAX_SHARDS = 100


#: Jobs by their shard.
Jobs = dict[Shard, list[EncodedJob]]
#: Gives the stamp of the next call.
Stamped = Callable[[], Stamp]


class Chunk(NamedTuple):
    """Jobs for one shard, and their bytes."""

    shard: Shard
    jobs: Sequence[EncodedJob]
    size: int = 0


def calls_in_turns(jobs: Jobs, most: int, stamped: Stamped) -> Iterator[Iterator[Call[tuple[Any, ...]]]]:
    """Calls for at most so many shards each, with one push a shard in each turn."""
    left = [_chunks(shard, group) for shard, group in jobs.items()]
    while left:
        rest: list[Iterator[Chunk]] = []
        yield (_push_call(chunks, stamped()) for chunks in _together(_heads(left, rest), most))
        left = rest


def head_of_push(shard: Shard) -> Call[tuple[Any, ...]]:
    return Call("push", [shard.prefix], [shard.layout], _taken)


def push_apart_call(groups: Sequence[tuple[Shard, Sequence[EncodedJob]]], stamp: Stamp) -> Call[list[int]]:
    """Puts plain jobs, each of its own push, into their shards; gives for each, in order, 1 unless it was left."""
    arguments: list[Argument] = [groups[0][0].layout, *stamp]
    for _, jobs in groups:
        arguments.append(len(jobs))
        for job in jobs:
            arguments += (job.id, job.payload)
    return Call("push_apart", [shard.prefix for shard, _ in groups], arguments, list)


def push_call(shard: Shard, jobs: Sequence[EncodedJob], stamp: Stamp) -> Call[tuple[Any, ...]]:
    """Puts payloads into the queue; gives the numbers of new ids and merged payloads, and what was refused."""
    return _push_call([Chunk(shard, jobs)], stamp)


def restamped(call: Call[Any], stamp: Stamp) -> Call[Any]:
    """The same jobs as those of a call, for another one."""
    return call._replace(arguments=[call.arguments[0], *stamp, *call.arguments[3:]])


def is_late(result: Any) -> bool:
    """A call that has come too late to all of its shards, as it is one script."""
    if isinstance(result, tuple):
        new, merged, *errors = result
        result = errors[0] if errors and not new + merged else None
    return isinstance(result, Late)


def _push_call(chunks: Sequence[Chunk], stamp: Stamp) -> Call[tuple[Any, ...]]:
    head: list[Argument] = [chunks[0].shard.layout, *stamp, 2]
    if len(chunks) > 1:
        head += [len(chunk.jobs) for chunk in chunks]
    arguments = head.copy()
    for job in chain.from_iterable(chunk.jobs for chunk in chunks):
        if not job.is_plain:  # in full, which few pushes need
            jobs = list(chain.from_iterable(chunk.jobs for chunk in chunks))
            head[3] = width = _width(jobs)
            arguments = [*head, *chain.from_iterable(map(attrgetter(*WORDS[width]), jobs))]
            break
        arguments += (job.id, job.payload)
    return Call("push", [chunk.shard.prefix for chunk in chunks], arguments, _taken)


def together_with(result: Any, found: Sequence[Any]) -> tuple[Any, ...]:
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
