"""Claims beside others of a shard, and what is parked behind a run: what the model doesn't decide, and how it looks."""

from __future__ import annotations

import math

import pytest

from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.metrics import read_lengths, read_shards
from lowkiq.errors import StaleClaim, Unsettled
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Exhausted, Failure, peek
from lowkiq.shared_page import DeadNode, Running
from tests import mutants
from tests.queue.bell.test_hand_over import listening, rings
from tests.queue.shard_driver import FUTURE, PAST, Claimed, Queued, ShardDriver


@pytest.fixture
def lease(shard):
    """With "a" in hand, in claim 1, and another payload of it parked by claim 2, which found "b"."""
    shard.push_all(("a", b"1", 1.0, PAST), ("b", b"1", 2.0, PAST + 1))
    lease = shard.lease("n")
    lease.claim(limit=1)
    shard.push("a", b"2", 3.0, PAST + 2)
    lease.claim_beside()
    assert list(shard.claims()) == [1, 2]
    assert shard.queued() == {"a": Queued({b"2": 3.0}, PAST + 2, waits=True)}
    return lease


def claimed_ids(shard):
    return {number: set(claim) for number, claim in shard.claims().items()}


# ── what is parked comes back ───────────────────────────────────────────────────────────────────────────────────────

#: What becomes of "a" → when what waits behind it is due; None: now.
ENDS = {
    "acked": ({"acked": ["a"]}, PAST + 2),
    "rest acked": ({"rest": "ack"}, PAST + 2),
    "rest acked, one each": ({"rest": "ack", "has_several": False}, PAST + 2),
    "released": ({"released": ["a"]}, PAST),
    "rest released": ({"rest": "release"}, PAST),
    "failed": ({"failed": [Failure("a", 0, FUTURE, "e")]}, math.inf),
    "exhausted": ({"exhausted": [Exhausted("a", "e")]}, PAST + 2),
    "spoiled": ({"spoiled": [Spoiled("a", b"1", "e")]}, PAST + 2),
}


@pytest.mark.parametrize(("outcome", "due"), ENDS.values(), ids=list(ENDS))
def test_what_waits_behind_a_run_is_due_when_that_has_ended(shard, lease, outcome, due):
    settled = lease.settle(1, **outcome)
    (job,) = shard.queued().values()
    assert not job.waits
    if due == math.inf:
        assert job.perform_in > shard.now() and settled.due_in > 0
        assert job.payloads == {b"1": 1.0, b"2": 3.0}
    else:
        assert job.perform_in == due and settled.due_in < 0
        (again,) = lease.claim_beside()
        assert again.payloads == [*([b"1"] if due == PAST else []), b"2"]
    assert not shard.names() & {"behind", "aside:1"}


def test_the_rest_of_an_exhausted_job_takes_what_waits_along(shard):
    shard.push_payloads("a", 3)
    lease = shard.lease()
    lease.claim(max_payloads=2)
    assert lease.claim_beside() == []
    assert shard.queued()["a"].waits
    lease.settle(1, exhausted=[Exhausted("a", "e")])
    assert not shard.queued()["a"].waits
    assert shard.queued()["a"].payloads == {b"1": 1.0, b"2": 2.0}


def test_what_is_kept_stays_in_its_claim_and_what_waits_behind_it_too(shard, lease):
    lease.settle(1, spoiled=[Spoiled("b", b"1", "of another claim")], acked=["b"])
    assert shard.queued()["a"].waits
    assert claimed_ids(shard) == {1: {"a"}, 2: {"b"}}
    lease.settle(2, acked=["b"])
    lease.settle(2, rest="ack")
    assert claimed_ids(shard) == {1: {"a"}}


def test_a_good_run_leaves_nothing_parked_after_a_death(shard, lease):
    owned = shard.try_acquire("b", dead=["n"])
    assert owned.restored == 2
    assert shard.queued() == {
        "a": Queued({b"1": 1.0, b"2": 3.0}, PAST),
        "b": Queued({b"1": 2.0}, PAST + 1),
    }


def test_one_that_is_buried_leaves_what_waited_behind_it(shard):
    shard.push("a", b"1", 1.0, PAST)
    shard.lease("0").claim()
    lease = shard.lease("1", dead=["0"])
    lease.claim()
    lease.isolate("a")
    shard.push("a", b"2", 2.0, PAST + 1)
    lease.claim_beside()
    shard.lease("2", max_crashes=2, dead=["1"])
    assert shard.morgue()["a"].payloads == {b"1": 1.0}
    assert shard.queued() == {"a": Queued({b"2": 2.0}, PAST + 1)}


def test_what_was_due_is_due_after_the_clock_was_set_back(shard, clock):
    shard.push("a", b"1")
    lease = shard.lease()
    lease.claim()
    shard.push("a", b"2")
    lease.claim_beside()
    clock.step(-3600e6)
    assert lease.settle(1, acked=["a"]).due_in == 0
    assert [job.payloads for job in lease.claim_beside()] == [[b"2"]]


def test_somebody_has_removed_a_claim(shard, lease):
    """What waited behind it comes back: the next owner looks at all that is parked."""
    shard.redis.unlink(shard.key("aside:1"))
    owner = shard.lease("b", dead=["n"])
    assert owner.look_at_parked() == b"0"
    assert {id: job.perform_in for id, job in shard.queued().items()} == {"a": PAST + 2, "b": PAST + 1}


# ── what is pushed to it meanwhile ──────────────────────────────────────────────────────────────────────────────────

PUSHES = {
    "one": [("a", b"3")],
    "many": [("a", b"3"), *((f"new-{n}", b"x") for n in range(50))],
    "twice": [("a", b"3"), ("a", b"4")],
    "with a score": [("a", b"3", 9.0)],
    "with a due time": [("a", b"3", 9.0, PAST)],
    "later": [("a", b"3", "", FUTURE)],
}


@pytest.mark.parametrize("rows", PUSHES.values(), ids=list(PUSHES))
def test_a_push_merges_into_what_waits(shard, lease, rows):
    assert shard.push_all(*rows)[1] == len([row for row in rows if row[0] == "a"])
    parked = shard.queued()["a"]
    assert (parked.waits, parked.perform_in) == (True, PAST + 2)
    assert set(parked.payloads) == {b"2", *(row[1] for row in rows if row[0] == "a")}
    lease.settle(1, acked=["a"])
    assert "a" in [job.id for job in lease.claim_beside()]


def test_of_a_compact_record_the_score_is_kept(shard):
    shard.push("a", b"1")
    lease = shard.lease()
    lease.claim()
    shard.push("a", b"2")
    due = shard.queued()["a"].perform_in
    lease.claim_beside()
    assert shard.queued()["a"] == Queued({b"2": due}, due, waits=True)
    shard.push("a", b"3")
    lease.settle(1, acked=["a"])
    assert (shard.queued()["a"].perform_in, shard.queued()["a"].payloads[b"2"]) == (due, due)


def test_no_push_is_handed_over_while_something_runs(shard):
    lease = listening(shard)
    shard.push("a", b"1")
    shard.push("a", b"2")
    rings(shard)
    assert lease.claim_beside() == []
    shard.redis.set(f"{shard.app.settings.namespace}:bell:a:0:idle", 1)
    shard.push("b", b"1")
    assert claimed_ids(shard) == {1: {"a"}}
    assert rings(shard) == [shard.prefix + b" 0.000000 1"], "it rings for what is due"
    assert [job.id for job in lease.claim_beside()] == ["b"]


# ── what operators do to it ─────────────────────────────────────────────────────────────────────────────────────────


def test_to_perform_it_now_changes_nothing(shard, lease):
    before = shard.dump()
    assert shard.actions.perform_now(["a"]) == shard.actions.perform_all_jobs_now() == 0
    assert shard.dump() == before


def test_it_is_deleted(shard, lease):
    assert shard.actions.delete(["a"]) == 1
    assert shard.queued() == {} and claimed_ids(shard) == {1: {"a"}, 2: {"b"}}
    shard.push("a", b"4", 4.0, PAST)
    assert not shard.queued()["a"].waits
    assert lease.claim_beside() == [] and shard.queued()["a"].waits


def test_it_is_buried_and_comes_back(shard, lease):
    assert shard.actions.bury(["a"]) == 1
    assert shard.queued() == {}
    shard.push("a", b"4", 4.0, PAST + 4)
    lease.claim_beside()
    assert shard.actions.morgue_queue_up(["a"]) == 1
    assert shard.queued() == {"a": Queued({b"2": 3.0, b"4": 4.0}, PAST + 4, waits=True)}
    lease.settle(1, acked=["a"])
    assert shard.queued()["a"].perform_in == PAST + 4


def test_deaths_of_a_job_in_an_older_claim_stay_when_what_waits_is_deleted(shard):
    shard.push("a", b"1", 1.0, PAST)
    shard.lease("0").claim()
    lease = shard.lease("1", dead=["0"])
    lease.claim()
    shard.push("a", b"2", 2.0, PAST)
    lease.claim_beside()
    shard.actions.delete(["a"])
    assert shard.crashes() == {"a": 1}


def test_what_people_see(app, shard, lease):
    shard.push("c", perform_in=FUTURE)
    previews = Previews(app.caller, [shard.shard], load_error=str, max_id_bytes=512)
    queued, claimed = previews.job("a")
    assert (queued.where, queued.at, queued.waits_for_own_run, [p.data for p in queued.payloads]) == (
        "queue",
        PAST + 2,
        True,
        [b"2"],
    )
    assert (claimed.where, claimed.at, claimed.waits_for_own_run, [p.data for p in claimed.payloads]) == (
        "claim",
        PAST,
        False,
        [b"1"],
    )
    assert [job.where for job in previews.job("b")] == ["claim"]
    (numbers,) = read_shards(app.caller, [shard.shard])
    assert (numbers.length, numbers.busy, numbers.due_in) == (2, 2, pytest.approx(FUTURE - shard.now(), abs=60))
    assert read_lengths(app.caller, [shard.shard], "claim") == [2]
    shard.actions.delete(["c"])
    (numbers,) = read_shards(app.caller, [shard.shard])
    assert (numbers.length, numbers.due_in) == (1, None)


# ── claims ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_that_its_owner_does_not_know_of_is_told_by_its_number(shard, lease):
    shard.push("c")
    for known, unknown in (((), "1"), ((1,), "2"), ((2,), "1"), ((12, 21), "1")):
        before = shard.dump()
        with pytest.raises(Unsettled, match=f"^{unknown}$"):
            lease.try_claim(number=3, known=known)
        assert shard.dump() == before
    assert [job.id for job in lease.try_claim(number=3, known=(1, 2)).jobs] == ["c"]


def test_when_all_that_it_looked_at_runs_it_is_to_ask_again(shard, monkeypatch):
    mutants.replace("passing.lua", "local MOST = 500", "local MOST = 2", monkeypatch)
    shard = ShardDriver(shard.app)
    shard.push_all(*((id, b"1", 1.0, PAST) for id in "abc"))
    lease = shard.lease()
    lease.claim()
    shard.push_all(*((id, b"2", 2.0, PAST + n) for n, id in enumerate("abcd")))
    asked = [lease.try_claim(2, number=number, known=(1,)) for number in (2, 3)]
    assert [[job.id for job in claim.jobs] for claim in asked] == [[], ["d"]]
    assert asked[0].due_in < 0
    assert (shard.owner("open"), asked[1].due_in) == (None, None)
    assert {id for id, job in shard.queued().items() if job.waits} == set("abc")


def test_when_all_that_is_queued_waits_the_owner_waits_for_a_ring(shard, lease):
    claim = lease.try_claim(known=(1, 2))
    assert (claim.jobs, claim.due_in) == ([], None)
    assert (shard.owner("waiting"), shard.owner("open")) == ("inf", None)
    assert shard.caller.run(peek([shard.shard])) == [0.0]
    assert shard.caller.run(peek([shard.shard], [True])) == [None]
    assert lease.settle(2, rest="ack", has_several=False).due_in is None
    assert shard.owner("waiting") == "inf"


def test_the_fast_settle_knows_too_that_what_waits_is_not_due(shard):
    lease = shard.lease("a")
    shard.push("x", b"1")
    lease.claim()
    shard.push("x", b"2")
    shard.push("y", b"1")
    assert [job.id for job in lease.claim_beside()] == ["y"]
    assert lease.settle(rest="ack", has_several=False).due_in is None


def test_a_thousand_are_parked_by_one_claim(shard):
    rows = [(f"id-{n:04}", b"1") for n in range(1000)]
    shard.push_all(*rows)
    lease = shard.lease()
    assert len(lease.claim()) == 1000
    shard.push_all(*rows, ("last", b"1"))
    assert lease.claim_beside() == []
    assert [job.id for job in lease.claim_beside()] == ["last"]
    assert lease.settle(1, rest="ack", has_several=False).acked == 1000
    assert len(lease.claim_beside()) == 1000


@pytest.mark.parametrize("apart", [1, 2**31 + 1])
def test_compact_records_keep_their_times_in_each_claim(shard, clock, apart):
    lease, due = shard.lease("a"), {}
    for id in "abc":
        clock.step(apart)
        shard.push(id, b"x")
        due[id] = clock.now / 1e6
        lease.claim_beside()
    assert shard.claims() == {n + 1: {id: Claimed({b"x": due[id]}, due[id])} for n, id in enumerate("abc")}
    lease.release("claim", number=1)
    assert shard.queued() == {"a": Queued({b"x": due["a"]}, due["a"])}
    shard.lease("b", dead=["a"])
    assert shard.queued() == {id: Queued({b"x": due[id]}, due[id]) for id in "abc"}


@pytest.mark.parametrize("limit", [1, 16, 40])
def test_a_claim_beside_takes_only_a_part_of_what_an_id_has(shard, limit):
    shard.push_payloads("a", 3)
    shard.push_payloads("b", 3)
    lease = shard.lease()
    assert [job.payloads for job in lease.claim(limit=1, max_payloads=1)] == [[b"0"]]
    claimed = lease.claim_beside(limit, max_payloads=2) or lease.claim_beside(limit, max_payloads=2)
    assert [(job.id, job.payloads) for job in claimed] == [("b", [b"0", b"1"])]
    assert {id: job.waits for id, job in shard.queued().items()} == {"a": True, "b": False}


def test_suspects_are_claimed_beside_others_but_not_with_them(shard):
    shard.push_all(("a", b"1", 1.0, PAST), ("b", b"1", 1.0, PAST + 1))
    shard.lease("0").claim()
    shard.push("c", b"1", 1.0, PAST - 1)
    lease = shard.lease("1", dead=["0"])
    shard.redis.hset(shard.key("crowds"), "a", 1)
    assert [job.id for job in lease.claim()] == ["c"]
    claim = lease.try_claim(known=(1,))
    assert ([job.id for job in claim.jobs], claim.crowds) == (["a"], 1)
    assert lease.isolate("a", number=2) and lease.isolate("c", number=1)
    assert shard.owner("alone") == "1 c"
    assert lease.isolate("a", number=9) is False
    lease.release("claim", number=2)
    assert shard.owner("alone") == "1 c", "it is of another claim"
    lease.release("claim", number=1)
    assert shard.owner("alone") is None


def test_a_release_gives_back_its_own_claim_only(shard, lease):
    assert lease.release("claim", number=1).restored == 1
    assert claimed_ids(shard) == {2: {"b"}}
    assert shard.queued() == {"a": Queued({b"1": 1.0, b"2": 3.0}, PAST)}
    assert lease.release("claim", number=1).restored == 0


def test_a_release_of_a_claim_that_has_not_come_yet_refuses_it(shard, lease):
    assert lease.release("claim", number=5).restored == 0
    assert claimed_ids(shard) == {1: {"a"}, 2: {"b"}}
    with pytest.raises(StaleClaim):
        lease.try_claim(number=5, known=(1, 2))
    assert lease.settle(2, rest="ack", has_several=False).acked == 1
    assert lease.settle(1, rest="ack", has_several=False).acked == 1
    assert shard.names() == {"meta", "owner", "due", "payloads"}


def test_a_released_lease_gives_back_all_claims(shard, lease):
    assert lease.release("lease", number=1).restored == 0, "it comes late"
    assert lease.release("lease", number=2).restored == 2
    assert shard.names() == {"meta", "owner", "due", "payloads", "payloads:a"}
    assert shard.redis.hget(shard.key("owner"), "epoch") == lease.epoch.encode()
    assert set(shard.redis.hkeys(shard.key("owner"))) == {b"epoch", b"asker", b"asked"}


@pytest.mark.parametrize(
    ("ran", "suspects"),
    [
        (((1, 1, 0), (2, 1, 0)), "ac"),
        (((2, 1, 0),), "c"),
        (((2, 1, 1), (1, 1, 0)), "ab"),
        (((1, 2, 0),), "a"),  # more than it has: all of it may have run
        (((3, 1, 0),), ""),
        ((), ""),
        (None, "abc"),
    ],
)
def test_of_each_claim_only_what_ran_is_suspected(shard, ran, suspects):
    shard.push_all(*((id, b"1", 1.0, PAST) for id in "abc"))
    lease = shard.lease("dead")
    lease.claim(limit=1)
    lease.claim_beside()
    running = ran and tuple(Running(shard.shard.prefix, *run) for run in ran)
    shard.lease("b", dead=[DeadNode("dead", running)])
    assert shard.crashes() == dict.fromkeys(suspects, 1)
