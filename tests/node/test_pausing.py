"""What a node does when a shard of its own is paused: nothing that it has claimed and not started starts any more."""

from __future__ import annotations

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.node import lease_keeper
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.threads import leases_of
from lowkiq.queue.claims import Handed
from tests.node.driven import acquire, runtime_of, thread_of
from tests.queue.shard_driver import ShardDriver


class Driven:
    """A node without threads of its own; its worker's jobs are noted when they start."""

    def __init__(self, app: Lowkiq) -> None:
        self.started: list[str] = []

        def perform(payloads_by_id: dict[str, list[object]]) -> None:
            self.started += payloads_by_id
            if len(self.started) == 1:
                self.in_the_first()

        self.worker = app.worker(queue_name="q", shards_count=1)(perform)
        (self.lease,) = leases_of(runtime_of(app), self.worker)
        acquire(self.lease)
        self.thread = thread_of(self.lease.runtime, self.lease)
        self.keeper = LeaseKeeper(self.lease.runtime, {self.lease: self.thread.pool}, [self.thread])
        self.shard = ShardDriver(app)
        self.in_the_first = lambda: None

    def claim(self) -> bool:
        self.thread.pool.wake(self.lease, 0.0)
        return self.thread._pick_and_exchange()

    def ring(self) -> None:
        """Rings the keeper, and has it act."""
        self.keeper.pause(self.lease)
        self.keeper._round()


@pytest.fixture
def driven(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> Driven:
    monkeypatch.setattr(lease_keeper, "ACQUIRE_INTERVAL", 3600.0)
    driven = Driven(app)
    driven.keeper._round()
    return driven


def push(driven: Driven, *ids: str) -> None:
    driven.worker.perform_async([{"id": id} for id in ids])


def hold_two(driven: Driven) -> None:
    """A claim of two jobs in hand."""
    driven.lease.claim_size.learn(1, 0.001)
    push(driven, "a", "b")
    assert driven.claim()
    (claim,) = driven.thread.in_hand
    assert len(claim._jobs) == 2


def is_confirmed(driven: Driven) -> bool:
    return driven.worker.actions.pause(wait=0).is_confirmed


def test_what_has_not_started_goes_back_and_it_says_so(driven: Driven) -> None:
    hold_two(driven)
    assert not is_confirmed(driven)
    driven.ring()
    assert is_confirmed(driven)
    driven.thread._perform()
    driven.thread._pick_and_exchange()
    assert not driven.started
    assert (driven.shard.queued().keys(), driven.shard.claimed()) == ({"a", "b"}, {})


def test_what_runs_is_finished(driven: Driven) -> None:
    hold_two(driven)

    def pause() -> None:
        assert not is_confirmed(driven)
        driven.ring()
        assert is_confirmed(driven)

    driven.in_the_first = pause
    driven.thread._perform()
    driven.thread._pick_and_exchange()
    assert driven.started == ["a"]
    assert driven.shard.queued().keys() == {"b"}
    assert driven.shard.meta("processed") == 1


def test_a_renewal_tells_of_it_if_nobody_has_heard_the_ring(driven: Driven) -> None:
    hold_two(driven)
    assert not is_confirmed(driven)
    driven.keeper._renew_at = 0.0
    driven.keeper._round()
    assert is_confirmed(driven)


def test_a_lease_that_had_run_out_starts_nothing_when_it_is_ours_again(driven: Driven) -> None:
    """A pause does not wait for it; so the renewal gives back before the lease is known to last."""
    hold_two(driven)
    driven.lease.until = clock.monotonic() - 1
    driven.shard.redis.hset(driven.shard.key("owner"), "until", "1.000000")
    assert is_confirmed(driven)
    seen: list[bool] = []
    renewed = driven.lease.renewed

    def note(*args: float, **options: bool) -> None:
        seen.append(any(claim.has_unstarted for claim in driven.thread.in_hand))
        renewed(*args, **options)

    driven.lease.renewed = note  # type: ignore[assignment, method-assign]
    driven.keeper._renew_at = 0.0
    driven.keeper._round()
    assert seen == [False]


def test_a_claim_whose_reply_comes_later_is_not_started(driven: Driven) -> None:
    push(driven, "a")
    asked = driven.lease.ask(1, driven.thread.seat)
    assert asked
    claim = driven.lease.runtime.caller.run_all(asked.make_calls())[-1]
    assert not is_confirmed(driven)
    driven.ring()
    assert is_confirmed(driven)
    assert driven.shard.queued().keys() == {"a"}
    assert ThreadClaim.of_reply(driven.lease, claim, asked, driven.thread) is None
    driven.worker.actions.resume()
    assert driven.claim()
    driven.thread._perform()
    assert driven.started == ["a"]


def test_a_job_that_was_handed_over_before_is_not_started_once_it_rests(driven: Driven) -> None:
    assert not driven.claim()
    push(driven, "a")
    assert not is_confirmed(driven)
    driven.ring()
    handed = Handed(driven.lease.epoch or "", 1, b"late", b"1", b"1.0")
    assert not driven.thread._take_handed(driven.lease, handed)
    assert not driven.thread.in_hand


def test_a_paused_shard_is_not_asked_again_and_again(driven: Driven) -> None:
    push(driven, "a")
    driven.worker.actions.pause(wait=0)
    driven.ring()
    assert not driven.claim()  # it polls, too
    assert not driven.claim()
    assert driven.thread.pool.pick(clock.monotonic()) is None
    assert driven.lease.due_at == float("inf")


def test_it_goes_on_after_the_pause(driven: Driven) -> None:
    hold_two(driven)
    is_confirmed(driven)
    driven.ring()
    driven.thread._pick_and_exchange()
    driven.worker.actions.resume()
    assert driven.claim()
    driven.thread._perform()
    assert driven.started == ["a", "b"]


def test_a_shard_that_is_lost_and_acquired_again_rests(driven: Driven) -> None:
    hold_two(driven)
    is_confirmed(driven)
    driven.lease.lost(driven.lease.epoch or "")
    driven.ring()  # it is not ours any more: there is nothing to say
    acquire(driven.lease)
    assert is_confirmed(driven)
