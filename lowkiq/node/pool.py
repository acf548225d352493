"""Pool: threads that share shards. Whichever of them is free runs whichever shard is due."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, Protocol

from lowkiq import clock
from lowkiq.hooks import Scheduler
from lowkiq.node.leases.claim_in_hand import Thread
from lowkiq.node.leases.lease import Lease
from lowkiq.node.runtime import Runtime
from lowkiq.node.schedulers import Lag
from lowkiq.node.shares import Shares
from lowkiq.queue.bell import Heard, ListBell, LocalBell
from lowkiq.queue.watch import Watch

#: Seconds after which a batch lasts: then others may claim from its shard too.
LASTING: Final = 0.001
#: So many times as long as a thread had to wait for the interpreter, or for a core, when it was to look, a batch may
#: have to wait too, and no job of it be slow.
DOUBT: Final = 5


class Member(Thread, Protocol):
    """A worker thread, as far as its pool knows it."""

    name: str

    @property
    def is_leaving(self) -> bool:
        """True if it is to begin nothing more."""

    def rest(self) -> None:
        """Waits to be roused."""

    def rouse(self) -> None:
        """Ends its rest, or the next one."""

    def stop(self) -> None:
        """Ends it after what is in hand."""


class Pool:
    """
    Leader and followers: among the threads that have nothing to do one leads. It listens to the bell, and looks when a
    shard is due, or when the claims of one last, so that another thread may claim beside them. The others rest, which
    costs nothing. A leader that finds something to do passes the lead on: a ring wakes one thread, which has the next
    one listen, and then runs the job.

    Any thread may call its methods; the bell is used by who leads only.
    """

    def __init__(
        self, leases: Sequence[Lease], scheduler: Scheduler[Lease], bell: ListBell | LocalBell, runtime: Runtime
    ) -> None:
        self.leases = leases
        self._by_prefix = {lease.shard.prefix.encode(): lease for lease in leases}
        self._scheduler = scheduler
        #: The scheduler, while queues have weights: then it learns what their claims take.
        self.shares: Shares[Lease] | None = None
        self._bell = bell
        self._poll_interval = runtime.settings.poll_interval
        self._claim_window = runtime.settings.claim_window
        self._watch = Watch[Lease](runtime.caller, attrgetter("shard"))
        self._lock = threading.Lock()
        self.threads: list[Member] = []
        self._ended = 0
        self._leader: Member | None = None
        self._resting: list[Member] = []
        #: When who leads looks next (monotonic), while it waits.
        self._looks_at = -math.inf
        self._next_poll_at = self._glance_at = 0.0

    def join(self, thread: Member) -> None:
        """Makes a thread a member, before it starts."""
        self.threads.append(thread)

    def follow(self, leases: Sequence[Lease]) -> None:
        """Has these shards from here on."""
        kept = set(leases)
        with self._lock:
            gone = [lease for lease in self.leases if lease not in kept]
            for lease in leases:
                lease.bell = self._bell.key
            self.leases = list(leases)
            self._by_prefix = {lease.shard.prefix.encode(): lease for lease in leases}
            for lease in gone:
                self._set(lease, math.inf)

    # ── which shards are due ────────────────────────────────────────────────────────────────────────────────────────

    def of_prefix(self, prefix: bytes) -> Lease | None:
        """The shard whose keys begin so, if it is of this pool."""
        return self._by_prefix.get(prefix)

    def wake(self, lease: Lease, due_at: float) -> None:
        """Notes that a shard has a job due then (monotonic), as somebody has told who was not asked."""
        with self._lock:
            lease.rung_at, lease.rung_for = clock.monotonic(), due_at
            lease.queued_for = min(lease.queued_for, due_at)
            self._note(lease, min(due_at, lease.due_at))

    def learn(self, lease: Lease, due_at: float | None, asked_at: float) -> None:
        """Notes when the shard's oldest job is due, None for no job, as the reply says to what was asked then."""
        due_at = math.inf if due_at is None else due_at
        with self._lock:
            # A ring that came since may tell of what is newer than the reply.
            if lease.rung_at >= asked_at:
                due_at = min(due_at, lease.rung_for)
            # So may the reply to another thread, which crossed this one; and who picked the shard for it had perhaps no
            # turn, as long as this one's lasted.
            if lease.learned_at >= asked_at:
                due_at = min(due_at, lease.learned_for)
            lease.learned_at, lease.learned_for = clock.monotonic(), due_at
            lease.queued_for = due_at
            self._note(lease, due_at)

    def look(self, lease: Lease, look_at: float) -> None:
        """Has a thread look at the shard then (monotonic), or earlier."""
        with self._lock:
            self._note(lease, min(look_at, lease.due_at))

    def watch(self, lease: Lease, begun_at: float) -> None:
        """Has another thread look at the shard when a claim of it, that begins then, lasts."""
        if len(self.threads) > 1:
            self.look(lease, begun_at + LASTING)

    def keep(self, lease: Lease, since: float) -> None:
        """Has the calling thread look at a shard again whose jobs it has had since then, and wakes no other for it."""
        with self._lock:
            self._set(lease, min(since, lease.due_at))

    def _note(self, lease: Lease, due_at: float) -> None:
        self._set(lease, due_at)
        if due_at < self._looks_at:
            self._looks_at = due_at
            self._bell.ring()

    def _set(self, lease: Lease, due_at: float) -> None:
        if due_at != lease.due_at:
            if due_at < lease.due_at < math.inf:  # a little earlier might be the same to the scheduler
                self._scheduler.note(lease, None)
            lease.due_at = due_at
            self._scheduler.note(lease, due_at if due_at < math.inf else None)

    def pick(self, now: float) -> Lease | None:
        """A shard that is due."""
        with self._lock:
            lease = self._scheduler.pick(now)
            if lease:
                lease.due_at = math.inf
            return lease

    # ── whose turn it is, by weights ────────────────────────────────────────────────────────────────────────────────

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Shares its threads out by the weights of its queues; if none of them has one, by who has waited longest."""
        queues = {lease.shard.queue for lease in self.leases}
        own = {queue: weight for queue, weight in weights.items() if queue in queues}
        with self._lock:
            if self.shares and own:
                self.shares.weigh(own)
            elif self.shares or own:
                self.shares = Shares(own) if own else None
                self._scheduler = self.shares or Lag()
                for lease in self.leases:
                    if lease.due_at < math.inf:
                        self._scheduler.note(lease, lease.due_at)

    def begin(self, thread: Member, lease: Lease) -> None:
        """Notes that a thread takes jobs of a shard, for those that weigh."""
        with self._lock:
            if self.shares:
                self.shares.begin(thread, lease, clock.monotonic())

    def end(self, thread: Member, took: Iterable[tuple[Lease, float]]) -> None:
        """Notes that a thread has ended all that it has begun, and the seconds that its claims took."""
        with self._lock:
            if self.shares:
                self.shares.end(thread, took)

    # ── polls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def due_for_poll(self, now: float) -> list[Lease]:
        """The shards to be polled now: mostly none."""
        if now < self._next_poll_at:
            return []
        with self._lock:
            self._next_poll_at = now + self._poll_interval
        return [lease for lease in self.leases if lease.epoch]

    def holding(self, polled: Sequence[Lease]) -> list[Lease]:
        """The shards to be polled that may hold anything. Raises RedisError."""
        return self._watch.holding(polled)

    def poll_soon(self) -> None:
        """Has a thread poll at once: bells may have been missed."""
        self._next_poll_at = 0.0
        self._bell.ring()

    # ── who listens ─────────────────────────────────────────────────────────────────────────────────────────────────

    def rest(self, thread: Member, *, is_idle: bool) -> tuple[Heard, float]:
        """
        Leads, until there is something to look at, if nobody else does; else rests. If `is_idle`, jobs come here.
        Returns a ring, and the seconds that a batch must have taken to last, as far as it could find out.
        """
        with self._lock:
            self._leader = self._leader or thread
            if leads := self._leader is thread:
                until = self._lead(is_idle=is_idle)
            else:
                self._resting.append(thread)
        if not leads:
            thread.rest()
            with self._lock:
                if thread in self._resting:
                    self._resting.remove(thread)
                if self._leader is not thread or thread.is_leaving or not is_idle:
                    return Heard(), self._claim_window
                until = self._lead(is_idle=True)
        try:
            heard = self._bell.wait(max(until - clock.monotonic(), 0.0), is_idle=is_idle)
        finally:
            self._looks_at = -math.inf
        late = clock.monotonic() - until
        return heard, min(LASTING + DOUBT * late, self._claim_window) if late >= 0.0 else self._claim_window

    def _lead(self, *, is_idle: bool) -> float:
        self._looks_at = self._next_look() if is_idle else clock.monotonic() + self._poll_interval
        return self._looks_at

    def _next_look(self) -> float:
        due_at = self._scheduler.next_due_at()
        return self._next_poll_at if due_at is None else min(self._next_poll_at, due_at)

    def glance(self, thread: Member, now: float) -> Heard:
        """Hears a ring now and then while all threads are busy: else none would, as long as what they know has jobs."""
        with self._lock:
            if self._leader is not None or now < self._glance_at:
                return Heard()
            self._leader, self._glance_at = thread, now + self._claim_window
        heard = self._bell.wait(0.0, is_idle=False)
        self._step_down()
        return heard

    def resign(self, thread: Member) -> Heard:
        """Has another thread lead, as this one has something to do. With nobody to hear of them, no jobs come here."""
        with self._lock:
            if self._leader is not thread or self._pass_on():
                return Heard()
        heard = self._bell.be_busy()
        self._step_down()
        return heard

    def hush(self, thread: Member) -> Heard:
        """Has no jobs come here any more, if that thread leads."""
        return self._bell.be_busy() if self._leader is thread else Heard()

    def _step_down(self) -> None:
        with self._lock:
            if not self._pass_on():
                self._leader = None

    def _pass_on(self) -> bool:
        if self._resting:
            self._leader = self._resting.pop()
            self._leader.rouse()
            return True
        return False

    def rouse(self, thread: Member) -> None:
        """Has that thread look at once."""
        thread.rouse()
        self._bell.ring()

    def dismiss(self, thread: Member) -> None:
        """Has a thread end alone."""
        with self._lock:
            self.threads.remove(thread)
        thread.stop()

    def leave(self, thread: Member) -> None:
        """Notes that a thread has ended. Others than those that were dismissed end together: nobody listens then."""
        if thread not in self.threads:
            if self._leader is thread:
                self._step_down()
            return
        with self._lock:
            self._ended += 1
            is_last = self._leader is thread or self._ended == len(self.threads)
            if self._leader is thread:
                self._leader = None
        if is_last:
            self._bell.close()
