"""A lease, what is claimed under it, and the thread that runs it, when leases come and go at the worst moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, Worker, clock, current
from lowkiq.errors import Fenced
from lowkiq.node.leases.away import AwayClaims
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.threads import leases_of
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue.claims import Claim, Handed
from tests.node.driven import Failover, acquire, runtime_of, thread_of


class Bench:
    """One shard, leases of several nodes for it, and their thread, driven by hand."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.ran: list[str] = []
        self.during: Callable[[str], Any] = lambda _: None
        bench = self

        @app.worker(shards_count=1)
        class Jobs(Worker):
            def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
                bench.ran.extend(payloads_by_id)
                for id in payloads_by_id:
                    bench.during(id)

        self.worker = Jobs
        (self.shard,) = app.shards("Jobs", 1)

    def lease(self, node: str, *dead: str, concurrency: int | None = None) -> Lease:
        self.worker.concurrency = concurrency
        (lease,) = leases_of(runtime_of(self.app, node, *dead), self.worker)
        return acquire(lease)

    def push(self, *ids: str) -> None:
        self.worker.perform_async([{"id": id} for id in ids])

    def lose_next_reply(self, monkeypatch: pytest.MonkeyPatch, error: redis.RedisError) -> None:
        run_all = self.app.caller.run_all

        def lose_reply(calls: Any) -> Any:
            run_all(calls)
            monkeypatch.setattr(self.app.caller, "run_all", run_all)
            raise error

        monkeypatch.setattr(self.app.caller, "run_all", lose_reply)

    def release(self, lease: Lease) -> None:
        self.app.caller.run(self.shard.release(lease.runtime.node, lease.epoch or "", 0, "lease"))


def thread_with(lease: Lease) -> WorkerThread:
    return thread_of(lease.runtime, lease)


@pytest.fixture
def bench(make_app: Callable[..., Lowkiq]) -> Bench:
    return Bench(make_app(poll_interval=0.2))


def failure_of(act: Callable[[], Any], meanwhile: Callable[[], Any]) -> BaseException | None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (it is what the test asks for)
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    meanwhile()
    thread.join(60)
    assert not thread.is_alive()
    return raised[0] if raised else None


def test_a_lease_lost_while_its_thread_waits_to_settle_does_not_end_the_thread(bench: Bench) -> None:
    """The lease keeper learns of it from a settle of its own, which the thread waits for."""
    bench.push("a", "b")
    lease = bench.lease("one")
    thread = thread_with(lease)
    thread._step()
    assert (bench.ran, [claim.lease for claim in thread.in_hand]) == (["a"], [lease])
    thread.settling.acquire()

    def lose() -> None:
        epoch = lease.epoch
        assert epoch
        lease.lost(epoch)
        thread.settling.release()

    assert failure_of(thread._step, lose) is None
    assert (thread.in_hand, lease.is_busy) == ([], False)


def test_a_lease_lost_between_making_and_sending_a_settle_does_not_end_the_thread(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.push("a")
    lease = bench.lease("one")
    thread = thread_with(lease)
    thread._step()
    bench.lease("two", "one")
    (claim,) = thread.in_hand
    make = claim.settle_call

    def make_and_lose(*, last: bool) -> Any:
        call = make(last=last)
        lease.lost(lease.epoch or "")
        return call

    monkeypatch.setattr(claim, "settle_call", make_and_lose)
    monkeypatch.setattr(thread, "_pick", lambda now, **_: None)
    thread._step()
    assert (thread.in_hand, lease.is_busy) == ([], False)


def test_a_claim_of_an_older_epoch_is_not_performed_under_a_newer_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the reply was on its way, another node had the shard, ran its jobs, and gave it back."""
    bench.push("a")
    lease = bench.lease("one")
    thread = thread_with(lease)
    run_all = bench.app.caller.run_all

    def run_slowly(calls: Any) -> Any:
        results = run_all(calls)
        if any(isinstance(result, Claim) for result in results):
            monkeypatch.setattr(bench.app.caller, "run_all", run_all)
            epoch = lease.epoch
            assert epoch
            bench.release(bench.lease("two", "one"))
            lease.lost(epoch)
            acquire(lease)
        return results

    monkeypatch.setattr(bench.app.caller, "run_all", run_slowly)
    thread._step()
    assert bench.ran == []


def test_a_lease_that_was_lost_does_not_hinder_the_release_of_the_others(app: Lowkiq) -> None:
    worker = app.worker(queue_name="jobs", shards_count=3)(lambda batch: None)
    runtime = runtime_of(app)
    leases = [acquire(lease) for lease in leases_of(runtime, worker)]
    leases[0].lost(leases[0].epoch or "")
    assert AwayClaims(runtime, []).leave(leases).keys() == set(leases[1:])
    assert [lease.epoch for lease in leases] == [None, None, None]


def test_no_job_is_started_once_the_lease_has_run_out(bench: Bench) -> None:
    bench.push("a", "b", "c")
    lease = bench.lease("one")
    lease.claim_size.learn(1, 1e-6)
    bench.during = lambda _: lease.renewed(clock.monotonic() - 3600)
    thread = thread_with(lease)
    thread._step()
    assert bench.ran == ["a"]
    settle = thread.in_hand[0].settle_call(last=True)
    assert settle
    assert (settle.outcome.rest, settle.outcome.acked) == ("release", ["a"])


def test_inside_a_job_the_context_tells_where_it_runs_and_whether_the_lease_is_lost(bench: Bench) -> None:
    seen: list[Any] = []
    lease: Lease

    def during(id: str) -> None:
        context = current()
        seen.append((context.queue, context.shard, context.attempt, context.worker.queue_name, context.lease_lost))
        seen.append(str(context.epoch) == lease.epoch)
        lease.lost(lease.epoch or "")
        seen.append(context.lease_lost)

    bench.push("a", "b")
    bench.during = during
    lease = bench.lease("one")
    thread_with(lease)._step()
    assert seen == [("Jobs", 0, 1, "Jobs", False), True, True]


def test_to_leave_a_shard_gives_a_job_no_time_that_redis_has_not_given(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node stood still for longer than the lease, and is told to leave when it goes on."""
    seen: list[bool] = []

    def during(id: str) -> None:
        lease.renewed(clock.monotonic() - 3600)
        run_all = bench.app.caller.run_all

        def look_first(calls: Any) -> Any:
            seen.append(current().lease_lost)
            monkeypatch.setattr(bench.app.caller, "run_all", run_all)
            if id == "taken":
                bench.app.redis().hset(f"{bench.shard.prefix}owner", "node", "another")
            return run_all(calls)

        monkeypatch.setattr(bench.app.caller, "run_all", look_first)
        AwayClaims(lease.runtime, []).leave([lease])
        seen.append(current().lease_lost)

    bench.during = during
    for id in ("kept", "taken"):
        bench.push(id)
        lease = bench.lease(id)
        thread_with(lease)._step()
    assert seen == [True, False, True, True]


def test_a_fenced_settle_changes_nothing_and_frees_the_thread(bench: Bench) -> None:
    bench.push("a")
    lease = bench.lease("one")
    thread = thread_with(lease)
    thread._step()
    other = bench.lease("two", "one")
    thread._step()
    assert (lease.epoch, lease.is_busy, thread.in_hand) == (None, False, [])
    assert [job.id for job in bench.worker.queries.fetch(["a"])] == ["a"]
    with pytest.raises(Fenced):
        bench.app.caller.run(bench.shard.release("one", "1", 1, "lease"))
    assert other.epoch


def test_a_claim_whose_reply_was_lost_is_given_back_before_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.push("a", "b")
    lease = bench.lease("one")
    thread = thread_with(lease)
    bench.lose_next_reply(monkeypatch, redis.ConnectionError("reset by peer"))
    thread._step()
    assert (bench.ran, bench.app.metrics()["Jobs"].busy) == ([], 1)
    for _ in range(4):
        thread._step()
    assert bench.ran == ["a", "b"]
    assert bench.app.metrics()["Jobs"].length == 0


def test_an_outcome_whose_confirmation_was_lost_is_settled_again_and_counts_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.push("a")
    lease = bench.lease("one")
    thread = thread_with(lease)
    thread._step()
    bench.lose_next_reply(monkeypatch, redis.TimeoutError("Timeout reading from socket"))
    thread._step()
    assert [claim.lease for claim in thread.in_hand] == [lease]
    thread._step()
    assert thread.in_hand == []
    metrics = bench.app.metrics()["Jobs"]
    assert (bench.ran, metrics.processed, metrics.length, metrics.busy) == (["a"], 1, 0, 0)


def test_a_claim_is_cut_short_when_its_jobs_turn_out_slow(bench: Bench) -> None:
    """What has not started goes back: it must not wait behind slow ones."""
    ids = [f"{number:03}" for number in range(64)]
    bench.push(*ids)
    lease = bench.lease("one")
    lease.claim_size.learn(1, 1e-6)
    now = [clock.monotonic()]
    thread = thread_with(lease)
    assert lease.claim_size.share(1) == 8
    bench.during = lambda _: now.__setitem__(0, now[0] + 0.06)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic", lambda: now[0])
        thread._step()
    assert bench.ran == ["000"]
    assert lease.claim_size.share(1) == 1


def test_what_is_handed_over_while_another_thread_runs_the_shard_is_left_to_that(bench: Bench) -> None:
    lease = bench.lease("a", concurrency=1)
    other, rung = (thread_with(lease) for _ in range(2))
    seat = lease.runtime.page.seat(0)
    asked = lease.ask(1, seat)
    assert asked
    assert ThreadClaim.of_reply(lease, Claim([], [], None), asked, other) is None
    handed = Handed(asked.epoch, 1, b"a", b"1", b"1700000000.000000")
    assert lease.take(other, 0.0) == 0
    assert ThreadClaim.of_ring(lease, handed, rung, seat) is None
    assert lease.is_open
    assert not lease.is_busy
    lease.leave(rung)  # it never had it
    assert ThreadClaim.of_ring(lease, handed, rung, seat) is None
    lease.leave(other)
    assert ThreadClaim.of_ring(lease, handed, rung, seat)
    assert lease.is_busy


def test_what_is_handed_over_before_the_claim_s_reply_is_read_is_run_once(bench: Bench) -> None:
    """One thread has asked, and another hears the ring first: that proves that the claim found nothing."""
    lease = bench.lease("a")
    asking, rung = (thread_with(lease) for _ in range(2))
    seat = lease.runtime.page.seat(0)
    assert lease.take(asking, 0.0) == 0
    asked = lease.ask(1, seat)
    assert asked
    handed = Handed(asked.epoch, asked.number, b"a", b"1", b"1700000000.000000")
    assert ThreadClaim.of_ring(lease, handed, rung, seat)
    assert ThreadClaim.of_reply(lease, Claim([], [], None), asked, asking) is None
    assert not lease.is_open
    again = lease.ask(1, seat)
    assert again
    assert again.made.unheard == ()
    assert ThreadClaim.of_ring(lease, handed, asking, seat) is None


def test_a_job_whose_claim_a_failover_has_lost_does_not_run_beside_itself(bench: Bench) -> None:
    bench.push("a", "b")
    lease = bench.lease("one", concurrency=2)
    first, second = (thread_with(lease) for _ in range(2))
    failover = Failover(bench.app)

    def fail_over(id: str) -> None:
        if id == "a" and bench.ran == ["a"]:
            failover.happen()
            bench.push("c")
            for _ in range(20):
                second._step()
            assert bench.ran == ["a", "b", "c"]

    bench.during = fail_over
    first._step()
    assert bench.ran == ["a", "b", "c"]
