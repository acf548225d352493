"""What a drain says at its end, and how long it waits for a Redis that is silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, clock
from lowkiq.errors import OtherLayout
from lowkiq.handlers.stop import Stop
from lowkiq.node import drain
from lowkiq.node.drain import BurstEnd, Drain
from lowkiq.node.threads import leases_of
from tests.node.driven import acquire, runtime_of, thread_of
from tests.support import RedisServer


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


def test_outcomes_that_a_silent_redis_never_heard_are_named_and_little_is_waited_for_it(
    own_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Lowkiq(redis_url=own_server.url, lease_ttl=300)
    worker = app.worker(queue_name="jobs", shards_count=1, batch_size=2)(lambda _: None)
    (lease,) = leases_of(runtime_of(app), worker)
    acquire(lease)
    worker.perform_async([{"id": "a"}, {"id": "b"}])
    thread = thread_of(lease.runtime, lease)
    assert thread._pick_and_exchange()
    thread._perform()
    keeper: Any = SimpleNamespace(stop=lambda: None, join=lambda _: None, drain=lambda: None)
    draining = Drain(lease.runtime, [thread], keeper, {})
    own_server.pause()
    began = clock.monotonic()
    draining.advance(began)
    assert draining.end() == 1
    took = clock.monotonic() - began
    own_server.resume()
    said = "".join(capsys.readouterr())
    assert "abandoned" in said and "ended_and_run_again" in said and "a" in said.split("ended_and_run_again")[1][:30]
    assert took < lease.runtime.settings.lease_ttl / 3, "as long as a node waits for one reply otherwise"
    app.close()


class Draining:
    """A node of two shards and its drain, by hand: its threads have not been started, so they take no time to end."""

    def __init__(self, app: Lowkiq) -> None:
        self.app, self.told, self.does = app, list[str](), lambda: None
        self.worker = app.worker(queue_name="jobs", shards_count=2)(lambda _: self.does())
        self.leases = [acquire(lease) for lease in leases_of(runtime_of(app), self.worker)]
        self.runtime = self.leases[0].runtime
        self.thread = thread_of(self.runtime, *self.leases)
        keeper: Any = SimpleNamespace(**{
            name: lambda *_, name=name: self.told.append(name) for name in ("drain", "stop", "join")
        })  # fmt: skip
        self.drain = Drain(self.runtime, [self.thread], keeper, {})

    def advance(self) -> bool:
        return self.drain.advance(clock.monotonic() + 5)

    def while_a_job_runs(self, do: Callable[[], object]) -> None:
        """A job of the thread's, beside which another is claimed."""
        seen = list[BaseException]()

        def during() -> None:
            self.does = lambda: None
            try:
                do()
            except BaseException as error:  # noqa: BLE001 (it would fail the job)
                seen.append(error)

        self.leases[0].claim_size.learn(1, 1e-6)
        self.worker.perform_async([{"id": str(number)} for number in range(20)])
        self.does = during
        self.thread._step()
        assert not seen, seen


@pytest.fixture
def draining(app: Lowkiq) -> Draining:
    return Draining(app)


def away(monkeypatch: pytest.MonkeyPatch, app: Lowkiq) -> Callable[[], None]:
    """Has Redis be away; returns what brings it back."""
    run_all = app.caller.run_all

    def fail(_: Any) -> Any:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(app.caller, "run_all", fail)
    return lambda: monkeypatch.setattr(app.caller, "run_all", run_all)


def test_a_drain_stops_all_and_gives_everything_back(draining: Draining, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, str]]()
    monkeypatch.setattr(
        drain, "ask_to_foster", lambda caller, namespace, released, heirs, node: asked.append((len(released), node))
    )
    draining.drain.begin()
    assert (draining.told, draining.thread.is_stopping) == (["drain"], True)
    assert not draining.advance()
    assert ([lease.epoch for lease in draining.leases], asked) == ([None, None], [(2, draining.runtime.node)])


def test_what_has_not_started_goes_back_and_what_runs_is_waited_for(
    draining: Draining, monkeypatch: pytest.MonkeyPatch
) -> None:
    def during() -> None:
        (claim, *_) = draining.thread.in_hand
        assert claim.has_unstarted
        bring_back = away(monkeypatch, draining.app)
        monkeypatch.setattr(draining.drain, "_release", lambda: draining.app.caller.run_all([]))  # before any was left
        assert draining.advance(), "nobody was told of what runs"
        assert not claim.has_unstarted
        assert draining.drain._is_redis_away
        monkeypatch.setattr(draining.drain, "_release", type(draining.drain)._release.__get__(draining.drain))
        bring_back()
        monkeypatch.setattr(draining.thread, "is_alive", lambda: True)
        assert draining.advance(), "a job runs"
        assert not draining.drain._is_redis_away
        monkeypatch.undo()
        assert not draining.advance(), "it does not run in a thread that was started"

    draining.while_a_job_runs(during)


def test_without_jobs_it_does_not_wait_for_a_redis_that_is_away(
    draining: Draining, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_back = away(monkeypatch, draining.app)
    assert not draining.advance()
    assert (draining.drain.end(), draining.told) == (0, ["stop", "join"])
    bring_back()
    draining.runtime.in_transit.append(object())
    assert draining.advance(), "its outcome is on its way"


def test_what_can_be_cut_short_is_all_of_it(draining: Draining) -> None:
    def during() -> None:
        assert not draining.drain.cut_short()
        (claim, *_) = draining.thread.in_hand
        stopped = list[Stop]()
        claim.stopper = stopped.append
        two: Any = SimpleNamespace(in_hand=[claim], is_alive=lambda: False)
        draining.drain._workers = [draining.thread, two]
        assert draining.drain.cut_short()
        assert stopped == [Stop.DRAINED, Stop.DRAINED]

    draining.while_a_job_runs(during)


def test_what_is_left_running_is_marked_wherever_it_is(draining: Draining, monkeypatch: pytest.MonkeyPatch) -> None:
    def during() -> None:
        calls = list[Any]()
        run_all = draining.app.caller.run_all
        monkeypatch.setattr(draining.app.caller, "run_all", lambda some: (calls.extend(some), run_all(some))[1])
        assert draining.drain.end() == 1, "of one shard jobs run"
        assert [call.script for call in calls] == ["abandon", "abandon"]
        assert draining.advance() is False
        calls.clear()
        assert draining.drain.end() == 1, "it has left the shard"
        assert [call.script for call in calls] == ["abandon"]
        assert "stop" in draining.told

    draining.while_a_job_runs(during)


class Burst:
    """A node that ends when nothing is to do, on a clock that stands still; another one has the other queue."""

    def __init__(self, app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = clock.monotonic()
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        self.worker = app.worker(queue_name="jobs", shards_count=1)(lambda _: None)
        self.other = app.worker(queue_name="others", shards_count=1)(lambda _: None)
        self.leases = leases_of(runtime_of(app), self.worker)
        self.runtime = self.leases[0].runtime
        self.end = BurstEnd(self.runtime, self.leases)

    def looks(self) -> list[bool]:
        return [self.end.is_reached() for _ in range(2)]


@pytest.fixture
def burst(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> Burst:
    return Burst(app, monkeypatch)


def test_a_burst_ends_when_two_looks_have_found_nothing_and_nothing_was_done_in_between(burst: Burst) -> None:
    assert burst.looks() == [False, True]
    burst.worker.perform_async([{"id": "a"}])
    assert burst.looks() == [False, False]
    burst.worker.actions.delete(["a"])
    assert burst.looks() == [False, True]
    burst.worker.perform_async([{"id": "a", "perform_in": time.time() + 3600}])
    assert burst.looks() == [False, True], "a job of later was pushed, and is not waited for"


def test_a_burst_waits_for_what_runs_and_not_for_what_is_paused(burst: Burst) -> None:
    burst.worker.perform_async([{"id": "a"}])
    burst.worker.actions.pause(wait=0)
    burst.looks()
    assert burst.looks() == [True, True]
    burst.worker.actions.resume()
    thread = thread_of(burst.runtime, acquire(burst.leases[0]))
    assert thread._pick_and_exchange()
    assert burst.looks() == [False, False]


def test_a_burst_waits_for_letters_and_for_redis(burst: Burst, monkeypatch: pytest.MonkeyPatch) -> None:
    burst.looks()
    burst.runtime.letters.note(burst.leases[0])
    assert burst.looks() == [False, False]
    burst.runtime.letters.take_now()
    burst.runtime.letters.is_busy = False
    burst.looks()

    def fail(*_: Any) -> Any:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(drain, "read_shards", fail)
    assert burst.looks() == [False, False]


def test_a_burst_waits_for_other_nodes_jobs_as_long_as_these_may_be_there(burst: Burst) -> None:
    burst.other.perform_async([{"id": "a"}])
    assert burst.looks() == [False, False]
    burst.now += burst.runtime.settings.lease_ttl
    assert burst.looks() == [False, True]


def test_a_burst_does_not_wait_for_queues_that_are_refused(burst: Burst) -> None:
    burst.worker.perform_async([{"id": "a"}])
    burst.runtime.refusals.of_queues({"jobs": OtherLayout("another")})
    assert burst.looks() == [False, True]
