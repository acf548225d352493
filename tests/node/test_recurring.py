"""Jobs that recur: nodes fire them, each time once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from lowkiq import Lowkiq
from lowkiq.admin.recurring import read_entry
from lowkiq.errors import Fenced, LowkiqError, Moved, SettingsError
from lowkiq.job import shard_of
from lowkiq.node.chores import clockwork
from lowkiq.queue import resharding
from lowkiq.queue.layouts import opened
from lowkiq.queue.recurring import Fired, fire, firing, later, recur
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import Owned, Shard
from lowkiq.shared_page import DeadNode
from tests import mutants
from tests.node.driven import burst, runtime_of
from tests.support import wait_until

SHARDS = 2


class Shop:
    """An application of which the nodes note what they run."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.ran: list[tuple[str, list[Any]]] = []

        @app.worker(queue_name="reports", shards_count=SHARDS)
        def report(id: str, payloads: list[Any]) -> None:
            self.ran.append((id, payloads))

        self.report = report

    def shard(self, id: str) -> Shard:
        return Shard(self.app.namespace, "reports", shard_of(id.encode(), SHARDS), SHARDS)

    def own(self, id: str, node: str = "one") -> str:
        """Acquires the shard of an id, and gives the epoch."""
        owned = self.app.caller.run(self.shard(id).acquire(node, 60, 3))
        assert isinstance(owned, Owned)
        return owned.epoch

    def set_next(self, id: str, at: float) -> None:
        """Has an entry be due then, as if nobody had been there since."""
        self.app.redis().zadd(self.shard(id).prefix + "recurs", {id: at})

    def next_at(self, id: str) -> Any:
        return next(job.next_at for job in self.app.recurring if job.id == id)

    def forget(self) -> None:
        """Begins anew."""
        self.app.redis().flushdb()
        self.ran.clear()

    def now(self) -> float:
        seconds, micros = self.app.redis().time()
        return float(seconds + micros / 1e6)

    def fire_all(self, id: str, epoch: str, node: str = "one") -> list[float]:
        """Fires what is due of the shard of an id as a node does."""
        found = self.app.caller.run(firing(self.shard(id)))
        rows = [Fired(due, found.now + 60, [(b"1", float(due.expected))]) for due in found.due]
        self.app.caller.run(fire(self.shard(id), node, epoch, rows))
        return [float(due.expected) for due in found.due]


@pytest.fixture
def shop(app: Lowkiq) -> Shop:
    return Shop(app)


def test_what_is_due_is_pushed_once_and_is_due_again_later(shop: Shop) -> None:
    shop.app.recurring.set(shop.report, "eu", "1h", payload={"of": "eu"})
    due_at = shop.now() - 5
    shop.set_next("eu", due_at)
    burst(shop.app)
    assert shop.ran == [("eu", [{"of": "eu"}])]
    (entry,) = shop.app.recurring
    assert entry.last_at == pytest.approx(due_at, abs=1e-5)
    assert entry.next_at == pytest.approx(-(-shop.now() // 3600) * 3600, abs=3601)
    assert shop.next_at("eu") > shop.now()


def test_it_is_not_fired_before_its_time_nor_with_an_older_epoch_nor_twice(shop: Shop) -> None:
    shop.app.recurring.set(shop.report, "eu", 60)
    epoch = shop.own("eu")
    assert shop.fire_all("eu", epoch) == []
    shop.set_next("eu", shop.now() - 5)
    found = shop.app.caller.run(firing(shop.shard("eu")))
    rows = [Fired(found.due[0], found.now + 60, [(b"1", 1.0)])]
    early = [Fired(found.due[0]._replace(expected=b"%.6f" % (found.now + 60)), found.now + 120, [(b"2", 1.0)])]
    shop.app.caller.run(fire(shop.shard("eu"), "one", epoch, early))
    with pytest.raises(Fenced):
        shop.app.caller.run(fire(shop.shard("eu"), "one", str(int(epoch) - 1), rows))
    for _ in range(2):
        shop.app.caller.run(fire(shop.shard("eu"), "one", epoch, rows))
    assert shop.report.queries.fetch(["eu"])[0].payloads == [1]
    assert shop.app.metrics()["reports"].pushed == 1
    shop.set_next("eu", float(early[0].due.expected))
    shop.app.caller.run(fire(shop.shard("eu"), "one", epoch, early))
    assert shop.app.metrics()["reports"].pushed == 1


@pytest.mark.parametrize(("missed", "count"), [("merge", 1), ("skip", 0), ("all", 5)])
def test_runs_that_nobody_fired(shop: Shop, missed: Any, count: int) -> None:
    shop.app.recurring.set(shop.report, "eu", "1h", missed=missed, backlog=5)
    late = shop.now() // 3600 * 3600 - 24 * 3600
    if missed == "skip" and shop.now() % 3600 < 120:
        shop.app.recurring.set(shop.report, "eu", "1h", missed=missed, offset=1800)
        late += 1800
    shop.set_next("eu", late)
    burst(shop.app)
    payloads = [payload for _, payloads in shop.ran for payload in payloads]
    assert len(payloads) == count
    if missed == "all":
        times = [payload["due"] for payload in payloads]
        assert times == [late + (20 + n) * 3600 for n in range(5)]
    assert shop.next_at("eu") > shop.now()


def test_one_that_is_paused_does_not_fire_and_misses_nothing(shop: Shop) -> None:
    shop.app.recurring.set(shop.report, "eu", "1h")
    assert shop.app.recurring.pause(shop.report, "eu", "it is summer", who="ann")
    assert not shop.app.recurring.pause(shop.report, "eu")
    (entry,) = shop.app.recurring
    assert (entry.next_at, entry.paused.who, entry.paused.why) == (None, "ann", "it is summer")
    shop.app.recurring.set(shop.report, "eu", "2h")
    assert shop.next_at("eu") is None
    assert shop.app.recurring.resume(shop.report, "eu")
    assert shop.next_at("eu") > shop.now()
    assert shop.app.recurring.run_now(shop.report, "eu").new == 1
    assert shop.app.recurring.remove(shop.report, "eu")
    assert not shop.app.recurring.remove(shop.report, "eu")
    assert not list(shop.app.recurring)
    with pytest.raises(LowkiqError, match="nothing recurs as 'eu'"):
        shop.app.recurring.run_now(shop.report, "eu")


def test_a_node_sets_what_the_code_declares_and_fires_it_in_time(app: Lowkiq) -> None:
    ran: list[list[Any]] = []

    @app.every(1, id="tick")
    def tick(_: str, payloads: list[Any]) -> None:
        ran.append(payloads)

    @app.every("1h")
    def nothing() -> None:
        """Takes no parameters."""

    def run() -> bool:
        burst(app)
        return bool(ran)

    wait_until(run)
    assert {job.id for job in app.recurring} == {"tick", "nothing"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": "* * * *"}, "Wrong number of fields"),
        ({"every": "0 0 31 2 *"}, "Bad day-of-month"),
        ({"every": 0}, "from 0.1 to"),
        ({"every": True}, "must be seconds"),
        ({"every": 300, "offset": 300}, "less than the 300 seconds"),
        ({"every": "1h", "tz": "UTC"}, "no time zone shifts"),
        ({"every": "@daily", "tz": "Europe/Berln"}, "did you mean Europe/Berlin"),
        ({"every": "@daily", "offset": 3}, "is for intervals"),
        ({"every": 300, "missed": "some"}, '"merge", "all" or "skip"'),
        ({"every": 300, "backlog": 0}, "from 1 to 1,000"),
        ({"every": 300, "missed": "all", "payload": [1]}, "must be a mapping"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(shop: Shop, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        shop.app.recurring.set(shop.report, "eu", **options)
    assert not list(shop.app.recurring)


def test_two_of_one_id_in_the_code_are_refused(shop: Shop) -> None:
    shop.app.every(300)(shop.report)
    with pytest.raises(SettingsError, match="two jobs that recur as 'reports'"):
        shop.app.every("1h")(shop.report)


def test_an_entry_that_nobody_can_read_is_told_of_and_stops_no_other(shop: Shop) -> None:
    shop.app.recurring.set(shop.report, "eu", "1h")
    shop.app.redis().hset(shop.shard("us").prefix + "recurring", "us", b"rubbish")
    for id in ("eu", "us"):
        shop.set_next(id, shop.now() - 5)
    burst(shop.app)
    assert [id for id, _ in shop.ran] == ["eu"]
    assert [job.id for job in shop.app.recurring] == ["eu"]
    at: Any = shop.app.redis().zscore(shop.shard("us").prefix + "recurs", "us")
    assert at > shop.now() + 60


def moves_with_its_id_and_fires_once(shop: Shop) -> None:
    """A queue is resharded, and an owner of before fires what it has read."""
    shop.app.recurring.set(shop.report, "eu", "1h")
    shop.app.recurring.set(shop.report, "paused", "1h")
    shop.app.recurring.pause(shop.report, "paused")
    shop.set_next("eu", shop.now() - 5)
    old = [Shard(shop.app.namespace, "reports", index, SHARDS) for index in range(SHARDS)]
    epoch = shop.own("eu")
    read = shop.app.caller.run(firing(shop.shard("eu")))
    moving = resharding.begin(shop.app.caller, shop.app.namespace, "reports", 3)
    new = Shard(shop.app.namespace, "reports", shard_of(b"eu", 3), moving.own)
    for shard in old:
        route = Route.of(shop.app.namespace, "reports", moving, shard.index)
        owned = shop.app.caller.run(route.acquire("mover", 600, 99, [DeadNode("one", ())], is_marked=False))
        assert isinstance(owned, Owned)
        for _ in resharding.steps(shop.app.caller, route, "mover", owned.epoch):
            has_all = shop.app.redis().hexists(new.prefix + "meta", "whole")
            assert has_all or not shop.app.caller.run(firing(new)).due
    resharding.end(shop.app.caller, shop.app.namespace, "reports", moving)
    with pytest.raises((Fenced, Moved)):
        shop.app.caller.run(fire(shop.shard("eu"), "one", epoch, [Fired(read.due[0], None, [(b"1", 1.0)])]))
    assert {job.id: job.next_at is None for job in shop.app.recurring} == {"eu": False, "paused": True}
    burst(shop.app)
    assert [id for id, _ in shop.ran] == ["eu"]


def test_a_payload_that_is_not_given_stays_to_the_byte_whoever_could_read_it(shop: Shop) -> None:
    shop.app.recurring.set(shop.report, "eu", "1h", payload={"of": "eu"})
    key = shop.shard("eu").prefix + "recurring"
    _, known = read_entry(shop.app.caller, shop.shard("eu"), b"eu")
    assert known is not None
    shop.app.redis().hset(key, "eu", msgspec.structs.replace(known, payload=b"{ as an older codec wrote it").text)
    assert shop.app.recurring.set(shop.report, "eu", "2h")
    (job,) = shop.app.recurring
    assert (job.rule.every, job.payload) == (7_200.0, b"{ as an older codec wrote it")


def changes_that_cross_are_both_made(shop: Shop) -> None:
    """Somebody pauses an entry while its code changes it."""
    shop.app.recurring.set(shop.report, "eu", "1h")
    (entry,) = shop.app.recurring
    shard, caller = shop.shard("eu"), shop.app.caller
    text, known = read_entry(caller, shard, b"eu")
    assert known is not None and entry.paused is None
    shop.app.recurring.pause(shop.report, "eu")
    assert not caller.run(recur(shard, b"eu", text, known.text, shop.now() + 60))
    assert shop.next_at("eu") is None


@pytest.mark.parametrize("scene", [moves_with_its_id_and_fires_once, changes_that_cross_are_both_made])
def test_a_scene(shop: Shop, scene: Callable[[Shop], None]) -> None:
    scene(shop)


MUTANTS = {
    "fires_twice": ("fire.lua", "if known and known == expected and", "if"),
    "fires_early": ("fire.lua", " and (is_due or is_moved) then", " then"),
    "fires_with_any_epoch": ("fire.lua", "fence(P, ARGV[1], ARGV[2]) or ", ""),
    "fires_no_more": (
        "fire.lua", "redis.call('ZADD', P .. 'recurs', following, id)", "redis.call('ZREM', P .. 'recurs', id)",
    ),
    "forgets_when": ("fire.lua", "redis.call('HSET', P .. 'recur_last', id, expected)", ""),
    "fires_before_all_has_come": ("firing.lua", "redis.call('EXISTS', P .. 'feeders') == 1", "false"),
    "left_behind": ("sides.lua", "{'recurring', 'hash'}, ", ""),
    "overwrites": ("recur.lua", "if (redis.call('HGET', P .. 'recurring', id) or '') ~= ARGV[3] then return 0 end", ""),
    "fires_though_it_is_paused": ("recur.lua", "  redis.call('ZREM', P .. 'recurs', id)\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_out(shop: Shop, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mutants.replace(*MUTANTS[name], monkeypatch)
    scenes = (
        test_it_is_not_fired_before_its_time_nor_with_an_older_epoch_nor_twice,
        test_what_is_due_is_pushed_once_and_is_due_again_later,
        test_one_that_is_paused_does_not_fire_and_misses_nothing,
        changes_that_cross_are_both_made,
        moves_with_its_id_and_fires_once,
    )
    mutants.find_out([partial(scene, shop) for scene in scenes], shop.forget)


def test_large_backlogs_are_made_up_for_in_several_calls(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(clockwork, "MOST_PUSHED", 10)

    def noted(shard: Shard, node: str, epoch: str, rows: Any) -> Any:
        sizes.append(sum(len(row.payloads) for row in rows))
        return fire(shard, node, epoch, rows)

    monkeypatch.setattr(clockwork, "fire", noted)
    for number in range(12):
        shop.app.recurring.set(shop.report, f"id-{number}", "1h", missed="all", backlog=4)
        shop.set_next(f"id-{number}", shop.now() // 3600 * 3600 - 24 * 3600)
    burst(shop.app)
    assert sum(len(payloads) for _, payloads in shop.ran) == sum(sizes) == 48 and max(sizes) <= 10


def test_what_the_code_declares_is_set_once_its_shard_has_moved(shop: Shop, monkeypatch: Any) -> None:
    """A node that starts during a reshard was refused, once and for all."""
    monkeypatch.setattr(clockwork, "AGAIN", 0.0)
    shop.app.every(300, id="often")(shop.report)
    caller, namespace = shop.app.caller, shop.app.namespace
    opened(caller, namespace, {"reports": SHARDS})
    layout = resharding.begin(caller, namespace, "reports", 2 * SHARDS)
    movers = []
    for index in range(SHARDS):
        route = Route.of(namespace, "reports", layout, index)
        owned = caller.run(route.acquire("mover", 600, 9, [], is_marked=False))
        assert isinstance(owned, Owned)
        movers.append(resharding.steps(caller, route, "mover", owned.epoch))
        next(movers[-1]), next(movers[-1])
    runtime: Any = SimpleNamespace(
        caller=caller, node="one", namespace=namespace, workers={"reports": shop.report},
        layouts={"reports": layout}, recurring=None, mishaps=None,
    )  # fmt: skip
    clockwork_of_node = clockwork.Clockwork(runtime, shop.app._declared)
    with capture_logs() as logs:
        for _ in range(3):
            clockwork_of_node._declare()
    assert [log["event"] for log in logs] == ["recurring_not_set"]
    assert not list(shop.app.recurring)
    for mover in movers:
        list(mover)
    clockwork_of_node._declare()
    assert [job.id for job in shop.app.recurring] == ["often"]


def test_what_a_clock_that_was_ahead_has_put_off_is_due_in_time_again(shop: Shop, monkeypatch: Any) -> None:
    """As many as are looked at in two looks; what its rule has so far ahead, or can't be fired, stays."""
    monkeypatch.setattr(clockwork, "AHEAD", 2)
    monkeypatch.setattr(clockwork, "LOOK_AHEAD", 0.0)
    app, clock = shop.app, clockwork.Clockwork(runtime_of(shop.app), [])
    lease: Any = type("Owned", (), {"shard": shop.shard("eu"), "epoch": shop.own("eu")})()
    names = [f"{number}" for number in range(40) if shop.shard(f"{number}").index == shop.shard("eu").index][:3]
    for name in names:
        app.recurring.set(shop.report, name, 60)
        shop.set_next(name, shop.now() + 86_400)
    app.recurring.set(shop.report, names[0], "7d")
    shop.set_next(names[0], week := app.recurring.list()[-1].rule.after(shop.now()))
    shop.set_next(names[2], shop.now() + 3_000)
    clock._put_off[lease.shard.prefix, names[2].encode()] = read_entry(app.caller, lease.shard, names[2].encode())[0]
    for _ in range(2):
        clock._bring_back(lease, shop.now())
    assert shop.next_at(names[0]) == pytest.approx(week)
    assert shop.next_at(names[1]) <= shop.now() + 60
    assert shop.next_at(names[2]) > shop.now() + 2_000


def test_what_is_brought_back_is_so_by_the_owner_only_and_to_no_time_that_is_over(shop: Shop) -> None:
    shop.app.recurring.set(shop.report, "eu", 60)
    shop.set_next("eu", ahead := float(int(shop.now())) + 86_400)
    epoch, shard = shop.own("eu"), shop.shard("eu")
    (due,) = later(shop.app.caller, shard, 0, 10)
    with pytest.raises(Fenced):
        shop.app.caller.run(fire(shard, "one", str(int(epoch) - 1), [Fired(due, shop.now() + 30, ())]))
    for wrong in (Fired(due, shop.now() - 1, ()), Fired(due._replace(expected=b"5"), shop.now() + 30, ())):
        shop.app.caller.run(fire(shard, "one", epoch, [wrong]))
    shop.app.caller.run(fire(shard, "one", epoch, [Fired(due, shop.now() + 30, [(b"1", 1.0)])]))
    assert shop.next_at("eu") == ahead
    shop.app.caller.run(fire(shard, "one", epoch, [Fired(due, ahead - 80_000, ())]))
    assert shop.next_at("eu") == ahead - 80_000
    (entry,) = shop.app.recurring
    assert entry.last_at is None
    assert shop.report.queries.fetch(["eu"]) == []
