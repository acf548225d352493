"""An application: what a push through it writes, or doesn't."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lowkiq import InvalidJob, Lowkiq, LowkiqError, Pushed, PushFailed, SettingsError, ShardsCountMismatch, Worker
from lowkiq.job import NewJob
from tests.support import RedisServer


def work(payloads_by_id: dict[str, list[Any]]) -> None: ...


def keys(app: Lowkiq) -> list[bytes]:
    return [*app.redis().scan_iter(f"{app.settings.namespace}:*")]


def test_a_push_says_what_was_new_and_what_was_merged(app: Lowkiq) -> None:
    worker = app.worker(work)
    assert worker.perform_async([{"id": "a"}, {"id": "b"}]) == Pushed(new=2, merged=0)
    assert worker.perform_async([{"id": "b", "payload": 2}, {"id": "c"}, {"id": "c", "payload": 2}]) == (1, 2)
    assert worker.perform_async([]) == (0, 0)


def test_jobs_may_come_from_a_generator(app: Lowkiq) -> None:
    worker = app.worker(work)
    assert worker.perform_async({"id": number} for number in range(2_500)) == (2_500, 0)  # type: ignore[misc]
    assert app.metrics()["work"].length == 2_500


@pytest.mark.parametrize(
    "bad", [{}, {"id": None}, {"id": "x", "score": math.nan}, {"id": "x", "payload": {1}}, {"id": "x", "zzz": 1}, None]
)
def test_one_bad_job_of_many_and_nothing_is_written(app: Lowkiq, bad: Any) -> None:
    worker = app.worker(work)
    with pytest.raises(InvalidJob, match="job 1500"):
        worker.perform_async([*(NewJob(id=number) for number in range(1_500)), bad, {"id": "last"}])
    assert keys(app) == []


def test_what_is_no_list_of_jobs_writes_nothing(app: Lowkiq) -> None:
    worker = app.worker(work)
    for jobs in ({"id": "a"}, "a", 5, None):
        with pytest.raises(InvalidJob, match="takes a list of jobs"):
            worker.perform_async(jobs)  # type: ignore[arg-type]
    assert keys(app) == []


def test_limits_are_those_of_the_settings(make_app: Callable[..., Lowkiq]) -> None:
    worker = make_app(max_id_bytes=3, max_payload_bytes=5).worker(work)
    worker.perform_async([{"id": "abc", "payload": "xyz"}])
    with pytest.raises(InvalidJob, match="max_id_bytes is 3"):
        worker.perform_async([{"id": "abcd"}])
    with pytest.raises(InvalidJob, match="max_payload_bytes is 5"):
        worker.perform_async([{"id": "abc", "payload": "wxyz"}])


def test_a_queue_keeps_its_shards_whatever_number_code_begins_with(make_app: Callable[..., Lowkiq]) -> None:
    make_app().worker(queue_name="jobs")(work).perform_async([{"id": "a"}])
    app = make_app()
    worker = app.worker(queue_name="jobs", shards_count=6)(work)
    ids = [f"id-{number}" for number in range(100)]
    worker.perform_async([{"id": id} for id in ids])
    assert worker.perform_async([{"id": "a"}]) == (0, 1)
    assert app.queues() == {"jobs": 5}
    assert app.metrics()["jobs"].length == 101


def test_a_shards_count_that_changed_behind_a_producer_s_back_is_refused(make_app: Callable[..., Lowkiq]) -> None:
    """I8."""
    app = make_app()
    worker = app.worker(queue_name="jobs", shards_count=1)(work)
    worker.perform_async([{"id": "a"}])
    app.redis().hset(f"{app.settings.namespace}:{{jobs:0}}:meta", "layout", 2)
    with pytest.raises(ShardsCountMismatch, match="the queue has shards_count 2, the caller says 1"):
        worker.perform_async([{"id": "b"}])
    assert app.metrics()["jobs"].length == 1


def test_a_push_without_redis_says_that_it_can_be_repeated(tmp_path: Path) -> None:
    app = Lowkiq(redis_url=f"unix://{tmp_path}/nobody.sock")
    worker = app.worker(work)
    with pytest.raises(
        PushFailed, match=r"none of 2 payloads was sent to Redis: .*see whether it runs.*; push them again"
    ) as caught:
        worker.perform_async([{"id": "a"}, {"id": "b"}])
    assert (caught.value.new, caught.value.merged) == (0, 0)
    app.close()


def test_a_push_cut_short_tells_what_was_accepted(make_app: Callable[..., Lowkiq]) -> None:
    """One shard's keys are spoiled, so that its script fails and the others' don't."""
    app = make_app()
    worker = app.worker(queue_name="jobs", shards_count=2)(work)
    worker.perform_async([{"id": "first"}])
    app.redis().set(f"{app.settings.namespace}:{{jobs:0}}:due", "no zset")
    with pytest.raises(PushFailed) as caught:
        worker.perform_async([{"id": number} for number in range(40)])
    assert 0 < caught.value.new < 40


def test_a_client_that_decodes_replies_is_refused(redis_server: RedisServer) -> None:
    import redis

    app = Lowkiq(redis=lambda: redis.Redis.from_url(redis_server.url, decode_responses=True))
    with pytest.raises(SettingsError, match="make it with decode_responses=False"):
        app.worker(work).perform_async([{"id": "a"}])


def test_client_middlewares_are_applied_in_order_around_a_push(make_app: Callable[..., Lowkiq]) -> None:
    log: list[Any] = []

    def named(name: str) -> Callable[[Any, Any, Callable[[], Any]], Any]:
        def middleware(worker: type[Worker], batch: list[Any], call: Callable[[], Any]) -> Any:
            log.append((name, worker.queue_name, [job["id"] for job in batch]))
            result = call()
            log.append((name, result))
            return result

        return middleware

    worker = make_app(client_middlewares=[named("outer"), named("inner")]).worker(work)
    assert worker.perform_async([{"id": "a"}]) == (1, 0)
    assert log == [
        ("outer", "work", ["a"]), ("inner", "work", ["a"]), ("inner", Pushed(1, 0)), ("outer", Pushed(1, 0)),
    ]  # fmt: skip


def test_a_client_middleware_can_change_jobs_and_what_it_makes_is_validated(make_app: Callable[..., Lowkiq]) -> None:
    def prefixing(worker: Any, batch: list[Any], call: Callable[[], Any]) -> Any:
        for job in batch:
            job["id"] = f"p-{job['id']}" if job["id"] else None
        return call()

    app = make_app(client_middlewares=[prefixing])
    worker = app.worker(work)
    worker.perform_async([{"id": "a"}])
    assert [job.id for job in worker.queries.fetch(["p-a"])] == ["p-a"]
    with pytest.raises(InvalidJob, match="id must be a string"):
        worker.perform_async([{"id": ""}])


def test_a_client_middleware_that_does_not_call_pushes_nothing(make_app: Callable[..., Lowkiq]) -> None:
    app = make_app(client_middlewares=[lambda worker, batch, call: Pushed(0, 0)])
    assert app.worker(work).perform_async([{"id": "a"}]) == (0, 0)
    assert keys(app) == []


def test_metrics_know_queues_of_other_applications_too(make_app: Callable[..., Lowkiq]) -> None:
    make_app().worker(queue_name="theirs", shards_count=2)(work).perform_async([{"id": "a"}])
    app = make_app()
    app.worker(queue_name="ours")(work)
    metrics = app.metrics()
    assert (metrics["theirs"].length, metrics["theirs"].fresh, metrics["ours"].length) == (1, 1, 0)
    assert app.queues() == {"theirs": 2}


def test_a_closed_application_opens_again(app: Lowkiq) -> None:
    worker = app.worker(work)
    worker.perform_async([{"id": "a"}])
    app.close()
    assert worker.perform_async([{"id": "b"}]) == (1, 0)


def test_everything_that_is_raised_is_one_of_the_library_s_errors() -> None:
    for error in (InvalidJob, PushFailed, SettingsError, ShardsCountMismatch):
        assert issubclass(error, LowkiqError)


@pytest.fixture
def fake() -> Iterator[Lowkiq]:
    fakeredis = pytest.importorskip("fakeredis")
    server = fakeredis.FakeServer()
    app = Lowkiq(redis=lambda: fakeredis.FakeRedis(server=server))
    yield app
    app.close()


def test_users_can_test_with_fakeredis(fake: Lowkiq) -> None:
    worker = fake.worker(work)
    assert worker.perform_async([{"id": "a", "payload": 1}, {"id": "a", "payload": 2}]) == (1, 1)
    (job,) = worker.queries.fetch(["a"])
    assert job.payloads == [1, 2]
    assert worker.actions.delete(["a"]) == 1
