"""A claim on the event loop, when what ends its tasks comes at the worst moment: it ends, whatever happens to them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.handlers.stop import Stop
from lowkiq.node.leases.lease import Lease
from lowkiq.node.places import Place
from lowkiq.node.suspects.trials import Trials
from lowkiq.node.tasks.feeder import Feeder
from lowkiq.node.tasks.loop_claim import LoopClaim
from lowkiq.node.threads import leases_of
from tests.node.driven import Failover, acquire, pool_of, runtime_of
from tests.support import wait_until


class Bench:
    """One shard of an async worker, and a feeder that is not started."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.begun: list[str] = []

        @app.worker(queue_name="q", shards_count=1, batch_size=2)
        async def work(payloads_by_id: dict[str, list[Any]]) -> None:
            self.begun.extend(payloads_by_id)
            await asyncio.sleep(300)

        app.push(work, [{"id": "a"}, {"id": "b"}])
        self.runtime = runtime_of(app)
        (lease,) = leases_of(self.runtime, work)
        self.feeder = Feeder(pool_of(self.runtime, acquire(lease)), self.runtime, Trials(self.runtime.page))
        self.failover = Failover(app)
        self.claim = self.make_claim(lease)

    def make_claim(self, lease: Lease) -> LoopClaim:
        asked = lease.ask(1, self.feeder.seat, 10)
        assert asked
        *_, claimed = self.runtime.caller.run_all(asked.make_calls())
        claim = LoopClaim.of_reply(lease, claimed, asked, self.feeder)
        assert claim
        return claim

    def start(self) -> None:
        self.claim.start(self.runtime.page.loop_seat(1), lambda: None)

    def released(self) -> list[str]:
        wait_until(lambda: self.claim.is_ended)
        settle = self.claim.settle_call(last=True)
        assert settle
        self.stopped = sorted(settle.outcome.stopped)
        return sorted(settle.outcome.released)


@pytest.fixture
def bench(make_app: Callable[..., Lowkiq]) -> Iterator[Bench]:
    bench = Bench(make_app())
    yield bench
    bench.runtime.loop.close()


def test_tasks_that_are_stopped_before_their_first_step_are_over_and_their_jobs_go_back(bench: Bench) -> None:
    gate = threading.Event()
    bench.runtime.loop.loop.call_soon_threadsafe(gate.wait)  # so the loop finds both at once
    bench.start()
    bench.claim.stop(Stop.DRAINED)
    gate.set()
    assert bench.released() == ["a", "b"]
    assert bench.begun == []


def test_jobs_whose_task_others_cancel_before_its_first_step_go_back_and_have_not_failed(bench: Bench) -> None:
    """As a job does that cancels all tasks of its loop."""
    gate, loop = threading.Event(), bench.runtime.loop.loop
    loop.call_soon_threadsafe(gate.wait)
    bench.start()
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    gate.set()
    assert bench.released() == ["a", "b"]
    assert bench.begun == bench.stopped == []


def test_a_task_that_others_cancel_while_it_ends_is_over_all_the_same(bench: Bench) -> None:
    bench.start()
    wait_until(lambda: bench.begun)

    async def cancel_twice() -> None:
        (batch,) = bench.claim.batches
        batch.keep("a", b"1")  # which nobody sends here: so it waits for that
        batch.stop(Stop.DRAINED)
        await asyncio.sleep(0.01)
        assert batch.task
        batch.task.cancel()

    bench.runtime.loop.call(cancel_twice())
    assert bench.released() == ["a", "b"]


def test_tasks_whose_claim_a_failover_has_lost_do_not_run_beside_themselves(bench: Bench) -> None:
    bench.start()
    wait_until(lambda: len(bench.begun) == 2)
    bench.failover.happen()
    bench.app.push(bench.app.workers["q"], [{"id": "c"}])
    again = bench.make_claim(bench.claim.lease)
    again.start(bench.runtime.page.loop_seat(1), lambda: None)
    wait_until(lambda: "c" in bench.begun)
    assert bench.begun == ["a", "b", "c"]
    again.stop(Stop.DRAINED)
    wait_until(lambda: again.is_ended)
    settle = again.settle_call(last=True)
    assert settle
    limited = sorted(settle.outcome.limited)
    assert [(row.id, 0 < row.delay <= 1) for row in limited] == [("a", True), ("b", True)]
    bench.claim.stop(Stop.DRAINED)


def run_out(bench: Bench) -> None:
    bench.claim.lease.renewed(clock.monotonic() - 3600)


def lose_a_place(bench: Bench) -> None:
    place = Place("a", bench.runtime.places_of("q"))
    place.is_lost = True
    bench.claim.places = (place,)


#: What may come to pass while tasks wait for the loop, after which none may begin.
ENDS: dict[str, Callable[[Bench], object]] = {
    "its shard was paused": lambda bench: bench.claim.lease.rest(),
    "its lease has run out": run_out,
    "its lease is another node's": lambda bench: bench.claim.lease.lost(bench.claim.epoch),
    "a place was lost": lose_a_place,
    "the node ends": lambda bench: bench.feeder.stop(),
    "it was taken back": lambda bench: bench.claim.give_back(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_tasks_that_wait_for_the_loop_when_they_may_start_no_more_do_not_begin(
    bench: Bench, end: Callable[[Bench], object]
) -> None:
    first, second, is_between = threading.Event(), threading.Event(), threading.Event()
    loop = bench.runtime.loop.loop
    loop.call_soon_threadsafe(first.wait)
    bench.start()
    loop.call_soon_threadsafe(lambda: (is_between.set(), second.wait()))  # the tasks are made, and come next
    first.set()
    assert is_between.wait(10)
    assert bench.claim.batches
    end(bench)
    second.set()
    wait_until(lambda: bench.claim.is_ended)
    assert bench.begun == []
    if settle := bench.claim.settle_call(last=True):  # of a lease that is lost nothing is said any more
        assert (sorted(settle.outcome.released), list(settle.outcome.stopped)) == (["a", "b"], [])


def test_tasks_that_have_begun_when_their_shard_is_paused_go_on(bench: Bench) -> None:
    bench.start()
    wait_until(lambda: bench.begun)
    assert bench.claim.lease.rest()
    assert bench.claim.batches and not bench.claim.is_ended
    bench.claim.stop(Stop.DRAINED)
    assert bench.released() == ["a", "b"]
    assert bench.stopped == ["a", "b"], "a throttle counts from where they had started"


def test_jobs_that_are_given_back_before_they_begin_may_start_again_at_once(bench: Bench) -> None:
    bench.claim.give_back()
    settle = bench.claim.settle_call(last=True)
    assert settle
    assert (sorted(settle.outcome.released), list(settle.outcome.stopped)) == (["a", "b"], [])
