"""Awaited pushes: those of one event loop, which go to Redis in the order in which they came, and never block it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Final

import redis
from hiredis import pack_command
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.job import Pushed
from lowkiq.queue.awaited_push import STEP, AwaitedPush, Breath, Encode, UsualWay
from lowkiq.queue.call import Call, Caller
from lowkiq.queue.push import PUSHES_AT_ONCE, Producer
from lowkiq.queue.push_calls import MAX_PUSH_BYTES, Jobs, push_apart_call, push_call
from lowkiq.queue.senders import Sender, Stamp
from lowkiq.queue.shard import Shard
from lowkiq.transport.nonblocking import NonBlocking
from lowkiq.transport.patience import FIRST_TRY

#: Single pushes that are sent together: about a millisecond of Redis, and of the loop.
MOST_TOGETHER: Final = 256
#: Fewer of them go as they are: a node that waits hears of them a round trip earlier.
FEW: Final = 4
#: Seconds by which a timer may be late, before the loop is taken for blocked, and not Redis for silent.
LATE: Final = 0.1
#: The result of nearly all of them.
ONE: Final = Pushed(1, 0)


class AwaitedPushes:
    """
    The pushes that one event loop awaits. One after the other they get their turn, single ones together; what is sent
    over the loop's own connection is only what is common. Whatever fails or is refused there goes the usual way, in a
    thread, which repeats it or tells why not; so does everything where there is no such connection, as on a cluster.
    """

    def __init__(self, caller: Caller, push_timeout: float, *, is_direct: bool) -> None:
        self._caller, self._push_timeout = caller, push_timeout
        #: Seconds that Redis may be silent on the loop's own connection; then the usual way has the others.
        may_be_forgotten = caller.connections and caller.connections.is_by_network
        self._first_try = push_timeout * FIRST_TRY if may_be_forgotten else push_timeout
        self._trouble = ""
        self._loop = asyncio.get_running_loop()
        self._pool: redis.ConnectionPool | None = None
        if is_direct and caller.connections:
            self._pool = caller.connections.pool
        self._connection: NonBlocking | None = None
        #: One trip is on its way at a time; what failed of it is refused once a later one has come.
        self._senders: list[Sender] = []
        self._waiting: deque[AwaitedPush] = deque()
        #: Those that are being pushed.
        self._in_hand: Sequence[AwaitedPush] = ()
        self._runner: asyncio.Task[None] | None = None
        #: What is pushed the usual way, or was at last.
        self._in_thread: asyncio.Future[tuple[list[Any], bool]] | None = None
        self._usual: UsualWay | None = None
        #: Its own: the loop's default executor is the application's, which may keep it busy for as long as it likes.
        self._executor: ThreadPoolExecutor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look_at, self._was_late = 0.0, False
        self._answered_at = clock.monotonic()

    def push(self, producer: Producer, jobs: Sequence[Any], encode: Encode) -> asyncio.Future[Pushed]:
        """Puts jobs into the queue after all that came before, validated by `encode`."""
        push = AwaitedPush(producer, jobs, encode, self._loop.create_future())
        self._waiting.append(push)
        if self._runner is None:
            self._runner = self._loop.create_task(self._run())
        if self._timer is None:
            self._look_later(self._first_try)
        return push.future

    def close(self) -> None:
        """Closes the connection; the next push opens another."""
        if self._connection:
            self._connection.close()
            self._connection = None
        if self._executor:
            self._executor.shutdown(wait=False)
            self._executor = None

    async def end(self) -> None:
        """Waits for what is being pushed, and closes the connection."""
        if under_way := [each for each in (self._runner, self._in_thread) if each and not each.done()]:
            await asyncio.wait(under_way)
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self.close()

    # ── one after the other ──────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        try:
            if self._in_thread and not self._in_thread.done():  # it goes on though its runner was cancelled
                await asyncio.wait([self._in_thread])
            while self._waiting:
                if len(self._waiting[0].jobs) == 1:
                    await self._push_singles(self._take_singles())
                else:
                    await self._push_many(self._waiting.popleft())
                self._in_hand = ()
                await asyncio.sleep(0)  # those who have their answer push on
        except BaseException as error:
            for push in (*self._in_hand, *self._waiting):
                push.end(error)
            self._waiting.clear()
            self.close()
            if not isinstance(error, Exception):
                raise
        finally:
            self._in_hand, self._runner = (), None

    def _look_at_time(self) -> None:
        """Ends whatever has waited too long, wherever it is; nobody looks as long as nothing is on its way."""
        self._timer = None
        is_late = self._loop.time() - self._look_at > LATE
        if is_late and not self._was_late:  # the loop was blocked: what has come meanwhile is read first
            self._was_late = True
            self._look_later(LATE)
            return
        self._was_late = False
        if self._connection:
            self._answered_at = max(self._answered_at, self._connection.heard_at)
        under_way = [push for push in (*self._in_hand, *self._waiting) if not push.future.done()]
        now = clock.monotonic()
        next_at = now + self._first_try
        for push in under_way:
            over_at = max(push.since, self._answered_at) + self._push_timeout
            if over_at <= now:
                if self._usual and push in self._in_hand:
                    push.was_sent = push.was_sent or not self._usual.give_up()
                push.fail(redis.TimeoutError(f"no answer within {self._push_timeout:g} s{self._trouble}"))
            else:
                next_at = min(next_at, over_at)
        if self._connection and self._connection.is_open and self._in_hand and not self._usual:
            silent_at = self._connection.heard_at + self._first_try
            if silent_at <= now:
                self._connection.close(redis.TimeoutError(f"no answer within {self._first_try:g} s"))
                if self._caller.connections:  # whatever has forgotten this one may have forgotten the others
                    self._caller.connections.leave()
            else:
                next_at = min(next_at, silent_at)
        if self._runner:
            self._look_later(next_at - now)

    def _look_later(self, seconds: float) -> None:
        self._look_at = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._look_at, self._look_at_time)

    # ── single pushes ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_singles(self) -> list[AwaitedPush]:
        """The first ones that wait, validated."""
        taken: list[AwaitedPush] = []
        waiting, breath, size = self._waiting, Breath(), 0
        while waiting and len(waiting[0].jobs) == 1 and len(taken) < MOST_TOGETHER and size < MAX_PUSH_BYTES:
            if breath.is_over:
                break
            push = waiting.popleft()
            if push.future.done():  # cancelled, or its time is over
                continue
            try:
                push.encoded = push.encode(push.jobs)
            except Exception as error:  # noqa: BLE001 (it is for whoever awaits the push)
                push.end(error)
            else:
                taken.append(push)
                size += len(push.encoded[0].payload)
        self._in_hand = taken
        return taken

    async def _push_singles(self, pushes: list[AwaitedPush]) -> None:
        by_producer: dict[Producer, list[AwaitedPush]] = {}
        for push in pushes:
            by_producer.setdefault(push.producer, []).append(push)
        for producer, some in by_producer.items():
            left = await self._push_apart(producer, some) if self._pool and len(some) >= FEW else some
            of_ids: dict[bytes, list[AwaitedPush]] = {}
            for push in left:
                if not push.future.done():
                    of_ids.setdefault(push.encoded[0].id, []).append(push)
            if of_ids:
                await self._push_by_id(producer, list(of_ids.values()))

    async def _push_by_id(self, producer: Producer, of_ids: list[list[AwaitedPush]]) -> None:
        """Pushes what there is of each id in one call: what is repeated alone would come after what has followed it."""
        until = self._until(pushes[0] for pushes in of_ids)
        stamps = self._stamps(until)
        calls = []
        for pushes in of_ids:
            shard = producer.shard_of(pushes[0].encoded[0])
            calls.append(push_call(shard, [push.encoded[0] for push in pushes], stamps(shard)))
        results = await self._trip(producer, calls, [push for pushes in of_ids for push in pushes], until)
        for pushes, result in zip(of_ids, results, strict=True):
            of_first = of_others = result
            if not isinstance(result, Exception):  # only the first one can be new
                of_first, of_others = (result[0], 1 - result[0]), (0, 1)
            for number, push in enumerate(pushes):
                if push.settle([of_others if number else of_first]):
                    push.finish()

    async def _push_apart(self, producer: Producer, pushes: list[AwaitedPush]) -> list[AwaitedPush]:
        """Pushes what is plain, in one script, which is what is repeated; returns the others, in their order."""
        plain: dict[Shard, list[AwaitedPush]] = {}
        left: list[AwaitedPush] = []
        shard_of, others = producer.shard_of, set()
        for push in pushes:
            job = push.encoded[0]
            shard = shard_of(job)
            if not job.is_plain or shard in others:
                others.add(shard)
                left.append(push)
            elif some := plain.get(shard):
                some.append(push)
            else:
                plain[shard] = [push]
        if not plain or not await self._open(producer):
            return pushes
        until = self._until(pushes)
        groups = [(shard, [push.encoded[0] for push in some]) for shard, some in plain.items()]
        sent = list(chain.from_iterable(plain.values()))
        (taken,) = await self._trip(producer, [push_apart_call(groups, self._stamps(until)())], sent, until)
        if isinstance(taken, Exception):
            for push in sent:
                push.settle([taken])
            return left
        again: list[AwaitedPush] = []
        for push, is_new in zip(sent, taken, strict=True):
            if not is_new:
                again.append(push)
            elif not push.future.done():
                push.future.set_result(ONE)
        return again + left

    # ── many jobs ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _push_many(self, push: AwaitedPush) -> None:
        self._in_hand = [push]
        if push.future.done():
            return
        breath = Breath()
        jobs: Jobs = {}
        try:
            await push.encode_all(jobs, breath)
        except Exception as error:  # noqa: BLE001 (it is for whoever awaits the push)
            push.end(error)
        else:
            await self._push_turns(push, jobs, breath)
        for group in jobs.values():  # to free many at once takes long, too
            while group:
                del group[-STEP:]
                await breath.take()

    async def _push_turns(self, push: AwaitedPush, jobs: Jobs, breath: Breath) -> None:
        def stamped() -> Stamp:
            return self._stamps(self._until([push]))()

        for turn in push.producer.turns(jobs, stamped):
            while calls := await self._some(turn, breath):
                if not push.settle(await self._trip(push.producer, calls, [push], self._until([push]))):
                    return
        push.finish()

    async def _some(self, turn: Iterable[Call[Any]], breath: Breath) -> list[Call[Any]]:
        calls = []
        for call in islice(turn, PUSHES_AT_ONCE):
            calls.append(call)
            await breath.take()
        return calls

    # ── round trips ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _until(self, pushes: Iterable[AwaitedPush]) -> float:
        """When the first of some pushes will have failed, unless Redis answers (_look_at_time)."""
        return max(min(push.since for push in pushes), self._answered_at) + self._push_timeout

    def _stamps(self, until: float) -> Callable[..., Stamp]:
        """Gives the stamps of calls that are sent together, by their shards: those for one shard have a sender each."""
        used: dict[Shard | None, int] = {}

        def stamp(shard: Shard | None = None) -> Stamp:
            number = used[shard] = used.get(shard, 0) + 1
            while len(self._senders) < number:
                self._senders.append(self._caller.senders.take())
            return self._caller.senders.stamp(self._senders[number - 1], until)

        return stamp

    async def _trip(
        self, producer: Producer, calls: list[Call[Any]], pushes: Sequence[AwaitedPush], until: float
    ) -> list[Any]:
        """The results of calls, or their errors; those that did not work out directly go the usual way."""
        results: list[Any] = [None] * len(calls)
        again = list(range(len(calls)))
        if connection := await self._open(producer):
            results = await self._directly(connection, calls, pushes)
            again = [number for number, result in enumerate(results) if isinstance(result, Exception)]
        if again and not all(push.future.done() for push in pushes):
            some = [calls[number] for number in again]
            self._usual = UsualWay(producer, some, until)
            self._executor = self._executor or ThreadPoolExecutor(1, "lowkiq-pushes")
            self._in_thread = self._loop.run_in_executor(self._executor, self._usual.run)
            repeated, was_sent = await asyncio.shield(self._in_thread)
            self._usual = None
            for number, result in zip(again, repeated, strict=True):
                results[number] = result
            for push in pushes:
                push.was_sent = push.was_sent or was_sent
        self._answered_at = clock.monotonic()
        return results

    async def _directly(
        self, connection: NonBlocking, calls: Sequence[Call[Any]], pushes: Iterable[AwaitedPush]
    ) -> list[Any]:
        """The results of calls over the loop's own connection, or errors that are not the last word."""
        answer = connection.begin(len(calls))
        for push in pushes:
            push.was_sent = True
        breath = Breath()
        for call in calls:
            command: tuple[Any, ...] = self._caller.command_of(call)
            connection.write(pack_command(command))
            await breath.take()
        try:
            replies = await answer
        except (RedisError, OSError) as error:
            return [error] * len(calls)
        self._answered_at = connection.heard_at
        return [
            reply if isinstance(reply, Exception) else call.parse(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def _open(self, producer: Producer) -> NonBlocking | None:
        """
        The loop's own connection, made if need be; None if there is none, the queue has yet to be registered, or it is
        time to look at Redis's clock.
        """
        if not self._pool or not producer.is_registered or clock.monotonic() >= self._caller.senders.look_at:
            return None
        if self._connection and not self._connection.is_open:
            self._connection = None
            producer.note_loss()
            return None
        if not self._connection:
            connection = NonBlocking(self._pool, self._loop)
            try:
                await connection.open(self._first_try)
                self._connection, self._trouble = connection, ""
            except (RedisError, OSError) as error:
                self._trouble = f"; to connect has failed: {error}"
        return self._connection
