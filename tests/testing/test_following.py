"""The kit: what follows, waits and recurs does so in a fake as it would on nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lowkiq import Lowkiq, current, testing
from lowkiq.errors import LowkiqError


class Shop:
    def __init__(self) -> None:
        self.app = Lowkiq(namespace="following")
        self.ran: list[tuple[str, list[Any]]] = []

        @self.app.worker(queue_name="invoices")
        def invoice(id: str, payloads: list[Any]) -> None:
            self.ran.append((f"invoice {id}", payloads))

        @self.app.worker(queue_name="orders", max_retry_count=0, batch_size=5)
        def orders(payloads_by_id: dict[str, list[Any]]) -> None:
            for id, payloads in payloads_by_id.items():
                self.ran.append((f"order {id}", payloads))
                current().then(invoice, [{"id": id, "payload": payloads[-1], "delay": 60}], of=id)
            if "bad" in payloads_by_id:
                raise ValueError("no")

        self.invoice, self.orders = invoice, orders

    def tidy_every_hour(self) -> None:
        """Not of every shop: tests that let minutes pass would meet the hour."""

        @self.app.every("1h", id="hourly", missed="all")
        def tidy(id: str, payloads: list[Any]) -> None:
            self.ran.append((id, payloads))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.ran]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_what_follows_is_pushed_once_its_job_is_done(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "17", "payload": "paid"}])
        jobs.assert_not_pushed(shop.invoice)
        jobs.drain()
        jobs.assert_pushed(shop.invoice, id="17", payload="paid", delay=60, times=1)
        assert shop.names == ["order 17"]
        jobs.drain(until="+2m")
    assert shop.ran == [("order 17", ["paid"]), ("invoice 17", ["paid"])]


def test_nothing_follows_from_what_failed(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "bad"}])
        jobs.drain(until="+10m")
        jobs.assert_not_pushed(shop.invoice)


def test_inline_what_follows_runs_at_once(shop: Shop) -> None:
    with testing.inline(shop.app):
        shop.orders.perform_async([{"id": "17"}])
    assert shop.names == ["order 17", "invoice 17"]


def test_a_job_waits_for_those_that_are_queued_run_or_dead(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.invoice.perform_async([{"id": "all", "after": [(shop.orders, "17"), (shop.orders, "none")]}])
        shop.orders.perform_async([{"id": "17", "delay": 60}])
        jobs.drain()
        assert shop.names == []
        jobs.drain(until="+90s")
        assert shop.names == ["order 17", "invoice all"]
        shop.orders.perform_async([{"id": "bad"}])
        shop.invoice.perform_async([{"id": "never", "after": [(shop.orders, "bad")]}])
        jobs.drain(until="+5m")
        assert "invoice never" not in shop.names


def test_a_batch_ends_with_its_job(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        with shop.app.batch(on_done=(shop.invoice, {"id": "end"})) as batch:
            batch.push(shop.orders, [{"id": n} for n in range(3)])
            jobs.drain()
            assert "invoice end" not in shop.names
        jobs.drain()
    assert shop.names[-1] == "invoice end"


def test_two_batches_with_the_same_job_at_the_end_are_both_waited_for(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        first, second = (shop.app.batch(on_done=(shop.invoice, {"id": "end"})) for _ in range(2))
        with second:
            with first:
                first.push(shop.orders, [{"id": 1}])
            jobs.drain()
            assert shop.names == ["order 1"]
            second.push(shop.orders, [{"id": 2}])
        jobs.drain()
    assert shop.names == ["order 1", "order 2", "invoice end"]


def test_jobs_that_recur_run_as_time_goes_on(shop: Shop) -> None:
    shop.tidy_every_hour()
    with testing.fake(shop.app) as jobs:
        start = jobs.now
        jobs.drain(until="+3h")
        hours = [start // 3_600 * 3_600 + n * 3_600 for n in (1, 2, 3)]
    assert shop.ran == [("hourly", [{"due": hour}]) for hour in hours]


def test_jobs_are_set_paused_run_and_removed_at_run_time(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.app.recurring.set(shop.invoice, "eu", "10m", payload="of the eu")
        shop.app.recurring.set("invoices", "us", 600, offset=300)
        (first, second) = shop.app.recurring
        assert {first.id, second.id} == {"eu", "us"} and first.origin == "api" and first.last_at is None
        assert abs((second.next_at or 0) - (first.next_at or 0)) == 300
        jobs.drain(until="+10m")
        assert sorted(shop.ran) == [("invoice eu", ["of the eu"]), ("invoice us", [""])]
        assert shop.app.recurring.pause(shop.invoice, "us", "it is summer")
        assert not shop.app.recurring.pause(shop.invoice, "us")
        jobs.drain(until="+20m")
        (eu, us) = shop.app.recurring.list(shop.invoice)
        assert (
            us.paused
            and (us.paused.why, us.next_at) == ("it is summer", None)
            and eu.last_at == (eu.next_at or 0) - 600
        )
        assert shop.names.count("invoice us") == 1 and shop.names.count("invoice eu") == 3
        assert shop.app.recurring.resume(shop.invoice, "us") and shop.app.recurring.remove(shop.invoice, "eu")
        assert shop.app.recurring.run_now(shop.invoice, "us").new == 1
        jobs.drain(until="+10m")
        assert shop.names.count("invoice us") == 3 and shop.names.count("invoice eu") == 3
        with pytest.raises(LowkiqError, match="nothing recurs as 'eu' in invoices"):
            shop.app.recurring.run_now(shop.invoice, "eu")
        with pytest.raises(LowkiqError, match="no queue 'no'"):
            shop.app.recurring.pause("no", "eu")
    assert "recurring" not in vars(shop.app)


def test_those_of_the_code_can_be_paused_and_a_payload_stays_that_is_not_given(shop: Shop) -> None:
    shop.tidy_every_hour()
    with testing.fake(shop.app) as jobs:
        assert [(job.id, job.origin) for job in shop.app.recurring] == [("hourly", "code")]
        assert shop.app.recurring.pause("tidy", "hourly")
        shop.app.recurring.set(shop.invoice, "eu", "1h", payload="kept")
        shop.app.recurring.set(shop.invoice, "eu", "2h")
        jobs.drain(until="+2h")
    assert shop.ran == [("invoice eu", ["kept"])]


def test_inline_a_batch_ends_at_the_end_of_its_block(shop: Shop) -> None:
    """It did with the next push of anything."""
    with testing.inline(shop.app):
        with shop.app.batch(on_done=(shop.invoice, {"id": "end", "delay": 60})) as batch:
            batch.push(shop.orders, [{"id": 1}, {"id": 2}])
            assert ("invoice end", [""]) not in shop.ran
        assert shop.ran[-1] == ("invoice end", [""])
        with shop.app.batch(on_done=(shop.invoice, {"id": "empty"})):
            pass
        assert shop.ran[-1] == ("invoice empty", [""])


async def _awaited(shop: Shop) -> None:
    async with shop.app.batch(on_done=(shop.invoice, {"id": "end"})) as batch:
        await batch.apush(shop.orders, [{"id": 1}])


def test_inline_so_does_one_that_is_awaited(shop: Shop) -> None:
    with testing.inline(shop.app):
        asyncio.run(_awaited(shop))
        assert shop.ran[-1] == ("invoice end", [""])
