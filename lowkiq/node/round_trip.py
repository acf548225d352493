"""RoundTrip: settles what a thread has performed, claims its next jobs, and polls: all in one exchange with Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import StaleClaim, Unsettled
from lowkiq.node.shard_handler import refused
from lowkiq.queue.call import chunked, raise_first
from lowkiq.queue.claims import Claim
from lowkiq.queue.shard import Settled, peek

if TYPE_CHECKING:
    from lowkiq.node.shard_handler import Settle, ShardHandler
    from lowkiq.queue.call import Call, Caller


class RoundTrip:
    """
    Those of one thread.

    Args:
        note: is told in how many seconds the oldest job of a shard is due, None if there is none, and since when that
            counts (monotonic).
        count: is told what was settled.
    """

    def __init__(
        self,
        caller: Caller,
        note: Callable[[ShardHandler, float | None, float], None],
        count: Callable[[Settled], None],
    ) -> None:
        self._caller = caller
        self._note = note
        self._count = count

    def make(
        self, done: Sequence[ShardHandler], picked: Sequence[ShardHandler], polled: Sequence[ShardHandler]
    ) -> list[ShardHandler]:
        """
        Returns the shards of which there are jobs in hand by it.

        Raises:
            RedisError: a settle was not confirmed, or nothing was claimed and not all was heard of.
        """
        settles = [(handler, handler.settle_call(last=True)) for handler in done]
        calls: list[Call[Any]] = [settle.call for _, settle in settles if settle]
        claims: list[tuple[ShardHandler, str, int]] = []
        for handler in picked:
            epoch, claim_calls = handler.claim_calls(len(picked))
            if epoch:
                calls += claim_calls
                claims.append((handler, epoch, len(calls) - 1))
        polls_at = len(calls)
        groups = list(chunked(polled, self._caller.shards_a_call))
        calls += [peek([member.shard for member in group]) for group in groups]

        results = self._caller.run_all(calls)
        now = clock.monotonic()
        self._note_settled(settles, results, now)
        claimed, troubles = self._note_claims(claims, results, now)
        troubles += self._note_polled(groups, results[polls_at:], now)
        if not claimed:  # else there are jobs to run, though a server of a cluster is away
            raise_first(troubles)
        return claimed

    def _note_claimed(self, handler: ShardHandler, epoch: str, result: Any, now: float) -> bool:
        """Whether there are jobs of it in hand."""
        if isinstance(result, Claim):
            handler.claimed(result, epoch)
            # After jobs its next claim goes along with the settle, whatever is queued now: that costs no round trip of
            # its own, and under load there is mostly something by then.
            self._note(handler, 0.0 if handler.is_busy else result.due_in, now)
            return handler.is_busy
        if isinstance(result, Unsettled | StaleClaim):
            # A claim of which we never heard arrived late. It is given back with the next one.
            self._note(handler, 0.0, now)
        elif not refused(handler, epoch, result):
            raise result
        return False

    def _note_settled(
        self, settles: Sequence[tuple[ShardHandler, Settle | None]], results: Sequence[Any], now: float
    ) -> None:
        troubles = []
        of_settles = iter(results)
        for handler, settle in settles:
            if settle:  # else the lease was lost, and there is nothing to say any more
                result = next(of_settles)
                if isinstance(result, Settled):
                    handler.settled(settle)
                    self._count(result)
                    self._note(handler, result.due_in, now)
                elif not refused(handler, settle.epoch, result):
                    troubles.append(result)
                    continue
            handler.finished()
        raise_first(troubles)

    def _note_claims(
        self, claims: Sequence[tuple[ShardHandler, str, int]], results: Sequence[Any], now: float
    ) -> tuple[list[ShardHandler], list[Exception]]:
        claimed: list[ShardHandler] = []
        troubles: list[Exception] = []
        for handler, epoch, at in claims:
            try:
                if self._note_claimed(handler, epoch, results[at], now):
                    claimed.append(handler)
            except RedisError as error:
                self._note(handler, 0.0, now)
                troubles.append(error)
        return claimed, troubles

    def _note_polled(
        self, groups: Sequence[Sequence[ShardHandler]], results: Sequence[Any], now: float
    ) -> list[Exception]:
        troubles: list[Exception] = []
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, Exception):
                troubles.append(result)
                continue
            for handler, due_in in zip(group, result, strict=True):
                self._note(handler, due_in, now)
        return troubles
