"""fakeredis, which users test with: every script does there what it does on a server."""

from __future__ import annotations

import asyncio
import warnings

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.past.history import read_history, record
from lowkiq.errors import Fenced
from lowkiq.node.health.housekeeping import Housekeeping
from lowkiq.node.runtime import Runtime
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Held
from tests.node.driven import burst
from tests.queue.look import Claimed, Queued
from tests.queue.shard_driver import FUTURE, PAST

fakeredis = pytest.importorskip("fakeredis")


@pytest.fixture
def app():
    server = fakeredis.FakeServer()
    app = Lowkiq(redis=lambda: fakeredis.FakeRedis(server=server))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield app
        app.close()


@pytest.fixture
def work(app):
    @app.worker(queue_name="q", shards_count=1)
    def work(payloads_by_id):
        pass

    return work


def test_jobs_are_pushed_and_merged(work):
    pushed = work.perform_async([{"id": "a", "payload": 1}, {"id": "a", "payload": 2}, {"id": "b"}])
    assert pushed == (2, 1)
    assert [job.payloads for job in work.queries.fetch(["a", "b"])] == [[1, 2], [""]]


@pytest.mark.filterwarnings("ignore")
def test_a_node_performs_typed_jobs(app):
    ran = []

    @app.worker(id=lambda number: number)
    def count(id: int, numbers: list[int]) -> None:
        ran.append((id, numbers))

    @app.worker(id=lambda number: number)
    async def count_on_loop(id: int, numbers: list[int]) -> None:
        ran.append((id, numbers))

    count.push(1)
    asyncio.run(count_on_loop.apush(2))
    count.perform_one(3, [3])  # as a user's test calls it
    burst(app)
    assert sorted(ran) == [(1, [1]), (2, [2]), (3, [3])]


def test_jobs_are_claimed_and_settled(shard):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST), ("b", b"y", 2.0), ("c", b"z", 1.0, PAST))
    lease = shard.lease()
    assert [(job.id, job.payloads) for job in lease.claim()] == [("a", [b"x"]), ("b", [b"x", b"y"]), ("c", [b"z"])]
    lease.fail("a", retry_count=0, delay=1000)
    lease.exhaust("b")
    assert lease.settle(rest="ack").acked == 1
    assert (shard.queued()["a"].retry_count, shard.queued()["b"].payloads) == (0, {b"y": 2.0})
    assert shard.morgue()["b"].payloads == {b"x": 1.0}


def test_jobs_are_cancelled_and_keep_checkpoints(shard):
    shard.push_all(("a", b"x"), ("b", b"x"), ("c", b"x", 1.0, "+60.000000"))
    lease = shard.lease()
    lease.claim()
    assert lease.checkpoint("a", b"half") and lease.checkpoint("b", b"half")
    assert shard.actions.cancel(["b", "c"]) == 2
    assert lease.cancels(1) == ["b"]
    lease.release("claim")
    assert [(job.id, job.checkpoint) for job in lease.claim()] == [("a", b"half")]


@pytest.mark.parametrize("count", [1, 10, 200])
def test_compact_records_are_claimed_and_settled(shard, count):
    for n in range(count):
        shard.push(f"{n}", b"x")
    lease = shard.lease()
    assert [job.id for job in lease.claim()] == [f"{n}" for n in range(count)]
    assert lease.settle(rest="ack", has_several=False).acked == count
    assert shard.names() == {"meta", "owner"}


def test_a_claim_is_bounded(shard):
    shard.push_payloads("a", 5)
    lease = shard.lease()
    assert lease.claim(max_payloads=2)[0].payloads == [b"0", b"1"]
    assert shard.claimed() == {"a": Claimed({b"0": 0.0, b"1": 1.0}, PAST)}
    lease.spoil("a", b"0", released=["a"])
    assert shard.queued() == {"a": Queued({b"%d" % n: float(n) for n in range(1, 5)}, PAST)}


def test_claims_are_made_beside_others(shard):
    for id in "ab":
        shard.push(id, b"1")
    lease = shard.lease()
    assert [job.id for job in lease.claim(limit=1)] == ["a"]
    shard.push("a", b"2")
    assert [job.id for job in lease.claim_beside()] == ["b"]
    assert shard.queued()["a"].waits
    assert lease.claim_beside() == []
    shard.push("a", b"3")
    assert lease.settle(1, rest="ack", has_several=False).acked == 1
    assert [job.payloads for job in lease.claim_beside()] == [[b"2", b"3"]]
    shard.lease("b", dead=["a"])
    assert {id: set(job.payloads) for id, job in shard.queued().items()} == {"a": {b"2", b"3"}, "b": {b"1"}}


def test_tenants_take_turns(shard):
    for number in range(4):
        shard.push(f"a{number}", tenant="ann")
    shard.push("b", tenant="bob")
    shard.push("none")
    lease = shard.lease()
    first = [job.id for job in lease.claim(2)]
    assert "a0" in first and "b" in first
    lease.fail("a0", delay=0)
    lease.ack("b")
    assert len(lease.claim(10)) == 5
    lease.settle(rest="ack")
    assert shard.names() <= {"meta", "owner"}


def test_a_lease_is_held_renewed_and_taken_over(shard):
    shard.push("a", b"x", 1.0, PAST)
    lease = shard.lease()
    lease.claim()
    assert isinstance(shard.try_acquire("b"), Held)
    assert lease.renew()
    other = shard.lease("b", dead=["a"])
    assert (shard.crashes(), list(shard.queued())) == ({"a": 1}, ["a"])
    with pytest.raises(Fenced):
        lease.ack("a")
    other.claim()
    other.release("lease")
    assert shard.queued() == {"a": Queued({b"x": 1.0}, PAST)}


def test_spoiled_payloads_are_buried(shard):
    shard.push("a", b"\xff", 1.0)
    lease = shard.lease()
    lease.claim()
    assert lease.settle(spoiled=[Spoiled("a", b"\xff", "e")]).buried == 1
    assert shard.morgue()["a"].payloads == {b"\xff": 1.0}


def test_queries_actions_and_metrics_work(app, work):
    work.perform_async([{"id": n, "perform_in": FUTURE} for n in range(150)])
    assert work.actions.perform_all_jobs_now() == 150
    assert [job.id for job in work.queries.fetch([7, 777])] == ["7"]
    assert len(list(work.queries.find("1*"))) == 61
    assert work.actions.bury([1, 2, 3]) == 3
    assert work.actions.morgue_queue_up_all_jobs() == 3
    assert work.actions.delete([4]) == 1
    assert app.metrics()["q"].length == 149


def test_ranges_work(work):
    work.perform_async([{"id": n, "perform_in": PAST + n} for n in range(5)])
    work.actions.bury([0])
    assert [job.id for job in work.queries.range_by_perform_in()] == ["1", "2", "3", "4"]
    assert [job.id for job in work.queries.morgue_range_by_updated_at()] == ["0"]


def test_jobs_can_be_looked_at(app, shard):
    """Cut, searched and in order; and fakeredis's scan gives all at once."""
    shard.push("a", b"x" * 1000, 1.0, PAST)
    shard.push_payloads("b", 15)
    shard.push("c", b"z", 1.0, PAST + 1)
    shard.actions.bury(["c"])
    lease = shard.lease()
    lease.claim(limit=1)
    previews = Previews(app.caller, [shard.shard], load_error=str, max_id_bytes=512)
    (a,) = previews.job("a")
    assert (a.where, a.at, a.payloads[0].size, a.payloads[0].data) == ("claim", PAST, 1000, b"x" * 1000)
    assert [(p.size, len(p.data)) for p in previews.in_flight()[0].payloads] == [(1000, 200)]
    (b,) = previews.page("due").jobs
    assert (b.id, b.payload_count, [p.data for p in b.payloads]) == ("b", 15, [b"0"])
    assert [p.data for p in previews.job("b")[0].payloads] == [b"%d" % n for n in range(15)]
    assert [job.id for job in previews.page("morgue", pattern="?").jobs] == ["c"]
    assert previews.count(Match("morgue", error="moved to the morgue by hand")) == (1, False)


def test_payloads_over_the_budget_of_a_look_are_left_out(app, shard):
    for number in range(8):
        shard.push(f"id-{number}", b"%d" % number * (1 << 20), 1.0, PAST + number)
    shard.push("id-7", b"another")
    previews = Previews(app.caller, [shard.shard], load_error=str, max_id_bytes=512)
    jobs = previews.page("due").jobs
    assert [len(job.payloads) for job in jobs] == [1] * 5 + [0] * 3
    assert [job.payload_count for job in jobs] == [1] * 7 + [2]


def test_a_history_is_written_and_read(app, work):
    work.perform_async([{"id": n} for n in range(3)])
    namespace = app.settings.namespace
    for node in ("a", "b"):
        Housekeeping(Runtime(node=node, settings=app.settings, caller=app.caller, fatal=pytest.fail))()
    record(app.caller, namespace, app.metrics())
    for queue in ("q", ""):
        assert [point.length for point in read_history(app.caller, namespace, queue, "30d")] == [3]


def test_scripts_that_were_lost_are_loaded_again(shard):
    shard.push("a")
    shard.redis.script_flush()
    shard.push("b")
    assert set(shard.queued()) == {"a", "b"}
