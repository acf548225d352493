"""A lease by itself: what it believes of replies that come late, cross, or are lost. Nothing is sent."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.errors import Fenced, OtherLayout
from lowkiq.node.leases.claim_numbers import ClaimNumbers
from lowkiq.node.leases.known import Asked
from lowkiq.node.leases.lease import Lease
from lowkiq.node.threads import leases_of
from lowkiq.queue.claims import Handed
from lowkiq.queue.shard import Owned
from lowkiq.shared_page import SharedPage
from tests.node.driven import runtime_of

TTL = 15.0


class Claim:
    """A claim in hand, as far as leases know it."""

    is_away = has_unstarted = False

    def __init__(self, epoch: str, number: int, *ids: str) -> None:
        self.epoch, self.number, self.ids, self.told = epoch, number, ids, list[Any]()

    def rest(self) -> None:
        self.told.append("rest")

    def leave(self, until: float) -> None:
        self.told.append(("leave", until))
        self.is_away = True

    def renewed(self, asked_at: float, ttl: float) -> None:
        self.told.append(("renewed", asked_at, ttl))


class Thread:
    def __init__(self, lasts_at: float = 0.0) -> None:
        self.last = lasts_at

    def lasts_at(self, patience: float) -> float:
        return self.last


@pytest.fixture
def lease(app: Lowkiq, now: list[float]) -> Lease:
    (lease,) = leases_of(runtime_of(app), app.worker(queue_name="q", shards_count=1)(lambda _: None))
    own(lease, "1")
    return lease


def own(lease: Lease, epoch: str) -> None:
    lease.acquired(Owned(epoch, None, 0, 0), clock.monotonic())


def ask(lease: Lease) -> Asked:
    asked = lease.ask(1, SharedPage().seat(0))
    assert asked
    return asked


def claim(lease: Lease, *ids: str) -> Claim:
    """A claim that has brought jobs."""
    asked = ask(lease)
    held = Claim(asked.epoch, asked.number, *ids)
    assert lease.answered(asked, held)
    return held


def test_a_lease_ends_a_ttl_after_it_was_asked_for(lease: Lease, now: list[float]) -> None:
    lease.acquired(Owned("2", None, 0, 0), now[0] - 5)
    assert (lease.until, lease.holds("2"), lease.holds("1"), lease.holds(None)) == (
        now[0] + TTL - 5,
        True,
        False,
        False,
    )
    lease.renewed(now[0] - 3)
    assert lease.until == now[0] + TTL - 3
    now[0] = lease.until
    assert not lease.holds("2")


def test_what_was_said_of_an_earlier_hold_does_not_count_for_the_next(lease: Lease) -> None:
    lost = ask(lease)
    lease.rest()
    lease.is_foster, lease.is_wanted, lease.holder = True, True, "other"
    held = Claim("1", 1)
    lease.in_hand = (held,)  # type: ignore[assignment]
    own(lease, "2")
    assert (lease.is_wanted, lease.holder) == (False, None)
    assert not lease.lost("1") and lease.epoch == "2"
    lease.unanswered(lost)
    lease.not_made(lost, 1)
    asked = ask(lease)
    assert (len(asked.make_calls()), asked.made.unheard) == (1, ()), "nothing of it is given back"
    assert asked.number > held.number, "it still tells of itself by its number"
    assert lease.answered(asked, Claim("2", asked.number)), "the shard was paused before"
    lease.in_hand = ()
    lease.rest()
    own(lease, "3")
    asked = ask(lease)
    lease.unanswered(lost)
    assert (asked.number, lost.number, ask(lease).made.unheard) == (1, 1, ()), "the same number is another claim"
    assert lease.answered(asked, Claim("3", asked.number)), "nobody has paused it since"


def test_a_loss_is_news_once(lease: Lease) -> None:
    assert [lease.lost("1"), lease.lost("1"), lease.epoch] == [True, False, None]


@pytest.mark.parametrize("error", [Fenced("FENCED"), OtherLayout("another")])
def test_what_redis_refuses_loses_the_lease(lease: Lease, error: Exception) -> None:
    lease.refused("1", error)
    assert lease.epoch is None
    own(lease, "2")
    with pytest.raises(ValueError, match="x"):
        lease.refused("2", ValueError("x"))
    assert lease.epoch == "2"


def test_claims_of_its_own_epoch_are_left_and_named(lease: Lease, now: list[float]) -> None:
    old, own_one = Claim("0", 1), claim(lease)
    lease.in_hand += (old,)  # type: ignore[assignment]
    ask(lease)
    left = lease.leave_call()
    assert left and left[0] == "1" and lease.epoch is None and lease.leave_call() is None
    assert list(left[1].arguments) == ["one", "1", 2, "lease", TTL, own_one.number], "what is on its way goes back, too"
    now[0] += 5
    lease.left("1", now[0] - 5)
    assert own_one.told == [("leave", 1000.0 + TTL), ("renewed", 1000.0, TTL)]
    assert old.told == []


def test_what_runs_of_earlier_holds_is_named_as_these_are_left_again(lease: Lease) -> None:
    first = claim(lease)
    lease.leave_call()
    own(lease, "2")
    second = claim(lease)
    lease.in_hand += (Claim("0", 9),)  # type: ignore[assignment]  # its lease was lost, and it was never left
    assert [call.arguments for call in lease.leave_again_calls()] == [["one", "1", 2, "lease", TTL, first.number]]
    lease.leave_call()
    again = [call.arguments for call in lease.leave_again_calls()]
    assert again == [["one", "1", 2, "lease", TTL, first.number], ["one", "2", 2, "lease", TTL, second.number]]
    lease.not_left("2")
    assert len(lease.leave_again_calls()) == 1, "the keeper releases it"


def test_a_lease_that_was_not_left_is_kept_unless_there_is_a_newer_one(lease: Lease) -> None:
    lease.leave_call()
    lease.not_left("1")
    assert lease.epoch == "1"
    lease.leave_call()
    own(lease, "2")
    lease.not_left("1")
    assert lease.epoch == "2"


def test_what_is_claimed_as_the_shard_is_paused_goes_back_with_the_next_claim(lease: Lease) -> None:
    held, on_its_way = claim(lease), ask(lease)
    lease.rest()
    assert held.told == ["rest"]
    assert not lease.answered(on_its_way, Claim("1", on_its_way.number))
    assert not lease.handed(Handed("1", on_its_way.number, b"a", b"", b"0"), Claim("1", 2), Thread())  # type: ignore[arg-type]
    asked = ask(lease)
    assert asked.made.unheard == (on_its_way.number,)
    assert [call.script for call in asked.make_calls()] == ["release", "claim"]
    assert lease.answered(asked, Claim("1", asked.number))


def test_a_job_that_was_handed_over_before_the_pause_goes_back_with_the_next_claim(lease: Lease) -> None:
    asked = ask(lease)
    lease.answered(asked, None)
    lease.rest()
    assert lease.is_open
    assert not lease.handed(Handed("1", asked.number, b"a", b"", b"0"), Claim("1", asked.number), Thread())  # type: ignore[arg-type]


def test_nothing_is_asked_for_of_a_shard_that_is_wanted_or_lost(lease: Lease) -> None:
    lease.is_foster = True
    assert [lease.want(), lease.want()] == [True, False]
    assert lease.ask(1, SharedPage().seat(0)) is None
    lease.renewed(clock.monotonic())
    lease.is_foster = False
    lease.renewed(clock.monotonic(), is_wanted=True)
    assert not lease.want()
    assert ask(lease), "it is the node's own"
    lease.lost("1")
    assert lease.ask(1, SharedPage().seat(0)) is None


def test_a_claim_names_those_in_hand_and_is_closed_where_places_are_needed(lease: Lease) -> None:
    held = claim(lease)
    assert ask(lease).made.known == [held.number]
    assert "closed" not in ask(lease).make_calls()[-1].arguments
    lease.places = SimpleNamespace()  # type: ignore[assignment]
    assert "closed" in ask(lease).make_calls()[-1].arguments


def test_the_reply_of_a_lease_that_was_lost_is_not_run(lease: Lease) -> None:
    asked = ask(lease)
    own(lease, "2")
    assert not lease.answered(asked, Claim("1", asked.number))
    assert lease.in_hand == ()


def test_what_was_in_hand_as_a_connection_was_lost_is_in_doubt_while_it_is(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = [0]
    monkeypatch.setattr(type(lease.runtime.caller), "losses", property(lambda _: losses[0]))
    old = claim(lease, "a")
    assert lease.doubled(["a", "b"]) == ()
    losses[0] = 1
    assert lease.doubled(["a", "b"]) == ["a"]
    claim(lease, "b")
    assert lease.doubled(["a", "b"]) == ["a"], "b was claimed since"
    with lease.lock:
        lease.let_go(old)  # type: ignore[arg-type]
    assert [held.ids for held in lease.in_hand] == [("b",)]
    assert lease.doubled(["a", "b"]) == ()


def test_a_handed_job_is_of_this_lease_and_takes_a_turn(lease: Lease) -> None:
    lease.concurrency = 1
    asked = ask(lease)
    lease.answered(asked, None)
    one, other = Thread(), Thread()
    held = Claim("1", asked.number)
    assert not lease.handed(Handed("0", asked.number, b"a", b"", b"0"), held, one)  # type: ignore[arg-type]
    assert lease.handed(Handed("1", asked.number, b"a", b"", b"0"), held, one)  # type: ignore[arg-type]
    assert lease.in_hand == (held,)
    assert lease.take(other, 0.0) == math.inf
    asked = ask(lease)
    lease.answered(asked, None)
    assert not lease.handed(Handed("1", asked.number, b"a", b"", b"0"), held, other), "all turns are taken"  # type: ignore[arg-type]


def test_others_have_a_turn_once_the_claims_of_all_last(lease: Lease, now: list[float]) -> None:
    one, other, third, fourth = Thread(now[0] + 5), Thread(now[0] - 5), Thread(), Thread()
    lease.concurrency = 3
    assert [lease.take(one, 0.0), lease.take(one, 0.0), lease.take(other, 0.0)] == [0.0, 0.0, now[0] + 5]
    one.last = now[0]
    assert [lease.take(other, 0.0), lease.take(third, 0.0), lease.take(fourth, 0.0)] == [0.0, 0.0, math.inf]
    lease.leave(other)
    one.last = now[0] + 5
    assert lease.take(fourth, 0.0) == now[0] + 5, "of those that have a turn, one is quick"


def test_a_lost_lease_is_not_had_anew_while_its_jobs_run(lease: Lease) -> None:
    held = claim(lease)
    assert not lease.has_lost
    lease.lost("1")
    assert lease.has_lost
    held.is_away = True
    assert not lease.has_lost, "it has a lease of its own"


# ── the numbers of claims ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_whose_reply_is_lost_is_given_back_until_that_was_heard() -> None:
    numbers = ClaimNumbers()
    lost = numbers.next([])
    numbers.lost(lost.number)
    again = numbers.next([])
    assert (again.number, again.unheard, numbers.next([]).unheard) == (2, (1,), (1,))
    numbers.answered(again, is_empty=True)
    assert numbers.next([]).unheard == ()
    numbers.lost(again.number)
    assert numbers.next([]).unheard == (), "it was answered"


def test_those_on_their_way_and_in_hand_are_known() -> None:
    numbers = ClaimNumbers(4)
    numbers.next([])
    assert numbers.next([3]).known == [3, 5]


def test_one_that_redis_knows_and_nobody_here_is_given_back() -> None:
    numbers = ClaimNumbers(4)
    asked, other = numbers.next([]), numbers.next([])
    for unsettled, in_hand, given_back in ((other.number, [], ()), (3, [3], ()), (3, [], (3,))):
        numbers.not_made(asked, unsettled, in_hand)
        assert numbers.next([]).unheard == given_back


def test_the_last_claim_is_open_if_it_was_empty_and_takes_one_job() -> None:
    numbers = ClaimNumbers()
    first, second = numbers.next([]), numbers.next([])
    numbers.answered(first, is_empty=True)
    assert numbers.open == 0, "a later one was asked for"
    numbers.answered(second, is_empty=False)
    assert numbers.open == 0
    third = numbers.next([])
    numbers.answered(third, is_empty=True)
    assert numbers.open == third.number
    assert not numbers.handed(first.number, may_run=True)
    assert not numbers.handed(third.number, may_run=False)
    assert numbers.handed(third.number, may_run=True)
    assert not numbers.handed(third.number, may_run=True)
    numbers.answered(numbers.next([]), is_empty=True)
    assert (numbers.open, numbers.next([]).number, numbers.open) == (4, 5, 0)


def test_a_job_may_come_before_the_reply_that_its_claim_is_empty() -> None:
    numbers = ClaimNumbers()
    asked = numbers.next([])
    assert numbers.handed(asked.number, may_run=True)
    numbers.answered(asked, is_empty=True)
    assert numbers.open == 0
