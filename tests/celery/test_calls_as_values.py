"""Calls as values: `task.job(…)` and `Worker.job(…)`, and a task wherever a worker is taken."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

import pytest

import lowkiq.celery
from lowkiq import InvalidJob, Lowkiq, SettingsError, current, testing
from lowkiq.celery import Bound, Task

#: What a call was: the task, the order, its state.
Ran = list[tuple[str, int, str]]


@pytest.fixture
def app() -> Lowkiq:
    return Lowkiq(redis_url="redis://127.0.0.1:1/0")


@pytest.fixture
def ran() -> Ran:
    return []


def make_task(app: Lowkiq, ran: Ran, name: str, **options: Any) -> Task[..., None]:
    @lowkiq.celery.task(key="order_id", app=app, name=name, **options)
    def task(order_id: int, state: str = "new") -> None:
        ran.append((name, order_id, state))

    return task


#: A queue of its own, one that is shared, and one whose calls do not merge.
KINDS = pytest.mark.parametrize("options", [{}, {"queue": "orders"}, {"merge": False}], ids=["own", "shared", "apart"])


@KINDS
def test_a_job_is_what_a_call_would_push(app: Lowkiq, ran: Ran, options: dict[str, Any]) -> None:
    pay = make_task(app, ran, "pay", **options)
    with testing.fake(app) as jobs:
        pay.worker.perform_async([pay.job(17, "paid"), pay.job(order_id=18, state="sent")])
        pay.delay(17, "paid")
        jobs.drain()
    merged = 0 if "merge" in options else 1
    assert sorted(ran) == [("pay", 17, "paid")] * (2 - merged) + [("pay", 18, "sent")]


def test_what_can_t_be_called_so_is_refused_where_the_job_is_made(app: Lowkiq, ran: Ran) -> None:
    pay = make_task(app, ran, "pay")
    with pytest.raises(TypeError, match="task pay: missing a required argument: 'order_id'"):
        pay.job()
    with pytest.raises(InvalidJob, match=r"key='order_id' gave 1.5 \(float\)"):
        pay.job(1.5)


@KINDS
def test_a_chain_is_a_line(app: Lowkiq, ran: Ran, options: dict[str, Any]) -> None:
    bill = make_task(app, ran, "bill", **options)

    @lowkiq.celery.task(key="order_id", app=app, name="reserve", bind=True)
    def reserve(self: Bound, order_id: int) -> None:
        current().then(bill, [bill.job(order_id, "reserved") | {"delay": 60}])

    with testing.fake(app) as jobs:
        reserve.delay(17)
        jobs.drain()
        assert ran == []
        jobs.drain(until="+2m")
    assert ran == [("bill", 17, "reserved")]


@KINDS
def test_a_chord_is_a_batch_that_ends_with_a_call(app: Lowkiq, ran: Ran, options: dict[str, Any]) -> None:
    part, end = make_task(app, ran, "part", **options), make_task(app, ran, "end")
    with testing.fake(app) as jobs:
        with app.batch(on_done=(end, end.job(0, "all"))) as batch:
            assert batch.push(part, [part.job(n) for n in (1, 2, 3)]).new == 3
        jobs.drain()
    assert sorted(ran[:3]) == [("part", n, "new") for n in (1, 2, 3)]
    assert ran[3:] == [("end", 0, "all")]


def test_a_group_may_be_awaited(app: Lowkiq, ran: Ran) -> None:
    part, end = make_task(app, ran, "part"), make_task(app, ran, "end")

    async def main() -> None:
        with testing.fake(app) as jobs:
            async with app.batch(on_done=(end, end.job(0))) as batch:
                await batch.apush(part, [part.job(1)])
            await app.apush(part, [part.job(2)])
            await jobs.adrain()

    asyncio.run(main())
    assert {row[1] for row in ran} == {0, 1, 2}


@KINDS
def test_a_call_waits_for_others_that_a_task_names(app: Lowkiq, ran: Ran, options: dict[str, Any]) -> None:
    first, second = make_task(app, ran, "first", **options), make_task(app, ran, "second")
    with testing.fake(app) as jobs:
        app.push(first, [first.job(17) | {"delay": 60}])
        app.push(second, [second.job(17) | {"after": [(first, 17)]}])
        jobs.drain()
        assert ran == []
        jobs.drain(until="+2m")
    assert [row[0] for row in ran] == ["first", "second"]


@KINDS
def test_a_call_recurs(app: Lowkiq, ran: Ran, options: dict[str, Any]) -> None:
    pay = make_task(app, ran, "pay", **options)
    with testing.fake(app) as jobs:
        assert app.recurring.set(pay, pay.job(17, "a"), "1h")
        assert app.recurring.set(pay, 18, "1h", payload={"order_id": 18, "state": "b"})
        assert app.recurring.pause(pay, 18)
        assert [job.id for job in app.recurring.list(pay)] == ["17", "18"]
        jobs.drain(until="+61m")
        assert app.recurring.run_now(pay, 18).new == 1
        jobs.drain()
        assert app.recurring.remove(pay, 17)
    assert ran == [("pay", 17, "a"), ("pay", 18, "b")]


def test_a_job_that_recurs_says_no_more_than_its_payload(app: Lowkiq, ran: Ran) -> None:
    pay = make_task(app, ran, "pay")
    with testing.fake(app):
        with pytest.raises(SettingsError, match=r"'delay': 5.*it has an id and a payload, and no more"):
            app.recurring.set(pay, pay.job(17) | {"delay": 5}, "1h")
        with pytest.raises(SettingsError, match="it has an id and a payload, and no more"):
            app.recurring.set(pay, pay.job(17), "1h", payload={"order_id": 18})
        with pytest.raises(SettingsError, match="missing a required argument: 'order_id'"):
            app.recurring.set(pay, 17, "1h", payload={"state": "x"})


def test_a_worker_makes_jobs_as_well(app: Lowkiq) -> None:
    ran: list[tuple[int, list[Any]]] = []

    @app.worker
    def sync(id: int, payloads: list[Any]) -> None:
        ran.append((id, payloads))

    assert sync.job(17) == {"id": 17}
    assert sync.job(17, None) == {"id": 17, "payload": None}
    assert sync.job(id=17, payload="x", delay=5, tags=["eu"]) == {"id": 17, "payload": "x", "delay": 5, "tags": ["eu"]}
    with testing.fake(app) as jobs:
        sync.perform_async([sync.job(17, "a"), sync.job(17, "b", score=1)])
        with app.batch(on_done=(sync, sync.job(18))) as batch:
            batch.push(sync, [sync.job(19, "c", delay=datetime.timedelta(minutes=1))])
        jobs.drain(until="+2m")
    assert ran == [(17, ["b", "a"]), (19, ["c"]), (18, [""])]


def test_what_a_job_can_t_say_is_refused_by_what_it_is_given_to(app: Lowkiq) -> None:
    sync: Any = app.worker(queue_name="sync")(lambda batch: None)
    with testing.fake(app), pytest.raises(InvalidJob, match="unknown key `dealy`, did you mean `delay`"):
        sync.perform_async([sync.job(17, dealy=5)])


#: All that takes a worker and its jobs.
DOORS: tuple[Callable[[Lowkiq, Any], object], ...] = (
    lambda app, worker: app.push(worker, [{"id": 1}]),
    lambda app, worker: app.batch(on_done=(worker, {"id": 1})),
    lambda app, worker: app.recurring.set(worker, 1, "1h"),
    lambda app, worker: app.recurring.pause(worker, 1),
    lambda app, worker: current().then(worker, [{"id": 1}]),
)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("worker", [print, 5, None, object(), int])
def test_what_is_neither_a_worker_nor_a_task_is_refused_by_name(app: Lowkiq, door: Any, worker: Any) -> None:
    @app.worker
    def outer(id: int, payloads: list[Any]) -> None:
        door(app, worker)

    with testing.inline(app), pytest.raises(SettingsError, match="is no worker: give the class, or the function"):
        outer.perform_async([{"id": 17}])
