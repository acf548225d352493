"""A node starts jobs no sooner than their rate says: on threads, as tasks, in processes, of suspects; and 429s."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from lowkiq import Lowkiq, PartialFailure, Rate, RateLimited, SettingsError, Snooze, Worker, clock
from lowkiq.errors import checked_key
from lowkiq.node.leases.gate import Gate
from lowkiq.node.node import Node
from lowkiq.node.rated import Rated
from lowkiq.queue import rates
from tests.node.driven import burst
from tests.support import wait_until

#: A rate that never lets a second window begin within a test.
SLOW = 3_600.0


class Stage:
    """A worker with a rate, of a kind, that records what it starts."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.starts: list[tuple[str, float]] = []
        self.errors: dict[str, BaseException] = {}
        self.claims: Counter[str] = Counter()

    def register(self, kind: str, rate: Rate | None, **options: Any) -> type[Worker]:
        stage = self

        def note(id: str) -> None:
            stage.starts.append((id, clock.monotonic()))
            if error := stage.errors.pop(id, None):
                raise error

        async def as_task(id: str, _: list[Any]) -> None:
            note(id)

        def one(id: str, _: list[Any]) -> None:
            note(id)

        def batch(payloads_by_id: dict[str, list[Any]]) -> None:
            errors: dict[str, BaseException] = {}
            for id in payloads_by_id:
                try:
                    note(id)
                except Exception as error:  # noqa: BLE001 (it is told of)
                    errors[id] = error
            if errors:
                raise PartialFailure(errors)

        made: Any = {"one": one, "batch": batch, "task": as_task}[kind]
        return self.app.worker(queue_name="q", shards_count=2, rate=rate, **options)(made)

    @property
    def ran(self) -> list[str]:
        return [id for id, _ in self.starts]

    def length(self) -> int:
        return self.app.metrics()["q"].length


@pytest.fixture
def stage(app: Lowkiq) -> Stage:
    return Stage(app)


kinds = pytest.mark.parametrize("kind", ["one", "batch", "task"])


def jobs(count: int, **payload: Any) -> list[Any]:
    return [{"id": str(number), "payload": payload} for number in range(count)]


def fullest(times: list[float], window: float) -> int:
    """The most starts that any window has."""
    times = sorted(times)
    return max((sum(1 for other in times if at <= other < at + window) for at in times), default=0)


@kinds
def test_as_many_start_as_may_and_the_others_wait_scheduled_without_a_try(stage: Stage, kind: str) -> None:
    worker = stage.register(kind, Rate(3, per=SLOW), batch_size=2 if kind == "batch" else 1)
    worker.perform_async(jobs(10))
    burst(stage.app)
    metrics = stage.app.metrics()["q"]
    assert (len(stage.ran), metrics.length, metrics.retries, metrics.failed) == (3, 7, 0, 0)
    assert metrics.lag == 0, "they are not late: their time is to come"
    waiting = sorted(job.perform_in for job in worker.queries.range_by_perform_in(limit=10))
    assert all(later - earlier > SLOW / 3 for earlier, later in itertools.pairwise(waiting))


@kinds
def test_no_window_is_overfull_and_all_jobs_run_in_the_end(stage: Stage, kind: str) -> None:
    rate = Rate(20, per=0.5)
    worker = stage.register(kind, rate, batch_size=5 if kind == "batch" else 1)
    worker.perform_async(jobs(60))
    run_until(stage.app, lambda: len(stage.starts) == 60)
    assert sorted(stage.ran, key=int) == [str(number) for number in range(60)]
    assert fullest([at for _, at in stage.starts], 0.5) <= rate.most


@kinds
def test_each_key_has_its_own(stage: Stage, kind: str) -> None:
    by = Rate(2, per=SLOW, by=lambda _, payload: payload["tenant"])
    worker = stage.register(kind, by, batch_size=10 if kind == "batch" else 1)
    worker.perform_async([{"id": f"{tenant}{n}", "payload": {"tenant": tenant}} for tenant in "ab" for n in range(5)])
    burst(stage.app)
    assert Counter(id[0] for id in stage.ran) == {"a": 2, "b": 2}


@kinds
def test_a_job_whose_key_can_t_be_told_fails_and_the_others_run(stage: Stage, kind: str) -> None:
    def by(_: str, payload: Any) -> Any:
        return payload["tenant"]

    worker = stage.register(kind, Rate(5, per=SLOW, by=by), batch_size=10 if kind == "batch" else 1)
    worker.perform_async(
        [
            {"id": "none", "payload": {}},
            {"id": "list", "payload": {"tenant": ["x"]}},
            {"id": "long", "payload": {"tenant": "é" * 101}},
            {"id": "good", "payload": {"tenant": 1}},
        ]
    )
    burst(stage.app)
    assert stage.ran == ["good"]
    errors = {job.id: job.error for job in worker.queries.range_by_retry_count(0, limit=10)}
    assert "the rate's `by` failed: KeyError: 'tenant'" in str(errors["none"])
    assert "gave what can be no key: a key of a rate must be a string or an integer, not ['x']" in str(errors["list"])
    assert "has 202 bytes, it may have 200: hash it" in str(errors["long"])


@kinds
def test_a_far_side_that_has_had_enough_stops_all_that_shares_its_rate(stage: Stage, kind: str) -> None:
    worker = stage.register(kind, Rate(100, per=60), batch_size=1)
    stage.errors["first"] = RateLimited(1_000)
    worker.perform_async([{"id": "first"}])
    burst(stage.app)
    worker.perform_async(jobs(5))
    burst(stage.app)
    assert stage.ran == ["first"]
    metrics = stage.app.metrics()["q"]
    assert (metrics.length, metrics.failed, metrics.retries) == (6, 0, 0)
    first, *others = sorted(worker.queries.range_by_perform_in(limit=10), key=lambda job: job.perform_in)
    assert first.id == "first"
    assert all(job.perform_in - first.perform_in >= -1.0 for job in others)


@kinds
def test_of_a_key_only_what_has_it_rests(stage: Stage, kind: str) -> None:
    by = Rate(100, per=60, by=lambda _, payload: payload["tenant"])
    worker = stage.register(kind, by, batch_size=1)
    stage.errors["a0"] = RateLimited(1_000)
    stage.errors["b0"] = RateLimited(1_000, "c")
    for tenants in ("ab", "abc"):
        for tenant in tenants:
            number = 0 if tenants == "ab" else 1
            worker.perform_async([{"id": f"{tenant}{number}", "payload": {"tenant": tenant}}])
            burst(stage.app)
    assert stage.ran == ["a0", "b0", "b1"]


def test_without_a_rate_it_is_a_snooze_of_the_job_alone(stage: Stage) -> None:
    worker = stage.register("one", None)
    stage.errors["0"] = RateLimited(1_000)
    worker.perform_async(jobs(3))
    burst(stage.app)
    assert sorted(stage.ran) == ["0", "1", "2"]
    assert stage.length() == 1
    assert not list(stage.app.redis().scan_iter(match="*:rate}:*"))


def test_it_is_raised_with_what_it_can_have_only() -> None:
    assert isinstance(RateLimited(5), Snooze)
    assert (RateLimited(5, 17).key, RateLimited(5).key, str(RateLimited(5, "a"))) == ("17", None, "comes back in 5 s")
    for arguments in ((-1,), ("5",), (5, 1.5), (5, True), (5, "x" * 201), (5, "\ud800")):
        with pytest.raises(ValueError, match=r"RateLimited takes seconds|of a rate"):
            RateLimited(*arguments)
    assert checked_key("") == ""


def test_a_rate_that_is_none_is_refused_when_the_worker_is_registered(app: Lowkiq) -> None:
    with pytest.raises(SettingsError, match=r"worker w: rate is '100/60', it must be such as Rate\(100, per=60\)"):

        @app.worker(rate="100/60")  # type: ignore[call-overload]
        def w(_: Any) -> None: ...


def test_what_is_granted_and_not_started_in_time_is_asked_for_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the node had been paused between the answer and the start: of ten no window gets more than its two."""
    asked: list[int] = []
    perform = Rated.admit

    def stalled(self: Rated, claim: Any, most: int) -> bool:
        admitted = perform(self, claim, most)
        asked.append(1)
        if len(asked) == 1:
            time.sleep(0.5 * 0.008 * 2)
        return admitted

    monkeypatch.setattr(Rated, "admit", stalled)
    rate = Rate(2, per=0.5)
    worker = stage.register("one", rate)
    worker.perform_async(jobs(2))
    run_until(stage.app, lambda: len(stage.starts) == 2)
    assert len(asked) > 2
    assert fullest([at for _, at in stage.starts], 0.5) <= 2


@kinds
def test_on_a_machine_that_hears_each_answer_late_all_jobs_run_and_no_window_is_overfull(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the first answer: later ones would all be too old, by ten times what a rate allows for and more."""
    delays = itertools.chain([0.0], itertools.cycle([0.04, 0.06, 0.09]))
    call = Gate._call

    def late(self: Gate, *arguments: Any, **options: Any) -> Any:
        told = call(self, *arguments, **options)
        time.sleep(next(delays))
        return told

    monkeypatch.setattr(Gate, "_call", late)
    worker = stage.register(kind, Rate(4, per=0.5))
    worker.perform_async(jobs(16))
    run_until(stage.app, lambda: len(stage.starts) == 16)
    assert sorted(stage.ran, key=int) == [str(number) for number in range(16)]
    assert fullest([at for _, at in stage.starts], 0.5) <= 4


@kinds
def test_what_redis_refuses_starts_nothing_and_loses_nothing(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()
    ask = Gate.ask

    def refuses(self: Gate, *arguments: Any, **options: Any) -> Any:
        if not refused.is_set():
            refused.set()
            raise ResponseError("NOPERM no")
        return ask(self, *arguments, **options)

    monkeypatch.setattr(Gate, "ask", refuses)
    worker = stage.register(kind, Rate(100))
    worker.perform_async(jobs(20))
    run_until(stage.app, lambda: len(stage.starts) == 20)
    assert sorted(stage.ran, key=int) == [str(number) for number in range(20)]


def test_a_reply_that_is_lost_costs_no_place(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script has run, and nobody has heard of it: jobs that were put into the line find the same places."""
    lost = threading.Event()
    told = rates._told

    def loses(reply: Any) -> Any:
        if not lost.is_set():
            lost.set()
            raise ResponseError("the reply is lost")
        return told(reply)

    monkeypatch.setattr(rates, "_told", loses)
    worker = stage.register("one", Rate(1, per=SLOW))
    worker.perform_async(jobs(4))
    burst(stage.app)
    assert stage.app.redis().zcard(f"{stage.app.settings.namespace}:{{q:rate}}:planned") == stage.length()


def test_suspects_start_at_their_rate_too_and_stay_suspects(stage: Stage) -> None:
    worker = stage.register("one", Rate(1, per=SLOW))
    worker.perform_async(jobs(3))
    namespace = stage.app.settings.namespace
    for shard in range(2):
        for number in range(3):
            if stage.app.redis().hexists(f"{namespace}:{{q:{shard}}}:payloads", str(number)):
                stage.app.redis().hset(f"{namespace}:{{q:{shard}}}:crashes", str(number), 1)
    burst(stage.app)
    assert len(stage.ran) == 1
    crashes = sum(stage.app.redis().hlen(f"{namespace}:{{q:{shard}}}:crashes") for shard in range(2))
    assert (stage.length(), crashes) == (2, 2), "what has not run is not acquitted"


def test_a_live_rate_is_followed_and_keeps_the_function_of_the_code(stage: Stage) -> None:
    worker = stage.register("one", Rate(1, per=SLOW, by=lambda one, _: one[0]))
    worker.actions.set(rate="2/3600")
    worker.perform_async([{"id": f"{key}{number}"} for key in "ab" for number in range(4)])
    burst(stage.app)
    assert Counter(id[0] for id in stage.ran) == {"a": 2, "b": 2}


def test_a_live_rate_is_had_by_a_worker_without_one_and_unset(stage: Stage) -> None:
    worker = stage.register("one", None)
    worker.actions.set(rate="2/3600")
    worker.perform_async(jobs(5))
    burst(stage.app)
    assert len(stage.ran) == 2
    worker.actions.unset("rate")
    worker.perform_async([{"id": "new"}])
    burst(stage.app)
    assert stage.ran[2:] == ["new"], "those that wait come at their time, or when somebody performs them now"
    worker.actions.perform_all_jobs_now()
    burst(stage.app)
    assert len(stage.ran) == 6


@pytest.mark.parametrize("value", ["fast", "0/1", 100, "1/0.01", True])
def test_a_live_rate_that_can_t_be_is_refused(stage: Stage, value: Any) -> None:
    worker = stage.register("one", None)
    with pytest.raises(SettingsError, match="queue q: "):
        worker.actions.set(rate=value)


@kinds
def test_each_job_of_a_backlog_is_put_back_once_at_most(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_refused: Counter[str] = Counter()
    ask = Gate.ask

    def counting(self: Gate, *arguments: Any, **options: Any) -> Any:
        permits = ask(self, *arguments, **options)
        note_refused.update(list(permits.refused))
        return permits

    monkeypatch.setattr(Gate, "ask", counting)
    worker = stage.register(kind, Rate(5, per=SLOW))
    worker.perform_async(jobs(2_000))
    burst(stage.app)
    assert (len(stage.ran), sum(note_refused.values()), max(note_refused.values())) == (5, 1_995, 1)


def run_until(app: Lowkiq, is_done: Callable[[], bool]) -> None:
    """Runs a node in this thread until then."""

    def end() -> None:
        with contextlib.suppress(TimeoutError):
            wait_until(is_done)
        os.kill(os.getpid(), signal.SIGTERM)

    ender = threading.Thread(target=end)
    ender.start()
    Node(app).run()
    ender.join()
