"""A whole node beside a fake: threads, an event loop, middlewares around both, and what people see of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Bury, Discard, Fixed, Job, Lowkiq, PartialFailure, RetryIn, Snooze, Worker, testing
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
        retry: dict[type[BaseException], Fixed] = {ValueError: Fixed(3_000), KeyError: Fixed(3_000, limit=0)}
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


class Waits:
    """Jobs that wait for one that is held, and what people do to them meanwhile."""

    def __init__(self, app: Lowkiq) -> None:
        self.ran: list[str] = []

        @app.worker(queue_name="orders", shards_count=1)
        def orders(id: str, _: list[Any]) -> None:
            self.ran.append(f"order {id}")

        @app.worker(queue_name="mails", shards_count=1)
        def mails(id: str, _: list[Any]) -> None:
            self.ran.append(f"mail {id}")

        self.orders, self.mails = orders, mails

    def told(self, run: Callable[[], object]) -> list[Any]:
        """What is told, step by step, where `run` runs what is due."""
        orders, mails, told = self.orders.actions, self.mails.actions, list[Any]()

        def note(*replies: Any) -> None:
            run()
            held = sorted(
                (
                    hold.id,
                    hold.by_person,
                    hold.why,
                    hold.waits and (hold.waits.left, hold.waits.total, hold.waits.first),
                )
                for hold in self.mails.queries.held()
            )
            told.append((*replies, held, sorted(self.ran), orders.waited_for(["first"])))
            told.append(
                [
                    (job.id, job.waits_for_own_run)
                    for job in sorted(self.mails.queries.find("*"), key=lambda job: job.id)
                ]
            )

        self.orders.perform_async([{"id": "first"}, {"id": "second"}])
        orders.hold(["first"], "not yet")
        ids = ("both", "dead", "gone", "kept", "new", "tired")
        self.mails.perform_async([{"id": id, "after": [(self.orders, "first"), (self.orders, "second")]} for id in ids])
        note()
        note(mails.hold(["both", "tired"], "wait"), mails.hold(["both"], "longer"), mails.release(["kept"]))
        note(mails.stop_waiting(["tired", "none"]), mails.bury(["dead", "gone", "new"]), mails.delete(["kept"]))
        self.mails.perform_async([{"id": "kept"}, {"id": "gone"}, {"id": "new"}])
        note(mails.morgue_delete(["gone"]))
        note(mails.morgue_queue_up(["dead"]), mails.release(["tired"]), mails.cancel(["new"]))
        note(orders.release(["first"]))
        note(mails.release(["both"]))
        return told


def test_what_waits_and_is_held_does_so_on_both(make_app: Callable[..., Lowkiq]) -> None:
    real, fake = make_app(), make_app()
    of_real = Waits(real)
    really = of_real.told(lambda: burst(real))
    of_fake = Waits(fake)
    with testing.fake(fake) as jobs:
        told = of_fake.told(jobs.drain)
    assert told == really
    assert sorted(of_fake.ran) == sorted(of_real.ran)
