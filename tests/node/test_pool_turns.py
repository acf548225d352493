"""Which thread of a pool leads, when it looks, and whom a ring wakes: by hand, with a bell that only notes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.node.pool import LASTING, Pool
from lowkiq.node.schedulers import Lag
from lowkiq.node.threads import leases_of
from lowkiq.queue.bell import Heard, Ring
from tests.node.driven import runtime_of

RUNG = Heard(Ring(b"x", 0.0, True))


class Bell:
    """Notes what is asked of it; `during` is called while somebody waits."""

    key, is_idle = "bell", False

    def __init__(self) -> None:
        self.rings, self.busy, self.closed = 0, 0, 0
        self.waits: list[tuple[float, bool]] = []
        self.during: Any = lambda: None

    def ring(self) -> None:
        self.rings += 1

    def wait(self, seconds: float, *, is_idle: bool) -> Heard:
        self.waits.append((round(seconds, 6), is_idle))
        self.during()
        return RUNG

    def be_busy(self) -> Heard:
        self.busy += 1
        return RUNG

    def close(self) -> None:
        self.closed += 1


class Member:
    """A thread; `during` is called while it rests."""

    def __init__(self, name: str, pool: Pool) -> None:
        self.name, self.roused, self.rested = name, 0, 0
        self.during: Any = lambda: None
        self.is_leaving = False
        pool.join(self)  # type: ignore[arg-type]

    def rest(self) -> None:
        self.rested += 1
        self.during()

    def rouse(self) -> None:
        self.roused += 1


class Bench:
    def __init__(self, app: Lowkiq, now: list[float]) -> None:
        worker = app.worker(queue_name="q", shards_count=3)(lambda _: None)
        self.runtime, self.now, self.bell = runtime_of(app), now, Bell()
        self.leases = leases_of(self.runtime, worker)
        self.pool: Any = Pool(self.leases, Lag(), self.bell, self.runtime)  # type: ignore[arg-type]
        self.pool._next_poll_at = now[0] + 10
        self.one, self.other, self.third = (Member(name, self.pool) for name in "abc")

    def lead(self) -> float:
        """The first leads; the seconds that it would wait."""
        self.pool.rest(self.one, is_idle=True)
        return self.bell.waits[-1][0]


@pytest.fixture
def bench(app: Lowkiq, now: list[float]) -> Bench:
    return Bench(app, now)


def test_who_leads_waits_for_what_is_due_first_or_for_the_poll(bench: Bench) -> None:
    pool, (first, second, _) = bench.pool, bench.leases
    assert bench.lead() == 10
    pool.look(first, bench.now[0] + 7)
    pool.look(second, bench.now[0] + 12)
    assert bench.lead() == 7
    pool._next_poll_at = bench.now[0] + 5
    assert bench.lead() == 5
    pool.rest(bench.one, is_idle=False)
    assert bench.bell.waits[-1] == (bench.runtime.settings.poll_interval, False), "what is due is not for it"


def test_a_ring_wakes_who_leads_only_for_what_is_due_before_it_looks(bench: Bench) -> None:
    pool, (first, second, third) = bench.pool, bench.leases
    pool.look(first, bench.now[0] + 7)
    rings = list[int]()

    def during() -> None:
        for lease, seconds in ((second, 8.0), (second, 6.0), (third, 6.5), (third, 5.0)):
            pool.wake(lease, bench.now[0] + seconds)
            rings.append(bench.bell.rings)

    bench.bell.during = during
    bench.lead()
    assert rings == [0, 1, 1, 2]
    pool.wake(first, 0.0)
    assert bench.bell.rings == 2, "nobody waits: whoever leads next looks first"


def test_neither_a_ring_nor_a_look_puts_off_what_is_due(bench: Bench) -> None:
    pool, (lease, *_) = bench.pool, bench.leases
    for note in (pool.wake, pool.look):
        pool.learn(lease, 5.0, math.inf)
        note(lease, 9.0)
        assert (lease.due_at, pool._scheduler.next_due_at()) == (5.0, 5.0)
        note(lease, 4.0)
        assert (lease.due_at, pool._scheduler.next_due_at()) == (4.0, 4.0)


def test_a_shard_is_picked_once_and_again_when_it_is_noted_of_the_same_time(bench: Bench) -> None:
    pool, (lease, *_) = bench.pool, bench.leases
    for _ in range(2):
        pool.wake(lease, 5.0)
        assert [pool.pick(4.0), pool.pick(6.0), pool.pick(6.0)] == [None, lease, None]


def test_another_thread_looks_when_a_claim_lasts(bench: Bench) -> None:
    pool, (lease, *_) = bench.pool, bench.leases
    pool.watch(lease, bench.now[0])
    assert lease.due_at == bench.now[0] + LASTING


def test_one_leads_and_the_others_rest(bench: Bench) -> None:
    pool, one, other = bench.pool, bench.one, bench.other
    bench.lead()
    assert pool.rest(other, is_idle=True)[0] == Heard()
    assert (other.rested, len(bench.bell.waits)) == (1, 1)
    assert pool._resting == [], "who was roused for something else leads nobody"
    bench.lead()
    assert (one.rested, len(bench.bell.waits)) == (0, 2)


def test_who_has_something_to_do_passes_the_lead_on(bench: Bench) -> None:
    pool, one, other, third = bench.pool, bench.one, bench.other, bench.third
    bench.lead()

    def during() -> None:
        assert pool.resign(third) == Heard() and pool._leader is one, "it does not lead"
        assert pool.resign(one) == Heard()

    other.during = during
    pool.rest(other, is_idle=True)
    assert (pool._leader, other.roused, bench.bell.busy) == (other, 1, 0)


def test_with_nobody_to_lead_no_jobs_come_and_what_has_come_is_heard(bench: Bench) -> None:
    bench.lead()
    assert bench.pool.resign(bench.one) == RUNG
    assert (bench.pool._leader, bench.bell.busy) == (None, 1)


def test_a_thread_that_is_quiet_has_no_jobs_come_if_it_leads(bench: Bench) -> None:
    bench.lead()
    assert (bench.pool.hush(bench.other), bench.bell.busy) == (Heard(), 0)
    assert (bench.pool.hush(bench.one), bench.bell.busy) == (RUNG, 1)


def test_busy_threads_glance_now_and_then_while_nobody_leads(bench: Bench) -> None:
    pool, window = bench.pool, bench.runtime.settings.claim_window
    assert [pool.glance(bench.one, bench.now[0] + seconds) for seconds in (0.0, window / 2, window)] == [
        RUNG, Heard(), RUNG
    ]  # fmt: skip
    assert (pool._leader, bench.bell.waits) == (None, [(0.0, False)] * 2)
    bench.lead()
    assert pool.glance(bench.other, bench.now[0] + 100) == Heard()
    assert pool._leader is bench.one


def test_the_bell_is_closed_when_nobody_is_to_listen_any_more(bench: Bench) -> None:
    pool, closed = bench.pool, list[int]()
    for thread in (bench.one, bench.other, bench.third):
        pool.leave(thread)
        closed.append(bench.bell.closed)
    assert closed == [0, 0, 1]


def test_and_when_who_listened_has_ended(bench: Bench) -> None:
    bench.lead()
    bench.pool.leave(bench.one)
    assert (bench.bell.closed, bench.pool._leader) == (1, None)


def test_shards_with_a_lease_are_polled_now_and_then_or_soon(bench: Bench) -> None:
    pool, (lease, *_), interval = bench.pool, bench.leases, bench.runtime.settings.poll_interval
    lease.epoch = "1"
    at = bench.now[0] + 10
    assert [pool.due_for_poll(at + seconds) for seconds in (-1, 0, interval / 2, interval)] == [
        [], [lease], [], [lease]
    ]  # fmt: skip
    pool.poll_soon()
    assert (pool.due_for_poll(0.0), bench.bell.rings) == ([lease], 1)


def test_other_shards_have_its_bell_and_those_that_are_gone_are_not_due(bench: Bench) -> None:
    pool, (gone, kept, new) = bench.pool, bench.leases
    pool.follow([gone, kept])
    assert (gone.bell, kept.bell, new.bell) == ("bell", "bell", "")
    pool.wake(gone, 0.0)
    pool.follow([kept, new])
    assert (new.bell, pool.pick(5.0), gone.due_at) == ("bell", None, math.inf)
    assert [pool.of_prefix(lease.shard.prefix.encode()) for lease in bench.leases] == [None, kept, new]
    assert pool.leases == [kept, new]
