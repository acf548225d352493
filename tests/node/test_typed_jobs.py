"""A node runs typed jobs, with bad ones among them: those are buried raw, and stop nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic
import pytest

from lowkiq import Job, Lowkiq, PartialFailure, Worker, current
from lowkiq.job import shard_of
from tests.node.driven import burst
from tests.queue.shard_driver import ShardDriver


class Change(msgspec.Struct, frozen=True):
    n: int


class Model(pydantic.BaseModel, frozen=True):
    n: int


SHARDS = 2
GOOD = [(str(id), [Change(id), Change(id + 1)]) for id in range(10)]


def push_bad(app: Lowkiq) -> None:
    """What any program may have pushed; in between, good ones."""
    drivers = [ShardDriver(app, "jobs", index, SHARDS) for index in range(SHARDS)]
    for id, payload, score in [
        ("3", b'{"n":"x"}', 0.5),
        ("100", b'{"n":"x"}', 1.0),
        ("101", b"{", 1.0),
        ("102", b"\xff", 1.0),
        ("abc", b'{"n":1}', 1.0),
        ("abc", b'{"n":2}', 2.0),
        ("007", b'{"n":7}', 1.0),
    ]:
        drivers[shard_of(id.encode(), SHARDS)].push(id, payload, score)


def buried(worker: type[Worker[Any]]) -> dict[str, tuple[list[Any], str]]:
    found = worker.queries.morgue_fetch(["3", "100", "101", "102", "abc", "007"])
    return {job.id: (job.payloads, str(job.error)) for job in found}


def sync_one(ran: dict[Any, list[Any]]) -> Callable[..., Any]:
    def perform(id: int, changes: list[Change]) -> None:
        ran.setdefault(id, []).extend(changes)

    return perform


def sync_batch(ran: dict[Any, list[Any]]) -> Callable[..., Any]:
    def perform(changes_by_id: dict[int, list[Change]]) -> None:
        for id, changes in changes_by_id.items():
            ran.setdefault(id, []).extend(changes)

    return perform


def async_one(ran: dict[Any, list[Any]]) -> Callable[..., Any]:
    async def perform(id: int, changes: list[Change]) -> None:
        await asyncio.sleep(0)
        ran.setdefault(id, []).extend(changes)

    return perform


def async_batch(ran: dict[Any, list[Any]]) -> Callable[..., Any]:
    async def perform(changes_by_id: dict[int, list[Change]]) -> None:
        await asyncio.sleep(0)
        for id, changes in changes_by_id.items():
            ran.setdefault(id, []).extend(changes)

    return perform


def of_models(ran: dict[Any, list[Any]]) -> Callable[..., Any]:
    def perform(id: int, models: list[Model]) -> None:
        ran.setdefault(id, []).extend(Change(model.n) for model in models)

    return perform


@pytest.mark.parametrize("make", [sync_one, sync_batch, async_one, async_batch, of_models])
def test_what_can_not_be_converted_is_buried_raw_and_stops_nobody(
    app: Lowkiq, make: Callable[[dict[Any, list[Any]]], Callable[..., Any]]
) -> None:
    ran: dict[Any, list[Any]] = {}
    size = 5 if make in {sync_batch, async_batch} else 1
    worker = app.worker(queue_name="jobs", shards_count=SHARDS, batch_size=size)(make(ran))
    worker.perform_async([
        {"id": id, "payload": {"n": change.n}, "score": change.n} for id, changes in GOOD for change in changes
    ])  # fmt: skip
    push_bad(app)
    burst(app)
    assert ran == {int(id): changes for id, changes in GOOD}
    dead = buried(worker)
    assert {id: payloads for id, (payloads, _) in dead.items()} == {
        "3": [{"n": "x"}], "100": [{"n": "x"}], "101": [b"{"], "102": [b"\xff"], "abc": [{"n": 1}, {"n": 2}],
        "007": [{"n": 7}],
    }  # fmt: skip
    assert "at `$.n`" in dead["3"][1]
    assert "at `$.n`" in dead["100"][1]
    assert "the worker's type of ids can't hold this one: ValueError: id 'abc' is no int" in dead["abc"][1]
    assert "id '007' is no int" in dead["007"][1]
    assert app.metrics()["jobs"].length == app.metrics()["jobs"].busy == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_an_id_at_a_time_fails_alone(app: Lowkiq, is_async: bool) -> None:
    ran: list[int] = []

    def act(id: int) -> None:
        if id % 2:
            raise ValueError(f"{id} is odd")
        ran.append(id)

    class Jobs(Worker[int]):
        shards_count = 1
        max_retry_count = 0

        def _on_thread(self, id: int, payloads: list[int]) -> None:
            act(id)

        async def _on_loop(self, id: int, payloads: list[int]) -> None:
            act(id)

        perform_one = _on_loop if is_async else _on_thread

    app.worker(Jobs).perform_async([{"id": id, "payload": id} for id in range(6)])
    burst(app)
    assert sorted(ran) == [0, 2, 4]
    dead = Jobs.queries.morgue_fetch(list(range(6)))
    assert sorted((job.id, job.error) for job in dead) == [(str(id), f"ValueError: {id} is odd") for id in (1, 3, 5)]


def test_hooks_and_middlewares_see_typed_payloads(make_app: Callable[..., Lowkiq]) -> None:
    seen: list[Any] = []

    def watch(worker: Any, batch: list[Job], call: Callable[[], Any]) -> Any:
        seen.append([job.payloads for job in batch])
        return call()

    app = make_app(server_middlewares=[watch])

    class Jobs(Worker[Change]):
        max_retry_count = 0

        def perform(self, changes_by_id: dict[int, list[Change]]) -> None:
            assert [job.payloads for job in current().jobs] == list(changes_by_id.values())
            raise PartialFailure(dict.fromkeys(changes_by_id, "no"))

        def retries_exhausted(self, batch: list[Job]) -> None:
            seen.append([(job.id, job.payloads) for job in batch])

    app.worker(Jobs).perform_async([{"id": 1, "payload": Change(7)}])
    burst(app)
    assert seen == [[[Change(7)]], [("1", [Change(7)])]]
