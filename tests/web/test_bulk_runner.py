"""BulkRunner: bulks in threads, which any process can watch and stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq
from lowkiq.admin.jobs import bulks
from lowkiq.admin.jobs.actions import Progress
from lowkiq.admin.jobs.bulks import Bulk
from lowkiq.admin.jobs.search import Match
from lowkiq.web import bulk_runner
from lowkiq.web.backend import Backend
from lowkiq.web.bulk_runner import MOST, BulkRunner, TooManyBulks
from tests.support import RedisServer, wait_until

MakeBackend = Callable[..., Any]
FUTURE = 4_000_000_000.0
MANY = 2_000


class GatedBackend(Backend):
    """Takes the steps of sweeps only as the test lets it."""

    def __init__(self, app: Lowkiq) -> None:
        super().__init__(app)
        self._steps = threading.Semaphore(0)
        self._waiting = threading.Semaphore(0)
        self._is_open = threading.Event()
        #: A sweep has ended, somehow.
        self.has_ended = threading.Event()

    def let(self, steps: int) -> None:
        """Lets so many steps be taken, of all bulks together, and waits until they were."""
        for _ in range(steps):
            assert self._waiting.acquire(timeout=60)
            self._steps.release()

    def open(self) -> None:
        """Lets all others go on."""
        self._is_open.set()
        for _ in range(100):
            self._steps.release()

    def sweep(self, bulk: Bulk, who: str = "") -> Iterator[Progress]:
        try:
            for progress in super().sweep(bulk):
                self._wait()
                yield progress
        finally:
            self.has_ended.set()

    def _wait(self) -> None:
        if not self._is_open.is_set():
            self._waiting.release()
            assert self._steps.acquire(timeout=60)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runner, "TELL_INTERVAL", 0.0)
    monkeypatch.setattr(bulk_runner, "RETRY_AFTER", 0.05)


@pytest.fixture
def backend_of() -> Iterator[MakeBackend]:
    made: list[Backend] = []

    def make(kind: type[Backend], app: Lowkiq) -> Backend:
        made.append(kind(app))
        return made[-1]

    yield make
    for backend in made:
        if isinstance(backend, GatedBackend):
            backend.open()
    wait_until(lambda: not threads())
    for backend in made:
        backend.caller.client.close()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lowkiq-bulk-")]


@pytest.fixture
def filled(app: Lowkiq) -> Lowkiq:
    """An app with many queued jobs."""
    fill(app)
    return app


@pytest.fixture
def backend(filled: Lowkiq, backend_of: MakeBackend) -> Backend:
    backend: Backend = backend_of(Backend, filled)
    return backend


def fill(app: Lowkiq) -> None:
    work = app.worker(queue_name="q", shards_count=3)(lambda _: None)
    work.perform_async([{"id": n, "perform_in": FUTURE} for n in range(MANY)])


def told(backend: Backend, id: str) -> Bulk:
    bulk = bulks.read_bulk(backend.caller, backend.namespace, id)
    assert bulk is not None
    return bulk


def wait_for_end(backend: Backend, id: str) -> Bulk:
    wait_until(lambda: told(backend, id).is_over)
    return told(backend, id)


def length(app: Lowkiq) -> int:
    return app.metrics()["q"].length


def test_a_bulk_is_run_to_its_end(filled: Lowkiq, backend: Backend) -> None:
    started = BulkRunner(backend).start("q", "delete", Match("due"), MANY)
    assert (started.state, started.total, started.queue, started.action) == ("running", MANY, "q", "delete")
    bulk = wait_for_end(backend, started.id)
    assert (bulk.state, bulk.seen, bulk.moved, bulk.error) == ("done", MANY, MANY, None)
    assert length(filled) == 0


def test_it_acts_on_no_more_than_were_counted(filled: Lowkiq, backend: Backend) -> None:
    bulk = wait_for_end(backend, BulkRunner(backend).start("q", "bury", Match("due"), 321).id)
    assert (bulk.state, bulk.seen, bulk.moved) == ("done", 321, 321)
    assert length(filled) == MANY - 321


def test_progress_is_seen_while_it_runs(filled: Lowkiq, backend_of: MakeBackend) -> None:
    backend = backend_of(GatedBackend, filled)
    id = BulkRunner(backend).start("q", "delete", Match("due"), MANY).id
    assert told(backend, id).seen == 0
    backend.let(3)
    bulk = wait_until(lambda: (bulk := told(backend, id)).seen > 0 and bulk)
    assert bulk.state == "running"
    assert 0 < bulk.moved <= bulk.seen < MANY
    backend.let(3)
    wait_until(lambda: told(backend, id).seen > bulk.seen)
    backend.open()
    assert wait_for_end(backend, id).moved == MANY


def test_progress_is_not_told_at_every_step(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runner, "TELL_INTERVAL", 3600.0)
    saved: list[Bulk] = []
    save = bulks.save
    monkeypatch.setattr(bulks, "save", lambda *arguments: saved.append(arguments[-1]) or save(*arguments))
    wait_for_end(backend, BulkRunner(backend).start("q", "delete", Match("due"), MANY).id)
    assert [bulk.state for bulk in saved] == ["running", "done"]


def test_a_bulk_is_stopped_from_another_process(
    filled: Lowkiq, make_app: Callable[..., Lowkiq], backend_of: MakeBackend
) -> None:
    """As good as: another app, with a runner and connections of its own."""
    backend, other = backend_of(GatedBackend, filled), backend_of(Backend, make_app())
    id = BulkRunner(backend).start("q", "delete", Match("due"), MANY).id
    backend.let(2)
    assert [bulk.id for bulk in bulks.read_bulks(other.caller, other.namespace)] == [id]
    assert bulks.ask_to_stop(other.caller, other.namespace, id)
    assert told(other, id).state == "stopping"
    backend.open()
    bulk = wait_for_end(other, id)
    assert bulk.state == "stopped"
    assert 0 < bulk.moved < MANY
    assert length(filled) == MANY - bulk.moved
    assert not bulks.ask_to_stop(other.caller, other.namespace, id)


@pytest.mark.parametrize(
    ("action", "view"),
    [("revive", "due"), ("bury", "morgue"), ("perform_now", "morgue"), ("burn", "due"), ("delete", "x")],
)
def test_what_a_view_cannot_do_is_refused_and_no_bulk(filled: Lowkiq, backend: Backend, action: str, view: str) -> None:
    runner = BulkRunner(backend)
    for _ in range(MOST + 1):
        with pytest.raises(ValueError, match="there are"):
            runner.start("q", action, Match(view), MANY)
    assert bulks.read_bulks(backend.caller, backend.namespace) == []
    assert length(filled) == MANY


def test_so_many_run_at_a_time_and_no_more(filled: Lowkiq, backend_of: MakeBackend) -> None:
    backend = backend_of(GatedBackend, filled)
    runner = BulkRunner(backend)
    running = [runner.start("q", "perform_now", Match("due"), MANY).id for _ in range(MOST)]
    assert MOST == 4
    with pytest.raises(TooManyBulks, match="4 bulks run here already: wait for one to end, or stop one"):
        runner.start("q", "delete", Match("due"), MANY)
    assert {bulk.id for bulk in bulks.read_bulks(backend.caller, backend.namespace)} == set(running)
    backend.open()
    for id in running:
        assert wait_for_end(backend, id).state == "done"
    assert sum(told(backend, id).moved for id in running) == length(filled) == MANY


def test_a_place_is_given_back_at_the_end_of_whatever_kind(backend: Backend) -> None:
    runner = BulkRunner(backend)
    for _ in range(2 * MOST):
        for queue, state in {"q": "done", "no such queue": "failed"}.items():
            assert wait_for_end(backend, runner.start(queue, "delete", Match("due", "none-*"), 10).id).state == state


def test_a_place_is_given_back_when_it_could_not_be_started(
    make_app: Callable[..., Lowkiq], backend_of: MakeBackend, own_redis_server: RedisServer
) -> None:
    app = make_app(redis_url=own_redis_server.url)
    fill(app)
    backend = backend_of(Backend, app)
    runner = BulkRunner(backend)
    own_redis_server.stop(signal.SIGKILL)
    for _ in range(MOST + 1):
        with pytest.raises(redis.ConnectionError):
            runner.start("q", "delete", Match("due"), MANY)
    own_redis_server.start()
    assert wait_for_end(backend, runner.start("q", "delete", Match("due"), MANY).id).state == "done"


def test_a_bulk_of_an_unknown_queue_has_failed_and_says_why(backend: Backend) -> None:
    bulk = wait_for_end(backend, BulkRunner(backend).start("nope", "delete", Match("due"), 1).id)
    assert (bulk.state, bulk.moved) == ("failed", 0)
    assert bulk.error is not None and bulk.error.startswith("UnknownQueue: no queue 'nope' here")


def test_a_bug_fails_the_bulk_and_not_the_runner(filled: Lowkiq, backend_of: MakeBackend) -> None:
    class Broken(Backend):
        def sweep(self, bulk: Bulk, who: str = "") -> Iterator[Progress]:
            yield Progress(3, 2)
            raise ZeroDivisionError("secret")

    backend = backend_of(Broken, filled)
    bulk = wait_for_end(backend, BulkRunner(backend).start("q", "delete", Match("due"), 10).id)
    assert (bulk.state, bulk.error) == ("failed", "ZeroDivisionError")
    assert (bulk.seen, bulk.moved) == (3, 2)


def test_when_redis_dies_meanwhile_the_end_is_told_once_it_is_back(
    make_app: Callable[..., Lowkiq], backend_of: MakeBackend, own_redis_server: RedisServer
) -> None:
    app = make_app(redis_url=own_redis_server.url)
    fill(app)
    backend = backend_of(GatedBackend, app)
    id = BulkRunner(backend).start("q", "delete", Match("due"), MANY).id
    backend.let(3)
    wait_until(lambda: told(backend, id).seen > 0)
    own_redis_server.stop(signal.SIGKILL)
    backend.open()
    assert backend.has_ended.wait(60)
    own_redis_server.start()
    bulk = wait_for_end(backend, id)
    assert (bulk.state, (bulk.error or "")[:17]) == ("failed", "ConnectionError: ")
    assert 0 < bulk.moved == MANY - length(app)


def test_an_end_that_cannot_be_told_is_tried_again(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = iter([redis.ConnectionError("away"), redis.TimeoutError("slow"), redis.ResponseError("OOM")])
    save = bulks.save

    def refuse(*arguments: Any) -> Bulk:
        if arguments[-1].is_over and (refusal := next(refusals, None)):
            raise refusal
        return save(*arguments)

    monkeypatch.setattr(bulks, "save", refuse)
    assert wait_for_end(backend, BulkRunner(backend).start("q", "delete", Match("due"), MANY).id).state == "done"
    assert next(refusals, None) is None


def test_an_end_that_nobody_hears_is_given_up(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runner, "RETRY_AFTER", 0.0)
    tries: list[Bulk] = []

    def refuse(*arguments: Any) -> Bulk:
        tries.append(arguments[-1])
        raise redis.ConnectionError("away")

    bulk = bulks.new_bulk(backend.caller, backend.namespace, "q", "delete", Match("due"), 1)
    monkeypatch.setattr(bulks, "new_bulk", lambda *_: bulk)
    monkeypatch.setattr(bulks, "save", refuse)
    BulkRunner(backend).start("q", "delete", Match("due"), 1)
    wait_until(lambda: tries and not threads())
    ends = [tried for tried in tries if tried.is_over]
    assert len(ends) == bulk_runner.RETRIES
    assert told(backend, bulk.id).state == "running"
