"""AwaitedPush: a push on its way, whose maker awaits its result; and how it is kept from holding up an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.job import EncodedJob, Pushed
from lowkiq.queue.call import Call
from lowkiq.queue.push import Producer
from lowkiq.queue.push_calls import Jobs, Tally


class UsualWay:
    """
    The loop gives it up, a thread sends it: whichever comes first counts. So a push that has failed as "none was sent"
    is not sent later, however long the thread has waited for the queue to be known, or for its turn.
    """

    def __init__(self, producer: Producer, calls: Sequence[Call[Any]], until: float) -> None:
        self._producer, self._calls, self._until = producer, calls, until
        self._lock = threading.Lock()
        self._is_given_up = self._is_sent = False

    def run(self) -> tuple[list[Any], bool]:
        """As Producer.run."""
        return self._producer.run(self._calls, self._until, self._may_send)

    def give_up(self) -> bool:
        """Has nothing of it be sent. False: that is too late."""
        with self._lock:
            self._is_given_up = not self._is_sent
            return self._is_given_up

    def _may_send(self) -> bool:
        with self._lock:
            self._is_sent = not self._is_given_up
            return self._is_sent


#: Seconds after which the loop has its turn: a fifth of what it may be blocked, for the collector may come by as well.
SLICE: Final = 0.001


class Breath:
    """Gives the loop its turn whenever a slice of time is over."""

    def __init__(self) -> None:
        self._until = clock.monotonic() + SLICE

    @property
    def is_over(self) -> bool:
        """True when the slice is."""
        return clock.monotonic() >= self._until

    async def take(self) -> None:
        """Goes on at once, or after the loop's turn."""
        if self.is_over:
            await asyncio.sleep(0)
            self._until = clock.monotonic() + SLICE


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
