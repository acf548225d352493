"""Snapshots: one poll of Redis for all who look."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, clock
from lowkiq.queue.call import Call
from lowkiq.web import snapshot as snapshot_module
from lowkiq.web.backend import Backend
from lowkiq.web.snapshot import RATE_WINDOW, SHARDS_A_POLL, Rates, Snapshot, Snapshots
from lowkiq.worker import Worker
from tests.support import RedisServer

PAST = 1_000_000.0


@pytest.fixture
def backend_of() -> Iterator[Callable[[Lowkiq], Backend]]:
    made: list[Backend] = []

    def make(app: Lowkiq) -> Backend:
        made.append(Backend(app))
        return made[-1]

    yield make
    for backend in made:
        backend.caller.client.close()


@pytest.fixture
def backend(app: Lowkiq, backend_of: Callable[[Lowkiq], Backend]) -> Backend:
    return backend_of(app)


@pytest.fixture
def work(app: Lowkiq) -> type[Worker]:
    return app.worker(queue_name="q", shards_count=3)(lambda _: None)


class Time:
    """A monotonic clock of the test's own."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic", time)
    return time


def get(snapshots: Snapshots) -> Snapshot:
    return asyncio.run(_get(snapshots))


async def _get(snapshots: Snapshots) -> Snapshot:
    return await asyncio.wait_for(snapshots.get(), 60)


def polls(app: Lowkiq) -> int:
    """How often Redis was asked for its queues: once a poll."""
    return int(app.redis().info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"])


def set_counters(app: Lowkiq, **counters: int) -> None:
    """Of the first shard of the queue."""
    shard = app.shards("q", 3)[0]
    app.redis().hset(f"{shard.prefix}meta", mapping=counters)


# ── what a snapshot holds ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_snapshot_holds_the_whole(app: Lowkiq, backend: Backend, work: type[Worker]) -> None:
    other = app.worker(queue_name="other", shards_count=2)(lambda _: None)
    work.perform_async([{"id": n, "perform_in": PAST} for n in range(10)])
    work.actions.kill([0, 1])
    other.perform_async([{"id": n} for n in range(4)])
    found = get(Snapshots(backend))
    assert (found.number, found.shards_counts) == (1, {"q": 3, "other": 2})
    assert [(row.queue, row.shard) for row in found.shards] == [
        ("q", 0),
        ("q", 1),
        ("q", 2),
        ("other", 0),
        ("other", 1),
    ]
    assert (found.queues["q"].length, found.queues["q"].morgue_length, found.queues["q"].pushed) == (8, 2, 10)
    assert (found.queues["other"].length, found.total.length, found.total.pushed) == (4, 12, 14)
    assert found.total.lag == found.queues["q"].lag > found.at - PAST - 60
    assert found.at == pytest.approx(app.redis().time()[0], abs=60)
    assert {shard.queue for shard in found.nodes.unowned} <= {"q", "other"} and len(found.nodes.unowned) > 0
    assert found.server.version.startswith(("Redis", "Valkey"))
    assert found.rates == {"q": Rates(), "other": Rates()} and found.total_rate == Rates()


def test_without_queues_a_snapshot_is_empty(backend: Backend) -> None:
    found = get(Snapshots(backend))
    assert (found.queues, found.shards, found.rates, found.total.length) == ({}, [], {}, 0)
    assert (found.nodes.nodes, found.total_rate) == ([], Rates())


def test_a_queue_that_comes_later_is_in_the_next(app: Lowkiq, backend: Backend, work: type[Worker]) -> None:
    snapshots = Snapshots(backend, interval=0)
    assert list(get(snapshots).queues) == ["q"]
    app.worker(queue_name="late", shards_count=1)(lambda _: None).perform_async([{"id": 1}])
    found = get(snapshots)
    assert found.queues["late"].length == 1
    assert found.rates["late"] == Rates()


# ── one poll for all ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hundred_at_once_share_one_poll(app: Lowkiq, backend: Backend, work: type[Worker]) -> None:
    snapshots = Snapshots(backend, interval=3600)
    before = polls(app)

    async def look() -> list[Snapshot]:
        return await asyncio.gather(*(_get(snapshots) for _ in range(100)))

    found = asyncio.run(look())
    assert len(found) == 100
    assert all(one is found[0] for one in found)
    assert polls(app) - before == 1
    assert snapshots.last is found[0]


def test_a_snapshot_is_new_enough_for_an_interval_and_then_polled_again(
    app: Lowkiq, backend: Backend, work: type[Worker], time: Time
) -> None:
    snapshots = Snapshots(backend, interval=1.0)
    before = polls(app)
    assert [get(snapshots).number for _ in range(3)] == [1, 1, 1]
    time.now += 0.99
    assert get(snapshots).number == 1
    time.now += 0.01
    assert [get(snapshots).number for _ in range(3)] == [2, 2, 2]
    assert polls(app) - before == 2


def test_nobody_polls_while_nobody_looks(app: Lowkiq, backend: Backend, time: Time) -> None:
    snapshots = Snapshots(backend)
    get(snapshots)
    before = polls(app)
    time.now += 3600
    assert snapshots.last is not None
    assert polls(app) == before


def test_there_is_no_last_one_before_the_first(backend: Backend) -> None:
    assert Snapshots(backend).last is None


def test_one_who_leaves_does_not_disturb_the_others(app: Lowkiq, backend: Backend, work: type[Worker]) -> None:
    snapshots = Snapshots(backend, interval=3600)
    before = polls(app)

    async def look() -> list[Any]:
        tasks = [asyncio.ensure_future(snapshots.get()) for _ in range(10)]
        await asyncio.sleep(0)  # each has begun to wait
        tasks[0].cancel()
        tasks[5].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(look())
    assert [type(one) for one in found].count(asyncio.CancelledError) == 2
    assert [one.number for one in found if isinstance(one, Snapshot)] == [1] * 8
    assert polls(app) - before == 1


def test_who_comes_when_all_have_left_gets_the_poll_that_goes_on(
    app: Lowkiq, backend: Backend, work: type[Worker]
) -> None:
    snapshots = Snapshots(backend, interval=3600)
    before = polls(app)

    async def look() -> Snapshot:
        task = asyncio.ensure_future(snapshots.get())
        await asyncio.sleep(0)
        task.cancel()
        return await _get(snapshots)

    assert asyncio.run(look()).number == 1
    assert polls(app) - before == 1


def test_one_loop_polls_again_and_again(app: Lowkiq, backend: Backend, work: type[Worker]) -> None:
    snapshots = Snapshots(backend, interval=0)

    async def look() -> list[int]:
        return [(await _get(snapshots)).number for _ in range(3)]

    assert asyncio.run(look()) == [1, 2, 3]


def test_event_loops_may_come_and_go(backend: Backend) -> None:
    """As under a WSGI adapter: the last one's task is of no use in the next."""
    snapshots = Snapshots(backend, interval=0)

    async def leave() -> None:
        task = asyncio.ensure_future(snapshots.get())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    assert get(snapshots).number >= 1


def test_two_event_loops_at_a_time_do_not_wait_for_each_others_task(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(backend, interval=0)
    is_polling, may_go_on = threading.Event(), threading.Event()
    queues = backend.queues

    def wait() -> dict[str, int]:
        is_polling.set()
        assert may_go_on.wait(60)
        return queues()

    monkeypatch.setattr(backend, "queues", wait)

    async def open_and_get() -> Snapshot:
        asyncio.get_running_loop().call_soon(may_go_on.set)
        return await _get(snapshots)

    with ThreadPoolExecutor(1) as another:
        first = another.submit(get, snapshots)
        assert is_polling.wait(60)
        second = asyncio.run(open_and_get())
        assert {first.result(60).number, second.number} == {1, 2}


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def gather(snapshots: Snapshots, count: int) -> list[Any]:
    async def look() -> list[Any]:
        asked: list[Awaitable[Snapshot]] = [_get(snapshots) for _ in range(count)]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(look())


def test_an_error_is_everybodys_and_the_next_look_finds_redis_back(
    make_app: Callable[..., Lowkiq], backend_of: Callable[[Lowkiq], Backend], own_redis_server: RedisServer
) -> None:
    app = make_app(redis_url=own_redis_server.url)
    app.worker(queue_name="q", shards_count=3)(lambda _: None).perform_async([{"id": 1}])
    snapshots = Snapshots(backend_of(app), interval=0)
    good = get(snapshots)
    own_redis_server.stop(signal.SIGKILL)
    assert [type(one) for one in gather(snapshots, 20)] == [redis.ConnectionError] * 20
    assert snapshots.last is good
    own_redis_server.start()
    found = gather(snapshots, 20)
    assert all(one is found[0] for one in found)
    assert found[0].number > good.number
    assert found[0].queues["q"].length == 1
    assert snapshots.last is found[0]


def test_one_loop_recovers_from_an_error(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = Snapshots(backend, interval=3600)
    failures = iter([redis.TimeoutError("slow"), redis.ConnectionError("away")])
    queues = backend.queues

    def fail() -> dict[str, int]:
        if failure := next(failures, None):
            raise failure
        return queues()

    monkeypatch.setattr(backend, "queues", fail)

    async def look() -> list[Any]:
        return [(await asyncio.gather(_get(snapshots), return_exceptions=True))[0] for _ in range(4)]

    slow, away, good, same = asyncio.run(look())
    assert [type(slow), type(away)] == [redis.TimeoutError, redis.ConnectionError]
    assert isinstance(good, Snapshot) and same is good


def test_an_error_is_not_kept_for_an_interval(
    make_app: Callable[..., Lowkiq], backend_of: Callable[[Lowkiq], Backend], own_redis_server: RedisServer
) -> None:
    snapshots = Snapshots(backend_of(make_app(redis_url=own_redis_server.url)), interval=3600)
    own_redis_server.stop(signal.SIGKILL)
    with pytest.raises(redis.ConnectionError):
        get(snapshots)
    assert snapshots.last is None
    own_redis_server.start()
    assert get(snapshots).queues == {}


def test_a_good_snapshot_is_given_while_redis_is_away_as_long_as_it_is_new_enough(
    make_app: Callable[..., Lowkiq],
    backend_of: Callable[[Lowkiq], Backend],
    own_redis_server: RedisServer,
    time: Time,
) -> None:
    snapshots = Snapshots(backend_of(make_app(redis_url=own_redis_server.url)))
    good = get(snapshots)
    own_redis_server.stop(signal.SIGKILL)
    assert get(snapshots) is good
    time.now += snapshots.interval
    with pytest.raises(redis.ConnectionError):
        get(snapshots)


def test_a_redis_that_hangs_is_everybodys_error_soon(
    make_app: Callable[..., Lowkiq], backend_of: Callable[[Lowkiq], Backend], own_redis_server: RedisServer
) -> None:
    snapshots = Snapshots(backend_of(make_app(redis_url=own_redis_server.url)), interval=0)
    good = get(snapshots)
    assert own_redis_server.process is not None
    own_redis_server.process.send_signal(signal.SIGSTOP)
    try:
        found = gather(snapshots, 20)  # within 60 s
    finally:
        own_redis_server.process.send_signal(signal.SIGCONT)
    assert all(isinstance(one, redis.RedisError) for one in found)
    assert get(snapshots).number > good.number


# ── many shards ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The shards that each poll has looked at."""
    looks: list[list[int]] = []
    read = snapshot_module.read_shards

    def noted(caller: Any, shards: Any) -> Any:
        looks.append([shard.index for shard in shards])
        return read(caller, shards)

    monkeypatch.setattr(snapshot_module, "read_shards", noted)
    return looks


def test_where_there_are_many_shards_they_take_turns_and_all_are_told(
    app: Lowkiq, backend: Backend, looks: list[list[int]]
) -> None:
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


def test_a_change_in_any_of_many_shards_is_seen_within_a_round(app: Lowkiq, backend: Backend) -> None:
    work = app.worker(queue_name="many", shards_count=SHARDS_A_POLL * 5 // 2)(lambda _: None)
    snapshots = Snapshots(backend, interval=0)
    get(snapshots)
    work.perform_async([{"id": n} for n in range(300)])
    for _ in range(3):
        found = get(snapshots)
    assert found.queues["many"].length == found.total.length == 300


def test_few_shards_are_all_looked_at_each_time(
    app: Lowkiq, backend: Backend, work: type[Worker], looks: list[list[int]]
) -> None:
    snapshots = Snapshots(backend, interval=0)
    for _ in range(3):
        get(snapshots)
    assert [sorted(look) for look in looks] == [[0, 1, 2]] * 3


def test_shards_of_a_queue_that_went_are_told_no_longer(app: Lowkiq, backend: Backend) -> None:
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


# ── rates ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rates_rise_and_fall(app: Lowkiq, backend: Backend, work: type[Worker], time: Time) -> None:
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


def test_a_rate_is_that_of_the_last_seconds(app: Lowkiq, backend: Backend, work: type[Worker], time: Time) -> None:
    snapshots = Snapshots(backend)
    get(snapshots)
    time.now += 4
    set_counters(app, processed=8, failed=4, pushed=40, merged=2)
    assert get(snapshots).rates["q"] == Rates(processed=2.0, failed=1.0, pushed=10.0, merged=0.5)
    time.now += RATE_WINDOW - 1
    assert get(snapshots).rates["q"].processed == pytest.approx(8 / (RATE_WINDOW + 3))
    time.now += 1
    assert get(snapshots).rates["q"] == Rates()


def test_the_total_rate_is_the_sum(app: Lowkiq, backend: Backend, work: type[Worker], time: Time) -> None:
    other = app.worker(queue_name="other", shards_count=1)(lambda _: None)
    snapshots = Snapshots(backend)
    get(snapshots)
    work.perform_async([{"id": n} for n in range(20)])
    other.perform_async([{"id": "x", "payload": n} for n in range(10)])
    time.now += 2
    found = get(snapshots)
    assert (found.rates["q"].pushed, found.rates["other"].pushed, found.total_rate.pushed) == (10.0, 5.0, 15.0)
    assert (found.total_rate.merged, found.total_rate.processed) == (4.5, 0.0)


def test_an_emptied_redis_gives_no_negative_rate(app: Lowkiq, backend: Backend, work: type[Worker], time: Time) -> None:
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


def test_two_polls_at_one_moment_give_no_rate(app: Lowkiq, backend: Backend, work: type[Worker], time: Time) -> None:
    snapshots = Snapshots(backend, interval=0)
    get(snapshots)
    set_counters(app, processed=50)
    assert get(snapshots).rates["q"] == Rates()


def test_what_is_kept_for_rates_is_bounded(app: Lowkiq, backend: Backend, time: Time) -> None:
    snapshots = Snapshots(backend)
    for _ in range(100):
        get(snapshots)
        time.now += 1
    assert len(snapshots._poll._past) <= RATE_WINDOW + 2


def test_a_dead_node_is_missed_as_soon_as_it_is_forgotten(app: Lowkiq, backend: Backend) -> None:
    """The nodes of a snapshot are those whose heartbeats Redis has."""
    app.caller.run(Call("beat", [f"{app.settings.namespace}:nodes"], ["gone", 0], bytes))
    assert get(Snapshots(backend)).nodes.nodes == []
