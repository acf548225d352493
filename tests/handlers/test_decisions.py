"""Decisions: what a handler raises to say what becomes of its jobs, alone or of some of a batch, sync and async."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from lowkiq import Bury, Decision, Discard, Job, Lowkiq, LowkiqError, PartialFailure, RetryIn, Snooze, Worker
from lowkiq.admin.jobs.failures import read_ledger
from lowkiq.handlers.ledger import Ledger
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from tests.node.driven import burst

DECISIONS = (Snooze(30), RetryIn(300), Bury("card is stolen"), Discard("order is gone"))


class Stage:
    """A worker of batches or of single ids, sync or async, that raises what a test says; once, then it is done."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.ran: list[tuple[str, list[Any]]] = []
        self.gone: list[tuple[str, list[Any], str | None]] = []
        self.errors: dict[str, BaseException] = {}
        self.during: Callable[[], Any] = lambda: None

    def register(self, kind: str, **options: Any) -> type[Worker]:
        stage = self

        def perform_one(_: Any, id: str, payloads: list[Any]) -> None:
            stage.ran.append((id, payloads))
            stage.during()
            if error := stage.errors.pop(id, None):
                raise error

        def perform(_: Any, payloads_by_id: dict[str, list[Any]]) -> None:
            stage.ran += payloads_by_id.items()
            stage.during()
            raise PartialFailure({id: error for id in payloads_by_id if (error := stage.errors.pop(id, None))})

        async def perform_async(self: Any, id: str, payloads: list[Any]) -> None:
            perform_one(self, id, payloads)

        def retries_exhausted(_: Any, batch: list[Job]) -> None:
            stage.gone += [(job.id, job.payloads, job.error) for job in batch]

        kinds: dict[str, dict[str, Any]] = {
            "one": {"perform_one": perform_one},
            "batch": {"perform": perform, "batch_size": 10},
            "async": {"perform_one": perform_async},
        }
        members = {"retries_exhausted": retries_exhausted, "shards_count": 1, **kinds[kind]}
        worker = type("Jobs", (Worker,), members)
        return self.app.worker(queue_name="q", **options)(worker)

    @property
    def counts(self) -> tuple[int, int, int]:
        metrics = self.app.metrics()["q"]
        return metrics.processed, metrics.failed, metrics.retries


@pytest.fixture
def stage(app: Lowkiq) -> Stage:
    return Stage(app)


kinds = pytest.mark.parametrize("kind", ["one", "batch", "async"])


@kinds
def test_a_snoozed_job_comes_back_with_what_was_pushed_meanwhile_and_has_not_failed(stage: Stage, kind: str) -> None:
    worker = stage.register(kind)
    stage.errors["a"] = Snooze(60)
    stage.during = lambda: len(stage.ran) == 1 and worker.perform_async([{"id": "a", "payload": 2}])
    worker.perform_async([{"id": "a", "payload": 1}])
    before = time.time()
    burst(stage.app)
    (job,) = worker.queries.fetch(["a"])
    assert (job.payloads, job.retry_count, job.error) == ([1, 2], -1, None)
    assert before + 59 < job.perform_in < time.time() + 61
    assert stage.counts == (0, 0, 0)
    worker.actions.perform_now(["a"])
    burst(stage.app)
    assert stage.ran == [("a", [1]), ("a", [1, 2])]
    assert stage.counts == (1, 0, 0)
    assert read_ledger(stage.app.caller, stage.app.settings.namespace, "q") == {}


def test_a_snooze_leaves_retries_and_the_last_error_as_they_were(stage: Stage) -> None:
    worker = stage.register("one")
    worker.perform_async([{"id": "a"}])
    for error in (ValueError("no"), Snooze(60)):
        stage.errors["a"] = error
        worker.actions.perform_now(["a"])
        burst(stage.app)
    (job,) = worker.queries.fetch(["a"])
    assert (job.retry_count, job.error) == (0, "ValueError: no")
    assert stage.counts == (0, 1, 1)


@kinds
def test_a_job_is_tried_again_when_it_has_said(stage: Stage, kind: str) -> None:
    worker = stage.register(kind)
    stage.errors["a"] = RetryIn(300)
    worker.perform_async([{"id": "a"}])
    before = time.time()
    burst(stage.app)
    (job,) = worker.queries.fetch(["a"])
    assert (job.retry_count, job.error) == (0, "RetryIn: to be tried again in 300 s")
    assert before + 299 < job.perform_in < time.time() + 301
    assert stage.counts == (0, 1, 1)


def test_a_job_that_has_said_when_is_exhausted_like_any_other(stage: Stage) -> None:
    worker = stage.register("one", max_retry_count=0)
    stage.errors["a"] = RetryIn(300)
    worker.perform_async([{"id": "a"}])
    burst(stage.app)
    assert stage.gone == [("a", [""], "RetryIn: to be tried again in 300 s")]


def test_the_error_that_a_retry_was_raised_from_is_kept(stage: Stage) -> None:
    worker = stage.register("one")
    stage.errors["a"] = RetryIn(300)
    stage.errors["a"].__cause__ = ConnectionError("the bank is away")
    worker.perform_async([{"id": "a"}])
    burst(stage.app)
    (job,) = worker.queries.fetch(["a"])
    assert job.error == "ConnectionError: the bank is away"


@kinds
def test_a_buried_job_goes_with_all_payloads_that_were_handed_over(stage: Stage, kind: str) -> None:
    worker = stage.register(kind)
    stage.errors["a"] = Bury("card is stolen")
    stage.during = lambda: len(stage.ran) == 1 and worker.perform_async([{"id": "a", "payload": 3}])
    worker.perform_async([{"id": "a", "payload": number} for number in (1, 2)])
    burst(stage.app)
    (job,) = worker.queries.morgue_fetch(["a"])
    assert (job.payloads, job.error) == ([1, 2], "Bury: card is stolen")
    assert stage.gone == [("a", [1, 2], "Bury: card is stolen")]
    assert stage.ran == [("a", [1, 2]), ("a", [3])], "what came meanwhile runs"
    assert worker.actions.behind_newer(["a"]) == ["a"]
    assert stage.counts == (1, 1, 0)


@kinds
def test_a_discarded_job_is_done_and_the_log_says_so(stage: Stage, kind: str) -> None:
    worker = stage.register(kind)
    stage.errors["a"] = Discard("order is gone")
    worker.perform_async([{"id": "a"}, {"id": "b"}])
    with structlog.testing.capture_logs() as logs:
        burst(stage.app)
    (line,) = [line for line in logs if line["event"] == "jobs_discarded"]
    assert (line["ids"], line["jobs"], line["reason"]) == (["a"], 1, "order is gone")
    assert stage.counts == (2, 0, 0)
    assert stage.app.metrics()["q"].length + stage.app.metrics()["q"].morgue_length == 0


def test_jobs_of_a_batch_may_all_be_decided_otherwise(stage: Stage) -> None:
    worker = stage.register("batch")
    errors = dict(zip("snuba", (*DECISIONS, ValueError("no")), strict=True))
    stage.errors |= errors
    worker.perform_async([{"id": id} for id in (*errors, "z")])
    burst(stage.app)
    assert {job.id for job in worker.queries.range_by_perform_in("-inf", "+inf")} == {"s", "n", "a"}
    assert [job.id for job in worker.queries.morgue_range_by_updated_at("-inf", "+inf")] == ["u"]
    assert stage.counts == (2, 3, 2)


def test_a_decision_on_an_id_that_is_not_of_the_batch_ends_no_job(app: Lowkiq) -> None:
    """All of the batch runs again, as after any such error: it is not known what was meant."""

    @app.worker
    class Jobs(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            raise PartialFailure({"stranger": Discard("gone")})

    performer = Performer(Jobs(), app.settings, lambda error: pytest.fail(str(error)), LoopThread())
    outcome = performer.perform([Job("a", [1], (1.0,), 1.0)])
    assert outcome
    assert [(row.id, row.error) for row in outcome.failed] == [("a", "gone")]


def test_only_failures_are_counted_by_kind(app: Lowkiq) -> None:
    @app.worker
    class Jobs(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            raise PartialFailure(dict(zip("abcd", DECISIONS, strict=True)))

    ledger = Ledger()
    performer = Performer(Jobs(), app.settings, lambda error: pytest.fail(str(error)), LoopThread(), ledger)
    performer.perform([Job(id, [1], (1.0,), 1.0) for id in "abcd"])
    assert sum(ledger.take()["Jobs"].values()) == 2


@pytest.mark.parametrize("decision", DECISIONS)
def test_decisions_are_of_one_tree_and_can_be_copied_and_pickled(decision: Any) -> None:
    assert isinstance(decision, Decision) and isinstance(decision, LowkiqError)
    for twin in (copy.deepcopy(decision), pickle.loads(pickle.dumps(decision))):
        assert (type(twin), twin.args, str(twin), vars(twin)) == (
            type(decision), decision.args, str(decision), vars(decision),
        )  # fmt: skip


@pytest.mark.parametrize("kind", [Snooze, RetryIn])
@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e12, True, "30", None])
def test_seconds_that_can_be_none_are_refused(kind: Any, seconds: Any) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} takes seconds from 0 to 3,200,000,000, not "):
        kind(seconds)
