"""An application as users write it, which type checkers accept at their strictest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NewType, assert_type
from uuid import UUID

import msgspec

import lowkiq.celery
from lowkiq import (
    Bury,
    Discard,
    Exponential,
    Fixed,
    Job,
    Lowkiq,
    NewJob,
    PartialFailure,
    Polynomial,
    Pushed,
    RetryIn,
    Snooze,
    Worker,
    current,
)

app = Lowkiq(threads_per_node=2, redis_url=os.environ.get("SHOP_REDIS"), server_middlewares=[])
AccountId = NewType("AccountId", int)


class OrderChange(msgspec.Struct):
    order_id: int
    version: int
    state: str = "new"


@dataclass
class Mail:
    to: str


@app.worker
class OrderSync(Worker[OrderChange]):
    shards_count = 24
    batch_size = 10

    retry = {TimeoutError: Fixed(5), ConnectionError: Polynomial(base=30, power=5, limit=10), KeyError: Bury}  # noqa: RUF012

    def retry_in(self, retry_count: int) -> float:
        return 10 * (retry_count + 1)

    def perform(self, changes_by_id: dict[int, list[OrderChange]]) -> None:
        if current().lease_lost:
            raise PartialFailure({"a": ValueError("x"), "b": "text"})

    def retries_exhausted(self, batch: list[Job]) -> None:
        print([job.error for job in batch])


@app.worker(id=lambda mail: mail.to)
class AsyncMail(Worker[Mail]):
    async def perform_one(self, to: str, mails: list[Mail]) -> None: ...


@app.worker
class Bare(Worker):
    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None: ...


@app.worker(queue_name="async")
class BareAsync(Worker):
    async def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        current().progress(0.5)
        await current().checkpoint(1)

    async def retries_exhausted(self, batch: list[Job]) -> None: ...


@app.worker
class Deciding(Worker):
    retry = Fixed(300, limit=5)

    def perform_one(self, id: str, payloads: list[Any]) -> None:
        raise PartialFailure({id: Snooze(5), "b": RetryIn(5), "c": Bury("stolen"), "d": Discard()})


@app.worker
class ByError(Worker):
    retry = {KeyError: Discard("gone")}  # noqa: RUF012

    def retry_in(self, retry_count: int, error: BaseException | str) -> float:
        return 60.0 if isinstance(error, TimeoutError) else 5.0


@app.worker
class Invoice(Worker):
    @classmethod
    def perform_async(cls, orders: Iterable[OrderChange]) -> Pushed:
        return super().perform_async([{"id": order.order_id, "payload": order.version} for order in orders])


@app.worker
def plain(payloads_by_id: dict[str, list[Any]]) -> None: ...


@app.worker(id=lambda change: change.order_id, score=lambda change: change.version)
def sync(order_id: int, changes: list[OrderChange]) -> None: ...


@app.worker
async def async_one(account: AccountId, mails: list[Mail]) -> None: ...


@app.worker(queue_name="mail", batch_size=10, isolation="process", perform_timeout=30)
async def send_mail(mails_by_id: dict[UUID, list[Mail]]) -> None: ...


def id_of(change: OrderChange) -> int:
    return change.order_id


@app.worker(id=id_of)
def sync2(payloads_by_id: dict[str, list[dict[str, int]]]) -> None: ...


assert_type(sync, type[Worker[OrderChange]])
assert_type(send_mail, type[Worker[Mail]])
assert_type(async_one, type[Worker[Mail]])
assert_type(plain, type[Worker[Any]])
pushed: Pushed = sync.push(OrderChange(1, 2), OrderChange(2, 1))
OrderSync.push(OrderChange(1, 2))
AsyncMail.push(Mail("ann"))
Bare.push({"a": 1})
assert_type(Invoice.perform_async([OrderChange(1, 1)]), Pushed)
OrderSync.perform_async([{"id": 1}, {"id": "2", "payload": {"v": 1}, "score": 5, "perform_in": 1.5}])


# A function stays one.
sync(17, [OrderChange(1, 2)])
send_mail({UUID(int=1): [Mail("ann")]})
assert_type(OrderSync(), OrderSync)
app.push(sync, [{"id": 1, "payload": OrderChange(1, 2)}, {"id": 2, "payload": {"order_id": 2, "version": 1}}])
app.push(send_mail, [{"id": UUID(int=1), "payload": Mail("ann"), "after": [(sync, 1), ("plain", "x")]}])
sync.actions.undo(sync.actions.delete_and_keep("due", [1]).undo or "")
sync.actions.set(concurrency=3, perform_timeout=None, rate="100/60", who="ann")
with app.batch(on_done=(sync, {"id": 1, "payload": OrderChange(1, 2)})) as all_of_them:
    all_of_them.push(send_mail, [{"id": UUID(int=1), "payload": Mail("ann")}])


async def push_some() -> Pushed:
    await async_one(AccountId(1), [Mail("ann")])
    current().then(sync, [{"id": 1, "payload": OrderChange(1, 2)}])
    current().then(Bare, ({"id": str(number)} for number in range(3)))
    await sync.aperform_async([{"id": 1, "payload": OrderChange(1, 2)}])
    return await sync.apush(OrderChange(1, 2))


# Jobs and calls as values, and times.
@lowkiq.celery.task(key="order_id", app=app)
def bill(order_id: int, state: str = "new") -> None: ...


assert_type(sync.job(1, OrderChange(1, 2)), NewJob[OrderChange])
sync.perform_async([sync.job(1), sync.job(id=2, payload={"order_id": 2, "version": 1}, at=2e9, tags=["eu"])])
sync.push(OrderChange(1, 2), delay=timedelta(minutes=5), tags=["eu"])
later: NewJob = {**bill.job(order_id=18), "delay": 60}
app.push(bill, [bill.job(17, "paid"), later])
app.push(sync, [sync.job(1, OrderChange(1, 2), delay=5, after=[(bill, 17), (sync, 2), ("plain", "x")])])
app.recurring.set(bill, bill.job(17, "paid"), "1h")
with app.batch(on_done=(bill, bill.job(17))) as calls:
    calls.push(bill, map(bill.job, range(3)))


def follow() -> None:
    current().then(bill, [bill.job(17, "paid")])
    current().then(sync, [sync.job(1, OrderChange(1, 2))])


sync.morgue.revive(job.id for job in sync.morgue.find("1*"))
app.worker(queue_name="slow", retry=Exponential(base=5, factor=3, at_most=600, limit=7))(lambda payloads_by_id: None)
jobs: list[Job] = send_mail.queries.fetch([1, "a"])
moved: int = Bare.actions.morgue_queue_up_all_jobs()
lag: float = app.metrics()["mail"].lag


class TenantOrders(Worker[OrderChange]):
    @staticmethod
    def id(change: OrderChange) -> int:
        return change.order_id

    def perform(self, changes_by_id: dict[str, list[OrderChange]]) -> None: ...


app.worker(shards_count=2)(TenantOrders).push(OrderChange(1, 1))
assert_type(app.worker(queue_name="lambda")(lambda payloads_by_id: None), type[Worker[Any]])
