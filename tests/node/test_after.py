"""Jobs that run after others, and batches."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq import InvalidJob, Lowkiq
from lowkiq.admin.pauses import Waits, by_whom
from tests.node.driven import burst


class Shop:
    """An application of which the nodes note what they run, in order."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.ran: list[str] = []
        self.fail: set[str] = set()
        self.orders = self._worker("orders", 3)
        self.reports = self._worker("reports", 2)

    def _worker(self, queue: str, shards_count: int) -> Any:
        @self.app.worker(queue_name=queue, shards_count=shards_count, max_retry_count=0)
        def perform(id: str, _: list[Any]) -> None:
            self.ran.append(id)
            if id in self.fail:
                raise ValueError("no")

        return perform


@pytest.fixture
def shop(app: Lowkiq) -> Shop:
    return Shop(app)


def test_a_job_runs_after_those_that_it_waits_for(shop: Shop) -> None:
    shop.orders.perform_async([{"id": n} for n in range(20)])
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, n) for n in range(20)]}, {"id": "other"}])
    burst(shop.app)
    assert sorted(shop.ran) == sorted([*map(str, range(20)), "other", "report"])
    assert [id for id in shop.ran if id != "other"][-1] == "report"  # "other" waits for nothing, and may be later
    assert shop.reports.queries.held() == []


def test_what_has_nothing_counts_as_done(shop: Shop) -> None:
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, "never seen")]}])
    burst(shop.app)
    assert shop.ran == ["report"]


def test_a_job_waits_for_one_in_the_morgue_until_that_is_deleted(shop: Shop) -> None:
    shop.fail.add("bad")
    shop.orders.perform_async([{"id": "bad"}])
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, "bad")]}])
    burst(shop.app)
    assert shop.ran == ["bad"]
    shop.orders.actions.morgue_delete(["bad"])
    burst(shop.app)
    assert shop.ran == ["bad", "report"]


def test_somebody_lets_a_waiting_job_go(shop: Shop) -> None:
    shop.fail.add("bad")
    shop.orders.perform_async([{"id": "bad"}])
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, "bad")]}])
    burst(shop.app)
    (held,) = shop.reports.queries.held()
    assert held.waits == Waits(1, 1, (("orders", "bad"),))
    assert by_whom(held) == ": it waits for orders bad; 0 of 1 are done"
    assert shop.reports.actions.let_go(["report"]) == 1
    burst(shop.app)
    assert shop.ran == ["bad", "report"]


def test_a_batch_ends_with_the_job_after_all_of_it(shop: Shop) -> None:
    with shop.app.batch(on_done=(shop.reports, {"id": "eu"})) as batch:
        for first in range(0, 1_200, 400):
            batch.push(shop.orders, [{"id": n} for n in range(first, first + 400)])
        batch.push(shop.reports, [{"id": "part"}])
        burst(shop.app)
        assert "eu" not in shop.ran
        (held,) = shop.reports.queries.held()
        assert held.waits == Waits(0, 0, (), is_open=True)
    burst(shop.app)
    assert len(shop.ran) == 1_202
    assert shop.ran[-1] == "eu"


def test_an_empty_batch_is_done(shop: Shop) -> None:
    with shop.app.batch(on_done=(shop.reports, {"id": "eu"})):
        pass
    burst(shop.app)
    assert shop.ran == ["eu"]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([], "leave the key out"),
        ("orders", "list of pairs"),
        ([17], "pairs of a worker and an id"),
        ([("nothing", 17)], "no worker of this application"),
        ([("orders", "")], "must not be empty"),
        ([("reports", "a")], "wait for one another"),
        ([("orders", n) for n in range(501)], "app.batch"),
    ],
)
def test_bad_input_is_refused(shop: Shop, after: Any, said: str) -> None:
    with pytest.raises(InvalidJob, match=said):
        shop.reports.perform_async([{"id": "a", "after": after}])


def test_jobs_that_wait_for_one_another_are_refused(shop: Shop) -> None:
    with pytest.raises(InvalidJob, match="reports 'a' after reports 'b' after reports 'a'"):
        shop.reports.perform_async(
            [{"id": "a", "after": [(shop.reports, "b")]}, {"id": "b", "after": [(shop.reports, "a")]}]
        )
