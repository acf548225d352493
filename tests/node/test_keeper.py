"""The lease keeper's rounds, and what a node keeps of shards that it has left, by hand on a clock that stands still."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, Worker
from lowkiq.errors import Fenced
from lowkiq.node.lease_keeper import ACQUIRE_INTERVAL, LeaseKeeper
from lowkiq.node.leases.away import AwayClaims
from lowkiq.node.leases.lease import Lease
from lowkiq.node.pool import Pool
from lowkiq.node.schedulers import Lag
from lowkiq.node.threads import leases_of
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue import resharding
from lowkiq.queue.bell import LocalBell
from lowkiq.queue.keys import LAYOUT_VERSION, Layout
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import AWAY, CANCELS, KEPT, LETTERS, LOST, RECURS, WAITS, WANTED, Owned, Released, Restored
from lowkiq.shared_page import DeadNode
from tests.node.driven import runtime_of
from tests.pairs.rig import dump, restore


class Kept:
    """A node of two shards, whose thread and keeper are driven by hand; its jobs call `during`."""

    def __init__(self, app: Lowkiq, now: list[float], node: str = "one", *dead: str) -> None:
        self.app, self.now, self.during = app, now, lambda _: None
        kept = self

        class Jobs(Worker):
            shards_count = 2

            def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
                for id in payloads_by_id:
                    kept.during(id)

        self.worker = app.workers.get("Jobs") or app.worker(Jobs)
        self.leases = leases_of(runtime_of(app, node, *dead), self.worker)
        self.runtime = self.leases[0].runtime
        self.pool = Pool(self.leases, Lag(), LocalBell(), self.runtime)
        self.thread = WorkerThread(0, self.pool, self.runtime)
        self.keeper = LeaseKeeper(self.runtime, dict.fromkeys(self.leases, self.pool), [self.thread])
        self.away = AwayClaims(self.runtime, [self.thread])

    def round(self, seconds: float = 0.0) -> None:
        """So many seconds later."""
        self.now[0] += seconds
        self.keeper._round()

    @property
    def epochs(self) -> list[bool]:
        return [lease.epoch is not None for lease in self.leases]

    def push(self) -> Lease:
        """Pushes a job; the lease of its shard."""
        self.worker.perform_async([{"id": "a"}])
        (found,) = [lease for lease in self.leases if self.app.redis().exists(lease.shard.prefix + "due")]
        return found

    def run(self) -> None:
        self.thread._step()


@pytest.fixture
def kept(app: Lowkiq, now: list[float]) -> Kept:
    return Kept(app, now)


@pytest.fixture
def fail(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has Redis answer the next calls with these, in the place of what it says."""

    def with_these(*answers: Any) -> None:
        run_all, left = app.caller.run_all, list(answers)

        def answer(calls: Any) -> Any:
            if not left:
                return run_all(calls)
            told = left.pop(0)
            if isinstance(told, Exception):
                raise told
            return told

        monkeypatch.setattr(app.caller, "run_all", answer)

    return with_these


def test_what_is_due_as_a_shard_is_acquired_is_looked_at(kept: Kept) -> None:
    lease = kept.push()
    kept.round()
    assert kept.epochs == [True, True]
    assert [one.due_at <= kept.now[0] for one in kept.leases] == [one is lease for one in kept.leases]


def test_a_ring_that_came_while_a_shard_was_acquired_is_not_lost(kept: Kept) -> None:
    lease = kept.leases[0]
    kept.pool.wake(lease, kept.now[0])
    assert kept.pool.pick(kept.now[0]) is lease
    kept.round()
    assert lease.due_at <= kept.now[0]


def test_leases_are_renewed_well_before_their_end_and_count_from_the_request(kept: Kept) -> None:
    kept.round()
    ttl = kept.runtime.settings.lease_ttl
    kept.round(ttl / 3)
    assert {lease.until for lease in kept.leases} == {kept.now[0] + ttl}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_renewal_that_fails_is_tried_again_well_before_the_end(
    kept: Kept, fail: Callable[..., None], at_once: bool
) -> None:
    kept.round()
    ttl, error = kept.runtime.settings.lease_ttl, redis.ConnectionError("away")
    until = kept.leases[0].until
    fail(error if at_once else [error])
    kept.round(ttl / 3)
    assert kept.runtime.outage.is_on
    assert kept.leases[0].until == until
    kept.round(ACQUIRE_INTERVAL)
    assert kept.leases[0].until == kept.now[0] + ttl
    assert not kept.runtime.outage.is_on


def test_a_lease_that_another_node_has_got_is_ours_no_more(kept: Kept) -> None:
    kept.round()
    other = Kept(kept.app, kept.now, "two", "one")
    other.round()
    kept.round(kept.runtime.settings.lease_ttl / 3)
    assert (kept.epochs, other.epochs) == ([False, False], [True, True])


def test_a_shard_whose_lease_had_run_out_is_looked_at_when_it_is_renewed(kept: Kept) -> None:
    kept.round()
    kept.round(kept.runtime.settings.lease_ttl + 1)
    assert all(lease.due_at <= kept.now[0] and lease.holds(lease.epoch) for lease in kept.leases)


def test_renewals_tell_what_there_is_to_do(kept: Kept) -> None:
    kept.round()
    lease, runtime = kept.leases[0], kept.runtime
    runtime.recurring.take_now()
    lease.is_foster = True
    flags = {LETTERS: runtime.letters, WAITS: runtime.waits, RECURS: runtime.recurring}
    for flag in (KEPT, *flags):
        kept.keeper._note_renewed(lease, lease.epoch or "", flag, kept.now[0])
        assert [bool(noted.take_now()) for noted in flags.values()] == [flag == one for one in flags]
        assert not (lease.is_wanted or kept.keeper._cancelled or kept.keeper._shared)
    kept.keeper._note_renewed(lease, lease.epoch or "", WANTED | CANCELS | AWAY, kept.now[0])
    assert (lease.is_wanted, kept.keeper._cancelled, kept.keeper._shared) == (True, {lease}, {lease})
    lease.is_foster = False
    kept.keeper._note_renewed(lease, lease.epoch or "", WANTED, kept.now[0])
    assert not lease.is_wanted, "it is the node's own"


def test_a_shard_is_not_acquired_while_its_jobs_of_a_lost_lease_run(kept: Kept) -> None:
    kept.round()
    lease, seen = kept.push(), list[bool]()

    def during(_: str) -> None:
        lease.lost(lease.epoch or "")
        kept.round(2 * ACQUIRE_INTERVAL)
        seen.append(lease.epoch is None)

    kept.during = during
    kept.pool.wake(lease, kept.now[0])
    kept.run()
    kept.run()
    kept.round(2 * ACQUIRE_INTERVAL)
    assert (seen, kept.epochs) == ([True], [True, True])


def test_what_is_moved_away_or_another_node_s_part_is_not_asked_for(kept: Kept) -> None:
    kept.leases[0].is_moved = kept.leases[1].is_foster = True
    shard = kept.leases[0].shard
    kept.keeper._runtime.layouts[shard.queue] = Layout(LAYOUT_VERSION, 4, 2, 2, 1)
    kept.round()
    assert kept.epochs == [False, False]
    kept.keeper.take_over(kept.leases[1])
    assert kept.keeper._wake.is_set()
    kept.round()
    assert kept.epochs == [False, True]
    kept.keeper._runtime.layouts[shard.queue] = Layout.first(2)  # a failover has lost the reshard
    kept.round(2 * ACQUIRE_INTERVAL)
    assert kept.epochs == [True, True]


def test_a_node_that_drains_acquires_nothing(kept: Kept) -> None:
    kept.keeper.drain()
    kept.keeper.take_over(kept.leases[0])
    kept.round()
    assert kept.epochs == [False, False]


def test_a_foster_that_is_wanted_back_goes_and_nobody_waits_for_the_next_round(kept: Kept) -> None:
    kept.round()
    lease = kept.leases[0]
    lease.is_foster = True
    kept.keeper._wake.clear()
    kept.keeper.want(lease)
    assert kept.keeper._wake.is_set()
    kept.round()
    assert kept.epochs == [False, True]


def test_a_ring_during_a_round_is_followed_by_another(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, keeper = list[bool](), kept.keeper
    rounds = [keeper.stop, lambda: keeper.take_over(kept.leases[0])]

    def round() -> None:
        rounds.pop()()

    monkeypatch.setattr(keeper, "_round", round)
    monkeypatch.setattr(keeper._wake, "wait", lambda _: waits.append(keeper._wake.is_set()))
    keeper.run()
    assert waits == [True, True]


def test_a_node_whose_rounds_fail_goes_on_until_its_leases_are_over(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal, keeper, ttl = list[BaseException](), kept.keeper, kept.runtime.settings.lease_ttl
    object.__setattr__(kept.runtime, "fatal", fatal.append)
    results = [True, False, True, False, False, False]
    ended = list[int]()

    def round() -> None:
        if not results:
            keeper.stop()
        elif not results.pop(0):
            raise ZeroDivisionError

    def wait(_: float) -> None:
        kept.now[0] += ttl * 0.6
        ended.append(len(fatal))

    monkeypatch.setattr(keeper, "_round", round)
    monkeypatch.setattr(keeper._wake, "wait", wait)
    keeper.run()
    assert (ended, len(fatal), results) == ([0] * 5, 1, []), "after one round that works it begins anew"


def test_what_others_still_run_is_looked_for_until_none_does(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.round()
    lease = kept.leases[0]
    kept.keeper._shared = {lease}
    found = [Restored(0, 0, 2, None), Restored(1, 0, 1, 3.0), Restored(0, 1, 0, None)]
    monkeypatch.setattr(kept.keeper._away, "restore", lambda leases: {one: found.pop(0) for one in leases})
    due = []
    for _ in range(4):
        kept.keeper._restore_away()
        due.append(lease.due_at - kept.now[0])
    assert (due[:2], due[2] <= 0, found) == ([math.inf, 3.0], True, [])


def test_a_shard_of_which_nobody_knows_whether_it_was_left_is_still_ours(kept: Kept, fail: Callable[..., None]) -> None:
    kept.round()
    epochs = [lease.epoch for lease in kept.leases]
    fail(redis.ConnectionError("away"), [redis.ConnectionError("away"), Released(0, None, "")])
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            kept.away.leave(kept.leases)
        assert kept.leases[0].epoch == epochs[0]
    assert kept.leases[1].epoch is None


def test_what_runs_of_a_shard_that_was_left_has_a_lease_of_its_own(kept: Kept, fail: Callable[..., None]) -> None:
    kept.round()
    lease, ttl, lost = kept.push(), kept.runtime.settings.lease_ttl, list[float | None]()

    def during(_: str) -> None:
        (claim,) = kept.thread.in_hand

        def look() -> None:
            lost.append(None if claim.is_lost else round((claim._away_until or 0.0) - kept.now[0], 3))

        run_all: Any = kept.app.caller.run_all

        def run_slowly(calls: Any) -> Any:
            kept.now[0] += 1
            return run_all(calls)

        kept.app.caller.run_all = run_slowly  # type: ignore[method-assign, assignment]
        kept.away.leave([lease])  # takes a second
        kept.app.caller.run_all = run_all  # type: ignore[method-assign]
        look()
        kept.now[0] += ttl / 3
        look()
        assert kept.away.renew(kept.now[0]) == set()
        look()
        left = Fenced("it was left")
        fail([left, [KEPT | CANCELS]], [left, [LOST]])
        assert kept.away.renew(kept.now[0]) == {lease}
        assert kept.away.renew(kept.now[0]) == set()
        look()
        claim.renewed(kept.now[0], ttl)
        look()

    kept.during = during
    kept.pool.wake(lease, kept.now[0])
    kept.run()
    assert lost == [ttl - 1, round(ttl * 2 / 3 - 1, 3), ttl, None, None]


@pytest.mark.parametrize("who", ["another", "the node itself"])
def test_what_runs_of_a_shard_stays_ours_where_a_failover_has_lost_that_it_was_left(
    kept: Kept, app: Lowkiq, who: str
) -> None:
    kept.round()
    lease, client, seen = kept.push(), app.redis(), list[Any]()

    def during(_: str) -> None:
        before = dump(client)
        kept.away.leave([lease])
        restore(client, before)
        if who == "another":
            kept.away.renew(kept.now[0])
            taken = app.caller.run(lease.shard.acquire("another", 30.0, 1))
            seen.append((type(taken), taken.restored, taken.has_away))
        else:
            kept.keeper.take_over(lease)
            kept.round()
            seen.append(lease.epoch != kept.thread.in_hand[0].epoch)
        kept.away.renew(kept.now[0])
        seen.append(kept.thread.in_hand[0].is_away)

    kept.during = during
    kept.pool.wake(lease, kept.now[0])
    kept.run()
    kept.run()  # it is settled
    assert seen == [(Owned, 0, True) if who == "another" else True, True]
    assert not client.exists(f"{lease.shard.prefix}due", f"{lease.shard.prefix}away")


def test_what_runs_of_a_shard_stays_ours_where_a_failover_has_lost_that_it_was_moved(kept: Kept, app: Lowkiq) -> None:
    kept.round()
    lease, client, seen = kept.push(), app.redis(), list[Any]()

    def during(_: str) -> None:
        (claim,) = kept.thread.in_hand
        kept.away.leave([lease])
        before = dump(client)
        layout = resharding.begin(app.caller, app.settings.namespace, "Jobs", 3)
        route = Route.of(app.settings.namespace, "Jobs", layout, lease.shard.index)
        mover = app.caller.run(route.acquire("mover", 60, 3, [], is_marked=False))
        list(resharding.steps(app.caller, route, "mover", mover.epoch))
        kept.away.renew(kept.now[0])
        (moved,) = claim.homes.all
        kept.away.renew(kept.now[0])
        seen.append(claim.homes.all == (moved,) and moved.number == f"1@{lease.shard.index}")
        restore(client, before)
        kept.away.renew(kept.now[0])
        (home,) = claim.homes.all
        seen.extend((home.shard is lease.shard, claim.is_away))

    kept.during = during
    kept.pool.wake(lease, kept.now[0])
    kept.run()
    kept.run()  # it is settled
    assert seen == [True, True, True]
    assert not client.exists(f"{lease.shard.prefix}due", f"{lease.shard.prefix}away")


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_runs_of_a_shard_is_lost_if_it_was_lost_before_it_was_left_and_not_if_that_is_told_twice(
    kept: Kept, app: Lowkiq, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    kept.round()
    lease, seen = kept.push(), list[bool]()
    run_all = app.caller.run_all

    def during(_: str) -> None:
        if is_lost:
            kept.app.caller.run(lease.shard.acquire("another", 30.0, 1, [DeadNode("one", ())]))
        else:  # the reply to the first one is lost
            monkeypatch.setattr(app.caller, "run_all", lambda calls: [run_all(calls), run_all(calls)][1])
        kept.away.leave([lease])
        monkeypatch.setattr(app.caller, "run_all", run_all)
        seen.append(kept.thread.in_hand[0].is_lost)

    kept.during = during
    kept.pool.wake(lease, kept.now[0])
    kept.run()
    kept.run()
    assert seen == [is_lost]
    assert app.redis().exists(f"{lease.shard.prefix}due", f"{lease.shard.prefix}away") == is_lost
