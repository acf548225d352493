"""A whole node beside a fake: threads, an event loop, middlewares around both, and what people see of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Bury, Discard, Every, Job, Lowkiq, PartialFailure, RetryIn, Snooze, Worker, testing
from tests.node.driven import burst

FATES: dict[str, BaseException | None] = {
    "done": None, "failed": ValueError("no"), "snoozed": Snooze(3_000), "later": RetryIn(3_000),
    "buried": Bury("never"), "discarded": Discard("gone"), "last": KeyError("k"),
}  # fmt: skip


class Side:
    """An application whose jobs have the fate that their id says."""

    def __init__(self, app: Lowkiq, kind: str) -> None:
        self.ran: Counter[tuple[str, tuple[Any, ...]]] = Counter()
        self.app = app
        side = self

        def perform_one(_: Any, id: str, payloads: list[Any]) -> None:
            side.ran[id, tuple(payloads)] += 1
            if error := FATES[id]:
                raise error

        async def perform_async(self: Any, id: str, payloads: list[Any]) -> None:
            perform_one(self, id, payloads)

        def perform(_: Any, payloads_by_id: dict[str, list[Any]]) -> None:
            side.ran.update((id, tuple(payloads)) for id, payloads in payloads_by_id.items())
            raise PartialFailure({id: error for id in payloads_by_id if (error := FATES[id])})

        members: dict[str, dict[str, Any]] = {
            "one": {"perform_one": perform_one},
            "async": {"perform_one": perform_async},
            "batch": {"perform": perform, "batch_size": 10},
        }
        retry: dict[type[BaseException], Every] = {ValueError: Every(3_000), KeyError: Every(3_000, times=0)}
        self.worker: type[Worker[Any]] = app.worker(queue_name="q", retry=retry)(type("Jobs", (Worker,), members[kind]))

    def push(self) -> None:
        self.worker.perform_async(
            [{"id": id, "payload": n, "tags": [id]} for id in FATES for n in (1, 2, 1)]
            + [{"id": "done", "payload": 3, "delay": 3_000}]
        )


def seen(jobs: list[Job]) -> list[tuple[Any, ...]]:
    """What people see of jobs, but for times."""
    return sorted(
        (job.id, job.payloads, job.retry_count, job.error, job.payload_count, job.tags, job.is_blocked) for job in jobs
    )


@pytest.mark.parametrize("kind", ["one", "async", "batch"])
def test_both_run_the_same_and_people_see_the_same(make_app: Callable[..., Lowkiq], kind: str) -> None:
    calls: Counter[str] = Counter()

    async def awaited(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
        calls["awaited"] += len(batch)
        return await call()

    def plain(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
        calls["plain"] += len(batch)
        return call()

    real, fake = (Side(make_app(server_middlewares=[plain, awaited]), kind) for _ in range(2))
    real.push()
    burst(real.app)
    of_real, calls = calls, Counter()
    with testing.fake(fake.app) as jobs:
        fake.push()
        jobs.drain()
        queries = real.worker.queries
        assert seen(jobs.pending(fake.worker)) == seen(queries.fetch([*FATES]))
        assert seen(jobs.morgue(fake.worker)) == seen(queries.morgue_fetch([*FATES]))
    assert fake.ran == real.ran
    assert calls == of_real
