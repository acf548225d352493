"""Random histories of lowkiq.testing beside a real node on a real Redis: both do the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lowkiq import Lowkiq, testing
from lowkiq.node.leases.claim_size import ClaimSize
from lowkiq.testing import queues, shard_view
from lowkiq.testing.clock import Clock
from lowkiq.testing.model.shard_state import Asked
from lowkiq.testing.node import FakeNode
from lowkiq.testing.queues import FakeQueue
from tests.queue.model import history
from tests.queue.model.virtual_clock import VirtualClock
from tests.testing.histories import check_history, load

#: Histories in every run of the tests; and in the rare one.
SOME, ALL = 40, 500


@pytest.fixture
def check(make_app: Callable[..., Lowkiq], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Runs the history of a seed."""
    settings: Any = {"load_payload": load, "dump_payload": str, "traceback_frames": 0}
    real, fake = make_app(**settings), Lowkiq(redis_url="redis://127.0.0.1:1/0", **settings)
    clock = VirtualClock(real.redis(), monkeypatch)
    # A node that finds jobs to be quick claims several at a time, which are settled together. One batch a claim is
    # what it begins with.
    monkeypatch.setattr(ClaimSize, "share", lambda self, _: self._batch_size)

    def run(seed: int) -> None:
        real.redis().flushall()
        for app in (real, fake):
            app.workers.clear()
            app._producers.clear()
        check_history(seed, real, clock, fake)

    yield run


def test_the_store_of_a_fake_is_the_model_of_the_projects_own_histories() -> None:
    app = Lowkiq(redis_url="redis://127.0.0.1:1/0")
    worker = app.worker(queue_name="q")(lambda batch: None)
    with testing.fake(app) as jobs:
        kinds = {type(model) for model in jobs._queue_of(worker)._models}
    assert kinds == {history.ShardModel}
    assert history.ShardModel.__module__ == "lowkiq.testing.model.shard_model"


def test_a_fake_does_what_a_node_does(check: Callable[[int], None]) -> None:
    for seed in range(SOME):
        check(seed)


@pytest.mark.rare
@pytest.mark.timeout(1_800)
def test_a_fake_does_what_a_node_does_in_many_histories(check: Callable[[int], None]) -> None:
    for seed in range(ALL):
        check(seed)


def forgets_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_asked", lambda _: Asked())


def forgets_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    row = queues._row
    monkeypatch.setattr(queues, "_row", lambda job: (*row(job)[:3], None, *row(job)[4:]))


def hands_over_all_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = FakeQueue.claim
    monkeypatch.setattr(FakeQueue, "claim", lambda self, at, most, _, *more: claim(self, at, most, 1_000, *more))


def takes_larger_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = FakeQueue.claim
    monkeypatch.setattr(FakeQueue, "claim", lambda self, at, most, *more: claim(self, at, 2 * most, *more))


def takes_what_is_snoozed_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = FakeQueue.settle
    monkeypatch.setattr(
        FakeQueue, "settle", lambda self, taken, outcome: settle(self, taken, outcome._replace(snoozed=()))
    )


def loses_what_is_beside_a_spoiled_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = FakeQueue.settle
    monkeypatch.setattr(
        FakeQueue, "settle", lambda self, taken, outcome: settle(self, taken, outcome._replace(released=()))
    )


def has_time_go_by_unevenly(monkeypatch: pytest.MonkeyPatch) -> None:
    move_to = Clock.move_to
    monkeypatch.setattr(Clock, "move_to", lambda self, moment: move_to(self, moment + 1))


def lets_what_is_held_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.ShardModel, "hold", lambda self, layout, told, *ids: len(ids))


def deletes_instead_of_cancelling(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = history.ShardModel.drop
    monkeypatch.setattr(history.ShardModel, "cancel", lambda self, layout, one: drop(self, layout, "queue", one))


def runs_the_jobs_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first_due = FakeNode._first_due
    monkeypatch.setattr(FakeNode, "_first_due", lambda self, until, only: first_due(self, until, None))


def tells_every_job_as_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shard_view._KEYS, "retries", lambda *_: ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "deviate",
    [
        forgets_fewer, forgets_delays, hands_over_all_payloads, takes_larger_batches, takes_what_is_snoozed_for_done,
        loses_what_is_beside_a_spoiled_payload, has_time_go_by_unevenly, lets_what_is_held_run,
        deletes_instead_of_cancelling, runs_the_jobs_of_others, tells_every_job_as_fresh,
    ],
)  # fmt: skip
def test_a_fake_that_deviates_is_found_out(
    check: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, deviate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    deviate(monkeypatch)
    with pytest.raises(AssertionError, match="history"):
        for seed in range(SOME):
            check(seed)
