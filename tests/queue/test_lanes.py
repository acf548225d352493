"""Fair shares of tenants: who has pushed much delays others by its share and no more, and no hint costs a job."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from lowkiq import InvalidJob, SettingsError
from lowkiq.job import encode_jobs
from lowkiq.queue.shard import Exhausted, Failure, Snoozed
from tests import mutants
from tests.queue.shard_driver import FUTURE, Lease, ShardDriver

BACKLOG = 3_000
#: Values of fair_by that are no tenant, and what is said of them.
WRONG = {
    "must give a string or an integer, not None": None,
    "must give a string or an integer, not True": True,
    "must have printable characters": "",
    "must have printable characters, and no others": "a\nb",
    "may have 200 bytes": "ü" * 101,
}


def push_backlog(shard: ShardDriver, tenant: str, count: int = BACKLOG) -> None:
    for first in range(0, count, 1000):
        ids = range(first, min(first + 1000, count))
        shard.push_all(*((f"{tenant}-{n}", b"p", "", "", "", tenant) for n in ids))


def start(lease: Lease, limit: int) -> list[str]:
    """The ids of a claim, which are done then."""
    ids = [job.id for job in lease.claim(limit)]
    lease.settle(rest="ack", has_several=False)
    return ids


def tenant_of(id: str) -> str:
    return id.partition("-")[0]


# ── fair_by ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", WRONG)
def test_what_can_be_no_tenant_is_refused_before_anything_is_written(text):
    jobs = [{"id": "a"}, {"id": "b"}]
    with pytest.raises(InvalidJob, match=rf"^job 1 \(id 'b'\): fair_by .*{text}"):
        encode_jobs(
            jobs, lambda _: b"", fair_by=lambda one, _: 1 if one == "a" else WRONG[text], max_id_bytes=9,
            max_payload_bytes=9,
        )  # fmt: skip


def test_a_function_that_fails_is_the_job_s_fault():
    with pytest.raises(InvalidJob, match=r"^job 0 .*fair_by failed: KeyError: 'tenant'"):
        encode_jobs(
            [{"id": "a", "payload": {}}], lambda _: b"", fair_by=lambda _, payload: payload["tenant"], max_id_bytes=9,
            max_payload_bytes=9,
        )  # fmt: skip


@pytest.mark.parametrize("wrong", ["tenant", lambda payload: payload, lambda a, b, c: a])
def test_what_is_no_function_of_an_id_and_a_payload_is_refused(app, wrong):
    with pytest.raises(SettingsError, match=r"fair_by .*a function of an id and a payload"):
        app.worker(queue_name="q", fair_by=wrong)(lambda payloads_by_id: None)


def test_a_worker_tells_the_tenants_of_its_jobs(app):
    @app.worker(queue_name="q", shards_count=1, fair_by=lambda _, payload: payload["tenant"])
    def work(payloads_by_id): ...

    work.perform_async([{"id": 1, "payload": {"tenant": "ann"}}, {"id": 2, "payload": {"tenant": 7}}])
    shard = ShardDriver(app)
    assert shard.look().hash("tenants") == {"1": b"ann", "2": b"7"}
    work.perform_async([{"id": 1, "payload": {"tenant": "bob"}}])
    assert shard.look().hash("tenants") == {"1": b"bob", "2": b"7"}
    assert shard.look().lanes().keys() == {"bob", "7"}


# ── shares ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def delay_behind_a_backlog(shard: ShardDriver, limit: int) -> int:
    """Claims until a job starts whose tenant has nothing else, however long the other's have waited."""
    push_backlog(shard, "big")
    lease = shard.lease()
    for _ in range(3):
        start(lease, limit)
    shard.push("small-0", tenant="small")
    for claims in range(1, 10):
        if "small-0" in start(lease, limit):
            return claims
    return 10


def widest_share(shard: ShardDriver, limit: int) -> int:
    """Starts of the tenant that has had most, above those of the one that has had least, at worst after any claim."""
    for tenant in ("a", "b", "c", "d"):
        push_backlog(shard, tenant, 1000)
    lease, had, widest = shard.lease(), Counter[str](), 0
    while had.total() < min(2000, limit * 50):
        had.update(map(tenant_of, start(lease, limit)))
        widest = max(widest, max(had.values()) - min(had[tenant] for tenant in "abcd"))
    return widest


def catching_up(shard: ShardDriver, limit: int) -> int:
    """Starts of a tenant that comes late, above those of the one that was there, within the next hundred."""
    push_backlog(shard, "early", 2000)
    lease, had = shard.lease(), Counter[str]()
    for _ in range(max(1, 500 // limit)):
        start(lease, min(limit, 500))
    push_backlog(shard, "late", 1000)
    while had.total() < 100:
        had.update(map(tenant_of, start(lease, limit)))
    return had["late"] - had["early"]


@pytest.mark.parametrize("limit", [1, 2, 10, 1000])
def test_a_backlog_of_one_delays_another_by_a_claim_or_two(shard, limit):
    assert delay_behind_a_backlog(shard, limit) <= 2


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
def test_tenants_that_have_much_get_equal_shares(shard, limit):
    assert widest_share(shard, limit) <= 3


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_whoever_comes_late_has_saved_nothing_up(shard, limit):
    assert abs(catching_up(shard, limit)) <= 3


@pytest.mark.parametrize(
    ("safeguard", "instead"),
    [
        ("'INCR', turns, tenant", "'INCR', 0, tenant"),
        ("'INCR', own, ''", "'INCR', 0, ''"),
        ("if is_oldest[id] then own = own + 1 end", ""),
        ("local turns = {turn, ''}", "turn = '0' local turns = {turn, ''}"),
        ("lane_of[tenant].turn = lane_of[tenant].turn + 1", ""),
        ("lane.turn, lane.has_any = lane.turn + 1, true", "lane.has_any = true"),
        ("  wake_lanes(P, due_by, limit)\n", ""),
    ],
)
def test_shares_are_kept_by_turns(app, monkeypatch, make_app, safeguard, instead):
    """Without any of this somebody gets more."""
    mutants.replace("turns.lua", safeguard, instead, monkeypatch)
    assert any(
        widest_share(ShardDriver(make_app(), f"w{limit}"), limit) > 3
        or delay_behind_a_backlog(ShardDriver(make_app(), f"d{limit}"), limit) > 2
        or (limit < 1000 and abs(catching_up(ShardDriver(make_app(), f"c{limit}"), limit)) > 3)
        for limit in (3, 10, 1, 1000)
    )


def test_jobs_of_one_claim_take_turns_too(shard):
    for tenant in ("a", "b"):
        push_backlog(shard, tenant, 100)
    tenants = [tenant_of(id) for id in start(shard.lease(), 60)]
    assert all(set(tenants[at : at + 4]) == {"a", "b"} for at in range(len(tenants) - 3))


@pytest.mark.parametrize("seed", range(20))
def test_whoever_has_something_due_gets_its_turn(shard, seed):
    """However jobs and claims mix: while a tenant waits, others get no more than some turns each."""
    random, serial, passed = Random(seed), iter(range(10_000)), Counter[str]()
    tenants = [f"g{n}" for n in range(random.randint(2, 12))]
    lease, waiting = shard.lease(), Counter[str]()
    for _ in range(150):
        tenant, few = random.choice(tenants), random.choice([1, 1, 1, 5, 40])
        if random.random() < 0.6:
            shard.push_all(*((f"{tenant}-{next(serial)}", b"p", "", "", "", tenant) for _ in range(few)))
            waiting[tenant] += few
            continue
        started = [tenant_of(id) for id in start(lease, random.choice([1, 2, 5, 30]))]
        for tenant in started:
            waiting[tenant] -= 1
            passed = Counter({other: passed[other] + 1 for other in tenants if other != tenant and waiting[other] > 0})
            assert max(passed.values(), default=0) <= 4 * len(tenants), passed
    while waiting.total():
        waiting.subtract(map(tenant_of, start(lease, 100)))
    assert shard.names() == {"meta", "owner"}


def test_what_becomes_due_later_is_treated_like_what_is_new(shard, clock):
    """Scheduled, failed, snoozed, revived, and parked behind its own run: each of a tenant that has nothing else."""
    hows = ("scheduled", "failed", "snoozed", "revived", "parked")
    lease = shard.lease()
    for how in hows:
        shard.push(how, tenant=how, perform_in=clock.now / 1e6 + 30 if how == "scheduled" else "")
    assert {job.id for job in lease.claim()} == {*hows} - {"scheduled"}
    lease.settle(
        failed=[Failure("failed", 0, 30, "boom")],
        snoozed=[Snoozed("snoozed", 30)],
        exhausted=[Exhausted("revived", "")],
    )
    shard.push("parked", b"2", tenant="parked")
    assert lease.claim_beside() == []
    push_backlog(shard, "big")
    clock.step(60_000_000)
    shard.actions.morgue_queue_up(["revived"])
    lease.settle(1, acked=["parked"])
    assert {*hows} <= {*start(lease, 6), *start(lease, 6)}


def test_what_has_no_tenant_is_started_when_all_that_is_older_was(shard):
    """As without fair shares: a producer that knows of no tenants gets no worse than it did."""
    push_backlog(shard, "big", 50)
    shard.push("none")
    push_backlog(shard, "other", 50)
    started = start(shard.lease(), 200)
    assert len(started) == 101
    assert "none" in started


# ── hints ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_hints_of_what_has_left_are_dropped_and_cost_no_job(shard):
    """An older node has claimed by `due` alone, and knows of no lanes."""
    push_backlog(shard, "big", 20)
    gone = [f"big-{n}" for n in range(10)]
    shard.redis.zrem(shard.key("due"), *gone)
    shard.redis.hdel(shard.key("payloads"), *gone)
    shard.redis.zadd(shard.key("due"), {"big-10": FUTURE})
    assert sorted(start(shard.lease(), 100)) == sorted(f"big-{n}" for n in range(11, 20))
    assert shard.look().zset("lane:big") == {"big-10": FUTURE}
    assert shard.look().zset("lanes_later") == {"big": FUTURE}


def test_without_hints_jobs_are_started_as_they_are_due(shard):
    push_backlog(shard, "big", 20)
    shard.redis.unlink(shard.key("lane:big"))
    assert start(shard.lease(), 100) == [f"big-{n}" for n in range(20)]
    assert shard.look().zset("lanes") == {}


def test_a_hint_that_is_trusted_starts_what_is_not_due(shard, monkeypatch):
    mutants.replace("turns.lua", "    if at <= tonumber(due_by) then", "    if true then", monkeypatch)
    push_backlog(shard, "big", 2)
    shard.redis.zadd(shard.key("due"), {"big-1": FUTURE})
    assert start(shard.lease(), 100) == ["big-0", "big-1"], "what this test is for"


def test_a_claim_looks_at_so_many_hints_and_no_more(own_app):
    """Ten thousand that are wrong, or lanes of which nothing is due, do not make it O(queue)."""
    shard = ShardDriver(own_app)
    push_backlog(shard, "big", 10_000)
    shard.redis.unlink(shard.key("due"), shard.key("payloads"))
    for first in range(0, 2000, 1000):
        rows = ((f"later-{n}", b"p", "", FUTURE, "", f"later-{n}") for n in range(first, first + 1000))
        shard.push_all(*rows)
    shard.push("small-0", tenant="small")
    lease = shard.lease()
    shard.redis.config_resetstat()
    assert start(lease, 10) == ["small-0"]
    calls = {name: row["calls"] for name, row in shard.redis.info("commandstats").items()}
    assert sum(calls.values()) < 250, calls


def test_what_an_older_lowkiq_has_left_goes_with_the_next_owner(shard):
    for tenant in ("a", "b"):
        push_backlog(shard, tenant, 5)
    shard.redis.unlink(shard.key("due"), shard.key("payloads"))
    shard.lease()
    assert shard.names() == {"meta", "owner"}


def test_tenants_go_with_the_morgue_and_come_back(shard):
    shard.push("a", tenant="ann")
    lease = shard.lease()
    lease.claim()
    lease.exhaust("a")
    assert shard.look().hash("tenants") == {"a": b"ann"}
    shard.actions.morgue_queue_up(["a"])
    assert shard.look().lanes().keys() == {"ann"}
    shard.actions.bury(["a"])
    assert shard.look().lanes() == {}
    shard.actions.morgue_delete(["a"])
    assert shard.names() == {"meta", "owner"}
