"""A thread that claims from several shards at once: few jobs each, one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, Worker, clock
from lowkiq.job import shard_of
from lowkiq.node.leases.lease import Lease
from lowkiq.node.threads import leases_of
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue.call import Call
from tests.node.driven import acquire, runtime_of, thread_of

SHARDS = 6


class Bench:
    """A thread with six shards, driven by hand; one job is queued in each."""

    def __init__(self, app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        self.ran: list[int] = []
        self.during: Callable[[], Any] = lambda: None
        #: The clock stands still: on a busy machine jobs would be slow, and give back what was claimed with them.
        self.now = clock.monotonic()
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        self.sent: list[list[Call[Any]]] = []
        #: What the thread hears of each round trip, in place of what Redis said.
        self.twist: Callable[[Sequence[Call[Any]], list[Any]], list[Any]] = lambda _, results: results
        bench = self

        @app.worker(shards_count=SHARDS)
        class Jobs(Worker):
            def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
                bench.ran += [index_of(id) for id in payloads_by_id]
                bench.during()

        self.worker = Jobs
        self.runtime = runtime_of(app)
        self.leases = [acquire(lease) for lease in leases_of(self.runtime, Jobs)]
        self.claim_size = self.leases[0].claim_size
        self.thread = thread_of(self.runtime, *self.leases)
        self.pool = self.thread.pool
        for _ in range(20):
            self.claim_size.learn(1, 1e-6)
        self.push_one_each()
        self._run_all = app.caller.run_all
        monkeypatch.setattr(app.caller, "run_all", self._watched)

    def lose(self, lease: Lease) -> None:
        """To another node, of which nothing is heard."""
        shard = lease.shard.index
        acquire(leases_of(runtime_of(self.app, "two", "one"), self.worker)[shard])

    def lose_reply(self, number: int) -> None:
        def lose(calls: Sequence[Call[Any]], results: list[Any]) -> list[Any]:
            self.twist = lambda _, results: results
            return [*results[:number], redis.ConnectionError("reset by peer"), *results[number + 1 :]]

        self.twist = lose

    def push_one_each(self) -> None:
        ids = {shard_of(str(number).encode(), SHARDS): str(number) for number in range(200)}
        self.worker.perform_async([{"id": id} for id in ids.values()])

    def claims(self) -> list[int]:
        """Of how many shards each round trip has claimed so far."""
        return [sum(call.script == "claim" for call in calls) for calls in self.sent]

    def _watched(self, calls: Sequence[Call[Any]]) -> list[Any]:
        self.sent.append(list(calls))
        return self.twist(calls, self._run_all(calls))


def leases_in_hand(thread: WorkerThread) -> list[Lease]:
    return [claim.lease for claim in thread.in_hand]


def index_of(id: str) -> int:
    return shard_of(id.encode(), SHARDS)


@pytest.fixture
def bench(make_app: Callable[..., Lowkiq], monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(make_app(poll_interval=60), monkeypatch)


def test_shards_with_few_jobs_share_a_round_trip(bench: Bench) -> None:
    bench.thread._step()
    assert (bench.claims(), bench.ran) == ([SHARDS], list(range(SHARDS)))
    bench.thread._step()
    assert [call.script for call in bench.sent[1]] == ["settle"] * SHARDS + ["claim"] * SHARDS
    assert (bench.thread.in_hand, bench.thread.processed) == ([], SHARDS)


def test_a_thread_that_was_stopped_settles_all_it_has_in_hand(bench: Bench) -> None:
    bench.thread._step()
    bench.thread.stop()
    bench.thread._step()
    assert bench.claims() == [SHARDS, 0]
    metrics = bench.app.metrics()["Jobs"]
    assert (metrics.processed, metrics.busy) == (SHARDS, 0)


def test_where_claims_are_full_each_shard_has_its_own(bench: Bench) -> None:
    for _ in range(20):
        bench.claim_size.learn(bench.claim_size.share(1), 1e-3)
    bench.thread._step()
    assert bench.claims() == [1]


def test_none_waits_behind_a_shard_of_slow_jobs(bench: Bench) -> None:
    slow = bench.app.worker(queue_name="slow", shards_count=1)(lambda _: None)
    (lease,) = leases_of(bench.runtime, slow)
    bench.thread.pool.wake(acquire(lease), 2.5)
    picked = []
    for _ in range(3):
        picked.append([picked.shard.index for picked in bench.thread._pick_several(clock.monotonic())])
    assert picked == [[0, 1, 2, 0], [3, 4, 5], []]


def test_they_share_what_one_may_claim(bench: Bench) -> None:
    bench.thread._step()
    asked = [call.arguments[4:8] for call in bench.sent[0] if call.script == "claim"]
    jobs_alone = bench.claim_size.share(1)
    alone = bench.leases[0].shard.claim("one", "1", 1, jobs_alone, bench.app.settings.max_payloads, bytes)
    jobs, payloads_of_an_id, payloads, size = map(int, alone.arguments[4:8])
    assert asked == [[jobs // SHARDS, payloads_of_an_id, payloads // SHARDS, size // SHARDS]] * SHARDS


def test_once_a_job_is_slow_those_of_the_other_shards_go_back(bench: Bench) -> None:
    bench.during = lambda: setattr(bench, "now", bench.now + 0.03)
    bench.thread._step()
    assert bench.ran == [0, 1, 2, 3], "two claim windows are over after the fourth"
    bench.thread.stop()
    bench.thread._step()
    metrics = bench.app.metrics()["Jobs"]
    assert (metrics.processed, metrics.length, metrics.busy) == (4, 2, 0)


def test_settles_that_were_not_confirmed_are_repeated_and_count_once(bench: Bench) -> None:
    bench.thread._step()

    def lose(calls: Sequence[Call[Any]], results: list[Any]) -> list[Any]:
        bench.twist = lambda _, results: results
        raise redis.TimeoutError("Timeout reading from socket")

    bench.twist = lose
    bench.thread._step()
    assert len(bench.thread.in_hand) == SHARDS
    bench.thread._step()
    metrics = bench.app.metrics()["Jobs"]
    assert (bench.ran, metrics.processed, metrics.busy) == (list(range(SHARDS)), SHARDS, 0)


def test_only_the_settles_that_were_not_confirmed_are_repeated(bench: Bench) -> None:
    """Of a cluster, one server may be away while others answer."""
    bench.thread._step()
    bench.lose_reply(0)
    bench.thread._step()
    assert leases_in_hand(bench.thread) == bench.leases[:1]
    bench.thread._step()
    assert [call.script for call in bench.sent[2]].count("settle") == 1
    metrics = bench.app.metrics()["Jobs"]
    assert (bench.ran, metrics.processed, metrics.busy) == (list(range(SHARDS)), SHARDS, 0)


def test_a_claim_that_was_not_heard_of_does_not_keep_the_others_from_running(bench: Bench) -> None:
    bench.lose_reply(2)
    bench.thread._step()
    assert bench.ran == [0, 1, 3, 4, 5]
    for _ in range(3):
        bench.thread._step()
    assert bench.ran == [0, 1, 3, 4, 5, 2]


def test_a_lease_that_was_lost_does_not_keep_the_others_from_running(bench: Bench) -> None:
    bench.lose(bench.leases[1])
    bench.thread._step()
    assert bench.ran == [0, 2, 3, 4, 5]
    bench.lose(bench.leases[3])
    bench.thread._step()
    assert bench.thread.in_hand == []
    assert [lease.epoch is None for lease in bench.leases] == [False, True, False, True, False, False]


def test_what_was_taken_back_is_neither_performed_nor_settled_by_its_thread(bench: Bench) -> None:
    """The lease keeper does so while the thread is inside a job; another thread may run the shard by then."""
    other = WorkerThread(1, bench.pool, bench.runtime)
    lease = bench.leases[3]

    def take_back() -> None:
        bench.during = lambda: None
        (claim,) = (claim for claim in bench.thread.in_hand if claim.lease is lease)
        settle = claim.take_back_call()
        assert settle
        claim.settled(settle, bench.app.caller.run_all(settle.calls))
        claim.finish()
        lease.leave(bench.thread)
        bench.pool.wake(lease, 0.0)
        assert other._exchange(other._pick_several(clock.monotonic()), [])

    bench.during = take_back
    bench.thread._step()
    assert (bench.ran, leases_in_hand(other)) == ([0, 1, 2, 4, 5], [lease])
    other._perform()
    bench.thread.stop()
    bench.thread._step()
    assert (bench.ran[-1], leases_in_hand(other), lease.is_busy) == (3, [lease], True)
    other.stop()
    other._step()
    assert (bench.thread.processed, other.processed) == (5, 1)
    assert bench.app.metrics()["Jobs"].processed == SHARDS


def test_what_is_taken_back_after_it_was_picked_is_run_by_one_thread_alone(bench: Bench) -> None:
    """The lease keeper is at it when the thread's long job ends: the thread picks the shard, and waits for the lock."""
    other = WorkerThread(1, bench.pool, bench.runtime)
    lease = bench.leases[3]
    picked: list[Lease] = []

    class Keeper:
        """Has the lock until it has taken the shard back; another thread picks that then."""

        def __init__(self) -> None:
            bench.during = lambda: None
            self._lock = bench.thread.settling
            (self._claim,) = (claim for claim in bench.thread.in_hand if claim.lease is lease)
            self._settle = self._claim.take_back_call()

        def __enter__(self) -> None:
            bench.thread.settling = self._lock
            assert self._settle
            self._claim.settled(self._settle, bench._run_all(self._settle.calls))
            self._claim.finish()
            lease.leave(bench.thread)
            bench.pool.wake(lease, 0.0)
            picked.extend(other._pick_several(clock.monotonic()))

        def __exit__(self, *error: object) -> None:
            """The lock itself was not taken."""

    bench.during = lambda: setattr(bench.thread, "settling", Keeper())
    bench.thread._step()
    assert bench.ran == [0, 1, 2, 4, 5]
    bench.thread._step()
    assert picked == [lease]
    assert bench.claims()[-1] == SHARDS - 1
    assert other._exchange(picked, [])
    bench.thread.stop()
    bench.thread._step()
    other._perform()
    assert bench.ran == [0, 1, 2, 4, 5, 3]
    other.stop()
    other._step()
    assert (lease._turns, bench.thread.processed, other.processed) == (set(), 5, 1)


def test_nothing_is_taken_back_of_which_a_job_runs(bench: Bench) -> None:
    taken: list[Any] = []
    bench.during = lambda: taken.append(bench.thread.in_hand[len(taken)].take_back_call())
    bench.thread._step()
    assert (len(bench.ran), taken) == (SHARDS, [None] * SHARDS)


def test_a_turn_ends_before_its_shard_is_noted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks in between would find it taken, and leave it to a thread that has nothing more to say of it."""
    bench.thread._step()
    learn, had_turn = bench.pool.learn, []

    def watched(lease: Lease, due_at: float | None, asked_at: float) -> None:
        had_turn.append(bench.thread in lease._turns)
        learn(lease, due_at, asked_at)

    monkeypatch.setattr(bench.pool, "learn", watched)
    bench.thread._step()
    assert had_turn == [False] * SHARDS


def test_a_reply_does_not_outlive_a_ring_that_came_after_its_question(bench: Bench) -> None:
    lease, asked_at = bench.leases[0], clock.monotonic()
    bench.pool.wake(lease, asked_at)
    assert lease in all_due(bench), "taken by a thread that may not have a turn"
    bench.pool.learn(lease, None, asked_at)
    assert all_due(bench) == [lease]
    bench.pool.learn(lease, None, asked_at + 1)
    assert all_due(bench) == []


def test_of_two_replies_that_cross_the_later_one_does_not_hide_a_job_that_the_other_has_told_of(bench: Bench) -> None:
    """
    A thread finds but an id that another one runs, and parks it; that one ends the run, and is told that the id is due.
    Its reply is heard first. No push rings for an id that is queued, so the shard stood still until the next poll.
    """
    all_due(bench)
    bench.now += 10  # after all rings
    lease, asked_at, heard_at = bench.leases[0], bench.now - 2, bench.now - 1
    bench.pool.learn(lease, heard_at, asked_at)
    bench.pool.learn(lease, None, asked_at)
    assert all_due(bench) == [lease]
    bench.pool.learn(lease, None, asked_at)
    assert all_due(bench) == [lease], "picked by a thread that may not have had a turn, beside the third one's"
    bench.pool.learn(lease, None, bench.now + 1)
    assert all_due(bench) == [], "what was asked later is newer"


def all_due(bench: Bench) -> list[Lease]:
    now = clock.monotonic()
    return list(iter(lambda: bench.pool.pick(now), None))


def test_a_shard_that_is_kept_is_due_however_soon_it_would_have_been_looked_at(bench: Bench) -> None:
    lease, now = bench.leases[0], clock.monotonic()
    bench.pool.pick(now)
    bench.pool.look(lease, now + 0.0005)
    bench.pool.keep(lease, now)
    assert lease in iter(lambda: bench.pool.pick(now), None)


def test_a_shard_that_is_rung_while_it_is_picked_is_picked_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two claims of it would share one turn: once one is taken back that is over, and others claim beside the other."""
    lease, take = bench.leases[0], bench.leases[0].take
    rung: list[bool] = []

    def ring_once(thread: WorkerThread, patience: float) -> float:
        if not rung:
            bench.pool.wake(lease, 0.0)
            rung.append(True)
        return take(thread, patience)

    monkeypatch.setattr(lease, "take", ring_once)
    bench.thread._step()
    assert (rung, bench.claims()) == ([True], [SHARDS])
    assert sorted(leases_in_hand(bench.thread), key=bench.leases.index) == bench.leases
