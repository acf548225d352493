"""AwaitedPush: a push on its way, whose maker awaits what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.job import EncodedJob, Pushed
from lowkiq.queue.breath import SLICE, Breath
from lowkiq.queue.push import Producer
from lowkiq.queue.push_calls import Jobs
from lowkiq.queue.tally import Tally

#: Jobs, and the number of the first of them → the same validated.
Encode = Callable[..., list[EncodedJob]]

#: Jobs that are validated, or freed, between two looks at the clock, at most.
STEP: Final = 64


class AwaitedPush:
    __slots__ = ("encode", "encoded", "future", "jobs", "producer", "since", "tally", "was_sent")

    def __init__(self, producer: Producer, jobs: Sequence[Any], encode: Encode, future: asyncio.Future[Pushed]) -> None:
        self.encode = encode
        self.producer, self.jobs, self.future = producer, jobs[:], future  # the list may change meanwhile
        self.since = clock.monotonic()
        self.encoded: list[EncodedJob] = []
        self.tally: Tally | None = None
        self.was_sent = False

    async def encode_all(self, jobs: Jobs, breath: Breath) -> None:
        """Validates all, step by step, and puts each to those of its shard."""
        left, first, step = iter(self.jobs), 0, 1
        while some := list(islice(left, step)):
            began = clock.monotonic()
            self.producer.by_shard(self.encode(some, first=first), jobs)
            first += len(some)
            step = min(2 * step, STEP) if clock.monotonic() - began < SLICE / 4 else 1
            await breath.take()

    def settle(self, results: Iterable[Any]) -> bool:
        """Counts what calls have given; False if that has ended the push, which has failed then."""
        self.tally = self.tally or Tally(len(self.jobs))
        try:
            self.tally.add(results)
        except RedisError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 (a refusal, which is for whoever awaits the push)
            self.end(error)
        return not self.future.done()

    def finish(self) -> None:
        """Ends it with what Redis has taken."""
        self.end((self.tally or Tally(0)).pushed)

    def fail(self, error: RedisError) -> None:
        """Ends it with PushFailed, which says what is known."""
        self.end((self.tally or Tally(len(self.jobs))).failed(error, was_sent=self.was_sent))

    def end(self, result: Pushed | BaseException) -> None:
        """Tells who awaits it, if anybody does still."""
        if self.future.done():
            return
        if isinstance(result, asyncio.CancelledError):
            self.future.cancel()
        elif isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)
