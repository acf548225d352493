"""All ways in go by the same door: whatever puts a job into a queue, what its worker's options say of it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import lowkiq.celery
from lowkiq import Debounce, Lowkiq, Worker, current
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.outbox.rows import Row, rows_of
from lowkiq.outbox.sending import send
from lowkiq.queue.shard import Shard
from tests.node.driven import burst
from tests.queue.reshard_world import QUEUE, ReshardWorld

PAYLOADS: list[Any] = [{"n": 1}, {"n": 2}]
JOBS: list[Any] = [{"id": "17", "payload": payload} for payload in PAYLOADS]
Way = Callable[[Lowkiq, type[Worker[Any]]], object]


def push(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    for job in JOBS:
        worker.perform_async([job])


def push_many(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    worker.perform_async([*({"id": f"other-{number}"} for number in range(30)), *JOBS])


def awaited(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    async def run() -> None:
        for job in JOBS:
            await worker.aperform_async([job])
        await app.aclose()

    asyncio.run(run())


def awaited_together(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    async def run() -> None:
        await asyncio.gather(*(worker.aperform_async([job]) for job in JOBS))
        await app.aclose()

    asyncio.run(run())


def then(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    @app.worker(queue_name="first", shards_count=1)
    def first(id: str, _: list[Any]) -> None:
        current().then(worker, JOBS)

    first.perform_async([{"id": "1"}])
    burst(app)


def on_success(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    @app.worker(queue_name="first", shards_count=1, pushes="on_success")
    def first(id: str, _: list[Any]) -> None:
        push(app, worker)

    first.perform_async([{"id": "1"}])
    burst(app)


def batch(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    @app.worker(queue_name="first", shards_count=1)
    def first(id: str, _: list[Any]) -> None: ...

    for job in JOBS:
        with app.batch(on_done=(worker, job)) as jobs:
            jobs.push(first, [{"id": "1"}])
    burst(app)


def fire(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    app.recurring.set(worker, "17", "1h", missed="all", payload={"n": 1}, backlog=2)
    prefix = prefix_of(app, worker)
    seconds, _ = app.redis().time()
    app.redis().zadd(f"{prefix}recurs", {"17": seconds - 3 * 3600})
    burst(app)


def run_now(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    app.recurring.set(worker, "17", "1h", missed="all", payload={"n": 1})
    for _ in JOBS:
        app.recurring.run_now(worker, "17")


def put_back(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    push(app, worker)
    actions = UndoableActions(app.caller, app.shards(worker.queue_name, 1), max_id_bytes=512)
    deleted = actions.delete_and_keep("due", ["17"])
    assert deleted.undo
    actions.undo(deleted.undo)


def adopt(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    world = ReshardWorld(app, 1, Random(0))
    push(app, worker)
    world.begin(2)
    world.end_move()


def outbox(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    rows = rows_of(worker, app.validated(worker, JOBS))
    outcome = send(app, [Row(number, *row) for number, row in enumerate(rows, 1)])
    assert not outcome.rejected


WAYS: list[Way] = [
    push, push_many, awaited, awaited_together, then, on_success, batch, fire, run_now, put_back, adopt, outbox
]  # fmt: skip


def prefix_of(app: Lowkiq, worker: type[Worker[Any]]) -> str:
    """The prefix of the shard that has the id by now."""
    found = [
        shard.prefix for shard in app.shards(worker.queue_name, 1)
        if isinstance(shard, Shard) and app.redis().hexists(f"{shard.prefix}payloads", "17")
    ]  # fmt: skip
    return found[0] if found else app.shards(worker.queue_name, 1)[0].prefix


def read(app: Lowkiq, worker: type[Worker[Any]], name: str) -> Any:
    return app.redis().hget(prefix_of(app, worker) + name, "17")


def has_rule(rule: bytes) -> Callable[[Lowkiq, type[Worker[Any]]], None]:
    def check(app: Lowkiq, worker: type[Worker[Any]]) -> None:
        assert read(app, worker, "rules") == rule

    return check


def keeps_one(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    assert read(app, worker, "rules") == b":last"
    assert worker.queries.fetch(["17"])[0].payload_count == 1


def has_tenant(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    assert read(app, worker, "tenants") == b"of 17"


def is_debounced(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    assert read(app, worker, "debounced") is not None


def tenant_of(name: str, _: Any) -> str:
    return f"of {name}"


#: Options of a worker, and what they leave in Redis of a job that is queued.
OPTIONS: dict[str, tuple[dict[str, Any], Callable[[Lowkiq, type[Worker[Any]]], None]]] = {
    "throttle": ({"throttle": 60.0}, has_rule(b"60.000000:")),
    "keep": ({"keep": "last"}, keeps_one),
    "equal": ({"equal": "first"}, has_rule(b":lowest")),
    "fair_by": ({"fair_by": tenant_of}, has_tenant),
    "debounce": ({"debounce": Debounce(3_000, at_most=3_000)}, is_debounced),
    "all of them": (
        {"throttle": 60.0, "keep": "last", "fair_by": tenant_of}, has_rule(b"60.000000:last")
    ),
}  # fmt: skip
#: A debounce is over once a job was deleted and is back.
SKIPPED = {("put_back", "debounce")}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_its_worker_says_of_a_job_holds_whichever_way_it_came(app: Lowkiq, way: Way, option: str) -> None:
    if (way.__name__, option) in SKIPPED:
        return
    options, check = OPTIONS[option]

    @app.worker(queue_name=QUEUE, shards_count=1, **options)
    def held(id: str, payloads: list[Any]) -> None: ...

    held.actions.hold(["17"])
    way(app, held)
    check(app, held)


@pytest.mark.parametrize("option", OPTIONS)
def test_so_it_is_with_calls_of_celery_s_tasks(app: Lowkiq, option: str) -> None:
    options, check = OPTIONS[option]

    @lowkiq.celery.task(key="order", app=app, name=QUEUE, shards_count=1, **options)
    def sync(order: int, n: int) -> None: ...

    for n in (1, 2):
        sync.delay(17, n)
    check(app, sync.worker)
