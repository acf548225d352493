"""`push` and `apush`: payloads whose ids and scores the worker tells; typed jobs of `perform_async`."""

from __future__ import annotations

import asyncio
import datetime
import operator
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

from lowkiq import InvalidJob, Lowkiq, Pushed, SettingsError, Worker, clock


class Change(msgspec.Struct):
    order_id: int
    version: int = 1


def orders(app: Lowkiq, **options: Any) -> type[Worker[Change]]:
    @app.worker(queue_name="orders", **options)
    def sync(order_id: int, changes: list[Change]) -> None: ...

    return sync


BY_ID = {"id": lambda change: change.order_id, "score": lambda change: change.version}


def test_payloads_are_pushed_with_the_ids_and_scores_that_the_worker_tells(app: Lowkiq) -> None:
    sync = orders(app, **BY_ID)
    assert sync.push(Change(1, 5), Change(2), Change(1, 3)) == Pushed(2, 1)
    assert sync.push() == Pushed(0, 0)
    first, second = sync.queries.fetch([1, 2])
    assert (first.payloads, first.scores) == (
        [{"order_id": 1, "version": 3}, {"order_id": 1, "version": 5}],
        (3.0, 5.0),
    )
    assert second.payloads == [{"order_id": 2, "version": 1}]


@pytest.mark.parametrize(
    "time",
    [{"at": 4e9}, {"at": datetime.datetime(2096, 10, 2, 7, 6, 40, tzinfo=datetime.UTC)},
     {"delay": 3600}, {"delay": datetime.timedelta(hours=1)}],
)  # fmt: skip
def test_payloads_are_due_when_their_push_says(app: Lowkiq, time: dict[str, Any]) -> None:
    sync = orders(app, **BY_ID)
    sync.push(Change(1), **time)
    asyncio.run(sync.apush(Change(2), tags=["eu"], **time))
    due = 4e9 if "at" in time else clock.real() + 3600
    assert [job.perform_in for job in sync.queries.fetch([1, 2])] == [pytest.approx(due, abs=60)] * 2
    with pytest.raises(InvalidJob, match="at and delay both say when it is due"):
        sync.push(Change(1), at=4e9, delay=1)
    with pytest.raises(InvalidJob, match="at 60 is a Unix time; did you mean delay=60"):
        sync.push(Change(1), at=60)


def test_equal_payloads_merge(app: Lowkiq) -> None:
    sync = orders(app, **BY_ID)
    assert sync.push(Change(1)) == Pushed(1, 0)
    assert sync.perform_async([{"id": 1, "payload": {"version": 1, "order_id": 1}}]) == Pushed(0, 1)
    (job,) = sync.queries.fetch([1])
    assert len(job.payloads) == 1


def test_a_job_in_place_of_a_payload_is_told_what_takes_it(app: Lowkiq) -> None:
    sync: Any = orders(app, **BY_ID)
    with pytest.raises(InvalidJob, match=r"push takes payloads, and this is a job: perform_async\(\[…\]\) takes those"):
        sync.push(sync.job(17, Change(17)))


def test_they_can_be_awaited(app: Lowkiq) -> None:
    sync = orders(app, **BY_ID)
    assert asyncio.run(sync.apush(Change(1, 5), Change(1, 3))) == Pushed(1, 1)
    with pytest.raises(InvalidJob, match=r"payload 0: id= failed"):
        asyncio.run(sync.apush({"order_id": 1}))  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match=r"Expected `int`, got `str` - at `\$.version`"):
        asyncio.run(sync.apush(Change(1), Change(1, "x")))  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match=r"id 'x' is no int"):
        asyncio.run(sync.aperform_async([{"id": "x", "payload": Change(1)}]))
    (job,) = sync.queries.fetch([1])
    assert job.payload_count == 2


def test_an_override_of_perform_async_sees_them(app: Lowkiq) -> None:
    class Jobs(Worker[Change]):
        id = operator.attrgetter("order_id")

        def perform(self, payloads_by_id: dict[str, list[Change]]) -> None: ...

        @classmethod
        def perform_async(cls, jobs: Any) -> Pushed:
            return super().perform_async([job | {"id": f"shop:{job['id']}"} for job in jobs])

    app.worker(Jobs).push(Change(7))
    assert [job.id for job in Jobs.queries.fetch(["shop:7"])] == ["shop:7"]


def test_without_id_nothing_can_be_pushed(app: Lowkiq) -> None:
    sync = orders(app)
    says = (
        r"sync can't tell the id of a payload: register it with @app.worker\(id=lambda payload: …\), or use perform_as"
    )
    with pytest.raises(SettingsError, match=says):
        sync.push(Change(1))
    with pytest.raises(SettingsError, match=says):
        asyncio.run(sync.apush(Change(1)))


@pytest.mark.parametrize(
    ("options", "payload", "says"),
    [
        (BY_ID, [Change(1)], r"payload 1: id= failed: AttributeError: .*; push takes payloads one by one: push\(\*pay"),
        (BY_ID, {"order_id": 1}, r"payload 1: id= failed: AttributeError"),
        (BY_ID, "paid", r"id= failed: .*\(the payload can't be dumped: .*: it must be Change, not 'paid'\)"),
        ({"id": lambda change: None}, Change(1), "payload 0: id= gave None"),
        ({"id": lambda change: "x"}, Change(1), r"job 0 \(id 'x'\): id 'x' is no int"),
        ({"id": lambda change: 1.5}, Change(1), r"job 0 \(id 1.5\): id '1.5' is no int"),
        (BY_ID | {"score": lambda change: None}, Change(1), "payload 0: score= gave None"),
        (BY_ID | {"score": lambda change: 1 / 0}, Change(1), "payload 0: score= failed: ZeroDivisionError"),
        (BY_ID | {"score": lambda change: "x"}, Change(1), "job 0 .*: score must be a number, not 'x'"),
        (
            BY_ID,
            Change(2, cast(Any, "x")),
            r"job 1 \(id 2\): payload can't be dumped: Expected `int`, got `str` - at `\$.version`",
        ),  # type: ignore[arg-type]
    ],
)
def test_what_can_not_be_pushed_is_named_before_anything_is_written(
    app: Lowkiq, options: dict[str, Any], payload: Any, says: str
) -> None:
    sync = orders(app, **options)
    with pytest.raises(InvalidJob, match=says):
        sync.push(Change(1), payload)
    assert sync.queries.fetch([1, 2]) == []


def test_jobs_of_a_typed_worker_are_checked_too(app: Lowkiq) -> None:
    sync = orders(app)
    sync.perform_async([{"id": 1, "payload": {"order_id": 1}}, {"id": "2", "payload": Change(2)}])
    for job, says in [
        ({"id": 1}, "job 0 .*payload can't be dumped: Expected `object`, got `str`"),
        ({"id": 1}, "it must be Change, not ''; the job has no payload"),
        ({"id": 1, "payload": "paid"}, "Expected `object`, got `str`: it must be Change, not 'paid'$"),
        ({"id": 1, "payloads": Change(1)}, "it must be Change, not ''; unknown key `payloads`, did you mean `payload`"),
        ({"id": 1, "payload": {"order_id": "1"}}, r"Expected `int`, got `str` - at `\$.order_id`"),
        ({"id": "one", "payload": Change(1)}, "job 0 .*: id 'one' is no int"),
        ({"id": True, "payload": Change(1)}, "id True is no int"),
        ({"payload": Change(1)}, "job 0: id is missing"),
    ]:
        with pytest.raises(InvalidJob, match=says):
            sync.perform_async([job])


def test_ids_are_pushed_as_the_worker_has_them(app: Lowkiq) -> None:
    @app.worker(id=lambda number: UUID(int=number))
    def count(id: UUID, numbers: list[int]) -> None: ...

    count.push(5)
    assert [job.payloads for job in count.queries.fetch([str(UUID(int=5))])] == [[5]]
