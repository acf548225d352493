"""ClaimInHand: the jobs of one claim, what became of them, and what of it Redis does not know yet."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import BeingResharded, Fenced, Moved, OtherLayout
from lowkiq.handlers.context import Done, Progress
from lowkiq.handlers.retries import Failures
from lowkiq.handlers.stop import Stop
from lowkiq.job import KEPT_BYTES, Job
from lowkiq.node.leases import checkpoints
from lowkiq.node.leases.gate import Grant
from lowkiq.node.leases.homes import Home, Homes
from lowkiq.node.leases.known import Asked, Runner
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.news import News
from lowkiq.node.places import Place
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim, Handed, claim_handed
from lowkiq.queue.shard import Outcome, Rest, Settled
from lowkiq.shared_page import Seat

#: Seconds after which a job is asked for again of which an earlier claim, that Redis has lost, is in hand still.
AGAIN = 1.0

#: What a settle has moved of which nothing is anywhere any more.
NOTHING = Settled(0, 0, 0, None)


class Thread(Runner, Protocol):
    """A worker thread, as far as others settle for it."""

    #: Held while settles of what it has in hand are on their way, so that two never cross.
    settling: threading.Lock

    @property
    def in_hand(self) -> Sequence[ClaimInHand]:
        """The claims that it is to perform, or performs, and that are not yet settled."""

    @property
    def is_stopping(self) -> bool:
        """True once it is to end after what runs."""

    def is_inside(self, now: float, seconds: float) -> bool:
        """Returns whether a batch has taken that long already."""

    def count(self, settled: Settled) -> None:
        """Counts jobs settled for it. The caller holds `settling`."""


class Settle(NamedTuple):
    """A settle to be sent, with what `settled` needs to know of it."""

    #: One to each of its homes; mostly there is one.
    calls: Sequence[Call[Settled]]
    homes: Sequence[Home]
    outcome: Outcome
    done: int
    #: It ends the claim.
    is_last: bool


class Batch(Protocol):
    """A batch that runs, as people are told of it."""

    @property
    def running(self) -> Sequence[Job]: ...
    @property
    def running_since(self) -> float:
        """Monotonic."""

    @property
    def progress(self) -> Progress | None:
        """Told by the job."""

    @property
    def to_stop_since(self) -> float | None:
        """When it was asked to stop, by a cancel or as it takes too long (monotonic); None: it was not."""

    @property
    def pid(self) -> int | None: ...


class ClaimInHand(ABC):
    """
    What was sent stays known until it is confirmed, since a reply can be lost and a settle can be repeated. How its
    jobs run is for its kinds to say: one batch after the other on a thread, or all at once on the event loop.

    Its lease's lock is its own too. Once that lease is lost, nothing more is started or sent. It may outlive its node's
    hold of the shard: then nothing more of it is started, and it has a lease of its own.
    """

    #: Its batches run one after the other.
    _runs_in_order = True

    def __init__(self, lease: Lease, claim: Claim, epoch: str, number: int, thread: Thread) -> None:
        self.lease = lease
        #: Whose turn it is.
        self.thread = thread
        #: Of the lease under which it was claimed.
        self.epoch = epoch
        self.number = number
        self._lock = lease.lock
        #: The places that its batches have, if they need any (places.py).
        self.places: Sequence[Place] = ()
        self.worker = lease.performer.worker
        self.shard = lease.shard
        #: Where it is in Redis; and whether that could not be told of its jobs, as they are on their way elsewhere.
        self.homes = Homes(lease.shard, number)
        self.is_in_transit = False
        #: Of a suspect (suspects.py), its deaths beside others after the first; else 0.
        self.crowds = claim.crowds
        self.performer = lease.suspects if claim.crowds else lease.performer
        self._batch_size = self.worker.batch_size
        self._jobs = claim.jobs
        #: Redis's time of the claim, 0 if it is not known; and when we heard of it (monotonic).
        self._claimed_at, self._heard_at = claim.at, clock.monotonic()
        self._has_several = claim.has_several
        #: None: of no job is there more to tell than that it is done.
        self._news: News | None = None
        if claim.spoiled:
            self._tell().note_spoiled(claim.spoiled)
        #: What has not started by then is not to, without being asked for again (monotonic).
        self.startable_until = math.inf
        #: What may start, by id.
        self._granted: dict[str, Grant] = {}
        #: Its jobs start at the rate of their worker only.
        self.is_rated = self.worker.rate is not None
        #: The ids of its jobs that somebody has cancelled, and when that became known (monotonic).
        self.cancelled: Mapping[str, float] = {}
        #: Since when the first outcome has waited to be settled (monotonic).
        self.waits_since: float | None = clock.monotonic() if claim.spoiled else None
        #: None of its jobs runs, or will: the next settle is its last. On a thread it is settled only then.
        self.is_ended = True
        #: Redis was told more than that jobs are done. A failover may lose that, so none is taken for done unnamed.
        self._names_all = False
        #: Its shard was paused, or left: not even a task that was made for it begins.
        self.is_resting = False
        #: Its shard was left: when its own lease ends, if that is not renewed (monotonic). -inf: it is lost.
        self._away_until: float | None = None
        #: A push has handed its only job over.
        self.came_alone = False
        #: Settled, or no longer ours: its thread has nothing to do for it any more.
        self.is_over = False

    @classmethod
    def of_reply(cls, lease: Lease, claim: Claim, asked: Asked, thread: Thread) -> Self | None:
        """Takes in hand what was claimed, if it is anything, and the lease still ours."""
        in_hand = cls(lease, claim, asked.epoch, asked.number, thread) if claim.jobs or claim.spoiled else None
        if in_hand and lease.in_hand and (doubled := lease.doubled(in_hand.ids)):
            in_hand._put_off(doubled, AGAIN)
        return in_hand if lease.answered(asked, in_hand) else None

    @classmethod
    def of_ring(cls, lease: Lease, handed: Handed, thread: Thread, seat: Seat) -> Self | None:
        """Takes in hand what a push has put into the open claim, and gives that thread a turn, if it may have one."""
        if lease.in_hand and lease.doubled([handed.id.decode("utf-8", KEPT_BYTES)]):
            return None
        # The user's, so not under the lock.
        performer = lease.performer
        claim = lease.load_seated(seat, handed.number, claim_handed, handed, performer.load, performer.check_id)
        in_hand = cls(lease, claim, handed.epoch, handed.number, thread)
        in_hand.came_alone = True
        return in_hand if lease.handed(handed, in_hand, thread) else None

    # ── what runs ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def batches(self) -> Sequence[Batch]:
        """The batches that run now."""

    @property
    @abstractmethod
    def has_unstarted(self) -> bool:
        """True if jobs wait for their turn in it."""

    @property
    def ids(self) -> Iterable[str]:
        """The ids of its jobs, whatever became of them."""
        return [job.id for job in self._jobs]

    @property
    def unsettled(self) -> list[str]:
        """The ids of the jobs that have ended and whose outcome Redis does not know."""
        with self._lock:
            return [job.id for job in self._done_jobs()]

    @property
    def node(self) -> str:
        """The name of the node that has it in hand."""
        return self.lease.runtime.node

    @property
    def is_lost(self) -> bool:
        """True if another node may run its jobs by now."""
        if self._away_until is not None:
            return clock.monotonic() >= self._away_until
        return not self.lease.holds(self.epoch)

    @property
    def is_away(self) -> bool:
        """True once its shard was left, as long as it has a lease of its own (away.lua)."""
        return self._away_until is not None and self._away_until > -math.inf

    @property
    def _is_ours(self) -> bool:
        return self.lease.epoch == self.epoch or self.is_away

    def leave(self, until: float) -> None:
        """Has nothing of it start any more, as its shard is left. The caller holds the lock."""
        self.is_resting = True
        self._put_back()
        self._away_until = until

    def renewed(self, asked_at: float, ttl: float) -> None:
        """Notes that its own lease was kept."""
        if self.is_away:
            self._away_until = asked_at + ttl

    def lost(self) -> bool:
        """Notes that its own lease is lost. Returns whether that is news, and it matters."""
        was_away, self._away_until = self.is_away, -math.inf
        return was_away and not self.is_over

    def refused(self, error: Any) -> None:
        """Notes what Redis has refused because it is not ours any more; raises any other error."""
        if self._away_until is None:
            self.lease.refused(self.epoch, error)
        elif isinstance(error, Fenced | OtherLayout):
            self.lost()
        else:
            raise error

    def may_start_now(self, jobs: Sequence[Job]) -> bool:
        """
        Returns whether a batch of it may begin at this moment: its lease is ours by our clock, nothing was paused or
        taken back, the node does not end, and places and rate are granted still. Asked at the last line before code of
        the user's, since whatever a batch has waited for may have taken any time.
        """
        if self.is_lost or self.is_resting or self.thread.is_stopping or any(place.is_lost for place in self.places):
            return False
        if not self.is_rated:
            return True
        until = min((self._granted[job.id].until for job in jobs if job.id in self._granted), default=math.inf)
        # Once the far side has had enough, none may any more.
        return self.startable_until > 0 and clock.monotonic() < until

    def asked_to_stop(self, jobs: Sequence[Job], since: float) -> float | None:
        """When a batch that has run since then began to take too long, or a job of it was cancelled (monotonic)."""
        timeout, cancelled = self.worker.perform_timeout, self.cancelled
        asked = [cancelled[job.id] for job in jobs if job.id in cancelled] if cancelled else []
        if timeout is not None and clock.monotonic() >= since + timeout:
            asked.append(since + timeout)
        return min(asked, default=None)

    def has_cancelled(self, jobs: Sequence[Job]) -> bool:
        return bool(self.cancelled) and any(job.id in self.cancelled for job in jobs)

    def cancel(self, ids: Collection[str]) -> None:
        """Asks for jobs of it to stop that run, if it has any of these. To ask again changes nothing."""
        if found := [job.id for job in self._jobs if job.id in ids and job.id not in self.cancelled]:
            self.cancelled = {**self.cancelled, **dict.fromkeys(found, clock.monotonic())}
            self.stop(Stop.CANCELLED)

    @abstractmethod
    def stop(self, reason: Stop) -> bool:
        """Ends what runs, if it can: of batches without a cancelled job only for another reason. False: it can't."""

    def keep(self, id: str, checkpoint: bytes) -> Awaitable[None]:
        """Has Redis keep a checkpoint, and waits until it has. Raises CheckpointFailed."""
        runtime = self.lease.runtime
        checkpoints.check(checkpoint, runtime.settings)
        until, result = clock.monotonic() + runtime.settings.lease_ttl, None
        while home := self.homes.of(id):
            try:
                (result,) = runtime.caller.run_all([self.checkpoint_call(home, id, checkpoint)])
            except RedisError as failed:
                result = failed
            if clock.monotonic() > until or not self.has_moved(home, result):
                break
            time.sleep(checkpoints.AGAIN)
        if error := checkpoints.error_of(result):
            raise error
        return Done()

    def checkpoint_call(self, home: Home, id: str, checkpoint: bytes) -> Call[bool]:
        """Has Redis keep a checkpoint of one of its jobs."""
        return home.shard.checkpoint(self.lease.runtime.node, self.epoch, home.number, id, checkpoint)

    def isolate_call(self, id: str, *, is_alone: bool) -> Call[bool]:
        """Tells Redis that this job of it runs alone, or does so no longer."""
        return self.shard.isolate(self.lease.runtime.node, self.epoch, self.number, id, is_alone=is_alone)

    # ── its rate (gate.py) ──────────────────────────────────────────────────────────────────────────────────────────

    def ask_gate(self, most: int) -> bool:
        """
        Asks when what has not started may, at most so many jobs now; takes out what may not. Returns whether any may.
        Raises RedisError: none may.
        """
        with self._lock:
            jobs = list(self._unstarted_jobs())
            self._return_grants(jobs)
        permits = self.lease.gate.ask(jobs, most, alone=self._runs_in_order)
        failures = [self._fail(job, error) for job, error in permits.failed]
        with self._lock:
            out = permits.refused.keys() | {job.id for job, _ in permits.failed}
            # What was given back while the answer was on its way stays so, and nothing else is said of it.
            taken = self._take_out(out, len(permits.granted))
            self._granted = {**permits.granted}
            self.startable_until = min((row.until for row in permits.granted.values()), default=math.inf)
            self._limit((id, at) for id, at in permits.refused.items() if id in taken)
            for row in failures:
                self._note(row)
            if out and self.waits_since is None:
                self.waits_since = clock.monotonic()
        self.lease.claim_size.note_refused(0 if permits.granted else len(permits.refused))
        return bool(permits.granted)

    def note_started(self, jobs: Sequence[Job]) -> None:
        """Has the places of jobs be forgotten, as they have started."""
        granted = [self._granted[job.id] for job in jobs if job.id in self._granted]
        self.lease.gate.note_started([row.unit for row in granted if row.is_placed])

    @property
    def startable_at(self) -> float:
        """When all that may start may do so (monotonic)."""
        return max((row.at for row in self._granted.values()), default=0.0)

    def _return_grants(self, jobs: Iterable[Job]) -> None:
        """Notes that these jobs have not started. The caller holds the lock."""
        if self._granted:
            unused = [self._granted.pop(job.id) for job in jobs if job.id in self._granted]
            # Where jobs run in order, those before them may have taken their time.
            self.lease.gate.note_unused(unused, are_all=not (self._granted and self._runs_in_order))

    def _put_off(self, ids: Collection[str], seconds: float) -> None:
        """Has what of these has not started go back, with the next settle, and stay there for as long."""
        with self._lock:
            at, others = clock.monotonic() + seconds, 0 if self.is_rated else len(self._unstarted_jobs())
            self._limit((id, at) for id in self._take_out(ids, others))
            if self.waits_since is None:
                self.waits_since = clock.monotonic()

    def _fail(self, job: Job, error: BaseException) -> Failures:
        """Has a job fail that has not started."""
        return self.lease.variables.copy().run(self.performer.failures, [job], error)

    @abstractmethod
    def _unstarted_jobs(self) -> Sequence[Job]:
        """The jobs that wait for their turn. The caller holds the lock."""

    @abstractmethod
    def _take_out(self, ids: Collection[str], granted: int) -> Collection[str]:
        """
        Takes these out of the jobs that wait, and lets the first so many of the others start. Returns what it has taken
        out. The caller holds the lock.
        """

    # ── settle ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle_call(self, *, last: bool) -> Settle | None:
        """
        Sends what became of jobs; with `last` also ends the claim: jobs that have not run go back. The caller holds the
        thread's `settling`, and says `settled` when Redis has answered.
        """
        with self._lock:
            if not self._is_ours or not (last or self._has_news()):
                return None
            outcome, node, homes = self._outcome(last=last), self.lease.runtime.node, self.homes.all
            calls = [home.shard.settle(node, self.epoch, home.number, outcome.of(home.ids)) for home in homes]
            return Settle(calls, homes, outcome, self._count_done(), last)

    @property
    def is_plainly_done(self) -> bool:
        """True if it has ended, and all there is to say of it is that every job is done, and had one payload."""
        with self._lock:
            return self.is_ended and self._is_ours and not (
                self._news is not None or self.has_unstarted or self._names_all or self._has_several
            )  # fmt: skip

    def finish_call(self, following: int) -> Call[Settled | None]:
        """Settles it, which is plainly done, as `settle_call` does, and opens the claim with that number."""
        return self.shard.finish(self.lease.runtime.node, self.epoch, self.number, following)

    def settled(self, sent: Settle, results: Sequence[Any]) -> Settled | None:
        """
        Notes Redis's answers. Returns what it has confirmed, None if the lease is lost, or jobs are in transit: then
        all is to be said again. Raises any other error.
        """
        result = self._confirmed(sent.homes, results)
        if not result:
            return None
        outcome = sent.outcome
        with self._lock:
            self._forget_done(sent.done)
            self._names_all = self._names_all or outcome.is_more_than_acked
            if self._news is not None:
                self._news.forget(outcome)
            self.waits_since = None
        if outcome.letters:
            self.lease.runtime.letters.note(self.lease)
        for row in outcome.spoiled:
            self.lease.performer.ledger.add(self.shard.queue, row.error, 1)
        return result

    def _confirmed(self, homes: Sequence[Home], results: Sequence[Any]) -> Settled | None:
        confirmed, self.is_in_transit = NOTHING, False
        for home, result in zip(homes, results, strict=True):
            if isinstance(result, Settled):
                confirmed = result if confirmed is NOTHING else confirmed.plus(result)
            elif isinstance(result, RedisError):
                raise result
            elif self.has_moved(home, result):
                self.is_in_transit = True
            elif len(homes) > 1 and isinstance(result, Fenced):
                self.homes.lose(home)  # it was confirmed before, or taken back
            else:
                self.refused(result)
                return None
        return None if self.is_in_transit else confirmed

    def has_moved(self, home: Home, result: Any) -> bool:
        """Returns whether Redis says that what was there is on its way elsewhere, and is to be sought there."""
        if not self.is_away or not isinstance(result, Moved | BeingResharded):
            return False
        if isinstance(result, Moved):
            self.follow(home, str(result))
        return True

    def follow(self, home: Home, layout: str) -> None:
        """Notes that the shard there was moved to that layout."""
        spoiled = self._news.spoiled if self._news is not None else ()
        self.homes.follow(home, layout, {*self.ids, *(row.id for row in spoiled)})

    def take_back_call(self) -> Settle | None:
        """Ends a claim of which nothing runs, since its thread is inside another's job: as `settle_call` does."""
        with self._lock:
            if self.batches or not self._is_ours:
                return None
            self._give_back()
        return self.settle_call(last=True)

    def give_back(self) -> None:
        """Keeps the jobs that have not started from starting; the next settle returns them to the queue."""
        with self._lock:
            self._put_back()

    def _put_back(self) -> None:
        self._give_back()
        if self.waits_since is None and self._has_news():
            self.waits_since = clock.monotonic()

    def rest(self) -> None:
        """Has nothing of it start any more, as its shard was paused."""
        self.is_resting = True
        self.give_back()

    def finish(self) -> None:
        """
        Ends it: settled, or no longer ours, or to be settled by others, as its jobs are in transit. Called by its
        thread, or while that runs none of its jobs.
        """
        with self._lock:
            self.waits_since = None
            self.is_over = True
            self.lease.let_go(self)
        if self.is_in_transit:
            self.lease.runtime.in_transit.append(self)

    @abstractmethod
    def _give_back(self) -> None:
        """Keeps jobs from starting. The caller holds the lock, as of all that follows."""

    @abstractmethod
    def _done_jobs(self) -> Sequence[Job]:
        """The jobs that have ended, in whatever way, and whose outcome Redis does not know."""

    @abstractmethod
    def _count_done(self) -> int:
        """Mark for `_forget_done`, once Redis knows as much."""

    @abstractmethod
    def _forget_done(self, done: int) -> None: ...

    def _note(self, failures: Failures) -> None:
        self._tell().note(failures)
        if failures.limited and self.is_rated:
            self.lease.gate.note_limited(self._granted, failures.limited)
            self.startable_until = -math.inf
        if failures.unstarted:
            self._return_grants([job for job in self._jobs if job.id in failures.unstarted])

    def _tell(self) -> News:
        """Where more is noted than that jobs are done."""
        if self._news is None:
            self._news = News()
        return self._news

    def _limit(self, rows: Iterable[tuple[str, float]]) -> None:
        """Notes jobs that may not start yet, each with when it may (monotonic)."""
        if limited := list(rows):
            self._tell().limited += limited

    def _release(self, jobs: Sequence[Job]) -> None:
        """Has jobs go back that have not started."""
        if jobs:
            self._tell().released += [job.id for job in jobs]

    def _has_news(self) -> bool:
        """Returns whether there is anything to settle."""
        return bool(self._done_jobs() or self._news)

    def _outcome(self, *, last: bool) -> Outcome:
        """
        News for Redis. With `last` the claim ends: jobs that are done, or never ran, are its rest, and not named. Where
        a failover may have lost more than that, those that are done are named, and the rest goes back.
        """
        rest: Rest = "keep" if not last else "release" if self.has_unstarted or self._names_all else "ack"
        news = self._news
        # Letters are of jobs that are named.
        done = self._done_jobs() if rest != "ack" or (news is not None and news.letters) else ()
        if news is None:
            return Outcome(acked=[job.id for job in done], rest=rest, has_several=self._has_several)
        return news.outcome(done, rest, has_several=self._has_several)
