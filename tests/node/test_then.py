"""What follows from a job that is done is pushed with it; from one that is not, it isn't."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import InvalidJob, Lowkiq, LowkiqError, PartialFailure, Worker, current
from tests.node.driven import burst

Ran = dict[str, list[Any]]


def make_target(app: Lowkiq, ran: Ran, **options: Any) -> type[Worker[Any]]:
    @app.worker(queue_name="invoices", shards_count=3, max_retry_count=0, **options)
    def invoice(id: str, payloads: list[Any]) -> None:
        ran.setdefault(id, []).extend(payloads)

    return invoice


def test_what_follows_comes_with_the_settle(app: Lowkiq) -> None:
    ran: Ran = {}
    invoice = make_target(app, ran)

    @app.worker(queue_name="orders", shards_count=2)
    def order(id: str, payloads: list[Any]) -> None:
        current().then(invoice, [{"id": f"{id}-{n}", "payload": payloads[0]} for n in range(3)])
        assert not invoice.queries.fetch([f"{id}-0"])

    order.perform_async([{"id": id, "payload": {"of": id}} for id in "abc"])
    burst(app)
    assert ran == {f"{id}-{n}": [{"of": id}] for id in "abc" for n in range(3)}


def test_nothing_follows_from_what_fails(app: Lowkiq) -> None:
    ran: Ran = {}
    invoice = make_target(app, ran)

    @app.worker(queue_name="orders", shards_count=1, max_retry_count=0, batch_size=4)
    def orders(payloads_by_id: dict[str, list[Any]]) -> None:
        for id in payloads_by_id:
            current().then(invoice, [{"id": f"of {id}"}], of=id)
        current().then(invoice, [{"id": "of all"}])
        if "bad" in payloads_by_id:
            raise PartialFailure({"bad": "no"})

    orders.perform_async([{"id": id} for id in ("a", "bad", "c")])
    burst(app)
    assert sorted(ran) == ["of a", "of c"]
    assert [job.id for job in orders.queries.morgue_fetch(["a", "bad", "c"])] == ["bad"]


def test_of_async_jobs_it_follows_too(app: Lowkiq) -> None:
    ran: Ran = {}
    invoice = make_target(app, ran)

    @app.worker(queue_name="orders", shards_count=2, max_retry_count=0)
    async def order(id: str, payloads: list[Any]) -> None:
        current().then(invoice, [{"id": id, "payload": payloads[0]}])
        await asyncio.sleep(0)
        if payloads == ["bad"]:
            raise ValueError("no")

    order.perform_async([{"id": "a", "payload": 1}, {"id": "b", "payload": "bad"}])
    burst(app)
    assert ran == {"a": [1]}


@pytest.mark.parametrize("middlewares", [[], [lambda _worker, _batch, call: call()]], ids=["plain", "middleware"])
def test_pushes_on_success_are_those_of_what_is_done(make_app: Callable[..., Lowkiq], middlewares: list[Any]) -> None:
    app = make_app(server_middlewares=middlewares)
    ran: Ran = {}
    invoice = make_target(app, ran)

    @app.worker(queue_name="orders", shards_count=1, pushes="on_success")
    class Orders(Worker[Any]):
        max_retry_count = 0

        def perform_one(self, id: str, payloads: list[Any]) -> None:
            assert invoice.perform_async([{"id": id, "payload": n} for n in range(3)]) == (0, 0)
            if id == "bad":
                raise ValueError("no")

        def retries_exhausted(self, batch: list[Any]) -> None:
            invoice.perform_async([{"id": f"sorry, {job.id}"} for job in batch])

    Orders.perform_async([{"id": "a"}, {"id": "bad"}])
    burst(app)
    assert ran == {"a": [0, 1, 2], "sorry, bad": [""]}


def test_nothing_follows_in_a_hook_which_is_told_so(app: Lowkiq) -> None:
    ran: Ran = {}
    invoice = make_target(app, ran)
    told: list[str] = []

    @app.worker(queue_name="orders", shards_count=1)
    class Orders(Worker[Any]):
        max_retry_count = 0

        def perform_one(self, id: str, payloads: list[Any]) -> None:
            if id == "bad":
                raise ValueError("no")
            current().then(invoice, [{"id": id}])

        def retries_exhausted(self, batch: list[Any]) -> None:
            with pytest.raises(LowkiqError) as caught:
                current().then(invoice, [{"id": "sorry"}])
            told.append(str(caught.value))

    Orders.perform_async([{"id": "bad"}])
    Orders.perform_async([{"id": "good"}])
    burst(app)
    assert ran == {"good": [""]}
    assert "in a hook push" in told[0]


def test_bad_input_fails_the_job_and_nothing_is_written(app: Lowkiq) -> None:
    ran: Ran = {}
    invoice = make_target(app, ran)
    errors: list[Exception] = []

    @app.worker(queue_name="orders", shards_count=1)
    def order(id: str, _: list[Any]) -> None:
        bad: Any = (([{"id": ""}], None), ([{"id": "x"}], "stranger"), ([{"id": n} for n in range(1_001)], None))
        for jobs, of in bad:
            try:
                current().then(invoice, jobs, of=of)
            except (InvalidJob, ValueError, LowkiqError) as error:
                errors.append(error)
        current().then(invoice, [{"id": id}])

    order.perform_async([{"id": "a"}])
    burst(app)
    assert ran == {"a": [""]}
    assert isinstance(errors[0], InvalidJob)
    assert "stranger" in str(errors[1])
    assert "1,000" in str(errors[2])
