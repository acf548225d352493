"""Lease: this node's hold on one shard. It makes calls, which its thread, the lease keeper and the drain send."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lowkiq import clock
from lowkiq.codec import load_payload
from lowkiq.errors import Fenced, OtherLayout
from lowkiq.handlers.performer import Performer
from lowkiq.node.claim_size import ClaimSize
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim, Handed
from lowkiq.queue.shard import Held, Owned, Released, Shard
from lowkiq.shared_page import DeadNode, Seat


class Lease:
    """
    Made for every shard, whether this node has it or not: without the lease, `epoch` is None.

    The lock. One thread at a time runs the shard; the lease keeper and the draining main thread also touch it, and what
    it has claimed. Whoever changes the lease, or a claim in hand under it, holds `lock`. It is never held while a call
    is on its way to Redis, nor while user code runs. What is read without it (`epoch`, `runner`, `is_busy`) may be out
    of date at once: what follows from it is checked again under the lock, or by the fence in Redis.
    """

    def __init__(self, shard: Shard, performer: Performer, claim_size: ClaimSize, runtime: Runtime) -> None:
        self.shard = shard
        self.performer = performer
        #: Shared by all shards of a queue: with thousands, one that learned alone would ask for its few jobs in vain.
        self.claim_size = claim_size
        self.lock = threading.Lock()
        self.runtime = runtime
        self._ttl = runtime.settings.lease_ttl
        self._is_loaded_by_user = runtime.settings.load_payload is not load_payload
        #: The list by which pushes ring its thread; "": the node's doorbell.
        self.bell = ""
        #: It is another node's part, and this one only stands in while that is away.
        self.is_foster = False
        #: The thread that runs the shard.
        self.runner: object = None
        #: Whether that has a claim in hand, be it one that was lost.
        self.is_busy = False
        #: The fencing token; None without the lease.
        self.epoch: str | None = None
        #: When the lease ends, if it is not renewed (monotonic).
        self.until = 0.0
        #: Of a foster: its own node is back, and stands by for it. So nothing more is claimed.
        self.is_wanted = False
        #: Who owns the shard, when it is not us.
        self.holder: str | None = None
        #: Number of the last claim that was asked for, and whether its reply is not known.
        self._number = 0
        self._is_unknown = False
        #: Number of one that Redis holds and this node doesn't know of; 0 for none.
        self._stray = 0
        #: Whether a push may put its job into that claim, which found nothing.
        self.is_open = False
        #: Whether the last claim found suspects: those need the node for themselves.
        self.has_suspects = False

    # ── who runs the shard ──────────────────────────────────────────────────────────────────────────────────────────

    def take(self, thread: object) -> bool:
        """Lets that thread, and no other, run the shard until it leaves. Returns False if another one runs it."""
        with self.lock:
            return self._take(thread)

    def _take(self, thread: object) -> bool:
        if self.runner is not None and self.runner is not thread:
            return False
        self.runner = thread
        return True

    def leave(self, thread: object) -> None:
        """That thread has no claim in hand or on its way. Does nothing if another one runs the shard by now."""
        with self.lock:
            if self.runner is thread:
                self.runner = None

    # ── the lease ───────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire_call(self, dead_nodes: Sequence[DeadNode]) -> Call[Owned | Held]:
        """Asks for the lease, be it that of a node which is known to be dead."""
        return self.shard.acquire(
            self.runtime.node,
            self._ttl,
            self.runtime.settings.max_crashes,
            dead_nodes,
            is_foster=self.is_foster,
            bell=self.bell,
        )

    def acquired(self, owned: Owned, asked_at: float) -> None:
        """Notes that it is ours. Its time counts from before the request, so it ends here before it ends in Redis."""
        with self.lock:
            self.holder = None
            self.is_wanted = False
            self.epoch = owned.epoch
            self.until = asked_at + self._ttl
            self._number = 0
            self._is_unknown = self.is_open = False

    def stand_by(self, holder: str) -> bool:
        """Notes that another node has it. Returns whether that is news, and the shard this node's part."""
        is_news = self.holder != holder and not self.is_foster
        if is_news:
            self.holder = holder
        return is_news

    def renewed(self, asked_at: float, *, is_wanted: bool = False) -> None:
        """Notes that the lease was kept; from a foster it may be wanted back."""
        self.until = asked_at + self._ttl
        self.is_wanted = self.is_foster and is_wanted

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

    def release_call(self) -> tuple[str, Call[Released]] | None:
        """Releases the shard, if it is ours: the epoch, and the call. Only for a shard that nothing runs on."""
        with self.lock:
            return (self.epoch, self._release(self.epoch)) if self.epoch is not None else None

    def give_back_call(self) -> Call[Released] | None:
        """
        Releases the shard while the node runs on; None as long as there is a claim in hand. From here on nothing more
        is claimed; a claim that is on its way is given back by this call too, or refused after it.
        """
        with self.lock:
            if self.epoch is None or self.is_busy:
                return None
            epoch, self.epoch = self.epoch, None
            return self._release(epoch)

    def _release(self, epoch: str) -> Call[Released]:
        return self.shard.release(self.runtime.node, epoch, self._number, "lease")

    def abandon_call(self) -> Call[int] | None:
        """Says that we leave while a job runs."""
        return self.shard.abandon(self.runtime.node, self.epoch) if self.epoch else None

    # ── its claims ──────────────────────────────────────────────────────────────────────────────────────────────────

    def claim_calls(self, shards: int, seat: Seat) -> tuple[str | None, list[Call[Any]]]:
        """
        Asks for jobs, as one of so many shards; the last call is the claim. If the reply to the one before it was lost,
        gives that back first. Returns the epoch too; without the lease, or with one to be given back, there is none,
        and nothing to ask.
        """
        node, settings = self.runtime.node, self.runtime.settings
        with self.lock:
            epoch = self.epoch
            if epoch is None or self.is_wanted:
                return None, []
            calls: list[Call[Any]] = []
            lost = [self._stray] if self._stray else []
            lost += [self._number] if self._is_unknown else []
            calls += [self.shard.release(node, epoch, number, "claim") for number in lost]
            self._stray = 0
            self._number = number = self._number + 1
            self._is_unknown, self.is_open = True, False
        limit = self.claim_size.share(shards)
        claim = self.shard.claim(node, epoch, number, limit, settings.max_payloads, settings.load_payload, shards)
        if self._is_loaded_by_user:
            claim = claim._replace(parse=partial(self.load_seated, seat, number, claim.parse))
        calls.append(claim)
        return epoch, calls

    def claimed(self, epoch: str, *, is_empty: bool, has_suspects: bool = False) -> int:
        """
        Notes that the reply is here. Returns the number of the claim in hand now; 0 if it is empty, or the lease
        was lost while the reply was on its way: then another owner may have run its jobs.
        """
        self.has_suspects = has_suspects
        with self.lock:
            return self._hold(is_empty=is_empty) if self.epoch == epoch else 0

    def strayed(self, number: int) -> None:
        """Notes that Redis holds a claim of which the reply was lost: it is given back with the next one."""
        with self.lock:
            self._stray = number

    def load_seated(self, seat: Seat, number: int, load: Callable[..., Claim], *what: Any) -> Claim:
        """Has payloads loaded, as a part of what the node runs if it is by code of the user's: that may kill it."""
        if not self._is_loaded_by_user:
            return load(*what)
        with seat.loading(self.shard.prefix, number):
            return load(*what)

    def handed(self, handed: Handed, thread: object) -> int:
        """
        `take`, when a push has put a job into the open claim. Returns its number; 0 if it speaks of another claim, or
        another thread runs the shard: then its next claim finds the job.
        """
        with self.lock:
            is_of_it = self.is_open and (self.epoch, self._number) == (handed.epoch, handed.number)
            return self._hold(is_empty=False) if is_of_it and self._take(thread) else 0

    def _hold(self, *, is_empty: bool) -> int:
        self._is_unknown = False
        self.is_open, self.is_busy = is_empty, not is_empty
        return 0 if is_empty else self._number
