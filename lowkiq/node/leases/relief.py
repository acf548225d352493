"""Relief: settles for a thread that is inside a job, and takes from it what it has not started."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from lowkiq import clock
from lowkiq.node.leases.claim_in_hand import ClaimInHand, Settle, Thread
from lowkiq.node.leases.lease import Lease
from lowkiq.queue.call import Caller


class Relief:
    """Used by threads that are free, and by the lease keeper. It does nothing while the thread settles by itself."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def settle_late(self, thread: Thread, age: float, patience: float, wake: Callable[[Lease, float], None]) -> None:
        """
        Settles what has waited for `age` seconds. If the thread's batch has taken `patience` seconds, what it has not
        started goes back, so that other threads can run it: `wake` is told of the shards.
        """
        if not thread.in_hand or not thread.settling.acquire(blocking=False):
            return
        try:
            now = clock.monotonic()
            is_stuck = thread.is_inside(now, patience)
            for claim in thread.in_hand:
                since = claim.waits_since
                if is_stuck and (claim.has_unstarted or not claim.batches):
                    due_in = self._take_rest(claim)
                    if due_in is not None:
                        wake(claim.lease, clock.monotonic() + due_in)
                elif since is not None and now - since >= age:
                    self._settle(claim, claim.settle_call(last=False))
        finally:
            thread.settling.release()

    def settle_left(self, thread: Thread, leases: Collection[Lease]) -> None:
        """Has what a thread has not started of shards that were left go back at once."""
        if not thread.settling.acquire(blocking=False):
            return
        try:
            for claim in thread.in_hand:
                if claim.lease in leases and claim.waits_since is not None:
                    self._settle(claim, claim.settle_call(last=False))
        finally:
            thread.settling.release()

    def take_rest(self, lease: Lease, threads: Iterable[Thread], patience: float) -> None:
        """Has jobs of a shard go back that wait, in one of these threads, behind a batch of `patience` seconds."""
        for thread in threads:
            claim = next((claim for claim in thread.in_hand if claim.lease is lease), None)
            if not (claim and claim.has_unstarted) or not thread.settling.acquire(blocking=False):
                continue
            try:
                if claim.is_over or not thread.is_inside(clock.monotonic(), patience):
                    continue
                self._take_rest(claim)
            finally:
                thread.settling.release()

    def _take_rest(self, claim: ClaimInHand) -> float | None:
        """Returns the seconds until the shard's oldest job is due."""
        if claim.batches:
            claim.give_back()
            return self._settle(claim, claim.settle_call(last=False))
        if not (settle := claim.take_back_call()):
            return None
        due_in = self._settle(claim, settle)
        claim.finish()
        claim.lease.leave(claim.thread)
        return due_in

    def _settle(self, claim: ClaimInHand, settle: Settle | None) -> float | None:
        """Returns the seconds until the shard's oldest job is due."""
        if not settle:
            return None
        results = self._caller.run_all(settle.calls)
        settled = claim.settled(settle, results)
        if settled:
            claim.thread.count(settled)
        return settled.due_in if settled else None
