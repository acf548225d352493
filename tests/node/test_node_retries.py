"""What a node does with jobs that fail: when they are tried again, and what goes to the morgue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Lowkiq, PartialFailure, Worker, current
from tests.node.driven import burst


class Failing(Worker):
    """Fails every batch, at once again and again. Subclasses say otherwise; a test registers one of its own."""

    error: BaseException = ValueError("no")
    tries: list[tuple[int, dict[str, list[Any]]]]
    asked: list[int]
    exhausted: list[Any]

    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        self.tries.append((current().attempt, payloads_by_id))
        raise self.error

    def retry_in(self, retry_count: int) -> float:
        self.asked.append(retry_count)
        return 0 if retry_count < 10 else 100

    def retries_exhausted(self, batch: list[Any]) -> None:
        self.exhausted.append([(job.id, job.payloads, job.retry_count, job.error) for job in batch])


MakeFailing = Callable[..., type[Failing]]


@pytest.fixture
def failing(app: Lowkiq) -> MakeFailing:
    def register(error: BaseException = Failing.error, **options: Any) -> type[Failing]:
        lists: dict[str, list[Any]] = {"tries": [], "asked": [], "exhausted": []}
        worker = type("Jobs", (Failing,), {"error": error, **lists})
        app.worker(**options)(worker)
        return worker

    return register


def test_a_failed_payload_is_merged_with_one_that_came_meanwhile(app: Lowkiq) -> None:
    """They run together at the retry, in the order of their scores."""
    ran: list[list[Any]] = []

    @app.worker
    class Jobs(Worker):
        def retry_in(self, retry_count: int) -> float:
            return 3600

        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            ran.append(payloads_by_id["a"])
            if len(ran) == 1:
                self.perform_async([{"id": "a", "payload": "early", "score": 1}])
                raise ValueError("first")

    Jobs.perform_async([{"id": "a", "payload": "late", "score": 2}])
    burst(app)
    (job,) = Jobs.queries.fetch(["a"])
    assert (job.payloads, job.retry_count) == (["early", "late"], 0)
    assert job.error == "ValueError: first"
    assert Jobs.actions.perform_now(["a"]) == 1
    burst(app)
    assert ran == [["late"], ["early", "late"]]
    assert app.metrics()["Jobs"].length == 0


def test_a_retry_is_due_after_retry_in_with_a_retry_count_one_higher(app: Lowkiq, failing: MakeFailing) -> None:
    jobs = failing()
    jobs.perform_async([{"id": "a"}])
    before = time.time()
    burst(app)
    (job,) = jobs.queries.fetch(["a"])
    assert [attempt for attempt, _ in jobs.tries] == list(range(1, 12))
    assert (jobs.asked, job.retry_count) == (list(range(11)), 10)
    assert before + 100 <= job.perform_in <= time.time() + 100


@pytest.mark.parametrize(("max_retry_count", "tries"), [(0, 1), (1, 2), (3, 4)])
def test_the_failure_that_brings_retry_count_to_the_maximum_exhausts(
    app: Lowkiq, failing: MakeFailing, max_retry_count: int, tries: int
) -> None:
    jobs = failing(max_retry_count=max_retry_count)
    jobs.perform_async([{"id": "a", "payload": 1}])
    burst(app)
    assert [attempt for attempt, _ in jobs.tries] == list(range(1, tries + 1))
    assert jobs.exhausted == [[("a", [1], max_retry_count, "ValueError: no")]]
    (dead,) = jobs.queries.morgue_fetch(["a"])
    assert (dead.payloads, dead.error) == ([1], "ValueError: no")
    assert jobs.queries.fetch(["a"]) == []


def test_of_several_payloads_the_lowest_goes_to_the_morgue_and_the_rest_start_anew(
    app: Lowkiq, failing: MakeFailing
) -> None:
    jobs = failing(max_retry_count=1)
    jobs.perform_async([{"id": "a", "payload": number, "score": number} for number in (1, 2)])
    burst(app)
    assert jobs.tries == [(1, {"a": [1, 2]}), (2, {"a": [1, 2]}), (1, {"a": [2]}), (2, {"a": [2]})]
    (dead,) = jobs.queries.morgue_fetch(["a"])
    assert dead.payloads == [1, 2]


def test_partial_failure_fails_only_the_ids_it_names(app: Lowkiq) -> None:
    @app.worker(batch_size=4, shards_count=1)
    class Jobs(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            raise PartialFailure({"b": ValueError("bad b"), "d": "a text", "stranger": "ignored"})

    Jobs.perform_async([{"id": id} for id in "abcd"])
    burst(app)
    left = {job.id: job.error for job in Jobs.queries.fetch(list("abcd"))}
    assert left == {"b": "ValueError: bad b", "d": "a text"}
    metrics = app.metrics()["Jobs"]
    assert (metrics.processed, metrics.failed, metrics.busy) == (2, 2, 0)


def test_an_exception_fails_its_batch_and_no_other(app: Lowkiq) -> None:
    @app.worker(batch_size=2, shards_count=1)
    class Jobs(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            if "b" in payloads_by_id:
                raise ValueError("no")

    Jobs.perform_async([{"id": id, "perform_in": 1e9 + number} for number, id in enumerate("abcdef")])
    burst(app)
    assert [job.id for job in Jobs.queries.fetch(list("abcdef"))] == ["a", "b"]


def test_an_error_that_no_output_can_print_fails_only_its_job(app: Lowkiq, failing: MakeFailing) -> None:
    """A lone surrogate, as from the name of a file, in an error's message."""
    jobs = failing(ValueError("no such file: \udcff"), max_retry_count=0)
    jobs.perform_async([{"id": "a"}])
    burst(app)
    (dead,) = jobs.queries.morgue_fetch(["a"])
    assert dead.error == "ValueError: no such file: \\udcff"
    assert [list(batch) for _, batch in jobs.tries] == [["a"]]
