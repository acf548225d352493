"""Producer: puts validated jobs into their shards, in few round trips, and says what was accepted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from redis.exceptions import RedisError

from lowkiq.errors import LowkiqError, PushFailed, ShardsCountMismatch
from lowkiq.job import EncodedJob, Pushed, shard_of
from lowkiq.queue import keys, layout
from lowkiq.queue.call import Call, Caller, chunked, raise_first
from lowkiq.queue.layout import Layout
from lowkiq.queue.lone_push import LonePush
from lowkiq.queue.shard import MAX_PUSH, shards_of
from lowkiq.transport.errors import explained
from lowkiq.transport.server import Replicas

#: Bytes of one push script's arguments, unless a single payload is larger.
MAX_PUSH_BYTES = 4 << 20
#: Push scripts in one round trip.
PUSHES_AT_ONCE = 32


class Producer:
    """
    Pushes to one queue.

    Args:
        replicas: how many of them must have a push before it counts as accepted.
    """

    def __init__(
        self, caller: Caller, namespace: str, queue: str, shards_count: int, replicas: Replicas | None = None
    ) -> None:
        self._caller = caller
        self._replicas = replicas
        self._namespace = namespace
        self._queue = queue
        self._shards = shards_of(namespace, {queue: shards_count})
        self._is_registered = False
        self._lone: LonePush | None = None

    def register(self) -> None:
        """Makes the queue known. Raises ShardsCountMismatch when it is known with another shards_count."""
        register(self._caller, self._namespace, self._queue, len(self._shards))
        self._is_registered = True
        if (line := self._caller.line) and not self._replicas:
            self._lone = LonePush(self._caller, line, self._shards)

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed:
        """Puts jobs into the queue; the order within an id is kept."""
        new = merged = 0
        try:
            if self._lone and len(jobs) == 1 and (pushed := self._lone.push(jobs[0])):
                return pushed
            if not self._is_registered:
                self.register()
            for calls in self._rounds(jobs):
                results = self._caller.run_all(calls, self._replicas)
                for result in results:
                    if not isinstance(result, Exception):
                        new, merged = new + result[0], merged + result[1]
                raise_first(results)
        except RedisError as error:
            raise PushFailed(
                f"Redis took {new + merged} of {len(jobs)} payloads for sure, then: {explained(error)}; "
                "push all of them again: equal payloads merge",
                new=new,
                merged=merged,
            ) from error
        return Pushed(new, merged)

    def _rounds(self, jobs: Sequence[EncodedJob]) -> Iterator[list[Call[tuple[int, int]]]]:
        """
        What is sent in one round trip each: at most one push a shard, so that when one is refused, nothing that comes
        after it in its shard has been accepted.
        """
        shards_count = len(self._shards)
        by_shard: dict[int, list[EncodedJob]] = {}
        for job in jobs:
            by_shard.setdefault(shard_of(job.id, shards_count), []).append(job)
        for some in chunked(by_shard.items(), PUSHES_AT_ONCE):
            pushes = [map(self._shards[index].push, _chunks(group)) for index, group in some]
            for calls in zip_longest(*pushes):
                yield [call for call in calls if call]


def register(caller: Caller, namespace: str, queue: str, shards_count: int) -> None:
    """Raises ShardsCountMismatch when the queue is known with another shards_count, NewerLayout when with that."""
    known = caller.run(Call("register", [keys.queues(namespace)], [queue, layout.text(shards_count)], layout.parse))
    check_layout(queue, known, shards_count)


def register_again(caller: Caller, namespace: str, queues: Mapping[str, int]) -> list[LowkiqError]:
    """Makes the queues known again, should Redis have lost them; gives what `register` would have raised."""
    calls = [
        Call("register", [keys.queues(namespace)], [queue, layout.text(count)], layout.parse)
        for queue, count in queues.items()
    ]
    errors: list[LowkiqError] = []
    for (queue, count), known in zip(queues.items(), raise_first(caller.run_all(calls)), strict=True):
        try:
            check_layout(queue, known, count)
        except LowkiqError as error:
            errors.append(error)
    return errors


def check_layout(queue: str, known: Layout, shards_count: int) -> None:
    """Whether this Lowkiq may write to a queue that Redis knows so; raises as above."""
    if known.version > layout.LAYOUT_VERSION:
        raise layout.newer(queue, known.version)
    if known.shards_count != shards_count:
        raise ShardsCountMismatch(
            f"queue {queue} has shards_count {known.shards_count}, not {shards_count}: "
            f"set shards_count = {known.shards_count}, or choose another queue_name and let the old queue run dry"
        )


def _chunks(jobs: Iterable[EncodedJob]) -> Iterator[list[EncodedJob]]:
    chunk: list[EncodedJob] = []
    size = 0
    for job in jobs:
        length = len(job.id) + len(job.payload)
        if chunk and (len(chunk) >= MAX_PUSH or size + length > MAX_PUSH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += length
    if chunk:
        yield chunk
