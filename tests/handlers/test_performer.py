"""From a batch to its outcome: middlewares, failures, and hooks of the user's that fail themselves."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Job, Lowkiq, LowkiqError, PartialFailure, Worker, current
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Failures
from tests.node.driven import burst


class Recorder(Worker):
    """Does what the test says, and keeps what happened."""

    max_retry_count = 3
    queue_name = "jobs"

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.action: Callable[[dict[str, list[Any]]], Any] = lambda batch: None
        self.delay: Any = 7
        self.hook: Callable[[], Any] = lambda: None

    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        self.log.append(payloads_by_id)
        self.action(payloads_by_id)

    def retry_in(self, retry_count: int) -> float:
        if isinstance(self.delay, Exception):
            raise self.delay
        return self.delay  # type: ignore[no-any-return]

    def retries_exhausted(self, batch: list[Job]) -> None:
        self.log.append([(job.id, job.payloads, job.retry_count, job.error) for job in batch])
        self.hook()


def test_a_coroutine_that_nobody_awaits_is_no_work_done(make_app: Callable[..., Lowkiq]) -> None:
    """A plain function that returns one, or a decorator that hides one: its jobs must not be taken for done."""

    async def work() -> None: ...

    app = make_app()
    worker = app.worker(queue_name="jobs")(lambda _: work())
    app.push(worker, [{"id": "a"}])
    burst(app)
    (job,) = worker.queries.fetch(["a"])
    assert job.error == "TypeError: perform returned a coroutine, which nobody awaits: make it `async def`"
    performer = Performer(worker(), app.settings, lambda error: pytest.fail(str(error)), LoopThread())
    failures = performer.perform([Job("a", [1], (1.0,), 1.0)])
    assert failures
    assert [row.id for row in failures.failed] == ["a"]


def fail(error: BaseException) -> Callable[[Any], Any]:
    def raise_it(_: Any) -> None:
        raise error

    return raise_it


class Stage:
    def __init__(self, make_app: Callable[..., Lowkiq]) -> None:
        self._make_app = make_app
        self.worker = Recorder()
        self.fatal: list[BaseException] = []

    def perform(self, *jobs: Job, **settings: Any) -> Failures | None:
        performer = Performer(
            self.worker, self._make_app(**{"traceback_frames": 0} | settings).settings, self.fatal.append, LoopThread()
        )
        return performer.perform(list(jobs))

    def fail(self, error: BaseException, *jobs: Job, **settings: Any) -> Failures:
        self.worker.action = fail(error)
        outcome = self.perform(*jobs, **settings)
        assert outcome
        return outcome


@pytest.fixture
def stage(make_app: Callable[..., Lowkiq]) -> Stage:
    return Stage(make_app)


def job(id: str, *payloads: Any, retry_count: int = -1) -> Job:
    return Job(id, list(payloads) or [1], tuple(map(float, range(len(payloads) or 1))), 0.0, retry_count)


def test_a_batch_is_given_as_payloads_by_id(stage: Stage) -> None:
    assert stage.perform(job("a", 1, 2), job("b", 3)) is None
    assert stage.worker.log == [{"a": [1, 2], "b": [3]}]


def test_an_exception_fails_all_of_a_batch(stage: Stage) -> None:
    outcome = stage.fail(ValueError("no"), job("a"), job("b", retry_count=1))
    assert outcome.failed == [("a", 0, 7.0, "ValueError: no"), ("b", 2, 7.0, "ValueError: no")]
    assert outcome.exhausted == []


def test_a_partial_failure_fails_those_it_names(stage: Stage) -> None:
    error = PartialFailure({"b": KeyError("k"), 3: "a text", "stranger": "x"})  # type: ignore[dict-item]
    outcome = stage.fail(error, job("a"), job("b"), job("3"))
    assert [(failure.id, failure.error) for failure in outcome.failed] == [("b", "KeyError: 'k'"), ("3", "a text")]


def test_a_partial_failure_of_nothing_is_a_success(stage: Stage) -> None:
    stage.worker.action = fail(PartialFailure({}))
    outcome = stage.perform(job("a"))
    assert outcome == Failures([], [], [])


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_a_base_exception_stops_the_node_and_fails_its_batch(stage: Stage, error: BaseException) -> None:
    outcome = stage.fail(error, job("a"))
    assert [failure.id for failure in outcome.failed] == ["a"]
    assert stage.fatal == [error]


@pytest.mark.parametrize(("retry_count", "exhausted"), [(-1, False), (0, False), (1, False), (2, True), (7, True)])
def test_a_job_is_exhausted_when_its_failures_reach_the_maximum(
    stage: Stage, retry_count: int, exhausted: bool
) -> None:
    outcome = stage.fail(ValueError("no"), job("a", retry_count=retry_count))
    assert (len(outcome.failed), len(outcome.exhausted)) == (not exhausted, exhausted)


def test_retries_exhausted_gets_the_exhausted_jobs_with_the_payload_that_goes(stage: Stage) -> None:
    outcome = stage.fail(ValueError("no"), job("a", "low", "high", retry_count=2), job("b"), job("c", retry_count=2))
    assert stage.worker.log[1:] == [[("a", ["low"], 3, "ValueError: no"), ("c", [1], 3, "ValueError: no")]]
    assert outcome.exhausted == [("a", "ValueError: no", "bury"), ("c", "ValueError: no", "bury")]


def test_retries_exhausted_gets_what_was_handed_over_whatever_perform_has_done_to_it(stage: Stage) -> None:
    def use_up(payloads_by_id: dict[str, list[Any]]) -> None:
        for payloads in payloads_by_id.values():
            payloads.pop(0).clear()
        raise ValueError("boom")

    stage.worker.action = use_up
    stage.perform(Job("a", [{"n": [1]}, {"n": [2]}], (1.0, 2.0), 1.0, retry_count=2))
    assert stage.worker.log[-1] == [("a", [{"n": [1]}], 3, "ValueError: boom")]


def test_a_payload_that_can_not_be_copied_is_handed_over_all_the_same(stage: Stage) -> None:
    payload = threading.Lock()
    stage.fail(ValueError("boom"), Job("a", [payload], (1.0,), 1.0, retry_count=2))
    assert stage.worker.log == [{"a": [payload]}, [("a", [payload], 3, "ValueError: boom")]]


def test_a_middleware_sees_what_was_handed_over_whatever_perform_has_done_to_it(stage: Stage) -> None:
    seen: list[Any] = []

    def watch(worker: Worker, batch: list[Job], call: Callable[[], None]) -> None:
        call()
        seen.extend(job.payloads for job in batch)

    stage.worker.action = lambda payloads_by_id: payloads_by_id["a"].pop()
    stage.perform(Job("a", [1], (1.0,), 1.0), server_middlewares=[watch])
    assert seen == [[1]]


def test_retries_exhausted_is_not_called_when_nothing_was_exhausted(stage: Stage) -> None:
    stage.worker.action = fail(ValueError("no"))
    stage.perform(job("a"))
    stage.worker.action = lambda batch: None
    stage.perform(job("b"))
    assert stage.worker.log == [{"a": [1]}, {"b": [1]}]


@pytest.mark.parametrize("delay", [ValueError("broken"), None, "soon", float("nan"), float("inf")])
def test_a_broken_retry_in_is_replaced_by_the_usual_one(stage: Stage, delay: Any) -> None:
    stage.worker.delay = delay
    outcome = stage.fail(ValueError("no"), job("a"))
    assert 15 <= outcome.failed[0].delay <= 15 + 29


@pytest.mark.parametrize(("delay", "waits"), [(-5, 0.0), (0, 0.0), (2.5, 2.5), (True, 1.0)])
def test_a_retry_is_never_in_the_past(stage: Stage, delay: Any, waits: float) -> None:
    stage.worker.delay = delay
    outcome = stage.fail(ValueError("no"), job("a"))
    assert outcome.failed[0].delay == waits


def test_a_broken_retries_exhausted_changes_no_outcome(stage: Stage) -> None:
    for broken in (ZeroDivisionError("no"), Leaving(), Nameless("no")):  # which are logged
        stage.worker.hook = functools.partial(fail(broken), None)
        outcome = stage.fail(ValueError("no"), job("a", retry_count=2))
        assert outcome.exhausted == [("a", "ValueError: no", "bury")]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NamelessType(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Nameless(Exception, metaclass=NamelessType):
    pass


def broken(_: Any) -> str:
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("error", "settings", "kept"),
    [
        (Unprintable(), {}, "Unprintable (which could not be formatted: RuntimeError)"),
        (Leaving(), {}, "Leaving (which could not be formatted: SystemExit)"),
        (Nameless("no"), {}, "Nameless: no"),
        (Nameless("no"), {"format_error": broken}, "Nameless (which could not be formatted: RuntimeError)"),
        (ValueError("no"), {"format_error": lambda error: f"<{error}>", "dump_error": str.upper}, "<NO>"),
        (ValueError("no"), {"format_error": broken}, "ValueError (which could not be formatted: RuntimeError)"),
        (ValueError("no"), {"dump_error": broken}, "ValueError: no"),
        (ValueError("x" * 10_000_000), {}, f"ValueError: {'x' * (16_384 - 12)}"),
        (ValueError("\ud800"), {}, "ValueError: \\ud800"),
    ],
    ids=[
        "without a text",
        "leaves",
        "without a name",
        "neither",
        "as it is set",
        "broken format_error",
        "broken dump_error",
        "huge",
        "no UTF-8",
    ],
)
def test_an_error_is_kept_as_a_text_whatever_it_is(
    stage: Stage, error: Exception, settings: dict[str, Any], kept: str
) -> None:
    outcome = stage.fail(error, job("a"), job("b", retry_count=2), **settings)
    assert (outcome.failed[0].error, outcome.exhausted[0].error) == (kept, kept)


def test_server_middlewares_are_applied_in_order_around_perform(stage: Stage) -> None:
    log: list[Any] = stage.worker.log

    def named(name: str) -> Callable[[Any, Any, Callable[[], Any]], Any]:
        def middleware(worker: Worker, batch: list[Job], call: Callable[[], Any]) -> Any:
            log.append((name, type(worker), [job.id for job in batch]))
            try:
                return call()
            finally:
                log.append(f"{name} ends")

        return middleware

    stage.perform(job("a"), server_middlewares=[named("outer"), named("inner")])
    assert log == [
        ("outer", Recorder, ["a"]), ("inner", Recorder, ["a"]), {"a": [1]}, "inner ends", "outer ends",
    ]  # fmt: skip


def test_a_server_middleware_that_does_not_call_settles_the_batch_as_done(stage: Stage) -> None:
    assert stage.perform(job("a"), server_middlewares=[lambda worker, batch, call: None]) is None
    assert stage.worker.log == []


def test_a_server_middleware_can_fail_a_batch_and_can_save_it(stage: Stage) -> None:
    def failing(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
        call()
        raise ValueError("too late")

    def saving(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
        try:
            call()
        except ValueError:
            stage.worker.log.append("saved")

    outcome = stage.perform(job("a"), server_middlewares=[failing])
    assert outcome
    assert outcome.failed[0].error == "ValueError: too late"
    assert stage.perform(job("a"), server_middlewares=[saving, failing]) is None
    assert stage.worker.log[-1] == "saved"


def test_a_middleware_that_empties_the_batch_and_fails_loses_no_job(stage: Stage) -> None:
    """The list is what it was given; the outcome is ours."""

    def emptying(worker: Any, batch: list[Job], call: Callable[[], Any]) -> Any:
        batch.clear()
        raise ValueError("no")

    outcome = stage.perform(job("a"), server_middlewares=[emptying])
    assert outcome
    assert [failure.id for failure in outcome.failed] == ["a"]


def test_current_is_of_use_inside_perform_only() -> None:
    with pytest.raises(LowkiqError, match=r"lowkiq.current\(\) was called outside perform"):
        current()


def test_payload_count_is_known_to_middlewares(app: Lowkiq, make_app: Callable[..., Lowkiq]) -> None:
    counts: list[int] = []

    def counting(worker: Any, batch: list[Job], call: Callable[[], Any]) -> Any:
        counts.extend(job.payload_count for job in batch)
        return call()

    app = make_app(server_middlewares=[counting])
    worker = app.worker(queue_name="jobs")(lambda batch: None)
    worker.perform_async([{"id": "a", "payload": 1}, {"id": "b", "payload": 1}, {"id": "b", "payload": 2}])
    burst(app)
    assert sorted(counts) == [1, 2]
