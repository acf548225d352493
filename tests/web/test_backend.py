"""Backend: the app's queues as the web view reaches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.jobs import bulks
from lowkiq.admin.jobs.actions import Progress
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.metrics import shards_count_of
from lowkiq.errors import LowkiqError, UnknownQueue
from lowkiq.web.backend import Backend
from lowkiq.worker import Worker

FUTURE = 4_000_000_000.0


@pytest.fixture
def backend(backend_of: Callable[[Lowkiq], Backend], app: Lowkiq, work: type[Worker]) -> Backend:
    return backend_of(app)


def queued(work: type[Worker]) -> dict[str, float]:
    return {job.id: job.perform_in for job in work.queries.range_by_perform_in(limit=100)}


def buried(work: type[Worker]) -> set[str]:
    return {job.id for job in work.queries.morgue_range_by_updated_at(limit=100)}


def push(work: type[Worker], *ids: str) -> None:
    work.perform_async([{"id": id, "perform_in": FUTURE} for id in ids])


def counts(backend: Backend) -> dict[str, int]:
    return {queue: shards_count_of(layout) for queue, layout in backend.layouts().items()}


def test_queues_are_those_of_the_app_and_those_that_redis_knows(
    make_app: Callable[..., Lowkiq], backend: Backend
) -> None:
    assert counts(backend) == {"q": 3}
    theirs = make_app().worker(queue_name="theirs", shards_count=2)(lambda _: None)
    theirs.perform_async([{"id": 1}])
    assert counts(backend) == {"q": 3, "theirs": 2}
    assert backend.previews("theirs").page("due").jobs[0].id == "1"


def test_of_a_queue_with_another_shards_count_redis_knows_best(
    make_app: Callable[..., Lowkiq], backend: Backend
) -> None:
    """Where its jobs are is decided by who pushed first."""
    make_app().worker(queue_name="q", shards_count=7)(lambda _: None).perform_async([{"id": 1}])
    assert counts(backend) == {"q": 7}
    assert [job.id for job in backend.previews("q").job("1")] == ["1"]


@pytest.mark.parametrize("queue", ["nope", "", "q:0", "Q", "\x00", "x" * 1000])
def test_an_unknown_queue_is_refused_with_those_there_are(backend: Backend, queue: str) -> None:
    asked: list[Callable[[], Any]] = [
        lambda: backend.previews(queue),
        lambda: backend.actions(queue).act("delete", "due", ["a"]),
        lambda: next(backend.sweep(bulk(queue=queue))),
    ]
    for ask in asked:
        with pytest.raises(UnknownQueue, match="here; known are: q") as caught:
            ask()
        assert isinstance(caught.value, LowkiqError)
        assert len(str(caught.value)) < 300


def bulk(**fields: Any) -> bulks.Bulk:
    values: dict[str, Any] = {"queue": "q", "action": "delete", "match": Match("due"), "total": 10} | fields
    return bulks.Bulk(id="b", seen=0, moved=0, state="running", started_at=0.0, updated_at=0.0, **values)


@pytest.mark.parametrize(
    ("action", "view", "dead", "due", "left", "left_dead"),
    [
        *(("perform_now", view, "", "a", "ab", "") for view in ("due", "retries")),
        *(("bury", view, "", "", "b", "a") for view in ("due", "retries")),
        *(("delete", view, "a", "", "b", "a") for view in ("due", "retries")),
        ("revive", "morgue", "c", "c", "abc", ""),
        ("delete", "morgue", "ac", "", "ab", "c"),
    ],
)
def test_jobs_named_are_acted_on_in_their_view_alone(
    backend: Backend, work: type[Worker], action: str, view: str, dead: str, due: str, left: str, left_dead: str
) -> None:
    """Those named among retries are meant also if they are fresh; "ghost" is nowhere."""
    push(work, *dead)
    work.actions.bury(list(dead))
    push(work, "a", "b")
    id = "c" if action == "revive" else "a"
    assert backend.actions("q").act(action, view, [id, "ghost"]) == 1
    assert {id for id, at in queued(work).items() if at < FUTURE} == set(due)
    assert (set(queued(work)), buried(work)) == (set(left), set(left_dead))


@pytest.mark.parametrize(
    ("action", "view", "id"),
    [
        *((action, view, "a") for action, view in (("revive", "due"), ("bury", "morgue"), ("perform_now", "morgue"))),
        *((action, view, "a") for action, view in (("burn", "due"), ("delete", "x"))),
        *(("delete", "due", id) for id in ("", "x" * 513, "\ud800")),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    backend: Backend, work: type[Worker], action: str, view: str, id: str
) -> None:
    push(work, "a")
    with pytest.raises(ValueError, match="there are" if id == "a" else "id"):
        backend.actions("q").act(action, view, ["a", id])
    assert queued(work) == {"a": FUTURE}


def test_errors_are_told_as_the_app_loads_them(
    make_app: Callable[..., Lowkiq], backend_of: Callable[[Lowkiq], Backend]
) -> None:
    app = make_app(load_error=str.upper)
    app.worker(queue_name="q", shards_count=1)(lambda _: None).perform_async([{"id": "a"}])
    backend = backend_of(app)
    backend.actions("q").act("bury", "due", ["a"])
    assert [job.error for job in backend.previews("q").job("a")] == ["MOVED TO THE MORGUE BY HAND"]
    total = bulk(match=Match("morgue", error="MOVED TO THE MORGUE BY HAND"))
    assert list(backend.sweep(total))[-1] == Progress(1, 1)
