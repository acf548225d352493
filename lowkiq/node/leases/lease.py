"""Lease: this node's hold on one shard, and the turns of threads at it. It makes calls, which others send."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from lowkiq import clock
from lowkiq.errors import Fenced, OtherLayout
from lowkiq.handlers.log_fields import bind_shard
from lowkiq.handlers.performer import Performer
from lowkiq.node.leases.claim_numbers import ClaimNumbers, Next
from lowkiq.node.leases.claim_size import ClaimSize
from lowkiq.node.leases.gate import Gate
from lowkiq.node.leases.known import Asked, Claimed, Runner
from lowkiq.node.places import Places
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim, Handed
from lowkiq.queue.shard import Held, Owned, Released, Shard
from lowkiq.shared_page import DeadNode, Seat

#: Batches of a shard that an async worker runs at a time, unless its `concurrency` says otherwise.
ASYNC_CONCURRENCY: Final = 100


class Lease:
    """
    Made for every shard, whether this node has it or not: without the lease, `epoch` is None.

    A thread has a turn at the shard from when it takes it until its claim is settled, or was empty. Several threads may
    have one at a time, up to the worker's `concurrency`, once the claims of the others last.

    The lock. Besides these threads the lease keeper and the draining main thread touch the lease, and what is claimed
    under it. Whoever changes it, or a claim in hand, holds `lock`. It is never held while a call is on its way to
    Redis, nor while user code runs. What is read without it (`epoch`, `in_hand`) may be out of date at once: what
    follows from it is checked again under the lock, or by the fence in Redis.
    """

    def __init__(
        self,
        shard: Shard,
        performer: Performer,
        claim_size: ClaimSize,
        runtime: Runtime,
        gate: Gate | None = None,
        suspects: Performer | None = None,
    ) -> None:
        self.shard = shard
        self.performer = performer
        #: Performs those that may have killed a node.
        self.suspects = suspects or performer
        #: Shared by all shards of a queue, too: asks when jobs may start, if there is a rate.
        self.gate = gate or Gate(performer, runtime)
        #: Shared by all shards of a queue: with thousands, one that learned alone would ask for its few jobs in vain.
        self.claim_size = claim_size
        self.lock = threading.Lock()
        self.runtime = runtime
        self.times = runtime.times.of(shard.queue)
        #: The context variables that each batch begins with, in a copy.
        self.variables = runtime.variables.copy()
        self.variables.run(bind_shard, shard, runtime.node)
        self._ttl = runtime.settings.lease_ttl
        #: The list by which pushes ring its pool; "": the node's doorbell.
        self.bell = ""
        #: It is another node's part, and this one only stands in while that is away.
        self.is_foster = False
        #: Another node has moved all of it into other shards.
        self.is_moved = False
        #: The fencing token; None without the lease.
        self.epoch: str | None = None
        #: When the lease ends, if it is not renewed (monotonic).
        self.until = 0.0
        #: Of a foster: its own node is back, and stands by for it. So nothing more is claimed.
        self.is_wanted = False
        #: Who owns the shard, when it is not us.
        self.holder: str | None = None
        #: Turns at a time, at most; of an async worker, batches.
        self.concurrency = math.inf
        #: None: its batches need none.
        self.places: Places | None = None
        self._places = runtime.places_of(shard.queue)
        self.follow_worker()
        self._turns: set[Runner] = set()
        #: The claims that are performed, or settled; be it under a lease that was lost.
        self.in_hand: tuple[Claimed, ...] = ()
        #: What of it was claimed before a connection was last lost, and the losses until then (`doubled`).
        self._doubtful: tuple[Claimed, ...] = ()
        self._losses = 0
        self._numbers = ClaimNumbers()
        #: What claims up to this number still bring is not started: the shard was paused since.
        self._rests_to = 0
        #: For the pool: when the shard is to be looked at; and when it was last rung, and for what time (monotonic).
        self.due_at = math.inf
        #: Seconds for which threads have performed its jobs, without what they perform just now.
        self.busy_seconds = 0.0
        self.rung_at, self.rung_for = 0.0, math.inf
        #: When a reply told of it last, and what time (monotonic).
        self.learned_at, self.learned_for = 0.0, math.inf
        #: When the oldest job that nobody has claimed is due, as far as this node knows (monotonic); for its beat.
        self.queued_for = math.inf

    def beside(self, shard: Shard) -> Lease:
        """Makes one of another shard of its queue, with all that these share."""
        return Lease(shard, self.performer, self.claim_size, self.runtime, self.gate, self.suspects)

    @property
    def is_current(self) -> bool:
        """False while its queue's shards are being moved, and it is one of those: whoever moves it may have it."""
        layout = self.runtime.layouts.get(self.shard.queue)
        return layout is None or self.shard.is_of(layout)

    def follow_worker(self) -> None:
        """Goes by what the worker's options are now."""
        worker, most = self.performer.worker, ASYNC_CONCURRENCY if self.performer.is_async else math.inf
        self.concurrency = worker.concurrency or most
        self.places = self._places.limit(worker.max_running)
        self.claim_size.go_by(worker.batch_size)

    def unpark(self) -> None:
        """Notes that it waits for no place."""
        if self.places:
            self.places.unpark(self)

    # ── turns at the shard ──────────────────────────────────────────────────────────────────────────────────────────

    def take(self, thread: Runner, patience: float) -> float:
        """
        Gives that thread a turn, and returns 0. If others have theirs, all of them must have had a batch of `patience`
        seconds; else returns when to ask again (monotonic): inf once a turn has ended.
        """
        with self.lock:
            if thread not in self._turns:
                if len(self._turns) >= self.concurrency:
                    return math.inf
                look_at = max((other.lasts_at(patience) for other in self._turns), default=0.0)
                if look_at > clock.monotonic():
                    return look_at
                self._turns.add(thread)
            return 0.0

    def leave(self, thread: Runner) -> None:
        """Ends the turn of a thread that has no claim in hand or on its way."""
        with self.lock:
            self._turns.discard(thread)

    @property
    def is_busy(self) -> bool:
        """True while a claim is in hand."""
        return bool(self.in_hand)

    @property
    def has_lost(self) -> bool:
        """True while something is in hand of a lease that was lost: another node may run the same."""
        return any(claim.epoch != self.epoch and not claim.is_away for claim in self.in_hand)

    @property
    def is_open(self) -> bool:
        """True if a push may have put its job into the last claim."""
        return self._numbers.open > 0

    # ── the lease ───────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire_call(self, dead_nodes: Sequence[DeadNode]) -> Call[Owned | Held]:
        """Asks for the lease, be it that of a node which is known to be dead."""
        node, max_crashes = self.runtime.node, self.runtime.settings.max_crashes
        return self.shard.acquire(
            node, self._ttl, max_crashes, dead_nodes, is_foster=self.is_foster, bell=self.bell
        )  # fmt: skip

    def acquired(self, owned: Owned, asked_at: float) -> None:
        """Notes that it is ours. Its time counts from before the request, so it ends here before it ends in Redis."""
        with self.lock:
            self.holder = None
            self.is_wanted = False
            self.epoch = owned.epoch
            self.until = asked_at + self._ttl
            # What still runs of an earlier hold is told of by its number, too.
            self._numbers = ClaimNumbers(self._numbers.last if self.in_hand else 0)
            self._rests_to = 0
            self.queued_for = math.inf

    def stand_by(self, holder: str) -> bool:
        """Notes that another node has it. Returns whether that is news, and the shard this node's part."""
        is_news = self.holder != holder and not self.is_foster and self.is_current
        if is_news:
            self.holder = holder
        return is_news

    def renewed(self, asked_at: float, *, is_wanted: bool = False) -> None:
        """Notes that the lease was kept; from a foster it may be wanted back."""
        self.until = asked_at + self._ttl
        self.is_wanted = is_wanted and (self.is_foster or not self.is_current)

    def want(self) -> bool:
        """Notes that its own node asks for it. Returns whether that is news."""
        is_news = (self.is_foster or not self.is_current) and self.epoch is not None and not self.is_wanted
        self.is_wanted = self.is_wanted or is_news
        return is_news

    def lost(self, epoch: str) -> bool:
        """Notes that another node owns the shard: nothing more is sent or started. False when that was known."""
        with self.lock:
            if self.epoch != epoch:
                return False
            self.epoch = None
            return True

    def refused(self, epoch: str, error: Exception) -> None:
        """Notes what Redis has refused because the lease is lost, or can't be used; raises any other error."""
        if isinstance(error, OtherLayout):
            self.runtime.refusals.of_shard(self.shard, error)
        elif not isinstance(error, Fenced):
            raise error
        self.lost(epoch)

    def holds(self, epoch: str | None) -> bool:
        """Returns whether the lease of that epoch is ours and, by our clock, has not run out."""
        return epoch is not None and self.epoch == epoch and clock.monotonic() < self.until

    def leave_call(self) -> tuple[str, Call[Released]] | None:
        """
        Releases the shard, if it is ours: the epoch, and the call. From here on nothing more is claimed, nor started of
        what is in hand; a claim that is on its way is given back by this call too, or refused after it. What runs goes
        on, and keeps others of its ids waiting, under a lease of its own: so nobody waits for it to end.
        """
        with self.lock:
            if self.epoch is None:
                return None
            epoch, self.epoch = self.epoch, None
            running = [claim for claim in self.in_hand if claim.epoch == epoch]
            for claim in running:
                claim.leave(self.until)
            return epoch, self._release(epoch, running)

    def leave_again_calls(self) -> list[Call[Released]]:
        """
        Releases it once more under each earlier epoch of which something runs. Where Redis knows that it was left this
        is refused; where a failover has lost it, what runs would be taken for its owner's, and given to the next one.
        """
        with self.lock:
            away = [claim for claim in self.in_hand if claim.is_away and claim.epoch != self.epoch]
            epochs = sorted({claim.epoch for claim in away})
            return [self._release(epoch, [one for one in away if one.epoch == epoch]) for epoch in epochs]

    def _release(self, epoch: str, running: Iterable[Claimed]) -> Call[Released]:
        away = [claim.number for claim in running]
        return self.shard.release(self.runtime.node, epoch, self._numbers.last, "lease", self._ttl, away)

    def left(self, epoch: str, asked_at: float) -> None:
        """Notes that what runs has a lease of its own, since it was asked for."""
        with self.lock:
            for claim in self.in_hand:
                if claim.epoch == epoch:
                    claim.renewed(asked_at, self._ttl)

    def not_left(self, epoch: str) -> None:
        """Notes that nobody knows whether it was released: it is kept, and renewed, until it is, or was lost."""
        with self.lock:
            self.epoch = self.epoch or epoch

    def rest(self) -> Call[bool] | None:
        """
        Keeps all that is claimed, and has not started, from starting, as the shard was paused; the call says so. What
        is claimed from here on was claimed when it was paused no more.
        """
        with self.lock:
            epoch = self.epoch
            if epoch is None:
                return None
            self._rests_to = self._numbers.last
            in_hand = [claim for claim in self.in_hand if claim.epoch == epoch]
        for claim in in_hand:
            claim.rest()
        return self.shard.rest(self.runtime.node, epoch, self._rests_to, [claim.number for claim in in_hand])

    def abandon_call(self) -> Call[int] | None:
        """Says that we leave while a job runs."""
        return self.shard.abandon(self.runtime.node, self.epoch) if self.epoch else None

    # ── its claims ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, shards: int, seat: Seat, limit: int | None = None) -> Asked | None:
        """
        Asks for at most `limit` jobs, or as many as their pace allows, as one of so many shards. Claims whose replies
        were lost are given back first. None without the lease, or with one to be given back.
        """
        with self.lock:
            epoch = self.epoch
            if epoch is None or self.is_wanted:
                return None
            made = self._numbers.next([claim.number for claim in self.in_hand if claim.epoch == epoch])
        return Asked(epoch, made, partial(self._claim_calls, epoch, made, shards, seat, limit))

    def _claim_calls(self, epoch: str, made: Next, shards: int, seat: Seat, limit: int | None) -> list[Call[Any]]:
        node = self.runtime.node
        calls: list[Call[Any]] = [self.shard.release(node, epoch, lost, "claim") for lost in made.unheard]
        most, performer = self.claim_size.share(shards) if limit is None else limit, self.performer
        claim = self.shard.claim(
            node,
            epoch,
            made.number,
            most,
            performer.max_payloads,
            performer.load,
            shards,
            made.known,
            performer.check_id,
            is_closed=self.places is not None,
        )
        if performer.is_loaded_by_user:
            claim = claim._replace(parse=partial(self.load_seated, seat, made.number, claim.parse))
        return [*calls, claim]

    def unanswered(self, asked: Asked) -> None:
        """Notes that the reply to a claim was lost: it may have taken jobs."""
        with self.lock:
            if self.epoch == asked.epoch:
                self._numbers.lost(asked.number)

    def not_made(self, asked: Asked, unsettled: int | None) -> None:
        """
        Notes that Redis has refused to make a claim, because of a later one, or of one that it knows and we don't: a
        push has put a job into that, and we have not heard of it.
        """
        with self.lock:
            if self.epoch == asked.epoch:
                self._numbers.not_made(asked.made, unsettled, [claim.number for claim in self.in_hand])

    def answered(self, asked: Asked, claim: Claimed | None) -> bool:
        """
        Takes in hand what a claim has brought, None if that is nothing. Returns whether there is anything to run; not
        if the lease was lost while the reply was on its way: then another owner may have run its jobs.
        """
        with self.lock:
            if self.epoch != asked.epoch:
                return False
            if claim is not None and asked.number <= self._rests_to:
                self._numbers.lost(asked.number)  # it goes back, if it has not been already
                return False
            self._numbers.answered(asked.made, is_empty=claim is None)
            if claim is not None:
                self.in_hand += (claim,)
            return claim is not None

    def doubled(self, ids: Iterable[str]) -> Collection[str]:
        """
        Those of ids that Redis has just given us which we have in hand already: a failover, or a restart, has lost the
        claim. Looked at for what was claimed before a connection was last lost.
        """
        losses = self.runtime.caller.losses
        with self.lock:
            if losses != self._losses:
                self._losses, self._doubtful = losses, self.in_hand
            elif self._doubtful:
                self._doubtful = tuple(claim for claim in self._doubtful if claim in self.in_hand)
            in_hand = {id for claim in self._doubtful for id in claim.ids}
        return [id for id in ids if id in in_hand] if in_hand else ()

    def handed(self, handed: Handed, claim: Claimed, thread: Runner) -> bool:
        """
        Takes in hand a job that a push has put into the open claim, and gives that thread a turn. False if it speaks of
        another claim, the shard was paused, or others have all turns: then the next claim finds the job.
        """
        with self.lock:
            may_run = len(self._turns) < self.concurrency
            if handed.number <= self._rests_to:
                return False
            if self.epoch != handed.epoch or not self._numbers.handed(handed.number, may_run=may_run):
                return False
            self._turns.add(thread)
            self.in_hand += (claim,)
            return True

    def load_seated(self, seat: Seat, number: int, load: Callable[..., Claim], *what: Any) -> Claim:
        """Has payloads loaded, as a part of what the node runs if it is by code of the user's: that may kill it."""
        if not self.performer.is_loaded_by_user:
            return load(*what)
        with seat.loading(self.shard.prefix, number):
            return load(*what)

    def let_go(self, claim: Claimed) -> None:
        """Notes that a claim is over. The caller holds `lock`."""
        self.in_hand = tuple(other for other in self.in_hand if other is not claim)
