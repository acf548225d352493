"""What a node asks of the interpreter and of the kernel: while it runs, and no longer."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from lowkiq import Lowkiq
from lowkiq.node.leases.lease import Lease
from tests.node.driven import burst
from tests.support import FREEZE

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these policies")


@pytest.fixture
def policy() -> Iterator[None]:
    """Whatever a test sets, its successors get what was."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    yield
    os.sched_setscheduler(0, *before)


def seen_by_a_job(app: Lowkiq) -> tuple[int, int]:
    """Objects that the collector leaves alone, and the thread's scheduling policy."""
    seen = []
    worker = app.worker(queue_name="jobs")(
        lambda batch: seen.append((gc.get_freeze_count(), os.sched_getscheduler(0) if sys.platform == "linux" else 0))
    )
    worker.perform_async([{"id": "a"}])
    burst(app)
    return seen[0]


def test_the_collector_leaves_what_boot_has_made_alone_until_the_node_ends(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else claimed jobs make it look at all modules again and again, which costs a third of a node's speed."""
    frozen, ends = gc.get_freeze_count(), list[None]()
    made = [[number] for number in range(10_000)]
    monkeypatch.setattr(gc, "freeze", FREEZE)
    monkeypatch.setattr(gc, "unfreeze", lambda: ends.append(None))  # the tests' own objects stay frozen
    assert seen_by_a_job(app)[0] >= frozen + len(made)
    assert len(ends) == 1


def test_the_collector_leaves_the_shards_of_a_node_alone(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them are most of what there is."""
    monkeypatch.setattr(gc, "freeze", FREEZE)
    seen: list[bool] = []
    worker = app.worker(queue_name="jobs")(
        lambda batch: seen.append(any(isinstance(known, Lease) for known in gc.get_objects()))
    )
    worker.perform_async([{"id": "a"}])
    burst(app)
    assert seen == [False]


@linux
def test_worker_threads_take_the_core_of_nobody_when_they_wake_up(app: Lowkiq) -> None:
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert seen_by_a_job(app)[1] == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@linux
def test_a_policy_that_somebody_has_chosen_stays(app: Lowkiq, policy: None) -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    assert seen_by_a_job(app)[1] == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_BATCH


@linux
def test_where_it_is_refused_the_node_runs_on(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may filter the call."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert seen_by_a_job(app)[1] == os.SCHED_OTHER
