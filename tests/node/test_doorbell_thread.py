"""What the thread that listens does when it is rung for a shard, and when it hears nothing for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.admin.beats.members import FOSTER
from lowkiq.node import doorbell, lease_keeper
from lowkiq.node.doorbell import CANCEL, Doorbell
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.threads import leases_of
from lowkiq.queue.call import Call
from lowkiq.transport import subscription
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
    with running(Doorbell(runtime_of(app, caller=SimpleNamespace(client=client, leave=lambda: None)), {}, {})):
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
    for module, name in ((doorbell, "LISTEN"), (doorbell, "RETRY"), (subscription, "SILENCE")):
        monkeypatch.setattr(module, name, 0.02)


@pytest.mark.usefixtures("impatience")
def test_an_end_that_answers_is_asked_again_and_again(app: Lowkiq) -> None:
    client = Watched(app, is_mute=False)
    with listening(app, client):
        wait_until(lambda: client.pongs >= 3)
    assert client.subscriptions == 1


@pytest.mark.usefixtures("impatience")
def test_an_end_that_does_not_answer_is_left(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that something between has forgotten looks like one on which nobody speaks."""
    monkeypatch.setattr(subscription, "ANSWER", 0.02)
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
    bell = Doorbell(lease.runtime, pools, {FOSTER: keeper.take_over})
    with running(bell), running(keeper):
        wait_until(lambda: bell.is_listening.is_set() and lease.holder == "one")
        released = held.leave_call()
        assert released
        app.caller.run(released[1])
        wait_until(lambda: lease.epoch)


def test_a_ring_that_is_heard_before_the_shard_is_known_to_be_ours_is_not_forgotten(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push rings the node as soon as Redis calls it the owner. It stood still until the next poll."""
    worker = app.worker(queue_name="jobs", shards_count=1)(lambda _: None)
    (lease,) = leases_of(runtime_of(app), worker)
    thread = thread_of(lease.runtime, lease)
    keeper, run_all = LeaseKeeper(lease.runtime, {lease: thread.pool}, [thread]), app.caller.run_all
    assert not thread._pick_several(clock.monotonic())

    def push_and_ring(calls: Sequence[Call[Any]], *more: Any) -> list[Any]:
        replies = run_all(calls, *more)
        if any(call.script == "acquire" for call in calls):
            monkeypatch.setattr(app.caller, "run_all", run_all)
            worker.perform_async([{"id": "1"}])
            thread.pool.wake(lease, clock.monotonic())
            assert not thread._pick_several(clock.monotonic()), "it is not ours yet, as far as we know"
        return replies

    monkeypatch.setattr(app.caller, "run_all", push_and_ring)
    keeper._round()
    assert lease.epoch and thread._pick_several(clock.monotonic()) == [lease]


class Cancelled:
    """A node without threads of its own, whose keeper has a claim of two jobs in hand; told of what was cancelled."""

    def __init__(self, app: Lowkiq) -> None:
        self.worker = app.worker(queue_name="jobs", shards_count=1, batch_size=2)(lambda _: None)
        (self.lease,) = leases_of(runtime_of(app), self.worker)
        acquire(self.lease)
        self.worker.perform_async([{"id": "a"}, {"id": "b"}])
        self.thread = thread_of(self.lease.runtime, self.lease)
        assert self.thread._pick_and_exchange()
        (self.claim,) = self.thread.in_hand
        pools = {self.lease: self.thread.pool}
        self.keeper = LeaseKeeper(self.lease.runtime, pools, [self.thread])
        self.bell = Doorbell(self.lease.runtime, pools, {CANCEL: self.keeper.cancel})


@pytest.fixture
def cancelled(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> Cancelled:
    monkeypatch.setattr(lease_keeper, "ACQUIRE_INTERVAL", 3600.0)
    return Cancelled(app)


def test_a_claim_is_told_at_once_of_what_was_cancelled_in_it(cancelled: Cancelled) -> None:
    with running(cancelled.bell), running(cancelled.keeper):
        wait_until(cancelled.bell.is_listening.is_set)
        assert cancelled.worker.actions.cancel(["b"]) == 1
        wait_until(lambda: cancelled.claim.cancelled.keys() == {"b"})


def test_a_renewal_tells_of_it_if_nobody_has_heard_the_ring(cancelled: Cancelled) -> None:
    cancelled.worker.actions.cancel(["a"])
    cancelled.keeper._round()
    assert cancelled.claim.cancelled.keys() == {"a"}


def test_a_claim_whose_reply_comes_later_is_told_by_the_next_renewal(cancelled: Cancelled) -> None:
    cancelled.worker.actions.cancel(["a"])
    hand, cancelled.thread._hand = cancelled.thread._hand, []
    cancelled.keeper._round()
    cancelled.thread._hand = hand
    assert not cancelled.claim.cancelled
    cancelled.keeper._renew_at = 0.0
    cancelled.keeper._round()
    assert cancelled.claim.cancelled.keys() == {"a"}


def test_what_was_cancelled_in_an_earlier_claim_stops_no_later_run(cancelled: Cancelled) -> None:
    cancelled.worker.actions.cancel(["a"])
    assert cancelled.lease.epoch
    shard, claim = cancelled.lease.shard, cancelled.claim
    cancelled.lease.runtime.caller.client.hset(shard.prefix + "cancels", "a", f"{claim.epoch} {claim.number - 1}")
    cancelled.keeper._round()
    assert not claim.cancelled


def test_rings_for_shards_of_others_are_nothing_to_it(cancelled: Cancelled) -> None:
    for data in (b"cancel lowkiq:{x:0}:", b"cancel", b"cancel ", b"foster x"):
        cancelled.bell._ring(data)
    assert not cancelled.keeper._rung


def test_marks_of_another_type_stop_no_keeper(cancelled: Cancelled) -> None:
    prefix = cancelled.lease.shard.prefix
    cancelled.lease.runtime.caller.client.set(prefix + "cancels", "no hash")
    cancelled.keeper._round()
    assert not cancelled.claim.cancelled
    assert cancelled.lease.holds(cancelled.claim.epoch)
