"""What stays of a failure: where it was raised, how often the job has failed and is still tried, and the ledger."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis as redis_library
from structlog.testing import capture_logs

from lowkiq import Job, Lowkiq, PartialFailure, Worker
from lowkiq.admin import words
from lowkiq.admin.jobs.failures import read_ledger
from lowkiq.node.health.flushes import FailureFlush
from tests.node.driven import burst, runtime_of

THIS = __file__


def fetch(worker: type[Worker], id: str = "a") -> Job:
    (job,) = [*worker.queries.fetch([id]), *worker.queries.morgue_fetch([id])]
    return job


def ask_the_bank(card: str) -> None:
    raise ConnectionError(f"bank 17 refuses {card!r}")


def test_a_failed_job_tells_where(app: Lowkiq) -> None:
    buried: list[Job] = []

    @app.worker(queue_name="pay", shards_count=1, max_retry_count=0)
    class Pay(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            ask_the_bank("4111")

        def retries_exhausted(self, batch: list[Job]) -> None:
            buried.extend(batch)

    Pay.perform_async([{"id": "a"}])
    with capture_logs() as log:
        burst(app)
    job = fetch(Pay)
    assert job.error == buried[0].error == "ConnectionError: bank 17 refuses '4111'"
    assert job.traceback == buried[0].traceback
    assert job.traceback is not None
    assert job.traceback.startswith(f'Traceback (most recent call last):\n  File "{THIS}", line')
    assert "in perform\n    ask_the_bank" in job.traceback, "Lowkiq's own frames are left out"
    assert job.traceback.endswith("\nConnectionError: bank 17 refuses '4111'")
    (event,) = [row for row in log if row["event"] == "jobs_failed"]
    assert (event["error"], event["ids"]) == ("ConnectionError: bank 17 refuses '4111'", ["a"])
    assert event["at"].startswith(f"{THIS}:")
    assert not any("\n" in str(value) for value in event.values())
    found = read_ledger(app.caller, app.settings.namespace, "pay")
    assert {text: row.total for text, row in found.items()} == {"ConnectionError: bank # refuses '…'": 1}


def test_each_failure_of_a_batch_has_its_own_and_a_timeout_where_it_waited(app: Lowkiq) -> None:
    @app.worker(queue_name="parts", shards_count=1, batch_size=9, max_retry_count=5)
    class Parts(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            errors: dict[str, BaseException | str] = {"b": "a text", "c": KeyError("never raised")}
            try:
                ask_the_bank("x")
            except ConnectionError as error:
                errors["a"] = error
            raise PartialFailure(errors)

    @app.worker(queue_name="slow", shards_count=1, perform_timeout=0.2, max_retry_count=5)
    async def slow(payloads_by_id: dict[str, list[Any]]) -> None:
        await asyncio.sleep(600)

    Parts.perform_async([{"id": id} for id in "abc"])
    slow.perform_async([{"id": "a"}])
    burst(app)
    assert "in ask_the_bank" in (fetch(Parts, "a").traceback or "")
    assert (fetch(Parts, "b").error, fetch(Parts, "b").traceback) == ("a text", None)
    assert (fetch(Parts, "c").error, fetch(Parts, "c").traceback) == ("KeyError: 'never raised'", None)
    job = fetch(slow)
    assert job.error == "PerformTimeout: took longer than 0.2 s"
    assert "await asyncio.sleep(600)" in (job.traceback or "")
    assert THIS in (job.traceback or "").splitlines()[1], "frames of the machinery are left out"


def test_a_payload_that_can_not_be_loaded_and_settings_have_no_frames(make_app: Any) -> None:
    def load(data: bytes) -> Any:
        raise ValueError("no such format")

    cases: list[tuple[dict[str, Any], str, bool]] = [
        ({"load_payload": load}, "load_payload can't decode this payload: ValueError: no such format", False),
        ({"traceback_frames": 0}, "ConnectionError: bank 17 refuses 'x'", False),
        ({"format_error": lambda error: f"mine: {error.args[0]}\nmore"}, "mine: bank 17 refuses 'x'\nmore", True),
    ]
    for number, (settings, error, has_frames) in enumerate(cases):
        app = make_app(**settings)
        queue = f"q{number}"
        worker = app.worker(queue_name=queue, shards_count=1, max_retry_count=0)(lambda _: ask_the_bank("x"))
        worker.perform_async([{"id": "a"}])
        burst(app)
        job = fetch(worker)
        assert (job.error, job.traceback is not None) == (error, has_frames)
        groups = read_ledger(app.caller, app.settings.namespace, queue)
        assert len(groups) == 1


@pytest.mark.parametrize("max_retry_count", [0, 1, 3])
def test_it_is_said_right_how_often_a_job_is_tried(app: Lowkiq, max_retry_count: int) -> None:
    """At each try what pages say of the job is what then comes."""
    runs: list[str] = []
    waits: list[str] = []

    @app.worker(queue_name="q", shards_count=1, max_retry_count=max_retry_count)
    class Jobs(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            retry_count = len(runs) - 1
            runs.append(words.failed(retry_count, max_retry_count, runs=True))
            raise ValueError

        def retry_in(self, retry_count: int) -> float:
            waits.append(words.failed(retry_count, max_retry_count))
            return 0

    Jobs.perform_async([{"id": "a"}])
    burst(app)
    assert len(runs) == words.tries(max_retry_count) == max_retry_count + 1
    assert fetch(Jobs).error == "ValueError: "
    expected = {
        0: (["never; this is try 1 of 1"], []),
        1: (["never; this is try 1 of 2", "once; this is try 2 of 2"], ["once; 1 try left, then the morgue"]),
        3: (
            [
                "never; this is try 1 of 4", "once; this is try 2 of 4", "twice; this is try 3 of 4",
                "3 times; this is try 4 of 4",
            ],
            [
                "once; 3 tries left, then the morgue", "twice; 2 tries left, then the morgue",
                "3 times; 1 try left, then the morgue",
            ],
        ),
    }  # fmt: skip
    assert (runs, waits) == expected[max_retry_count]


@pytest.mark.parametrize(("fate", "says"), [("bury", "the morgue"), ("block", "blocked"), ("discard", "discarded")])
def test_it_is_said_what_becomes_of_a_job_after_its_last_try(fate: str, says: str) -> None:
    assert words.failed(0, 3, fate) == f"once; 3 tries left, then {says}"
    assert words.goes(fate).endswith(says)


def test_a_flush_whose_answer_is_lost_is_counted_once(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = runtime_of(app)
    flush = FailureFlush(runtime)
    add = runtime.ledger.add
    threads = [threading.Thread(target=lambda: [add("q", f"E: {n}", 2) for n in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_all = app.caller.run_all

    def lose(calls: Any, *rest: Any) -> Any:
        run_all(calls, *rest)
        raise redis_library.exceptions.TimeoutError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(app.caller, "run_all", lose)
        with pytest.raises(redis_library.exceptions.TimeoutError):
            flush()
    add("q", "E: 1", 1)
    for _ in range(3):
        flush()
    (row,) = read_ledger(app.caller, app.settings.namespace, "q").values()
    assert row.total == 4 * 500 * 2 + 1
