"""The design's invariants, each by its name."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lowkiq.errors import Fenced, ShardsCountMismatch, Unsettled
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Crashed, Exhausted, Failure, Snoozed
from lowkiq.shared_page import DeadNode, Running
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver

# ── I1: only the current node and epoch change a shard's claim ──────────────────────────────────────────────────────

FENCED_CALLS = {
    "claim": lambda lease: lease.claim(),
    "settle: acked": lambda lease: lease.settle(acked=["a"]),
    "settle: released": lambda lease: lease.settle(released=["a"]),
    "settle: failed": lambda lease: lease.settle(failed=[Failure("a", 1, 0, "e")]),
    "settle: exhausted": lambda lease: lease.settle(exhausted=[Exhausted("a", "e")]),
    "settle: spoiled": lambda lease: lease.settle(spoiled=[Spoiled("a", b"x", "e")]),
    "settle: rest acked": lambda lease: lease.settle(rest="ack"),
    "settle: rest released": lambda lease: lease.settle(rest="release"),
    "isolate": lambda lease: lease.isolate("a"),
    "checkpoint": lambda lease: lease.checkpoint("a", b"v"),
    "isolate no more": lambda lease: lease.isolate("a", is_alone=False),
    "release the claim": lambda lease: lease.release("claim"),
    "release the lease": lambda lease: lease.release("lease"),
    "abandon": lambda lease: lease.abandon(),
}

#: Each gives the shard to another owner, which may be the same node in a later epoch, or to nobody.
SUCCESSORS = {
    "another node": lambda shard, lease: shard.lease("b", dead=["a"]).claim(),
    "the same node again": lambda shard, lease: shard.lease("a").claim(),
    "nobody": lambda shard, lease: lease.release("lease"),
}


@pytest.mark.parametrize("call", FENCED_CALLS.values(), ids=list(FENCED_CALLS))
@pytest.mark.parametrize("succeed", SUCCESSORS.values(), ids=list(SUCCESSORS))
def test_i1_who_lost_a_shard_changes_nothing(shard, call, succeed):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST), ("b", b"y", 2.0))
    lease = shard.lease("a")
    lease.claim()
    succeed(shard, lease)
    before = shard.dump()
    with pytest.raises(Fenced):
        call(lease)
    assert shard.dump() == before
    assert lease.renew() is False
    assert shard.dump() == before


def test_i1_actions_and_pushes_leave_the_claim_alone(shard):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST), ("b", b"y", 2.0))
    shard.lease().claim()
    claim = shard.claimed()
    for _ in range(2):
        shard.push_all(("a", b"x", 0.0), ("b", b"z", 0.0, FUTURE))
        shard.actions.perform_now(["a", "b"])
        shard.actions.bury(["a", "b"])
        shard.actions.morgue_queue_up(["a", "b"])
        shard.actions.delete(["a", "b"])
        shard.actions.cancel(["a", "b"])
    assert shard.claimed() == claim


# ── I2: epochs only rise ────────────────────────────────────────────────────────────────────────────────────────────


def test_i2_epochs_only_rise(shard):
    epochs = []
    for n in range(50):
        lease = shard.lease("a" if n % 3 else "b", dead=["a", "b"])
        epochs.append(int(lease.epoch))
        if n % 5 == 0:
            lease.release("lease")
    assert epochs == sorted(set(epochs))


def test_i2_an_epoch_rises_even_if_the_clock_went_back(shard):
    ahead = int(FUTURE * 1_000_000)
    shard.redis.hset(shard.key("owner"), mapping={"node": "a", "epoch": ahead, "until": 0})
    assert int(shard.lease("b").epoch) > ahead


def test_i2_an_epoch_rises_even_if_redis_lost_its_last_writes(shard):
    lost = shard.lease("a")
    shard.redis.delete(shard.key("owner"))
    assert int(shard.lease("b").epoch) > int(lost.epoch)


def test_i2_a_renewal_keeps_the_epoch(shard):
    lease = shard.lease()
    lease.renew()
    assert shard.owner("epoch") == lease.epoch


# ── I3: every accepted payload is in exactly one place ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fate", ["acked", "released", "failed", "exhausted", "crashed", "killed", "revived"])
def test_i3_every_payload_is_in_exactly_one_place(shard, fate):
    """In random histories the model's Witness holds it after every step."""
    shard.push_payloads("a", 5)
    lease = shard.lease("a")
    lease.claim(max_payloads=3)
    shard.push_all(("a", b"5"), ("b", b"6"))
    acked: set[bytes] = set()
    match fate:
        case "acked":
            acked.update(*(job.payloads for job in shard.claimed().values()))
            lease.ack("a")
        case "released":
            lease.settle(released=["a"])
        case "failed":
            lease.fail("a")
        case "exhausted":
            lease.exhaust("a")
        case "crashed":
            lease.isolate("a")
            shard.lease("b", max_crashes=1, dead=["a"])
        case _:
            shard.actions.bury(["a", "b"])
    if fate == "revived":
        shard.actions.morgue_queue_up(["a"])
    found = Counter(acked)
    for place in (shard.queued(), shard.claimed(), shard.morgue()):
        found.update(payload for job in place.values() for payload in job.payloads)
    assert found == {b"%d" % n: 1 for n in range(7)}


# ── I4: one claim a shard ───────────────────────────────────────────────────────────────────────────────────────────


def test_i4_a_second_claim_waits_for_the_first_to_be_settled(shard):
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST) for n in range(4)))
    lease = shard.lease()
    (first,) = lease.claim(limit=1)
    with pytest.raises(Unsettled):
        lease.claim()
    lease.ack(first.id)
    assert len(lease.claim()) == 3


def test_i4_a_new_owner_begins_with_an_empty_claim(shard):
    shard.push("a")
    shard.lease("a").claim()
    shard.lease("b", dead=["a"])
    assert shard.claimed() == {}


# ── I5: settle applies once ─────────────────────────────────────────────────────────────────────────────────────────


def test_i5_a_settle_applies_once(shard):
    shard.push_all(
        ("acked", b"x", 1.0, PAST), ("failed", b"x", 1.0, PAST), ("dead", b"x", 1.0, PAST), ("dead", b"y", 2.0)
    )
    lease = shard.lease()
    lease.claim()
    outcome = {
        "acked": ["acked"],
        "failed": [Failure("failed", 0, -FUTURE, "e")],
        "exhausted": [Exhausted("dead", "e")],
    }
    assert lease.settle(**outcome)[:3] == (1, 2, 1)
    state = shard.dump()
    assert lease.settle(**outcome)[:3] == (0, 0, 0)
    assert shard.dump() == state
    # Nor does it apply to the same ids in the next claim.
    shard.push("acked", b"x", 1.0, PAST)
    assert len(lease.claim()) == 3
    state = shard.jobs()
    assert lease.settle(number=lease.number - 1, **outcome)[:3] == (0, 0, 0)
    assert shard.jobs() == state


# ── I6: no payload starts while a lower-scored one of its id is unfinished ──────────────────────────────────────────


def test_i6_payloads_of_an_id_are_taken_in_order(shard):
    scores = list(range(40))
    random.Random(6).shuffle(scores)
    shard.push_all(*(("a", b"%d" % score, float(score), PAST) for score in scores))
    lease = shard.lease()
    seen = []
    while jobs := lease.claim(max_payloads=7):
        seen += jobs[0].scores
        lease.ack("a")
    assert seen == sorted(scores)


@pytest.mark.parametrize("end", ["fail", "release", "crash"])
def test_i6_what_did_not_finish_comes_before_what_stayed_behind(shard, end):
    shard.push_payloads("a", 5)
    lease = shard.lease("a")
    lease.claim(max_payloads=2)
    with pytest.raises(Unsettled):
        lease.claim(max_payloads=2)
    match end:
        case "fail":
            lease.fail("a", delay=0)
        case "release":
            lease.release("claim")
        case "crash":
            lease = shard.lease("b", dead=["a"])
    (job,) = lease.claim(max_payloads=2)
    assert job.payloads == [b"0", b"1"]


def test_i6_a_payload_pushed_meanwhile_waits_for_the_claim(shard):
    shard.push("a", b"second", 2.0, PAST)
    lease = shard.lease()
    lease.claim()
    shard.push("a", b"first", 1.0, PAST)
    with pytest.raises(Unsettled):
        lease.claim()
    lease.fail("a", delay=0)
    (job,) = lease.claim()
    assert job.payloads == [b"first", b"second"]


def test_i6_an_exhausted_payload_makes_way_for_the_next(shard):
    shard.push_payloads("a", 3)
    lease = shard.lease()
    for n in range(3):
        (job,) = lease.claim(max_payloads=1)
        assert job.payloads == [b"%d" % n]
        lease.exhaust("a")


# ── I7: deaths per id are bounded ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("max_crashes", "most"), [(1, 3), (2, 3), (3, 4), (5, 6)])
def test_i7_a_job_that_kills_every_process_is_buried_at_max_crashes(shard, max_crashes, most):
    """At first twice among others; from then on it has a process for itself, whose death is its own."""
    shard.push("deadly", b"x", 1.0, PAST)
    deaths = 0
    lease = shard.lease("0", max_crashes=max_crashes)
    while not shard.morgue():
        deaths += 1
        if lease.try_claim().crowds:
            lease.settle(crashed=[Crashed("deadly", max_crashes)])
            lease.settle(crashed=[Crashed("deadly", max_crashes)])  # its reply was lost
        else:
            lease = shard.lease(f"{deaths}", max_crashes=max_crashes, dead=[f"{deaths - 1}"])
    assert deaths == most
    assert list(shard.morgue()) == ["deadly"]
    assert shard.crashes() == {}


def test_i7_one_death_makes_no_difference(shard):
    """Those who ran at it are claimed together, with others among them."""
    shard.push_all(*((id, b"x", 1.0, PAST) for id in "ac"))
    shard.lease("0").claim()
    shard.push("b", b"x", 1.0, PAST)
    lease = shard.lease("1", dead=["0"])
    claim = lease.try_claim()
    assert (sorted(job.id for job in claim.jobs), claim.crowds) == (["a", "b", "c"], 0)
    assert shard.crashes() == {"a": 1, "c": 1}


def test_i7_a_suspect_is_claimed_without_others_and_they_without_it(shard):
    shard.push_all(*((id, b"x", 1.0, PAST) for id in "abc"))
    shard.redis.hset(shard.key("crowds"), "b", 1)
    lease = shard.lease("0")
    claims = []
    for _ in range(3):
        claim = lease.try_claim()
        claims.append(([job.id for job in claim.jobs], claim.crowds))
        lease.settle(rest="ack")
    assert claims == [(["a"], 0), (["b"], 1), (["c"], 0)]


def test_i7_releases_in_between_do_not_forget_the_deaths(shard):
    shard.push("deadly", b"x", 1.0, PAST)
    shard.redis.hset(shard.key("crashes"), "deadly", 2)
    shard.redis.hset(shard.key("crowds"), "deadly", 1)
    lease = shard.lease("0")
    lease.claim()
    lease.release("claim")
    lease.claim()
    lease.settle(limited=[Snoozed("deadly", 0.0, "limited")])
    lease.claim()
    assert lease.settle(crashed=[Crashed("deadly", 3)]).buried == 1


def test_i7_who_is_alone_in_its_tree_is_judged_by_its_death(shard):
    shard.push("deadly", b"x", 1.0, PAST)
    shard.redis.hset(shard.key("crashes"), "deadly", 2)
    shard.redis.hset(shard.key("crowds"), "deadly", 2)
    lease = shard.lease("0")
    lease.claim()
    lease.isolate("deadly")
    assert shard.try_acquire("1", max_crashes=3, dead=["0"]).buried == 1


@pytest.mark.parametrize(("crowds", "buried"), [(2, 0), (23, 1)])
@pytest.mark.parametrize("ends", ["its node", "the fork server"])
def test_i7_what_ran_apart_is_judged_with_others_though_it_was_alone(shard, crowds, buried, ends):
    shard.push("suspect", b"x", 1.0, PAST)
    shard.redis.hset(shard.key("crashes"), "suspect", 2)
    shard.redis.hset(shard.key("crowds"), "suspect", crowds)
    lease = shard.lease("0")
    lease.claim()
    lease.isolate("suspect")
    if ends == "its node":
        running = (Running(shard.shard.prefix, 1, 1, 0, is_apart=True),)
        assert shard.try_acquire("1", max_crashes=3, dead=[DeadNode("0", running)]).buried == buried
    else:
        assert lease.settle(crashed=[Crashed("suspect", 3, "crowd")]).buried == buried
        lease.settle(crashed=[Crashed("suspect", 3, "crowd")])  # its reply was lost
    assert shard.crashes() == ({} if buried else {"suspect": 2})
    assert shard.redis.hget(shard.key("crowds"), "suspect") == (None if buried else b"3")
    if not buried:
        assert shard.redis.zscore(shard.key("due"), "suspect") > shard.now() + 1


def test_i7_deaths_beside_others_are_far_apart_and_end(shard):
    """It waits for twice as long after each, so that who is innocent ends in between; at twenty-four it is buried."""
    pauses, dead = [], 0
    shard.push("unlucky", b"x", 1.0, PAST)
    while not shard.morgue():
        lease = shard.lease(f"{dead}", dead=[f"{dead - 1}"])
        if due := shard.redis.zscore(shard.key("due"), "unlucky"):
            pauses.append(max(round(due - shard.now()), 0))
            shard.redis.zadd(shard.key("due"), {"unlucky": PAST})
            lease.claim()
        dead += 1
    assert pauses == [0, 0, 0, *(min(2**n, 600) for n in range(22))]


@pytest.mark.parametrize(
    ("ran", "suspects"),
    [
        ((1, 2, 3), {"b", "c"}),
        ((1, 1, 0), {"f"}),
        ((1, 2, 9), set("bcdef")),  # what came after has gone back since
        ((2, 2, 3), set()),  # of another claim
        (None, set("bcdef")),
        ((), set()),
    ],
)
def test_i7_only_what_ran_is_suspected(shard, ran, suspects):
    shard.push_all(*((id, b"x", 1.0, PAST) for id in "abcdef"))
    lease = shard.lease("dead")
    lease.claim()
    lease.ack("a")
    running = ran and (Running("another:{shard:1}:", 1, 1, 0), Running(shard.shard.prefix, *ran))
    owned = shard.try_acquire("b", dead=[DeadNode("dead", running), DeadNode("another")])
    assert owned.restored == 5
    assert shard.crashes() == dict.fromkeys(suspects, 1)


@pytest.mark.parametrize("ran", ["x", "1:2", "1:2:3:4", "-1:2:3", "1:9999999999999999999999:1", "1e3:1:1"])
def test_i7_when_it_is_not_said_well_what_ran_all_may_have(shard, ran, monkeypatch):
    shard.push_all(*((id, b"x", 1.0, PAST) for id in "ab"))
    shard.lease("dead").claim()
    monkeypatch.setattr(DeadNode, "ran", lambda *_: ran)
    shard.lease("b", dead=["dead"])
    assert shard.crashes() == {"a": 1, "b": 1}


# ── I8: the wrong shards_count changes nothing ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("call", ["push", "acquire", "claim"])
def test_i8_the_wrong_shards_count_changes_nothing(app, shard, call):
    shard.push("a")
    lease = shard.lease("a")
    wrong = ShardDriver(app, shards_count=2)
    lease.driver = wrong
    before = shard.dump()
    with pytest.raises(ShardsCountMismatch, match="set shards_count = 1, or choose another queue_name"):
        {"push": lambda: wrong.push("b"), "acquire": lambda: wrong.try_acquire("a"), "claim": lease.claim}[call]()
    assert shard.dump() == before


# ── what is left ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_emptied_queue_leaves_only_its_layout_and_epoch(app):
    """`meta` (layout and counters), `owner` (the epoch must outlive its node), and the queue's name in `queues`."""

    @app.worker(queue_name="q", shards_count=1)
    def work(payloads_by_id):
        pass

    shard = ShardDriver(app)
    work.perform_async([{"id": n % 10, "payload": n} for n in range(30)])
    lease = shard.lease("a")
    jobs = lease.claim(limit=5, max_payloads=2)
    lease.settle(
        acked=[jobs[0].id],
        failed=[Failure(jobs[1].id, 0, 0, "e")],
        exhausted=[Exhausted(jobs[2].id, "e")],
        spoiled=[Spoiled(jobs[3].id, jobs[3].payloads[0], "e")],
    )
    lease = shard.lease("b", dead=["a"])
    while lease.claim():
        lease.settle(rest="ack")
    work.actions.morgue_delete_all_jobs()
    lease.release("lease")
    assert shard.names() == {"meta", "owner"}
    assert set(shard.dump()) == {shard.key("meta"), shard.key("owner"), f"{app.settings.namespace}:queues".encode()}
    assert set(shard.redis.hkeys(shard.key("owner"))) == {b"epoch", b"asker", b"asked"}
