"""What the thread that listens does when it is rung for a shard, and when it hears nothing for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.node import doorbell, lease_keeper
from lowkiq.node.doorbell import Doorbell
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.threads import leases_of
from tests.node.driven import acquire, runtime_of, thread_of
from tests.support import wait_until


class Watched:
    """A client whose subscriptions count what is sent and heard. A mute one gets no answer to its pings."""

    def __init__(self, app: Lowkiq, *, is_mute: bool) -> None:
        self._client = app.redis()
        self._is_mute = is_mute
        self.subscriptions = self.pings = self.pongs = 0

    def pubsub(self) -> Any:
        watched, made = self, self._client.pubsub()
        ping, get_message = made.ping, made.get_message
        self.subscriptions += 1

        def count_ping() -> None:
            watched.pings += 1
            if not watched._is_mute:
                ping()

        def count_pong(timeout: float) -> Any:
            message = get_message(timeout=timeout)
            watched.pongs += message is not None and message["type"] == "pong"
            return message

        made.ping, made.get_message = count_ping, count_pong
        return made


@contextmanager
def listening(app: Lowkiq, client: Any) -> Iterator[None]:
    with running(Doorbell(runtime_of(app, caller=SimpleNamespace(client=client)), {}, lambda _: None)):
        yield


@contextmanager
def running(thread: Doorbell | LeaseKeeper) -> Iterator[None]:
    thread.start()
    try:
        yield
    finally:
        thread.stop()
        thread.join(60)
        assert thread not in threading.enumerate()


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTEN", "SILENCE", "RETRY"):
        monkeypatch.setattr(doorbell, name, 0.02)


@pytest.mark.usefixtures("impatience")
def test_an_end_that_answers_is_asked_again_and_again(app: Lowkiq) -> None:
    client = Watched(app, is_mute=False)
    with listening(app, client):
        wait_until(lambda: client.pongs >= 3)
    assert client.subscriptions == 1


@pytest.mark.usefixtures("impatience")
def test_an_end_that_does_not_answer_is_left(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that something between has forgotten looks like one on which nobody speaks."""
    monkeypatch.setattr(doorbell, "ANSWER", 0.02)
    client = Watched(app, is_mute=True)
    with listening(app, client):
        wait_until(lambda: client.subscriptions >= 3)
    assert client.pings >= 2


def test_a_node_that_stands_by_acquires_a_shard_as_soon_as_it_is_released(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would try again a second later, but doesn't wait for that."""
    monkeypatch.setattr(lease_keeper, "ACQUIRE_INTERVAL", 3600.0)
    worker = app.worker(queue_name="jobs", shards_count=1)(lambda _: None)
    (held,), (lease,) = (leases_of(runtime_of(app, node), worker) for node in ("one", "two"))
    acquire(held)
    thread = thread_of(lease.runtime, lease)
    pools = {lease: thread.pool}
    keeper = LeaseKeeper(lease.runtime, pools, [thread])
    bell = Doorbell(lease.runtime, pools, keeper.take_over)
    with running(bell), running(keeper):
        wait_until(lambda: bell.is_listening.is_set() and lease.holder == "one")
        released = held.release_call()
        assert released
        app.caller.run(released[1])
        wait_until(lambda: lease.epoch)
