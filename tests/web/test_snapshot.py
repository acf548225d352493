"""Snapshots: the numbers of the whole, of many shards in turns, and rates."""

from __future__ import annotations

import pytest

from lowkiq.queue.call import Call
from lowkiq.web import snapshot as snapshot_module
from lowkiq.web.rates import RATE_WINDOW, Rates
from lowkiq.web.snapshot import SHARDS_A_POLL, Snapshots
from tests.web.snapshots import get

PAST = 1_100_000_000.0


def set_counters(app, **counters):
    """Sets counters of the first shard of the queue."""
    shard = app.shards("q", 3)[0]
    app.redis().hset(f"{shard.prefix}meta", mapping=counters)  # type: ignore[arg-type]


def test_a_snapshot_holds_the_whole(app, backend, work):
    other = app.worker(queue_name="other", shards_count=2)(lambda _: None)
    work.perform_async([{"id": n, "perform_in": PAST} for n in range(10)])
    work.actions.bury([0, 1])
    other.perform_async([{"id": n} for n in range(4)])
    found = get(Snapshots(backend))
    assert (found.number, found.shards_counts) == (1, {"q": 3, "other": 2})
    assert [(row.queue, row.shard) for row in found.shards] == [
        *(("q", number) for number in range(3)), ("other", 0), ("other", 1),
    ]  # fmt: skip
    assert (found.queues["q"].length, found.queues["q"].morgue_length, found.queues["q"].pushed) == (8, 2, 10)
    assert (found.queues["other"].length, found.total.length, found.total.pushed) == (4, 12, 14)
    assert found.total.lag == found.queues["q"].lag > found.at - PAST - 60
    assert found.at == pytest.approx(app.redis().time()[0], abs=60)
    assert {shard.queue for shard in found.nodes.unowned} <= {"q", "other"} and len(found.nodes.unowned) > 0
    assert found.server.version.startswith(("Redis", "Valkey"))
    assert found.rates == {"q": Rates(), "other": Rates()} and found.total_rate == Rates()


def test_without_queues_a_snapshot_is_empty(backend):
    found = get(Snapshots(backend))
    assert (found.queues, found.shards, found.rates, found.total.length) == ({}, [], {}, 0)
    assert (found.nodes.nodes, found.total_rate) == ([], Rates())


def test_a_queue_that_comes_later_is_in_the_next(app, backend, work):
    snapshots = Snapshots(backend, interval=0)
    assert list(get(snapshots).queues) == ["q"]
    app.worker(queue_name="late", shards_count=1)(lambda _: None).perform_async([{"id": 1}])
    found = get(snapshots)
    assert found.queues["late"].length == 1
    assert found.rates["late"] == Rates()


@pytest.fixture
def looks(monkeypatch):
    """The shards that each poll has looked at."""
    looks: list[list[int]] = []
    read = snapshot_module.read_shards  # type: ignore[attr-defined]

    def noted(caller, shards):
        looks.append([shard.index for shard in shards])
        return read(caller, shards)

    monkeypatch.setattr(snapshot_module, "read_shards", noted)
    return looks


def test_where_there_are_many_shards_they_take_turns_and_all_are_told(app, backend, looks):
    many = SHARDS_A_POLL * 5 // 2
    app.worker(queue_name="many", shards_count=many)(lambda _: None)
    snapshots = Snapshots(backend, interval=0)
    for _ in range(6):
        found = get(snapshots)
        assert [row.shard for row in found.shards] == list(range(many))
    assert sorted(looks[0]) == list(range(many))  # before, nothing is known
    assert [len(look) for look in looks[1:]] == [SHARDS_A_POLL] * 5
    for first in range(1, 4):
        assert {shard for look in looks[first : first + 3] for shard in look} == set(range(many))


def test_a_change_in_any_of_many_shards_is_seen_within_a_round(app, backend):
    work = app.worker(queue_name="many", shards_count=SHARDS_A_POLL * 5 // 2)(lambda _: None)
    snapshots = Snapshots(backend, interval=0)
    get(snapshots)
    work.perform_async([{"id": n} for n in range(300)])
    for _ in range(3):
        found = get(snapshots)
    assert found.queues["many"].length == found.total.length == 300


def test_a_snapshot_is_as_old_as_the_oldest_of_its_numbers(app, backend, time):
    app.worker(queue_name="many", shards_count=SHARDS_A_POLL + 1)(lambda _: None)
    snapshots, found = Snapshots(backend, interval=0), []
    for _ in range(3):
        found.append(get(snapshots))
        found.append((found.pop().is_exact, snapshots.last.age))
        time.now += 5.0
    assert found == [(True, 0.0), (False, 5.0), (False, 5.0)]


def test_few_shards_are_all_looked_at_each_time(app, backend, work, looks):
    snapshots = Snapshots(backend, interval=0)
    for _ in range(3):
        get(snapshots)
    assert [sorted(look) for look in looks] == [[0, 1, 2]] * 3


def test_shards_of_a_queue_that_went_are_told_no_longer(app, backend):
    """Somebody has emptied Redis, and with it the queues that this app has no worker for."""
    key = f"{app.settings.namespace}:queues"
    app.redis().hset(key, mapping={"a": 700, "b": 5})
    snapshots = Snapshots(backend, interval=0)
    assert len(get(snapshots).shards) == 705
    get(snapshots)
    app.redis().hdel(key, "a")
    for _ in range(3):
        found = get(snapshots)
        assert ([row.queue for row in found.shards], list(found.queues)) == (["b"] * 5, ["b"])
    app.redis().delete(key)
    assert get(snapshots).shards == []


def test_rates_rise_and_fall(app, backend, work, time):
    snapshots = Snapshots(backend)
    done, rates = 0, []
    for step in [0] * 12 + [100] * 12 + [10] * 12 + [0] * 12:
        done += step
        set_counters(app, processed=done)
        rates.append(get(snapshots).rates["q"].processed)
        time.now += 1
    assert rates[:12] == [0.0] * 12
    assert rates[12:23] == sorted(rates[12:23]) and rates[23] == pytest.approx(100)
    assert rates[24:35] == sorted(rates[24:35], reverse=True) and rates[35] == pytest.approx(10)
    assert rates[47] == 0.0
    assert min(rates) >= 0


def test_a_rate_is_that_of_the_last_seconds(app, backend, work, time):
    snapshots = Snapshots(backend)
    get(snapshots)
    time.now += 4
    set_counters(app, processed=8, failed=4, pushed=40, merged=2)
    assert get(snapshots).rates["q"] == Rates(processed=2.0, failed=1.0, pushed=10.0, merged=0.5)
    time.now += RATE_WINDOW - 1
    assert get(snapshots).rates["q"].processed == pytest.approx(8 / (RATE_WINDOW + 3))
    time.now += 1
    assert get(snapshots).rates["q"] == Rates()


def test_the_total_rate_is_the_sum(app, backend, work, time):
    other = app.worker(queue_name="other", shards_count=1)(lambda _: None)
    snapshots = Snapshots(backend)
    get(snapshots)
    work.perform_async([{"id": n} for n in range(20)])
    other.perform_async([{"id": "x", "payload": n} for n in range(10)])
    time.now += 2
    found = get(snapshots)
    assert (found.rates["q"].pushed, found.rates["other"].pushed, found.total_rate.pushed) == (10.0, 5.0, 15.0)
    assert (found.total_rate.merged, found.total_rate.processed) == (4.5, 0.0)


def test_an_emptied_redis_gives_no_negative_rate(app, backend, work, time):
    snapshots = Snapshots(backend)
    set_counters(app, processed=1_000, failed=1_000, pushed=1_000, merged=1_000)
    get(snapshots)
    time.now += 1
    for key in app.redis().keys(f"{app.settings.namespace}:*"):
        app.redis().delete(key)
    found = get(snapshots)
    assert (found.rates["q"], found.total_rate, found.total.processed) == (Rates(), Rates(), 0)
    for second in range(30):
        time.now += 1
        set_counters(app, processed=second * 5)
        found = get(snapshots)
        assert min(found.rates["q"].processed, found.total_rate.processed) >= 0
    assert found.rates["q"].processed == pytest.approx(5)


def test_two_polls_at_one_moment_give_no_rate(app, backend, work, time):
    snapshots = Snapshots(backend, interval=0)
    get(snapshots)
    set_counters(app, processed=50)
    assert get(snapshots).rates["q"] == Rates()


def test_what_is_kept_for_rates_is_bounded(app, backend, time):
    snapshots = Snapshots(backend)
    for _ in range(100):
        get(snapshots)
        time.now += 1
    assert len(snapshots._poll._meter._past) <= RATE_WINDOW + 2


def test_a_dead_node_is_missed_as_soon_as_it_is_forgotten(app, backend):
    """The nodes of a snapshot are those whose heartbeats Redis has."""
    app.caller.run(Call("beat", [f"{app.settings.namespace}:nodes"], ["gone", 0, 30, 200], list))
    assert get(Snapshots(backend)).nodes.nodes == []
