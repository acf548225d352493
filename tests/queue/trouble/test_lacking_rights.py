"""A user who may not run one of the commands: Redis stops a script there, and takes nothing back that it has done."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis

from lowkiq.queue.shard import Failure
from tests.queue.shard_driver import PAST, ShardDriver

#: What claims, and those who give them back, read and write with.
COMMANDS = (
    "exists", "hdel", "hget", "hgetall", "hincrby", "hmget", "hset", "llen", "lrange", "rename", "rpush",
    "unlink", "zadd", "zcard", "zmscore", "zrange", "zrem", "zremrangebyrank", "zscore",
)  # fmt: skip


@contextmanager
def denied(shard: ShardDriver, command: str) -> Iterator[None]:
    shard.redis.execute_command("ACL SETUSER", "default", f"-{command}")
    try:
        with suppress(redis.ResponseError):
            yield
    finally:
        shard.redis.execute_command("ACL SETUSER", "default", "+@all")


def without_each(test: Callable[..., None]) -> Callable[..., None]:
    """Runs the test without each of the commands in turn: as tests of their own they would take twice as long."""

    def run(shard: ShardDriver, **given: Any) -> None:
        for command in COMMANDS:
            shard.redis.flushall()
            try:
                test(shard, command=command, **given)
            except BaseException as error:
                error.add_note(f"without the right to {command}")
                raise

    names = inspect.signature(test).parameters
    run.__signature__ = inspect.Signature([names[name] for name in names if name != "command"])  # type: ignore[attr-defined]
    return run


def push_compact(shard: ShardDriver) -> None:
    shard.push_all(*((f"id-{number}", b"x") for number in range(5)))


def push_all_kinds(shard: ShardDriver) -> None:
    """Also one that has failed, some with several payloads, and one of which a claim takes only a part."""
    shard.push("failed", b"f")
    lease = shard.lease("z")
    lease.claim()
    lease.fail("failed", delay=0)
    lease.release()
    push_compact(shard)
    shard.push_payloads("several", 2)
    shard.push_payloads("many", 4)
    shard.push("scored", b"s", 7.0, PAST)


def payloads_of(shard: ShardDriver) -> dict[str, set[bytes]]:
    return {id: set(job.payloads) for id, job in shard.queued().items()}


@pytest.mark.parametrize("push", [push_compact, push_all_kinds])
@pytest.mark.parametrize("max_payloads", [3, 1])
@without_each
def test_a_claim_without_a_right_loses_nothing(shard, push, command, max_payloads):
    push(shard)
    queued = payloads_of(shard)
    lease = shard.lease("a", max_crashes=100)
    with denied(shard, command):
        lease.claim(max_payloads=max_payloads)
    shard.lease("b", max_crashes=100, dead=["a"])
    assert payloads_of(shard) == queued


def push_behind(shard: ShardDriver) -> None:
    """More payloads of ids that are claimed, and another id."""
    shard.push_all(("id-0", b"y"), ("id-1", b"y"), ("id-1", b"z"), ("new", b"x"))


@pytest.mark.parametrize("push", [push_compact, push_all_kinds])
@without_each
def test_a_claim_beside_others_without_a_right_loses_nothing_and_parks_nothing_for_ever(shard, push, command):
    push(shard)
    lease = shard.lease("a", max_crashes=100)
    lease.claim(limit=3, max_payloads=3)
    push_behind(shard)
    everything = {id: payloads_of(shard).get(id, set()) | set(job.payloads) for id, job in shard.claimed().items()}
    everything = payloads_of(shard) | everything
    with denied(shard, command):
        lease.claim_beside()
    shard.lease("b", max_crashes=100, dead=["a"])
    assert payloads_of(shard) == everything
    assert not any(job.waits for job in shard.queued().values())


#: How one of three claims is ended, with jobs parked behind it.
ENDS = {
    "ack": lambda lease: lease.settle(1, rest="ack", has_several=True),
    "ack one": lambda lease: lease.settle(1, acked=["id-0"]),
    "release": lambda lease: lease.release("claim", number=1),
    "fail": lambda lease: lease.settle(1, failed=[Failure("id-0", 0, 60.0, "e")], rest="release"),
    "acquire": lambda lease: lease.driver.lease("b", max_crashes=100, dead=["a"]),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
@without_each
def test_what_is_parked_comes_back_though_a_right_was_lacking(shard, end, command):
    push_compact(shard)
    lease = shard.lease("a", max_crashes=100)
    lease.claim(limit=2)
    push_behind(shard)
    lease.claim_beside(limit=4)
    assert {id for id, job in shard.queued().items() if job.waits} == {"id-0", "id-1"}
    shard.push("newer", b"x")
    assert [job.id for job in lease.claim_beside(limit=2)] == ["newer"]
    with denied(shard, command):
        end(lease)
    end(lease)
    assert {id for id, job in shard.queued().items() if job.waits} <= shard.claimed().keys()
    shard.lease("c", max_crashes=100, dead=["a", "b"])
    queued = payloads_of(shard)
    assert queued["id-0"] >= {b"y"}
    assert queued["id-1"] >= {b"y", b"z"} | ({b"x"} if end is not ENDS["ack"] else set())


@pytest.mark.parametrize("push", [push_compact, push_all_kinds])
@pytest.mark.parametrize("back", ["acquire", "release"])
@without_each
def test_what_is_given_back_without_a_right_is_not_lost(shard, push, command, back):
    push(shard)
    queued = payloads_of(shard)
    lease = shard.lease("a", max_crashes=100)
    lease.claim(max_payloads=3)
    with denied(shard, command):
        lease.release("claim") if back == "release" else shard.lease("b", max_crashes=100, dead=["a"])
    shard.lease("c", max_crashes=100, dead=["a", "b"])
    assert payloads_of(shard) == queued


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
@without_each
def test_what_is_cancelled_stays_so_though_a_right_was_lacking(shard, end, command):
    """What is pushed afterwards is not lost; and no checkpoint of the cancelled run is left for it."""
    push_compact(shard)
    lease = shard.lease("a", max_crashes=100)
    lease.claim(limit=2)
    lease.checkpoint("id-0", b"half")
    assert shard.actions.cancel(["id-0"]) == 1
    push_behind(shard)
    lease.claim_beside(limit=4)
    with denied(shard, command):
        end(lease)
    end(lease)
    shard.lease("c", max_crashes=100, dead=["a", "b"])
    assert payloads_of(shard)["id-0"] == {b"y"}
    assert not {"cancels", "checkpoints"} & shard.names()
