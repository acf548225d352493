"""Feeder: claims jobs of async workers, has the event loop run them, and settles what has ended there."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import CheckpointFailed, LowkiqError
from lowkiq.node.job_thread import JobThread
from lowkiq.node.leases import checkpoints
from lowkiq.node.leases.claim_in_hand import ClaimInHand
from lowkiq.node.leases.claim_size import MOST_SHARDS
from lowkiq.node.leases.homes import Home
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.places import Place, Places
from lowkiq.node.pool import Pool
from lowkiq.node.rated import Rated
from lowkiq.node.round_trip import RoundTrip
from lowkiq.node.runtime import Runtime
from lowkiq.node.suspects.suspects import Suspects, put_off_seconds
from lowkiq.node.suspects.trials import Trials
from lowkiq.node.tasks.loop_claim import LoopClaim
from lowkiq.queue.claims import Handed
from lowkiq.queue.shard import MAX_CLAIM
from lowkiq.shared_page import MOST_LOOP_SEATS, Seat

#: Seconds between exchanges while jobs run: what ends within one is settled together.
PACE: Final = 0.001
#: Suspects that have a thread, and a process, at a time: each takes memory. The others are claimed again soon.
MOST_SUSPECTS: Final = 8


class Unsent(NamedTuple):
    """A checkpoint that Redis is to keep."""

    claim: LoopClaim
    id: str
    checkpoint: bytes
    kept: asyncio.Future[None]


class Feeder(JobThread):
    """
    The only member of its pool. A shard has as many batches on the loop as its worker's `concurrency` says, in as many
    claims as they came in: each is claimed as soon as there is a place, and settled as soon as all of it has ended.
    What ends before that is settled by the lease keeper, for the thread, within a claim_window.
    """

    def __init__(self, pool: Pool, runtime: Runtime, trials: Trials) -> None:
        super().__init__("lowkiq-feeder", pool, runtime, trials)
        #: Tells what it loads; and what runs, a seat for each claim.
        self.seat = runtime.page.loop_seat(0)
        self._seats = deque(runtime.page.loop_seat(number) for number in range(1, MOST_LOOP_SEATS))
        self._hand: list[LoopClaim | ThreadClaim] = []
        #: Shards that have all the places their workers may have, and perhaps more jobs.
        self._full: set[Lease] = set()
        self._unsent: deque[Unsent] = deque()
        #: Places of claims that are on their way, and those that have no use now.
        self._taken: dict[Lease, list[Place]] = {}
        self._spare: dict[Places, list[Place]] = {}
        self._rated = Rated(runtime, self)
        #: Claims whose far side has had enough, which Redis is to know.
        self._resting: deque[ClaimInHand] = deque()
        self._exchanged_at = -math.inf
        #: Suspects that run.
        self._suspects = 0

    @property
    def in_hand(self) -> list[LoopClaim | ThreadClaim]:
        """The claims whose jobs run, or have run and are not settled."""
        return [claim for claim in self._hand if not claim.is_over]

    @property
    def busy(self) -> int:
        """Batches that run on the loop."""
        return sum(len(claim.batches) for claim in self.in_hand)

    @property
    def free(self) -> int:
        """Places on the loop, of the shards that it has."""
        places = [max(self._places(lease), 0) for lease in self.pool.leases if lease.epoch is not None]
        return sum(places) if places else 1

    def is_inside(self, now: float, seconds: float) -> bool:  # noqa: ARG002 (no job runs on it)
        """Never: it runs no jobs itself."""
        return False

    def lasts_at(self, patience: float) -> float:  # noqa: ARG002 (as above)
        """Never: nobody else claims from its shards."""
        return math.inf

    # ── for the loop ────────────────────────────────────────────────────────────────────────────────────────────────

    def note_end(self, claim: ClaimInHand) -> None:
        """A batch of it has ended. The thread is woken if it has something to do for that."""
        if claim.lease.gate.is_to_rest:
            self._resting.append(claim)
        if claim.is_ended or claim.lease in self._full or claim.places or self._resting:
            self.pool.rouse(self)

    def note_suspects_end(self, claim: ThreadClaim, seat: Seat) -> None:
        """Its suspect has run, or was put off."""
        self._suspects -= 1
        self._seats.append(seat)
        self.note_end(claim)

    def keep(self, claim: LoopClaim, id: str, checkpoint: bytes) -> Awaitable[None]:
        """Sends a checkpoint soon. Called on the loop."""
        checkpoints.check(checkpoint, self._runtime.settings)
        kept = asyncio.get_running_loop().create_future()
        self._unsent.append(Unsent(claim, id, checkpoint, kept))
        self.pool.rouse(self)
        return kept

    # ── its loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        """One round: settle, claim, start. Or wait."""
        self._send_checkpoints()
        while self._resting:
            self._rated.flush(self._resting.popleft())
        now = clock.monotonic()
        if self._hand and not self.is_leaving:
            self._answer(self.pool.glance(self, now))
        ended = [claim for claim in self._hand if claim.is_ended]
        self._collect_places()
        picked = {} if self.is_leaving else self._pick(ended, now)
        if self._spare:
            self._give_places()
        polled = [] if self.is_leaving else self.pool.due_for_poll(now)
        if self._is_quiet or picked:
            self._answer(self.pool.resign(self) if picked else self.pool.hush(self))
        self._is_calm = self._is_quiet
        if not (ended or picked or polled):
            # With jobs in hand it is woken by their ends, and none is handed over: the next claim is soon enough.
            heard, _ = self.pool.rest(self, is_idle=not (self._hand or self.is_leaving))
            self._answer(heard)
            return
        try:
            self._exchange(ended, picked, polled)
        except (RedisError, LowkiqError) as error:
            self._wait_for_redis(list(picked), error)
        else:
            self._note_success(polled=bool(polled))

    def _pick(self, ended: Sequence[ClaimInHand], now: float) -> dict[Lease, int]:
        """Shards that are due and have places on the loop, each with how many jobs it may claim."""
        for full in [lease for lease in self._full if self._places(lease) > 0]:
            self._full.discard(full)
            self.pool.keep(full, now)
        for claim in ended:
            if all(other.is_ended for other in claim.lease.in_hand if isinstance(other, ClaimInHand)):
                self.pool.keep(claim.lease, now)  # its next claim, which may find nothing, goes along with the settle
        picked: dict[Lease, int] = {}
        while len(picked) < MOST_SHARDS and (lease := self.pool.pick(now)):
            if lease.holds(lease.epoch) and not lease.is_wanted:
                places = self._places(lease)
                if not (places > 0 and len(self._seats) > len(picked)):
                    self._full.add(lease)
                elif lease.places is None or (places := self._get_places(lease, lease.places, places)):
                    picked[lease] = places * lease.performer.worker.batch_size
            else:
                lease.unpark()  # not ours now: the lease keeper wakes us when it is again
        return picked

    def _places(self, lease: Lease) -> int:
        """Batches of a shard that may be started now."""
        taken = sum(claim.taken for claim in lease.in_hand if isinstance(claim, LoopClaim))
        return int(lease.concurrency) - taken

    def _collect_places(self) -> None:
        """Collects the places of batches that have ended, and has shards that wait for them be looked at."""
        for claim in self._hand:
            if claim.places:
                used = claim.taken if isinstance(claim, LoopClaim) else int(not claim.is_ended)
                for place in claim.places[used:]:
                    self._spare.setdefault(place.owner, []).append(place)
                claim.places = claim.places[:used]
        for places, spare in self._spare.items():
            places.turn(self.pool, len(spare))

    def _get_places(self, lease: Lease, places: Places, wanted: int) -> int:
        """Gets places for batches of a shard, or has it wait for one."""
        got = places.take(self._spare.pop(places, []), wanted)
        if got:
            self._taken[lease] = got
            places.unpark(lease)
        else:
            places.park(lease, self.pool)
        return len(got)

    def _give_places(self) -> None:
        for places, spare in self._spare.items():
            places.give(spare)
        self._spare.clear()

    def _take_handed(self, lease: Lease, handed: Handed) -> bool:
        may_run = self._seats and not (self.is_leaving or lease.places)
        claim = LoopClaim.of_ring(lease, handed, self, self.seat) if may_run else None
        lease.leave(self)  # its turns are for threads
        if not claim:
            return False
        self._begin(claim)
        return True

    def _begin(self, claim: LoopClaim | ThreadClaim) -> None:
        self._hand.append(claim)
        if isinstance(claim, ThreadClaim) and self._suspects >= MOST_SUSPECTS:
            claim.put_off(put_off_seconds())
        elif isinstance(claim, ThreadClaim):
            self._suspects += 1
            SuspectThread(claim, self._seats.popleft(), self, self._runtime).start()
        elif claim.is_ended:  # nothing of it could be decoded
            pass
        elif not self.trials.enter(claim, self._send_checkpoints):  # no batch ends before its are kept
            claim.give_back()
            claim.is_ended = True
        elif claim.is_rated and not self._rated.admit(claim, MAX_CLAIM):
            self.trials.leave(claim)
            claim.is_ended = True
        else:
            seat = self._seats.popleft()
            claim.start(seat, lambda: self._end(claim, seat))

    def _end(self, claim: LoopClaim, seat: Seat) -> None:
        self.trials.leave(claim)
        self._seats.append(seat)

    # ── exchanges with Redis ────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, ended: Sequence[ClaimInHand], picked: dict[Lease, int], polled: Sequence[Lease]) -> None:
        """Settles, claims the next, and polls; has what was claimed run."""
        early = self._exchanged_at + PACE - clock.monotonic()
        if early > 0 and self._hand:
            time.sleep(early)
            ended = [claim for claim in self._hand if claim.is_ended]
        with self.settling:
            trip = RoundTrip(self._runtime.caller, self.pool, self, self.seat, LoopClaim)
            try:
                trip.make(
                    [claim for claim in ended if not claim.is_over], list(picked), self.pool.holding(polled), picked
                )
            finally:
                for settled in trip.settled:
                    self.count(settled)
                self._collect_places()  # of what has ended since it picked, too
                self._hand = self.in_hand
                for claim in trip.claimed:
                    claim.places = self._taken.pop(claim.lease, ())
                for places in self._taken.values():  # of claims that have brought nothing
                    self._spare.setdefault(places[0].owner, []).extend(places)
                self._taken.clear()
        self._exchanged_at = clock.monotonic()
        for claim in trip.claimed:
            self._begin(claim)

    def _send_checkpoints(self) -> None:
        unsent = [self._unsent.popleft() for _ in range(len(self._unsent))]
        if not unsent:
            return
        loop, sent = unsent[0].kept.get_loop(), list[tuple[Unsent, Home]]()
        for row in unsent:
            if home := row.claim.homes.of(row.id):
                sent.append((row, home))
            else:
                loop.call_soon_threadsafe(_tell, row.kept, checkpoints.error_of(None))
        try:
            calls = [row.claim.checkpoint_call(home, row.id, row.checkpoint) for row, home in sent]
            results = self._runtime.caller.run_all(calls)
        except RedisError as error:
            self._runtime.outage.met(error)
            results = [error] * len(sent)
        for (row, home), result in zip(sent, results, strict=True):
            if row.claim.has_moved(home, result):
                loop.call_soon_threadsafe(loop.call_later, checkpoints.AGAIN, self._send_again, row)
            else:
                loop.call_soon_threadsafe(_tell, row.kept, checkpoints.error_of(result))

    def _send_again(self, row: Unsent) -> None:
        self._unsent.append(row)
        self.pool.rouse(self)


def _tell(kept: asyncio.Future[None], error: CheckpointFailed | None) -> None:
    if kept.done():
        return
    if error:
        kept.set_exception(error)
        kept.exception()  # whoever does not await it need not hear of it
    else:
        kept.set_result(None)


class SuspectThread(threading.Thread):
    """Runs a suspect of an async worker, which is a task on the loop of a process of its own."""

    def __init__(self, claim: ThreadClaim, seat: Seat, feeder: Feeder, runtime: Runtime) -> None:
        super().__init__(name="lowkiq-suspects", daemon=True)
        self._claim = claim
        self._feeder = feeder
        self._fatal = runtime.fatal
        claim.is_ended = False
        #: As suspects.py knows a thread.
        self.seat = seat
        self.settling = feeder.settling
        self.count = feeder.count
        self._suspects = Suspects(runtime, self, feeder.trials, Rated(runtime, self).perform)

    @property
    def in_hand(self) -> Sequence[ClaimInHand]:
        return (self._claim,)

    @property
    def is_leaving(self) -> bool:
        return self._feeder.is_leaving

    def run(self) -> None:
        try:
            self._suspects.perform(self._claim)
        except BaseException as error:  # noqa: BLE001 (a thread must not die unnoticed)
            self._fatal(error)
            return  # nobody knows what became of it: it has not ended, and the drain leaves it behind
        self._claim.is_ended = True
        self._feeder.note_suspects_end(self._claim, self.seat)
