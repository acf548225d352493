"""Push: puts validated jobs into the shards of a queue, in few round trips, and tells how many were accepted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import redis
from hiredis import pack_command
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lowkiq import clock
from lowkiq.errors import BeingResharded, LowkiqError, Moved
from lowkiq.job import EncodedJob, Pushed, shard_of
from lowkiq.queue.call import Call, Caller, chunked, raise_first
from lowkiq.queue.homes import LOOK, MOST_TIMES, Ways, sent_on
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.push_calls import (
    MAX_SHARDS,
    Jobs,
    Stamped,
    Tally,
    calls_in_turns,
    head_of_push,
    is_late,
    push_call,
    restamped,
    together_with,
)
from lowkiq.queue.senders import Sender, Stamp
from lowkiq.queue.shard import Shard
from lowkiq.settings import Settings
from lowkiq.transport.patience import Patience
from lowkiq.transport.server import Connections, Replicas

#: Push scripts in one round trip.
PUSHES_AT_ONCE = 32
#: Seconds after which is tried again what a shard has refused that is still coming.
STILL_COMING = 0.05


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
        self._senders = caller.senders
        self._replicas = replicas
        self._push_timeout = push_timeout
        self._namespace = namespace
        self._queue = queue
        self._shards_count = shards_count
        self._ways = Ways(namespace, queue, Layout.first(shards_count))
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
        self._senders.look()
        (found,) = opened(self._caller, self._namespace, {self._queue: self._shards_count}).values()
        if isinstance(found, Exception):
            raise found
        if found != self._ways.layout or losses != self._known_at:  # a failover may have lost that a shard was moved
            self._ways = Ways(self._namespace, self._queue, found)
        self._known_at = losses
        self._look_at = clock.monotonic() + LOOK if found.is_moving else math.inf
        self._connections = None if self._replicas or found.is_moving else self._caller.connections

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed:
        """Puts jobs into the queue; the order within an id is kept."""
        tally: Tally | None = None
        senders, way = self._senders, self._connections if len(jobs) == 1 else None
        sender = senders.take()
        with Patience(self._push_timeout) as patience:
            try:
                stamp = None
                # As is_registered and _look ask.
                if way and way.losses == self._known_at and patience.since < senders.look_at:
                    number = senders.number(sender, patience.since + self._push_timeout)
                    if pushed := self._push_one(way, jobs[0], sender, number):
                        return pushed
                    stamp = Stamp(sender.name, number)
                tally = Tally(len(jobs))
                self._look(patience)
                for turn in self._turns(jobs, sender, patience, stamp):
                    for calls in chunked(turn, PUSHES_AT_ONCE):
                        tally.add(self._run_all(calls, patience))
            except RedisError as error:
                raise (tally or Tally(1)).failed(error, was_sent=patience.was_sent) from None
            finally:
                sender.give_back()
        return tally.pushed

    def _turns(
        self, jobs: Sequence[EncodedJob], sender: Sender, patience: Patience, stamp: Stamp | None
    ) -> Iterable[Iterable[Call[tuple[Any, ...]]]]:
        """The calls of a push; what was tried already, in vain, is tried under the number that it had."""
        if stamp:
            return [[push_call(self.shard_of(jobs[0]), jobs, stamp)]]
        return self.turns(self.by_shard(jobs), lambda: self._senders.stamp(sender, patience.until))

    def _look(self, patience: Patience) -> None:
        """
        Registers the queue if need be, looks from time to time whether it is still being resharded, and what Redis's
        clock says.
        """
        is_due = not self.is_registered or clock.monotonic() >= self._look_at
        if is_due:
            self.register()
        if self._senders.look() or is_due:
            patience.was_sent = False
            patience.answered()

    def _run_all(self, calls: Sequence[Call[Any]], patience: Patience, until: float = math.inf) -> list[Any]:
        """The results of calls. What a shard that was moved sends on goes there, and counts with its call."""
        results = self._run_in_time(calls, patience, until)
        for number, result in enumerate(results):
            calls_on, found = [calls[number]], [result]
            for _ in range(MOST_TIMES):
                moved = [sent_on(call, one) for call, one in zip(calls_on, found, strict=True)]
                jobs = [job for _, some in moved for job in some]
                if not jobs:
                    break
                if not all(self._ways.sent_on(prefix) for prefixes, _ in moved for prefix in prefixes):
                    self.register()
                stamp = self._senders.once(min(until, patience.until))
                calls_on = [push_call(shard, some, stamp) for shard, some in self.by_shard(jobs).items()]
                found = self._run_in_time(calls_on, patience, until)
                results[number] = together_with(results[number], found)
        return results

    def _run_in_time(self, calls: Sequence[Call[Any]], patience: Patience, until: float) -> list[Any]:
        """
        The results of calls. One that comes too late by Redis's clock, and not by ours, was not applied, and never will
        be: it gets a number by what that clock says now.
        """
        results = self._caller.run_all(calls, self._replicas)
        until = min(until, patience.until)
        while late := [number for number, result in enumerate(results) if is_late(result)]:
            if clock.monotonic() >= until:
                raise redis.TimeoutError(f"no answer within {self._push_timeout:g} s")
            self._senders.learn()
            calls = [*calls]
            for number in late:
                calls[number] = restamped(calls[number], self._senders.once(until))
            again = self._caller.run_all([calls[number] for number in late], self._replicas)
            for number, result in zip(late, again, strict=True):
                results[number] = result
        patience.answered()
        return results

    def _push_one(self, connections: Connections, job: EncodedJob, sender: Sender, number: int) -> Pushed | None:
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
        numbered = b"%d" % number
        packed = b"%b%b$%d\r\n%b\r\n$1\r\n2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(head, sender.packed, len(numbered), numbered),
            *(len(id), id, len(payload), payload),
        )
        (reply,) = connections.send([packed], 1)
        return None if isinstance(reply, Exception) else Pushed(*reply)

    def _pack_head(self, ways: Ways, index: int) -> bytes:
        shard = ways.shards[index]
        command: tuple[Any, ...] = self._caller.command_of(head_of_push(shard))
        _, words = pack_command(command).split(b"\r\n", 1)  # how many there are comes first
        head = ways.heads[index] = b"*%d\r\n%b" % (len(command) + 5, words)
        return head

    def run(
        self, calls: Sequence[Call[Any]], until: float, may_send: Callable[[], bool] = lambda: True
    ) -> tuple[list[Any], bool]:
        """
        Sends calls for those who await them until then, and registers the queue first if need be; unless `may_send`
        says after that that they have given up.

        Returns:
            for each its result or error, also one of the connection; and whether Redis may have got any.
        """
        with Patience(self._push_timeout) as patience:
            try:
                self._look(patience)
                if not may_send():
                    return [RedisTimeoutError("nobody waits for it any more")] * len(calls), False
                return self._run_all(calls, patience, until), True
            except (RedisError, LowkiqError) as error:
                return [error] * len(calls), patience.was_sent

    def wait(self, job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool) -> bool:
        """
        Has a job that waits for a batch wait for these as well, "queue shards_count id" each; with `is_all` nothing
        more is to come of it. False: it does not wait for that batch, as somebody has had it run, or deleted it, or
        this was told before. Raises BeingResharded if its shard still moves after `push_timeout`.
        """
        until = clock.monotonic() + self._push_timeout
        while True:
            try:
                return self._wait(job, batch, others, is_all=is_all)
            except (BeingResharded, Moved):
                if clock.monotonic() >= until:
                    raise
            time.sleep(STILL_COMING)

    def _wait(self, job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool) -> bool:
        with Patience(self._push_timeout) as patience:
            for _ in range(MOST_TIMES):
                self._look(patience)
                shard = self._ways.shard_of(job.id)
                call = Call("wait", [shard.prefix], [shard.layout, job.id, batch, int(is_all), *others], bool)
                (result,) = self._caller.run_all([call], self._replicas)
                patience.answered()
                if not isinstance(result, Moved):
                    return bool(raise_first([result])[0])
                if not self._ways.sent_on(shard.prefix):
                    self._known_at = None
        raise result

    def shard_of(self, job: EncodedJob) -> Shard:
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

    def turns(self, jobs: Jobs, stamped: Stamped) -> Iterator[Iterator[Call[tuple[Any, ...]]]]:
        """Calls with one push a shard in each turn: what comes after one that is refused is not accepted."""
        most = 1 if self._caller.is_spread or self._ways.layout.is_moving else MAX_SHARDS
        return calls_in_turns(jobs, most, stamped)
