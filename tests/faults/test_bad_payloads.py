"""Payloads and numbers of every kind, size and count: none is lost, none is half applied, none stops a node."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from lowkiq import InvalidJob, Lowkiq
from lowkiq.errors import Refused
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.job import shard_of
from lowkiq.queue.shard import Failure
from lowkiq.worker import Worker
from tests.node.nodes import Nodes
from tests.queue.shard_driver import ShardDriver
from tests.support import RedisServer, wait_until

MEBIBYTE = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 2, 1_000, MEBIBYTE - 1, MEBIBYTE])
def test_a_payload_of_every_size_up_to_the_limit_comes_back_as_it_was(shard: ShardDriver, size: int) -> None:
    """Alone and beside another; fresh and after a failure."""
    payload = os.urandom(size)
    shard.push("alone", payload, 1.0)
    shard.push_all(("several", payload, 1.0), ("several", b"other", 2.0))
    lease = shard.lease()
    for _ in range(2):
        found: dict[str, list[bytes]] = {}
        while jobs := lease.claim():
            found |= {job.id: job.payloads for job in jobs}
            lease.settle(failed=[Failure(job.id, 0, 0.2, "boom") for job in jobs])
        assert found["alone"] == [payload]
        assert found["several"] in ([payload, b"other"], [payload]), "one that fills a claim comes without the other"
        wait_until(lambda: all(row.perform_in <= shard.now() for row in shard.queued().values()))


def test_a_payload_above_the_limit_is_refused(make_app: Any) -> None:
    app = make_app(dump_payload=bytes)
    worker = app.worker(queue_name="q")(lambda _: None)
    worker.perform_async([{"id": "a", "payload": bytes(MEBIBYTE)}, {"id": "b", "payload": b""}])
    with pytest.raises(InvalidJob, match=r"1,048,577 bytes, max_payload_bytes is 1,048,576: store it elsewhere"):
        worker.perform_async([{"id": "a", "payload": bytes(MEBIBYTE + 1)}])


#: Payloads of one id; a million takes a few minutes.
MANY = int(os.environ.get("LOWKIQ_TEST_PAYLOADS", "100000"))


@pytest.mark.timeout(600)
def test_very_many_payloads_of_one_id_cost_each_claim_no_more_than_a_few(shard: ShardDriver) -> None:
    """Redis must serve others meanwhile: what a call costs goes by what it takes, not by what there is."""
    few = claims_of(shard, "few", 2_000)
    many = claims_of(shard, "many", MANY)
    # Half of the calls, so that a moment in which the machine was busy elsewhere does not count.
    assert sorted(many)[len(many) // 2] < 10 * max(sorted(few)[len(few) // 2], 500)


def claims_of(shard: ShardDriver, id: str, count: int) -> list[int]:
    """Pushes so many payloads, works them off in their order, and gives the microseconds of Redis of each claim."""
    for first in range(0, count, 1_000):
        shard.push_payloads(id, min(1_000, count - first), first)
    lease = shard.lease(node=id, dead=["few"])
    spent: list[int] = []
    done, has_failed = 0, False
    while jobs := timed(shard, lease.claim, spent):
        (job,) = jobs
        assert job.payloads == [b"%d" % n for n in range(done, min(done + 1_000, count))]
        if done and not has_failed:
            lease.settle(failed=[Failure(id, 0, -1.0, "boom")])  # and so they go back, and come again
            has_failed = True
        else:
            lease.settle(rest="ack")
            done += len(job.payloads)
    assert done == count
    return spent


def timed(shard: ShardDriver, act: Any, spent: list[int]) -> Any:
    before = shard.redis.info("commandstats")["cmdstat_evalsha"]["usec"]
    result = act()
    spent.append(shard.redis.info("commandstats")["cmdstat_evalsha"]["usec"] - before)
    return result


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 50_000, b"\x00"])
def test_a_payload_that_can_not_be_decoded_goes_to_the_morgue_as_it_is(nodes: Nodes, payload: bytes) -> None:
    node = nodes.start().wait_ready()
    nodes.push_bytes(b"bad", payload)
    nodes.push({"id": "good", "payload": {}})
    wait_until(nodes.is_done)
    assert nodes.ended("good")
    assert not nodes.started("bad")
    assert node.is_running()
    shard = ShardDriver(nodes.app, "jobs", shard_of(b"bad", 3), 3)
    dead = shard.morgue()["bad"]
    assert list(dead.payloads) == [payload]
    assert dead.error.startswith("load_payload can't decode this payload: ")


@pytest.mark.parametrize("payload", [{"recurse": True}, {"eat": 1 << 40}], ids=["recursion", "memory"])
def test_a_job_that_recurses_or_eats_memory_fails_and_its_node_lives(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, payload: dict[str, Any]
) -> None:
    options = {"max_retry_count": 2, "address_space": 4 << 30}
    with Nodes(tmp_path, redis_server, app.settings.namespace, **options) as nodes:
        node = nodes.start().wait_ready()
        nodes.push({"id": "bad", "payload": payload}, *({"id": n, "payload": {}} for n in range(50)))
        wait_until(nodes.is_done)
        assert node.is_running()
        (dead,) = nodes.worker.queries.morgue_fetch(["bad"])
        assert dead.error is not None
        assert dead.error.startswith(("RecursionError", "MemoryError"))
        assert {id for row in nodes.records("end") for id in row[2]} >= set(map(str, range(50)))


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "-inf", "", "x", "1e400", math.nan, math.inf])
@pytest.mark.parametrize("field", ["delay", "retry_count"])
def test_a_settle_with_what_is_no_number_changes_nothing(shard: ShardDriver, number: Any, field: str) -> None:
    """Half of it would be worse than none."""
    shard.push_all(("acked", b"1"), ("failed", b"2"), ("other", b"3"))
    lease = shard.lease()
    lease.claim()
    before = shard.dump()
    bad = Failure("failed", number if field == "retry_count" else 0, number if field == "delay" else 1.0, "boom")
    with pytest.raises(Refused, match="of a failed job"):
        lease.settle(acked=["acked"], failed=[Failure("other", 0, 1.0, "boom"), bad], rest="ack")
    assert shard.dump() == before
    lease.settle(failed=[Failure("failed", 0, 1.0, "boom")], rest="ack")
    assert list(shard.queued()) == ["failed"]


@pytest.mark.parametrize(
    "delay", ["math.nan", "math.inf", "-math.inf", "-1e300", "1e300", "10 ** 400", "'soon'", "None"]
)
def test_whatever_retry_in_says_the_job_waits_for_a_time_that_can_come(
    shard: ShardDriver, make_app: Any, delay: str
) -> None:
    class Bad(Worker):
        queue_name = "q"

        def retry_in(self, retry_count: int) -> Any:
            return eval(delay)

        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            raise ValueError("boom")

    performer = Performer(Bad(), shard.app.settings, lambda error: pytest.fail(str(error)), LoopThread())
    shard.push("a")
    lease = shard.lease()
    failures = performer.perform(lease.claim())
    assert failures is not None
    lease.settle(failed=failures.failed)
    assert 0 <= shard.queued()["a"].perform_in - shard.now() + 60 < 3.3e9


@pytest.mark.parametrize("number", [1.7e308, -1.7e308, 1e300, -1e300, 5e-324, -1.0, 2.0**53 + 2])
def test_times_and_scores_of_any_size_go_their_way(shard: ShardDriver, number: float) -> None:
    shard.push("scored", b"x", number)
    shard.push("timed", b"x", 1.0, number)
    lease = shard.lease()
    expected = {"scored", "timed"} if number < shard.now() else {"scored"}
    jobs = lease.claim()
    assert {job.id for job in jobs} == expected
    assert next(job.scores for job in jobs if job.id == "scored") == (number,)
    lease.fail("scored", delay=-1.0)
    lease.settle(rest="release")
    assert set(shard.queued()) == {"scored", "timed"}
    assert shard.queued()["timed"].perform_in == pytest.approx(number, abs=1e-6)
