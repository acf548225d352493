"""RoundTrip: settles what a thread has performed, claims its next jobs, and polls: all in one exchange with Redis."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import LowkiqError, Paused, StaleClaim, Unsettled
from lowkiq.node.leases.claim_in_hand import ClaimInHand, Settle, Thread
from lowkiq.node.leases.known import Asked
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.pool import Pool
from lowkiq.queue.call import Call, Caller, chunked, raise_first
from lowkiq.queue.claims import Claim
from lowkiq.queue.shard import Settled, peek
from lowkiq.shared_page import Seat

C = TypeVar("C", bound=ClaimInHand)

#: Seconds until a shard is looked at again in which others still have jobs to start.
AGAIN: Final = 0.005


class RoundTrip(Generic[C]):
    """
    One exchange of one thread, whose pool learns when the oldest job of each shard is due. What is claimed it takes in
    hand as a `claim_type`; suspects as a ThreadClaim, for they run one by one.
    """

    def __init__(self, caller: Caller, pool: Pool, thread: Thread, seat: Seat, claim_type: type[C]) -> None:
        self._caller = caller
        self._claim_type = claim_type
        self._seat = seat
        self._pool = pool
        self._thread = thread
        self._asked_at = clock.monotonic()
        #: Claims that have brought jobs.
        self.claimed: list[C | ThreadClaim] = []
        #: Settles that Redis has confirmed.
        self.settled: list[Settled] = []

    def make(
        self,
        done: Sequence[ClaimInHand],
        picked: Sequence[Lease],
        polled: Sequence[Lease],
        limits: Mapping[Lease, int] | None = None,
    ) -> None:
        """
        Settles, claims and polls. `limits` has the most jobs to claim, where their pace does not say it.

        Raises:
            RedisError: a settle was not confirmed, or nothing was claimed and a reply is missing.
        """
        claims = [
            (lease, asked)
            for lease in picked
            if (asked := lease.ask(len(picked), self._seat, limits[lease] if limits else None))
        ]
        try:
            if len(done) == len(claims) == 1 and not polled and self._finish(done[0], *claims[0]):
                return
            settles = [(claim, claim.settle_call(last=claim.is_ended)) for claim in done]
            calls: list[Call[Any]] = [call for _, settle in settles if settle for call in settle.calls]
            claims_at = []
            for _, asked in claims:
                calls += asked.make_calls()
                claims_at.append(len(calls) - 1)
            polls_at = len(calls)
            groups = list(chunked(polled, self._caller.shards_a_call))
            calls += [peek([lease.shard for lease in group], [lease.is_busy for lease in group]) for group in groups]
            results = self._caller.run_all(calls)
            now = clock.monotonic()
            self._note_settled(settles, results, {lease for lease, _ in claims}, now)
        except (LowkiqError, RedisError):
            for lease, asked in claims:  # what they have brought goes back
                lease.unanswered(asked)
            raise
        replies = [results[at] for at in claims_at]
        errors = self._note_claims(claims, replies, now) + self._note_polled(groups, results[polls_at:], now)
        if not self.claimed:  # else there are jobs to run, though a server of a cluster is away
            raise_first(errors)

    def _finish(self, claim: ClaimInHand, lease: Lease, asked: Asked) -> bool:
        """Settles a job that came alone and opens its shard's next claim, in one, unless something else came since."""
        is_next = claim.came_alone and claim.lease is lease and not asked.made.unheard
        if not (is_next and claim.is_plainly_done):
            return False
        (result,) = self._caller.run_all([claim.finish_call(asked.number)])
        if not isinstance(result, Settled):
            return False
        self.settled.append(result)
        claim.finish()
        lease.answered(asked, None)
        self._end_turn(lease, None, clock.monotonic())
        return True

    def _note_settled(
        self,
        settles: Sequence[tuple[ClaimInHand, Settle | None]],
        results: Sequence[Any],
        claimed: Collection[Lease],
        now: float,
    ) -> None:
        errors: list[Exception] = []
        of_settles = iter(results)
        for claim, settle in settles:
            if settle:  # else the lease was lost, and there is nothing to say any more
                try:
                    settled = claim.settled(settle, [next(of_settles) for _ in settle.calls])
                except (LowkiqError, RedisError) as error:
                    errors.append(error)
                    continue
                if settled:
                    self.settled.append(settled)
            if settle and not settle.is_last:
                continue
            claim.finish()
            if claim.lease not in claimed:
                self._end_turn(claim.lease, settled.due_in if settle and settled else None, now)
        raise_first(errors)

    def _note_claims(
        self, claims: Sequence[tuple[Lease, Asked]], replies: Sequence[Any], now: float
    ) -> list[Exception]:
        errors: list[Exception] = []
        for (lease, asked), reply in zip(claims, replies, strict=True):
            try:
                self._note_claimed(lease, asked, reply, now)
            except RedisError as error:
                lease.unanswered(asked)
                self._end_turn(lease, 0.0, now)
                errors.append(error)
        return errors

    def _note_claimed(self, lease: Lease, asked: Asked, result: Any, now: float) -> None:
        if isinstance(result, Claim):
            claim_type = ThreadClaim if result.crowds else self._claim_type
            if claim := claim_type.of_reply(lease, result, asked, self._thread):
                self.claimed.append(claim)
                # On a thread the next claim goes along with the settle, whatever is queued now: that costs no round
                # trip of its own, and under load there is mostly something by then.
                self._note(lease, None if self._claim_type is ThreadClaim else result.due_in, now)
                lease.queued_for = math.inf if result.due_in is None else now + result.due_in
                self._pool.watch(lease, now)
            else:
                self._end_turn(lease, result.due_in, now)
        elif isinstance(result, Unsettled | StaleClaim):
            # A claim whose reply was lost arrived late, or another thread's came first. What nobody has in hand is
            # given back with the next one.
            lease.not_made(asked, int(str(result)) if isinstance(result, Unsettled) else None)
            self._end_turn(lease, 0.0, now)
        elif isinstance(result, Paused):
            lease.not_made(asked, None)
            self._end_turn(lease, None, now)  # whoever resumes it rings
        else:
            lease.refused(asked.epoch, result)

    def _note_polled(self, groups: Sequence[Sequence[Lease]], results: Sequence[Any], now: float) -> list[Exception]:
        errors: list[Exception] = []
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, Exception):
                errors.append(result)
                continue
            for lease, due_in in zip(group, result, strict=True):
                if not lease.is_busy:
                    self._note(lease, due_in, now)
                else:
                    lease.queued_for = math.inf if due_in is None else now + due_in
                    self._pool.look(lease, lease.queued_for)
        return errors

    def _end_turn(self, lease: Lease, due_in: float | None, now: float) -> None:
        # In this order: who looks at the shard in between would find it taken, and leave it to us.
        lease.leave(self._thread)
        self._note(lease, due_in, now)
        if any(claim.has_unstarted for claim in lease.in_hand):
            self._pool.look(lease, now + AGAIN)  # one of what they wait behind may turn out slow

    def _note(self, lease: Lease, due_in: float | None, now: float) -> None:
        self._pool.learn(lease, None if due_in is None else now + due_in, self._asked_at)
