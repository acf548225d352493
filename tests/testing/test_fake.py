"""lowkiq.testing.fake: what is collected, what runs when, and what becomes of it."""

from __future__ import annotations

import asyncio
import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.contextvars import get_contextvars

import lowkiq
from lowkiq import (
    Bury,
    Debounce,
    Discard,
    Fixed,
    InvalidJob,
    Lowkiq,
    LowkiqError,
    PartialFailure,
    Pushed,
    Rate,
    RetryIn,
    Snooze,
    Worker,
    testing,
)
from lowkiq.errors import RateLimited
from lowkiq.testing import node


@pytest.fixture
def app() -> Lowkiq:
    """There is no Redis: whatever would ask it fails at once."""
    return Lowkiq(redis_url="redis://127.0.0.1:1/0", push_timeout=0.01)


class Ran(list[tuple[Any, list[Any]]]):
    """The runs of a worker, whose first ones raise what is put into `errors`."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException | None] = []

    def __call__(self, id: str, payloads: list[Any]) -> None:
        self.append((id, payloads))
        if error := self.errors.pop(0) if self.errors else None:
            raise error


def worker_of(app: Lowkiq, ran: Ran, **options: Any) -> type[Worker[Any]]:
    def sync(id: str, payloads: list[Any]) -> None:
        ran(id, payloads)

    return app.worker(**options)(sync)


# ── pushes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pushes_are_collected_and_merged_as_ever(app: Lowkiq) -> None:
    ran = Ran()
    sync = worker_of(app, ran)
    with testing.fake(app) as jobs:
        assert sync.perform_async([{"id": 17, "payload": {"a": 1, "b": 2}}]) == Pushed(1, 0)
        assert sync.perform_async([{"id": 17, "payload": {"b": 2, "a": 1}}, {"id": 18}]) == Pushed(1, 1)
        assert [(job.id, job.payloads) for job in jobs.pending(sync)] == [("17", [{"a": 1, "b": 2}]), ("18", [""])]
        jobs.assert_pushed(sync, id=17, payload={"b": 2, "a": 1}, times=2)
        jobs.drain()
        assert ran == [("17", [{"a": 1, "b": 2}]), ("18", [""])]
        assert jobs.pending(sync) == []
        assert [push.id for push in jobs.pushed(sync)] == ["17", "17", "18"], "what was pushed stays known"


def test_awaited_pushes_are_collected_and_typed_ones(app: Lowkiq) -> None:
    @app.worker(id=lambda change: change["n"])
    def sync(id: int, payloads: list[dict[str, int]]) -> None: ...

    async def push() -> None:
        assert await sync.aperform_async([{"id": 1, "payload": {"n": 1}}]) == Pushed(1, 0)
        assert await sync.apush({"n": 2}) == Pushed(1, 0)
        assert await sync.aperform_async(job for job in [{"id": 3, "payload": {"n": 3}}]) == Pushed(1, 0)
        await app.aclose()

    with testing.fake(app) as jobs:
        asyncio.run(push())
        assert [job.id for job in jobs.pending(sync)] == ["1", "2", "3"]


def test_what_no_push_would_take_is_refused_with_the_same_words(app: Lowkiq) -> None:
    @app.worker
    def sync(id: int, payloads: list[dict[str, int]]) -> None: ...

    with testing.fake(app) as jobs:
        for job in ({"id": ""}, {"id": 1, "payload": {"n": "x"}}, {"id": 1, "payload": {"n": 1}, "delay": -1}, {}):
            with pytest.raises(InvalidJob) as refused:
                sync.perform_async([job])
            with pytest.raises(InvalidJob) as really_refused:
                app._encode(sync, [job])  # type: ignore[list-item]
            assert str(refused.value) == str(really_refused.value)
        assert jobs.pushed(sync) == []


def test_client_middlewares_are_around_pushes() -> None:
    seen = []

    def middleware(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
        seen.append(batch)
        return call()

    app = Lowkiq(redis_url="redis://127.0.0.1:1/0", client_middlewares=[middleware])
    sync = worker_of(app, Ran())
    with testing.fake(app) as jobs:
        sync.perform_async([{"id": 1}])
        jobs.assert_pushed(sync, id=1)
    assert seen == [[{"id": 1}]]


def test_an_assertion_that_fails_shows_what_was_pushed(app: Lowkiq) -> None:
    sync = worker_of(app, Ran())
    with testing.fake(app) as jobs:
        with pytest.raises(AssertionError, match="expected a push of id=17, and there were 0\nnothing was pushed"):
            jobs.assert_pushed(sync, id=17)
        sync.perform_async([{"id": 18, "payload": "x", "delay": 5}])
        with pytest.raises(AssertionError, match=r"id=17.*\n.*\n  id='18', payload='x', delay=5"):
            jobs.assert_pushed(sync, id=17)
        with pytest.raises(AssertionError, match="id=18, never, and there were 1"):
            jobs.assert_not_pushed(sync, id=18)
        jobs.assert_pushed(sync, delay=5)
        jobs.assert_not_pushed(sync, delay=None)
        jobs.assert_not_pushed(sync, payload="y")


def test_after_it_the_application_pushes_to_redis_again(app: Lowkiq) -> None:
    sync = worker_of(app, Ran())
    before = dict(vars(app))
    with testing.fake(app), testing.fake(app) as inner:
        sync.perform_async([{"id": 1}])
        inner.assert_pushed(sync, id=1)
    assert vars(app) == before
    with pytest.raises(lowkiq.PushFailed):
        sync.perform_async([{"id": 1}])


def test_what_was_pushed_says_when_it_is_due(app: Lowkiq) -> None:
    sync = worker_of(app, Ran())
    at = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    with testing.fake(app) as jobs:
        sync.perform_async([sync.job(1, "a", at=at), sync.job(2, "b", delay=60), sync.job(3, "c")])
        for due in (at, at.timestamp()):
            jobs.assert_pushed(sync, id=1, at=due, delay=None, times=1)
        jobs.assert_pushed(sync, delay=datetime.timedelta(minutes=1), times=1)
        jobs.assert_pushed(sync, at=None, delay=None, times=1)
        jobs.assert_not_pushed(sync, at=at.timestamp() + 1)
        with pytest.raises(AssertionError, match=r"id='1', payload='a', at=1893456000\n"):
            jobs.assert_pushed(sync, at=2e9)
        first, second, _ = jobs.pushed(sync)
        assert (first.at, second.at, second.delay) == (at.timestamp(), None, 60)
        assert first.pushed_at <= jobs.now


def test_what_is_no_worker_of_the_application_is_refused(app: Lowkiq) -> None:
    stranger = worker_of(Lowkiq(redis_url="redis://127.0.0.1:1/0"), Ran())
    with testing.fake(app) as jobs:
        with pytest.raises(LowkiqError, match="another application"):
            jobs.pending(stranger)
        with pytest.raises(LowkiqError, match="is no worker"):
            jobs.pending(print)  # type: ignore[arg-type]
    with pytest.raises(LowkiqError, match="is no application"), testing.fake("shop.jobs:app"):  # type: ignore[arg-type]
        pass


def test_threads_of_a_server_under_test_can_push(app: Lowkiq) -> None:
    sync = worker_of(app, Ran())
    with testing.fake(app) as jobs:

        def push(id: int) -> None:
            sync.perform_async([{"id": id, "payload": n} for n in range(50)])

        threads = [threading.Thread(target=push, args=(id,)) for id in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [job.payloads for job in jobs.pending(sync)] == [[*range(50)]] * 4


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_time_goes_on_only_as_far_as_it_is_told(app: Lowkiq) -> None:
    ran = Ran()
    sync = worker_of(app, ran)
    with testing.fake(app, at=datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)) as jobs:
        begin = jobs.now
        sync.perform_async([{"id": 1, "delay": 60}, {"id": 2, "perform_in": begin + 3_600}, {"id": 3}])
        jobs.drain()
        assert [id for id, _ in ran] == ["3"]
        jobs.drain(until="+1m1s")
        assert [id for id, _ in ran] == ["3", "1"]
        jobs.drain(until=datetime.timedelta(hours=1))
        assert [id for id, _ in ran] == ["3", "1", "2"]
        assert round(jobs.now - begin) == 3_661
        jobs.drain(until=jobs.now + 10)
        with pytest.raises(ValueError, match="which is over"):
            jobs.drain(until=begin)


@pytest.mark.parametrize("until", ["1h", "+", "+1", "+1h 5m", 60, True, datetime.datetime(2030, 1, 1), float("nan")])  # noqa: DTZ001
def test_what_is_no_moment_is_refused(app: Lowkiq, until: Any) -> None:
    with testing.fake(app) as jobs, pytest.raises(ValueError, match="may be"):
        jobs.drain(until=until)


def test_what_is_due_an_hour_after_this_machines_time_is_due_within_the_hour(app: Lowkiq) -> None:
    ran = Ran()
    sync = worker_of(app, ran)
    with testing.fake(app) as jobs:
        time.sleep(0.002)
        sync.perform_async([{"id": 1, "perform_in": time.time() + 3_600}])
        jobs.drain(until="+1h")
    assert ran == [("1", [""])]


def test_debounced_throttled_and_kept_jobs_run_as_seldom_as_they_should(app: Lowkiq) -> None:
    ran = Ran()
    calm = worker_of(app, ran, queue_name="calm", debounce=Debounce(5, at_most=60), keep="last")
    rare = worker_of(app, ran, queue_name="rare", throttle=30)
    with testing.fake(app, at=2e9) as jobs:
        for n in range(3):
            calm.perform_async([{"id": "a", "payload": n}])
            rare.perform_async([{"id": "b", "payload": n}])
            jobs.drain(until="+2s")
        jobs.drain(until="+1m")
    assert ran == [("b", [0]), ("a", [2]), ("b", [1, 2])]


def test_a_rate_holds_by_its_clock(app: Lowkiq) -> None:
    @app.worker(rate=Rate(2, per=10, by=lambda _, payload: payload), shards_count=1, batch_size=3)
    def send(payloads_by_id: dict[str, list[str]]) -> None: ...

    with testing.fake(app, at=2e9) as jobs:
        send.perform_async([{"id": n, "payload": "xy"[n % 2]} for n in range(12)])
        outcomes = jobs.drain(until="+5m")
    for key in "xy":
        starts = [outcome.at for outcome in outcomes if outcome.payloads == [key]]
        assert len(starts) == 6
        assert all(third - first > 10 for first, third in zip(starts, starts[2:], strict=False))
        assert starts[-1] - starts[0] < 40


def test_a_key_rests_when_its_far_side_has_had_enough(app: Lowkiq) -> None:
    ran = Ran()
    ran.errors.append(RateLimited(100))
    send = worker_of(app, ran, rate=Rate(5, per=10))
    with testing.fake(app, at=2e9) as jobs:
        send.perform_async([{"id": n} for n in range(3)])
        outcomes = jobs.drain(until="+2m")
    assert [(outcome.snoozed, outcome.at >= 2e9 + 100) for outcome in outcomes] == [(100, False), *[(None, True)] * 3]


# ── outcomes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_is_tried_again_until_it_is_buried(app: Lowkiq) -> None:
    ran = Ran()
    ran.errors += [ValueError("one"), RetryIn(5), TimeoutError("three")]
    sync = worker_of(app, ran, retry=Fixed(60, limit=2))
    with testing.fake(app) as jobs:
        sync.perform_async([{"id": 1, "payload": "x", "tags": ["eu"]}])
        (first,) = jobs.drain()
        assert (first.retry_in, first.attempt, str(first.error), first.done, first.failed) == (
            60,
            1,
            "one",
            False,
            True,
        )
        (job,) = jobs.pending(sync)
        assert (job.retry_count, job.error, job.tags) == (0, "ValueError: one", ("eu",))
        *_, last = jobs.drain(until="+2h")
        assert (last.attempt, last.buried, type(last.error)) == (3, True, TimeoutError)
        (dead,) = jobs.morgue(sync)
        assert (dead.id, dead.payloads, dead.error, dead.perform_in) == ("1", ["x"], "TimeoutError: three", last.at)
        assert jobs.pending(sync) == []


def test_what_a_handler_decides_is_done(app: Lowkiq) -> None:
    ran = Ran()
    sync = worker_of(app, ran)
    with testing.fake(app) as jobs:
        for number, error in enumerate((Snooze(30), Bury("stolen"), Discard("gone"), None)):
            ran.errors = [error]
            sync.perform_async([{"id": number}])
            (outcome,) = jobs.drain()
            told = (outcome.snoozed, outcome.buried, outcome.discarded, outcome.done, outcome.failed)
            assert told == [(30, False, False, False, False), (None, True, False, False, True),
                            (None, False, True, True, False), (None, False, False, True, False)][number]  # fmt: skip
        assert [job.id for job in jobs.pending(sync)] == ["0"]
        assert [job.id for job in jobs.morgue(sync)] == ["1"]


def test_of_a_batch_only_those_fail_that_it_names(app: Lowkiq) -> None:
    @app.worker(batch_size=3, shards_count=1)
    def sync(payloads_by_id: dict[int, list[Any]]) -> None:
        raise PartialFailure({2: "no", 3: Snooze(5)})

    with testing.fake(app) as jobs:
        sync.perform_async([{"id": id} for id in (1, 2, 3)])
        one, two, three = jobs.drain()
    assert (one.done, two.error, two.failed, three.snoozed) == (True, "no", True, 5)


@pytest.mark.parametrize("fate", ["bury", "block", "discard"])
def test_a_job_that_fails_too_often_has_the_fate_of_its_worker(app: Lowkiq, fate: Any) -> None:
    ran = Ran()
    ran.errors += [ValueError("no")] * 2
    sync = worker_of(app, ran, max_retry_count=0, when_exhausted=fate)
    with testing.fake(app) as jobs:
        sync.perform_async([{"id": 1, "payload": "x"}, {"id": 1, "payload": "y"}])
        (outcome,) = jobs.drain(until=None if fate == "block" else "+0s")[:1]
        assert (outcome.buried, outcome.blocked, outcome.discarded) == (
            fate == "bury",
            fate == "block",
            fate == "discard",
        )
        assert [job.is_blocked for job in jobs.pending(sync)] == ([True] if fate == "block" else [])
        assert [job.payloads for job in jobs.morgue(sync)] == ([["x", "y"]] if fate == "bury" else [])


def test_middlewares_hooks_and_the_context_are_a_nodes(app: Lowkiq) -> None:
    seen: list[Any] = []

    async def awaited(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
        seen.append("awaited")
        return await call()

    def plain(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
        seen.append([job.id for job in batch])
        return call()

    app = Lowkiq(redis_url="redis://127.0.0.1:1/0", server_middlewares=[plain, awaited])

    @app.worker(max_retry_count=0)
    class Sync(Worker[str]):
        def perform_one(self, id: str, payloads: list[str]) -> None:
            here = lowkiq.current()
            seen.append((here.queue, here.attempt, here.tags, here.checkpoint_value))
            here.checkpoint(7)
            raise Snooze(1) if here.checkpoint_value is None else ValueError("no")

        def retries_exhausted(self, batch: list[Any]) -> None:
            seen.append(batch[0].error)

    with testing.fake(app) as jobs:
        Sync.perform_async([{"id": 1, "tags": ["eu"]}])
        jobs.drain(until="+1s")
        with pytest.raises(LowkiqError, match="outside perform"):
            lowkiq.current()
    assert seen == [
        ["1"], "awaited", ("Sync", 1, {"eu"}, None), ["1"], "awaited", ("Sync", 1, {"eu"}, 7), "ValueError: no"
    ]  # fmt: skip


def test_what_a_job_pushes_runs_in_the_same_drain(app: Lowkiq) -> None:
    ran = Ran()
    second = worker_of(app, ran, queue_name="second")

    @app.worker
    async def first(id: str, payloads: list[Any]) -> None:
        await second.aperform_async([{"id": id}])

    with testing.fake(app) as jobs:
        first.perform_async([{"id": 1}])
        jobs.drain()
    assert ran == [("1", [""])]


def test_coroutines_run_on_the_loop_of_the_test_when_it_awaits(app: Lowkiq) -> None:
    async def main() -> None:
        here = asyncio.get_running_loop()

        @app.worker(perform_timeout=0.01)
        async def sync(id: str, payloads: list[Any]) -> None:
            assert asyncio.get_running_loop() is here
            if id == "slow":
                await asyncio.sleep(60)

        with testing.fake(app) as jobs:
            await sync.aperform_async([{"id": "quick"}, {"id": "slow"}])
            quick, slow = await jobs.adrain()
            assert quick.done
            assert "took longer than 0.01 s" in str(slow.error)

    asyncio.run(main())


def test_an_endless_drain_is_told_of(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "MOST_BATCHES", 100)

    @app.worker
    def again(id: str, payloads: list[Any]) -> None:
        again.perform_async([{"id": id}])

    with testing.fake(app) as jobs:
        again.perform_async([{"id": 1}])
        with pytest.raises(LowkiqError, match="again has run 100 batches and still has jobs due"):
            jobs.drain()


def test_what_would_stop_a_node_stops_the_test(app: Lowkiq) -> None:
    ran = Ran()
    ran.errors.append(KeyboardInterrupt())
    sync = worker_of(app, ran)
    with testing.fake(app) as jobs:
        sync.perform_async([{"id": 1}])
        with pytest.raises(KeyboardInterrupt):
            jobs.drain()
        assert [job.retry_count for job in jobs.pending(sync)] == [0]


def test_tasks_of_celerys_shape_are_collected(app: Lowkiq) -> None:
    from lowkiq.celery import task

    @task(app=app, key="order_id")
    def ship(order_id: int, carrier: str) -> None: ...

    with testing.fake(app) as jobs:
        ship.delay(17, carrier="dhl")
        jobs.assert_pushed(ship, id=17)
        assert [outcome.done for outcome in jobs.drain()] == [True]


# ── inline ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inline_performs_at_once_in_the_thread_that_pushes(app: Lowkiq) -> None:
    threads = []

    @app.worker(debounce=Debounce(5, at_most=10), throttle=60)
    def sync(id: str, payloads: list[Any]) -> None:
        threads.append(threading.current_thread())

    with testing.inline(app) as jobs:
        for _ in range(2):
            assert sync.perform_async([{"id": 1}]) == Pushed(1, 0)
        sync.perform_async([{"id": 1, "delay": 60}])
        assert jobs.pending(sync) == []
    assert threads == [threading.current_thread()] * 3


def test_inline_raises_what_a_job_raises_once_all_have_run(app: Lowkiq) -> None:
    ran = Ran()
    ran.errors += [ValueError("no"), None, Snooze(5)]
    sync = worker_of(app, ran)
    with testing.inline(app):
        with pytest.raises(ValueError, match="no"):
            sync.perform_async([{"id": 1}, {"id": 2}])
        assert [id for id, _ in ran] == ["1", "2"]
        sync.perform_async([{"id": 3}])


def test_inline_jobs_may_push_from_wherever_they_run(app: Lowkiq) -> None:
    ran = Ran()
    last = worker_of(app, ran, queue_name="last")

    @app.worker
    async def middle(id: str, payloads: list[Any]) -> None:
        last.perform_async([{"id": id}])

    @app.worker
    async def first(id: str, payloads: list[Any]) -> None:
        middle.perform_async([{"id": id}])
        await middle.aperform_async([{"id": f"{id}a"}])

    with testing.inline(app):
        first.perform_async([{"id": "1"}])
        asyncio.run(first.aperform_async([{"id": "2"}]))
    assert [id for id, _ in ran] == ["1", "1a", "2", "2a"]


# ── perform ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_perform_tells_what_becomes_of_one_job(app: Lowkiq) -> None:
    ran = Ran()
    ran.errors += [None, ValueError("no"), Bury("never"), ValueError("no")]
    sync = worker_of(app, ran, retry=Fixed(60, limit=3))
    assert testing.perform(sync, 17, ["b", "a"]).done
    assert ran == [("17", ["b", "a"])]
    assert testing.perform(sync, 17, ["x"]).retry_in == 60
    assert testing.perform(sync, 17, ["x"]).buried
    assert testing.perform(sync, 17, ["x"], attempt=4).buried


def test_perform_converts_payloads_as_a_push_and_a_claim_do(app: Lowkiq) -> None:
    seen: list[Any] = []

    @app.worker
    async def sync(id: int, payloads: list[datetime.date]) -> None:
        seen.append((id, payloads))

    day = datetime.date(2030, 1, 1)
    assert testing.perform(sync, 17, [day]).done
    assert asyncio.run(testing.aperform(sync, 17, [day])).done
    assert seen == [(17, [day])] * 2
    with pytest.raises(InvalidJob, match="payload"):
        testing.perform(sync, 17, ["tomorrow"])
    nonsense: list[Any] = [[], "x", 5]
    for payloads in nonsense:
        with pytest.raises((ValueError, TypeError), match="payloads are"):
            testing.perform(sync, 17, payloads)
    with pytest.raises(ValueError, match="attempt is 0"):
        testing.perform(sync, 17, [day], attempt=0)


def test_what_perform_pushes_goes_to_the_fake_around_it(app: Lowkiq) -> None:
    mail = worker_of(app, Ran(), queue_name="mail")

    @app.worker
    def sync(id: str, payloads: list[Any]) -> None:
        mail.perform_async([{"id": id}])

    with testing.fake(app) as jobs:
        testing.perform(sync, 17, ["x"])
        jobs.assert_pushed(mail, id=17)
        jobs.assert_not_pushed(sync)


def test_a_job_that_pushes_inline_is_itself_again_afterwards(app: Lowkiq) -> None:
    seen: list[tuple[str, Any]] = []

    @app.worker
    async def inner(id: str, payloads: list[Any]) -> None:
        seen.append((lowkiq.current().queue, get_contextvars().get("queue")))

    @app.worker
    async def outer(id: str, payloads: list[Any]) -> None:
        inner.perform_async([{"id": id}])
        await inner.aperform_async([{"id": id}])
        seen.append((lowkiq.current().queue, get_contextvars().get("queue")))

    with testing.inline(app):
        outer.perform_async([{"id": 1}])
        asyncio.run(outer.aperform_async([{"id": 1}]))
    assert seen == [("inner", "inner"), ("inner", "inner"), ("outer", "outer")] * 2
    assert "queue" not in get_contextvars()
