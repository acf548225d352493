"""What lowkiq.testing does is what a real node does on a real Redis: random histories of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lowkiq import Lowkiq, testing
from lowkiq.node.leases.claim_size import ClaimSize
from tests.queue.model import history
from tests.queue.model.virtual_clock import VirtualClock
from tests.testing.histories import check_history, load

#: Histories in every run of the tests; and in the long one.
SOME, ALL = 60, 500


@pytest.fixture
def check(make_app: Callable[..., Lowkiq], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Runs the history of a seed."""
    settings = {"load_payload": load, "dump_payload": str, "traceback_frames": 0}
    real, fake = make_app(**settings), Lowkiq(redis_url="redis://127.0.0.1:1/0", **settings)
    clock = VirtualClock(real.redis(), f"{real.settings.namespace}:clock", monkeypatch)
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


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_fake_does_what_a_node_does_in_many_histories(check: Callable[[int], None]) -> None:
    for seed in range(ALL):
        check(seed)
