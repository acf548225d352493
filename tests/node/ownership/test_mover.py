"""A mover and what follows a reshard, by hand: turns, leases that are held by others, and ends at any moment."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, clock
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.admin.resharding import note_moved, read_layout
from lowkiq.errors import Fenced, ShardsCountMismatch
from lowkiq.handlers.performer import Performer
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.leases.lease import Lease
from lowkiq.node.ownership import following as following_module
from lowkiq.node.ownership import mover as mover_module
from lowkiq.node.ownership.following import Following
from lowkiq.node.ownership.mover import TTL, TURN, Mover
from lowkiq.node.runtime import Runtime
from lowkiq.node.threads import leases_of
from lowkiq.queue import resharding
from lowkiq.queue.keys import LAYOUT_VERSION, Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.shard import Shard
from lowkiq.shared_page import DeadNode
from tests.node.driven import acquire, pool_of, runtime_of


class Bench:
    """A queue of two shards with jobs, that is to have three."""

    def __init__(self, app: Lowkiq) -> None:
        self.app, self.namespace, self.beats = app, app.settings.namespace, 0
        self.worker = app.worker(queue_name="q", shards_count=2)(lambda _: None)
        opened(app.caller, self.namespace, {"q": 2})
        self.worker.perform_async([{"id": str(number)} for number in range(20)])
        self.layout = resharding.begin(app.caller, self.namespace, "q", 3)
        self.runtime = self.runtime_of("one")

    def runtime_of(self, name: str) -> Runtime:
        runtime = runtime_of(self.app, name)
        runtime.layouts["q"] = self.layout
        return runtime

    def mover(self, name: str = "") -> Mover:
        return Mover(self.runtime_of(name) if name else self.runtime, self._beat)

    def _beat(self) -> None:
        self.beats += 1

    @property
    def unfinished(self) -> list[int]:
        return resharding.unfinished(self.app.caller, self.namespace, "q", self.layout)

    def owned(self, index: int) -> Lease:
        """An old shard that a node has."""
        runtime = runtime_of(self.app, "owner")
        runtime.layouts["q"] = self.layout.old
        return acquire(leases_of(runtime, self.worker)[index])


@pytest.fixture
def bench(app: Lowkiq) -> Bench:
    return Bench(app)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Mover]:
    """Looks again at once; a mover that looks for the 50th time is told to end."""
    told, waits = list[Mover](), [0]

    def begin(self: Mover) -> None:
        wait = self._is_over.wait

        def look_again(seconds: float) -> bool:
            waits[0] += 1
            if waits[0] > 60:
                pytest.fail("it was told to end")
            if waits[0] > 50:
                told.append(self)
                self.stop()
            return wait(0)

        self._is_over.wait = look_again  # type: ignore[method-assign, assignment]
        work(self)

    work = Mover._work
    monkeypatch.setattr(Mover, "_work", begin)
    return told


@pytest.mark.parametrize(("seconds", "most"), [(3600.0, 2), (-1.0, 99)])
def test_it_moves_all_rings_all_and_ends(
    bench: Bench, quick: list[Mover], monkeypatch: pytest.MonkeyPatch, seconds: float, most: int
) -> None:
    monkeypatch.setattr(mover_module, "NOTE", seconds)
    rung, mover = list[str](), bench.mover()
    monkeypatch.setattr(mover_module, "ring_all", lambda _, namespace: rung.append(namespace))
    noted = list[int]()
    monkeypatch.setattr(mover_module, "note_moved", lambda *what: (noted.append(what[-1]), note_moved(*what))[1])

    def follow() -> None:
        if not bench.unfinished:
            bench.runtime.layouts["q"] = bench.layout.own

    mover._beat_soon = follow
    mover._work()
    assert (bench.unfinished, quick, rung) == ([], [], [bench.namespace])
    assert sum(noted) == 20 and len(noted) <= most


def test_of_two_movers_one_has_its_turn_until_that_lapses(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [clock.monotonic()]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    one, other = bench.mover("one"), bench.mover("other")
    client: Any = bench.app.redis()
    assert (one._has_turn("q"), other._has_turn("q")) == (True, False)
    (key,) = [
        key
        for key in client.keys("*")
        if key.endswith(b":mover") or (client.type(key) == b"string" and client.get(key) == one.owner.encode())
    ]
    assert 0 < client.ttl(key) <= TTL
    client.expire(key, 1000)
    assert one._has_turn("q")
    assert client.ttl(key) > TTL, "Redis is not asked with each step"
    now[0] += TURN
    assert one._has_turn("q")
    assert 0 < client.ttl(key) <= TTL
    client.delete(key)
    assert other._has_turn("q")
    now[0] += TURN
    assert not one._has_turn("q")


def test_a_shard_that_its_owner_has_is_waited_for(bench: Bench, quick: list[Mover]) -> None:
    lease, mover = bench.owned(0), bench.mover()
    mover._work()
    assert (set(quick), bench.unfinished) == ({mover}, [0, 1])
    bench.app.caller.run(lease.shard.release("owner", lease.epoch or "", 0, "lease"))
    other = bench.mover()
    other._move("q", bench.layout)
    assert bench.unfinished == []


def test_shards_of_a_mover_that_is_dead_are_had_without_waiting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, mover = bench.mover("dead"), bench.mover()
    route = resharding.Route.of(bench.namespace, "q", bench.layout, 0)
    epoch = dead._acquire(route)
    assert epoch and mover._acquire(route) is None
    next(resharding.steps(bench.app.caller, route, dead.owner, epoch))
    monkeypatch.setattr(Runtime, "dead_nodes", lambda _: [DeadNode("dead", ())])
    assert mover._acquire(route)


def test_a_mover_that_is_told_to_end_gives_its_shard_back(bench: Bench) -> None:
    mover = bench.mover()
    mover.stop()
    acquire_old, routes = mover._acquire, list[resharding.Route]()
    mover._acquire = lambda route: (routes.append(route), acquire_old(route))[1]  # type: ignore[method-assign]
    mover._move("q", bench.layout)
    assert (bench.unfinished, len(routes)) == ([0, 1], 1)
    assert bench.mover("other")._acquire(resharding.Route.of(bench.namespace, "q", bench.layout, 0))


def test_the_lease_of_a_large_shard_is_renewed_and_its_loss_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, mover, renewed = [clock.monotonic()], bench.mover(), list[Any]()
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    def steps(*what: Any) -> Any:
        for _ in range(6):
            now[0] += TTL / 10
            yield 1

    monkeypatch.setattr(resharding, "steps", steps)
    monkeypatch.setattr(mover_module, "renew", lambda *what: renewed.append(what) or redis)
    monkeypatch.setattr(mover, "_has_turn", lambda _: True)
    monkeypatch.setattr(mover, "_note", lambda _: None)
    answers: list[Any] = [[[1]], [Fenced("FENCED")]]
    monkeypatch.setattr(bench.app.caller, "run_all", lambda _: answers.pop(0))
    mover._renewed_at = now[0]
    with pytest.raises(Fenced):
        mover._empty("q", resharding.Route.of(bench.namespace, "q", bench.layout, 0), "1")
    assert (len(renewed), answers) == (2, [])


@pytest.mark.parametrize("error", [redis.ConnectionError("away"), Fenced("FENCED"), ZeroDivisionError("x")])
def test_an_error_of_one_queue_ends_neither_the_mover_nor_the_others(
    bench: Bench, quick: list[Mover], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    mover, tried = bench.mover(), list[str]()
    bench.runtime.layouts["r"] = bench.layout

    def move(queue: str, _: Layout) -> None:
        tried.append(queue)
        if queue == "q":
            raise error
        bench.runtime.layouts.clear()

    monkeypatch.setattr(mover, "_move", move)
    mover._work()
    assert (tried, quick) == (["q", "r"], [])
    assert bench.runtime.outage.is_on is isinstance(error, redis.RedisError)


def test_a_lost_reshard_whose_shards_have_jobs_goes_first(bench: Bench, quick: list[Mover]) -> None:
    """Of two shards of the lost one, the second is none of the other's first."""
    lost = Shard(bench.namespace, "q", 1, Layout(LAYOUT_VERSION, 4, 2))
    bench.app.redis().hset(lost.prefix + "meta", "layout", lost.layout)
    bench.app.redis().zadd(lost.prefix + "due", {"left there": 1})
    mover = bench.mover()

    def follow() -> None:
        bench.runtime.layouts["q"] = read_layout(bench.app.caller, bench.namespace, "q") or bench.layout

    mover._beat_soon = follow
    mover._work()
    assert bench.runtime.layouts["q"] == Layout(LAYOUT_VERSION, 4, 2) and quick == []
    said = [incident.says for incident in read_incidents(bench.app.caller, bench.namespace)]
    assert any("gets 4 shards, not 3: a failover had lost that reshard" in says for says in said)


def test_a_refusal_that_no_lost_reshard_explains_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    mover, met = bench.mover(), list[str]()
    monkeypatch.setattr(bench.runtime.mishaps, "met", lambda event, *_, **__: met.append(event))
    mover._give_way("q", bench.layout, ShardsCountMismatch("no"))
    assert met == ["move_refused"]


def test_a_refused_acquire_is_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.app.caller, "run_all", lambda _: [Fenced("FENCED")])
    with pytest.raises(Fenced):
        bench.mover()._acquire(resharding.Route.of(bench.namespace, "q", bench.layout, 0))


# ── following ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Moving:
    """In the place of a mover."""

    def __init__(self, *_: Any) -> None:
        self.told = list[str]()
        self.alive = False

    def start(self) -> None:
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def stop(self) -> None:
        self.told.append("stop")

    def join(self, seconds: float) -> None:
        self.told.append(f"join {seconds:g}")


class Follower:
    """A node of two shards that follows their queue."""

    def __init__(self, app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
        self.movers, self.told = list[Moving](), list[list[Lease]]()

        def make(*_: Any) -> Moving:
            self.movers.append(Moving())
            return self.movers[-1]

        monkeypatch.setattr(following_module, "Mover", make)
        worker = app.worker(queue_name="q", shards_count=2)(lambda _: None)
        runtime = self.runtime = runtime_of(app)
        runtime.layouts["q"] = Layout(1, 2)
        self.old = leases_of(runtime, worker)
        self.pool = pool_of(runtime, *self.old)
        self.pools = dict.fromkeys(self.old, self.pool)
        self.beats = 0
        self.following = Following(runtime, self.pools, [self.told.append], self._beat)

    def _beat(self) -> None:
        self.beats += 1

    def follow(self, layout: Layout) -> None:
        self.following({"q": layout, "other": layout})


MOVING, MOVED = Layout(LAYOUT_VERSION, 3, 2, 2, 1), Layout(LAYOUT_VERSION, 3, 2)


@pytest.fixture
def follower(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> Follower:
    return Follower(app, monkeypatch)


def test_while_shards_are_moved_a_node_has_both_generations_and_one_mover(follower: Follower) -> None:
    deal, during = follower.following._deal, list[bool]()
    follower.following._deal = lambda: (  # type: ignore[method-assign]
        during.append(all(lease.is_foster for lease in follower.pools if lease not in follower.old)), deal()
    )[1]  # fmt: skip
    for _ in range(3):
        follower.follow(MOVING)
    assert (len(follower.pools), len(follower.movers), len(follower.told), follower.beats) == (5, 1, 1, 1)
    assert set(follower.pool.leases) == set(follower.pools) == set(follower.told[0])
    assert during == [True], "who is new is nobody's before it is dealt"
    assert "other" not in follower.runtime.layouts
    follower.movers[0].alive = False
    follower.follow(MOVING)
    assert len(follower.movers) == 2


def test_new_shards_share_with_the_old_ones_what_those_share(follower: Follower) -> None:
    """Its gate, and what runs its suspects: in the node their payloads are not even loaded."""
    runtime, first = follower.runtime, follower.old[0]
    first.suspects = Performer(first.performer.worker, runtime.settings, runtime.fatal, runtime.loop)
    follower.follow(MOVING)
    names = ("performer", "suspects", "gate", "claim_size", "runtime")
    new = [lease for lease in follower.pools if lease not in follower.old]
    assert [[getattr(lease, name) for name in names] for lease in new] == [[getattr(first, name) for name in names]] * 3


def test_old_shards_go_when_nothing_of_them_runs_and_the_node_has_them_no_more(follower: Follower) -> None:
    follower.follow(MOVING)
    owned, busy = follower.old
    owned.epoch, busy.in_hand = "1", (object(),)  # type: ignore[assignment]
    follower.follow(MOVED)
    assert set(follower.old) <= set(follower.pools)
    owned.epoch = None
    follower.follow(MOVED)
    assert busy in follower.pools and owned not in follower.pools
    busy.in_hand = ()
    follower.follow(MOVED)
    assert (len(follower.pools), set(follower.pool.leases)) == (3, set(follower.pools))


def test_a_reshard_that_only_shards_know_of_is_brought_back(follower: Follower, app: Lowkiq) -> None:
    """And its shards are asked for again: their mark may be lost as well as the reshard."""
    first, known = follower.old[0], Layout(LAYOUT_VERSION, 2)
    app.redis().hset(f"{app.settings.namespace}:queues", "q", known.text)
    app.redis().hset(first.shard.prefix + "meta", "layout", MOVED.text + ":moved")
    follower.follow(known)
    assert follower.runtime.layouts["q"] == known, "nobody of this node has met the mark"
    first.is_moved = True
    follower.follow(known)
    assert follower.runtime.layouts["q"] == MOVING == read_layout(app.caller, app.settings.namespace, "q")
    app.redis().hset(f"{app.settings.namespace}:queues", "q", known.text)
    app.redis().hset(first.shard.prefix + "meta", "layout", known.text)
    follower.follow(known)
    keeper = LeaseKeeper.__new__(LeaseKeeper)
    keeper._runtime = follower.runtime
    assert keeper._may_acquire(first)


def test_the_end_of_a_node_is_that_of_its_mover(follower: Follower, app: Lowkiq) -> None:
    follower.follow(MOVING)
    follower.following.stop()
    (mover,) = follower.movers
    assert mover.told == ["stop", f"join {app.settings.lease_ttl:g}"]
    mover.alive = False
    follower.follow(MOVING)
    assert len(follower.movers) == 1
