"""What a claim in hand tells of its jobs, and when: a ledger of what became of them that Redis does not know yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from lowkiq import Bury, Lowkiq, Snooze, Worker, clock, current
from lowkiq.errors import Moved
from lowkiq.handlers.retries import Failures
from lowkiq.handlers.stop import Stop
from lowkiq.node.leases.claim_in_hand import Settle
from lowkiq.node.leases.gate import Grant
from lowkiq.node.leases.homes import Home, Homes
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.relief import Relief
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.places import Place
from lowkiq.node.threads import leases_of
from lowkiq.queue.claims import Handed, Spoiled
from lowkiq.queue.keys import Layout
from lowkiq.queue.rates import Unit
from lowkiq.queue.shard import Failure, Shard
from tests.node.driven import acquire, runtime_of, thread_of
from tests.pairs.rig import dump, restore


class Hand:
    """A claim of jobs a, b, c, d in hand, and its thread, which are driven by hand; each job does as `does` says."""

    def __init__(self, app: Lowkiq, now: list[float], **options: Any) -> None:
        self.app, self.now, self.ran = app, now, list[str]()
        self.does: dict[str, Callable[[], Any]] = {}
        hand = self

        class Jobs(Worker):
            def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
                for id in payloads_by_id:
                    hand.ran.append(id)
                    hand.does.get(id, lambda: None)()

        self.worker = app.worker(queue_name="q", shards_count=1, **options)(Jobs)
        (self.lease,) = leases_of(runtime_of(app), self.worker)
        acquire(self.lease)
        self.lease.claim_size.learn(1, 1e-6)
        self.thread = thread_of(self.lease.runtime, self.lease)
        self.worker.perform_async([{"id": id} for id in "abcd"])
        assert self.thread._pick_and_exchange()
        (self.claim,) = self.thread.in_hand
        assert list(self.claim.ids) == list("abcd")

    def perform(self) -> None:
        self.claim.perform(clock.monotonic(), self.thread.seat)

    def settle(self, *, last: bool = False) -> Settle | None:
        return self.claim.settle_call(last=last)

    def confirm(self, sent: Settle | None) -> Any:
        assert sent
        return self.claim.settled(sent, self.app.caller.run_all(sent.calls))


@pytest.fixture
def hand(app: Lowkiq, now: list[float]) -> Hand:
    return Hand(app, now)


def fail(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


def test_each_outcome_is_told_until_it_is_confirmed_and_not_again(hand: Hand) -> None:
    hand.does = {"a": fail(ValueError("x")), "b": fail(Bury("no")), "c": fail(Snooze(5))}
    hand.perform()
    assert hand.ran == list("abcd")
    for _ in range(2):  # its reply was lost
        sent = hand.settle()
        assert sent
        rows = sent.outcome
        assert [[row.id for row in some] for some in (rows.failed, rows.exhausted, rows.snoozed)] == [
            ["a"],
            ["b"],
            ["c"],
        ]
        assert (rows.acked, rows.released, rows.rest) == (["d"], (), "keep")
    assert sent
    with pytest.raises(redis.ConnectionError):
        hand.claim.settled(sent, [redis.ConnectionError("away")])
    assert hand.claim.unsettled == list("abcd")
    assert hand.confirm(sent)
    assert (hand.settle(), hand.claim.unsettled, hand.claim.waits_since) == (None, [], None)
    last = hand.settle(last=True)
    assert last
    assert (last.outcome.rest, last.outcome.failed, last.outcome.exhausted) == ("release", (), ())


@pytest.mark.parametrize("error", [ValueError("x"), Bury("no"), Snooze(5), None])
def test_what_a_failover_has_lost_of_jobs_that_are_not_plainly_done_runs_again(
    hand: Hand, error: Exception | None
) -> None:
    """The end of the claim would take it for done: it would be lost, or what follows from it."""
    client = hand.app.redis()
    hand.does = {"a": fail(error) if error else lambda: current().then(hand.worker, [{"id": "e"}])}
    hand.perform()
    before = dump(client)
    assert hand.confirm(hand.settle())
    restore(client, before)
    assert not hand.claim.is_plainly_done
    assert hand.confirm(hand.settle(last=True))
    assert "a" in {id.decode() for id in client.hkeys(f"{hand.lease.shard.prefix}payloads")}


def test_what_is_plainly_done_needs_no_name(hand: Hand) -> None:
    hand.perform()
    assert hand.confirm(hand.settle())
    assert hand.claim.is_plainly_done
    last = hand.settle(last=True)
    assert last
    assert last.outcome.rest == "ack"


def test_what_comes_while_a_settle_is_on_its_way_is_told_with_the_next(hand: Hand) -> None:
    between = list[Settle | None]()
    hand.does = {"b": lambda: between.append(hand.settle()), "a": fail(ValueError("x")), "c": fail(ValueError("y"))}
    hand.does["d"] = lambda: hand.confirm(between[0])
    hand.perform()
    (first,) = between
    assert first
    assert ([row.id for row in first.outcome.failed], first.outcome.acked) == (["a"], []), "b runs still"
    sent = hand.settle()
    assert sent
    assert ([row.id for row in sent.outcome.failed], sent.outcome.acked) == (["c"], ["b", "d"])


def test_what_goes_back_while_a_settle_is_on_its_way_is_told_with_the_next(hand: Hand) -> None:
    told = list[Any]()

    def during() -> None:
        sent = hand.settle()
        hand.claim.give_back()
        hand.confirm(sent)
        told.append(hand.settle())

    hand.does = {"b": during}
    hand.perform()
    assert [(sent.outcome.released, sent.outcome.acked) for sent in told] == [(("c", "d"), [])]


def test_what_fails_before_it_has_started_is_news(hand: Hand) -> None:
    """As the rate's `by` did."""
    assert hand.settle() is None
    hand.claim._note(Failures(failed=[Failure("a", 0, 1.0, "x")]))
    assert hand.settle()


def test_what_cannot_be_read_is_told_and_what_else_its_id_holds_goes_back(hand: Hand) -> None:
    spoiled = Spoiled("b", b"x", "why")
    hand.does = {"b": lambda: hand.claim._note(Failures(spoiled=[spoiled]))}
    hand.perform()
    sent = hand.settle()
    assert sent
    rows = sent.outcome
    assert (rows.spoiled, rows.released, rows.acked) == ((spoiled,), ("b",), ["a", "c", "d"])


def test_outcomes_wait_since_the_first(hand: Hand) -> None:
    began, seen = hand.now[0], list[float | None]()

    def look() -> None:
        seen.append(hand.claim.waits_since)
        hand.now[0] += 0.01

    hand.does = dict.fromkeys("abc", look)
    hand.perform()
    assert seen == [None, began + 0.01, began + 0.01]


def test_what_has_not_started_goes_back_and_what_runs_does_not(hand: Hand) -> None:
    def during() -> None:
        assert hand.claim.take_back_call() is None, "a job of it runs"
        assert hand.claim.waits_since is not None
        since = hand.claim.waits_since
        hand.now[0] += 1e-6
        hand.claim.give_back()
        assert hand.claim.waits_since == since
        sent = hand.settle()
        assert sent
        hand.does["told"] = lambda: (sent.outcome.acked, sent.outcome.released)  # type: ignore[return-value]
        hand.confirm(sent)

    hand.does = {"b": during}
    hand.perform()
    told: Any = hand.does["told"]
    assert (hand.ran, told()) == (["a", "b"], (["a"], ("c", "d")))


def test_to_give_back_before_anything_ran_is_news(hand: Hand) -> None:
    hand.claim.give_back()
    assert hand.claim.waits_since == hand.now[0]
    sent = hand.settle()
    assert sent
    assert (sent.outcome.released, sent.outcome.acked) == (("a", "b", "c", "d"), [])
    hand.perform()
    assert hand.ran == []


def test_the_end_of_a_claim_returns_what_has_not_started(hand: Hand) -> None:
    sent = hand.settle(last=True)
    assert sent
    assert sent.outcome.rest == "release"


def test_nothing_is_said_or_started_once_the_lease_is_lost(hand: Hand) -> None:
    hand.does = {"a": lambda: hand.lease.lost(hand.claim.epoch)}
    hand.perform()
    assert (hand.ran, hand.settle(last=True)) == (["a"], None)


def test_of_a_shard_that_was_left_nothing_starts_and_all_is_said(hand: Hand) -> None:
    def leave() -> None:
        left = hand.lease.leave_call()
        assert left
        hand.app.caller.run_all([left[1]])
        hand.lease.left(left[0], hand.now[0])

    hand.does = {"a": leave}
    hand.perform()
    assert (hand.ran, hand.claim.is_resting, hand.claim.is_away, hand.claim.is_lost) == (["a"], True, True, False)
    assert not hand.claim.may_start_now([])
    sent = hand.settle()
    assert sent
    assert (sent.outcome.acked, sent.outcome.released) == (["a"], ("b", "c", "d"))
    assert hand.claim.lost()
    hand.claim.renewed(hand.now[0], 15)
    assert (hand.claim.is_lost, hand.claim.lost()) == (True, False)


def test_the_loss_of_what_is_over_is_no_news(hand: Hand) -> None:
    hand.claim.leave(hand.now[0] + 15)
    hand.claim.finish()
    assert (hand.claim.lost(), hand.lease.in_hand) == (False, ())


def test_what_has_moved_meanwhile_is_told_to_its_new_homes(hand: Hand) -> None:
    hand.perform()
    hand.claim.leave(hand.now[0] + 15)
    sent = hand.settle(last=True)
    assert sent
    assert hand.claim.settled(sent, [Moved("2:3")]) is None
    assert hand.claim.is_in_transit
    assert hand.claim.unsettled == list("abcd"), "all is to be said again"
    assert {id for home in hand.claim.homes.all for id in home.ids or ()} == set("abcd")
    hand.claim.finish()
    assert hand.lease.runtime.in_transit == [hand.claim]


def test_a_batch_starts_only_while_all_that_it_needs_is_there(hand: Hand) -> None:
    claim, jobs = hand.claim, hand.claim._jobs
    assert claim.may_start_now(jobs)
    place: Any = Place("p", None)  # type: ignore[arg-type]
    claim.places = (place,)
    assert claim.may_start_now(jobs)
    place.is_lost = True
    assert not claim.may_start_now(jobs)
    place.is_lost = False
    claim.is_resting = True
    assert not claim.may_start_now(jobs)
    claim.is_resting = False
    hand.thread._is_stopping = True
    assert not claim.may_start_now(jobs)
    hand.thread._is_stopping = False
    claim.is_rated = True
    assert claim.may_start_now(jobs)
    claim._granted = {"a": Grant(Unit("", "a"), False, hand.now[0], hand.now[0] + 1)}
    assert claim.may_start_now(jobs)
    hand.now[0] += 1
    assert not claim.may_start_now(jobs), "what was granted is over"
    claim.is_rated = False
    hand.now[0] = hand.lease.until
    assert not claim.may_start_now(jobs)


def test_what_is_cancelled_is_asked_to_stop_once_and_stays_so(hand: Hand) -> None:
    asked, stopped = hand.claim.asked_to_stop, list[Stop]()
    jobs = {job.id: job for job in hand.claim._jobs}

    def during() -> None:
        hand.claim.stopper = stopped.append
        began = hand.now[0]
        for ids in ({"b"}, {"b", "x"}, {"a"}, {"a"}):
            hand.claim.cancel(ids)
            hand.now[0] += 1e-6
        assert asked([jobs["b"]], began) == began
        assert asked([jobs["a"]], began) == pytest.approx(began + 2e-6)
        assert asked([jobs["c"]], began) is None
        stopped.append(Stop.DRAINED)  # it has come so far

    hand.does = {"a": during}
    hand.perform()
    assert stopped == [Stop.CANCELLED, Stop.DRAINED]
    assert hand.ran == ["a"], "the others go back, and those that are cancelled are dropped on the way"


def test_what_takes_too_long_is_asked_to_stop_when_its_time_is_over(app: Lowkiq, now: list[float]) -> None:
    hand = Hand(app, now, perform_timeout=10)
    began = now[0]
    assert hand.claim.asked_to_stop(hand.claim._jobs, began) is None
    now[0] += 10
    assert hand.claim.asked_to_stop(hand.claim._jobs, began) == began + 10


def test_what_a_job_sets_is_its_own(hand: Hand) -> None:
    from contextvars import ContextVar

    seen, own = list[str](), ContextVar("own", default="")
    hand.does = dict.fromkeys("abcd", lambda: (seen.append(own.get()), own.set("set")))
    hand.perform()
    assert seen == [""] * 4


def test_the_seat_tells_which_job_runs(hand: Hand) -> None:
    places = list[int]()
    hand.does = dict.fromkeys("abcd", lambda: places.append(hand.thread.seat.place[0]))
    hand.perform()
    assert places == [1, 2, 3, 4]


def test_batches_are_of_batch_size(app: Lowkiq, now: list[float]) -> None:
    hand, sizes = Hand(app, now, batch_size=3), list[int]()
    hand.does = dict.fromkeys("ad", lambda: sizes.append(len(hand.claim.running)))
    hand.perform()
    assert sizes == [3, 1]


def test_what_may_not_start_yet_does_not(hand: Hand) -> None:
    hand.claim._until = 2
    hand.perform()
    assert hand.ran == ["a", "b"]


def test_what_is_handed_over_and_in_hand_already_does_not_run_beside_itself(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(hand.app.caller), "losses", 1)
    monkeypatch.setattr(hand.lease, "handed", lambda *_: True)
    handed = Handed(hand.claim.epoch, hand.claim.number + 1, b"a", b"", b"0")
    assert ThreadClaim.of_ring(hand.lease, handed, hand.thread, hand.thread.seat) is None


# ── relief, by others, while its thread is inside a job ─────────────────────────────────────────────────────────────


def test_outcomes_inside_a_long_job_are_settled_for_its_thread_once_they_have_waited(hand: Hand) -> None:
    relief, seen, woken = Relief(hand.app.caller), list[Any](), list[tuple[Lease, float]]()

    def during() -> None:
        for seconds in (0.0, 0.5, 0.6):
            hand.now[0] += seconds
            relief.settle_late(hand.thread, 1.0, 60.0, lambda lease, at: woken.append((lease, at)))
            seen.append((hand.thread.processed, hand.claim.unsettled))

    hand.does = {"b": during}
    hand.perform()
    assert seen == [(0, ["a"]), (0, ["a"]), (1, [])]
    assert (hand.ran, woken) == (["a", "b"], []), "what is behind it goes back with the settle"


def test_what_waits_behind_a_long_job_goes_back_and_its_shard_is_looked_at(hand: Hand) -> None:
    relief, woken = Relief(hand.app.caller), list[Lease]()

    def late() -> None:
        relief.settle_late(hand.thread, 1e9, 1.0, lambda lease, _: woken.append(lease))

    def during() -> None:
        late()
        assert hand.claim.has_unstarted
        relief.take_rest(hand.lease, [hand.thread], 1.0)
        assert hand.claim.has_unstarted, "it is quick"
        hand.now[0] += 1.0
        with hand.thread.settling:  # as the thread itself, or somebody else, settles just now
            late()
            assert hand.claim.has_unstarted
        late()
        hand.ran.append("taken" if not hand.claim.has_unstarted else "not taken")

    hand.does = {"a": during}
    hand.perform()
    assert (hand.ran, woken) == (["a", "taken"], [hand.lease])
    assert hand.claim in hand.thread.in_hand


def test_a_claim_that_waits_behind_another_s_long_job_is_taken_back_whole(hand: Hand) -> None:
    """As a thread has several shards in hand, and is inside a job of one."""
    relief, woken = Relief(hand.app.caller), list[Lease]()
    hand.thread.is_inside = lambda now, seconds: True  # type: ignore[method-assign]
    hand.lease.take(hand.thread, 0.0)
    relief.settle_late(hand.thread, 1e9, 1.0, lambda lease, _: woken.append(lease))
    assert (hand.claim.is_over, hand.lease.in_hand, hand.lease._turns, woken) == (True, (), set(), [hand.lease])


def test_so_is_one_of_which_all_was_done_before(hand: Hand) -> None:
    hand.perform()
    hand.thread.is_inside = lambda now, seconds: True  # type: ignore[method-assign]
    Relief(hand.app.caller).settle_late(hand.thread, 1e9, 1.0, lambda lease, _: None)
    assert (hand.claim.is_over, hand.thread.processed) == (True, 4)


def test_homes_follow_what_moves_id_by_id() -> None:
    old = Shard("ns", "q", 1, Layout(1, 2))
    homes = Homes(old, 7)
    homes.follow(homes.all[0], "2:3:2", ["a", "b", "c", "d", "e"])
    assert {home.number for home in homes.all} == {"7@1"}
    assert sorted(id for home in homes.all for id in home.ids or ()) == ["a", "b", "c", "d", "e"]
    assert len(homes.all) > 1
    first, *others = homes.all
    homes.follow(first, "3:1:3", ["a", "b", "c", "d", "e"])
    assert {home.ids for home in homes.all} == {first.ids, *(home.ids for home in others)}
    moved = next(home for home in homes.all if home.ids == first.ids)
    assert (moved.shard.index, moved.number) == (0, f"7@1@{first.shard.index}")
    homes.lose(moved)
    assert homes.all == tuple(others)
    assert all(homes.of(id) is None for id in first.ids or ())
    assert isinstance(homes.of(next(iter(others[0].ids or ()))), Home)
