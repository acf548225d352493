"""A user who may not run one of the commands: Redis stops a script there, and takes nothing back that it has done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import redis

from tests.queue.shard_driver import PAST, ShardDriver

#: What claims, and those who give them back, read and write with.
COMMANDS = (
    "exists", "hdel", "hget", "hincrby", "hmget", "hset", "lrange", "rename", "rpush",
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


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("push", [push_compact, push_all_kinds])
@pytest.mark.parametrize("max_payloads", [3, 1])
def test_a_claim_without_a_right_loses_nothing(shard, push, command, max_payloads):
    push(shard)
    queued = payloads_of(shard)
    lease = shard.lease("a", max_crashes=100)
    with denied(shard, command):
        lease.claim(max_payloads=max_payloads)
    shard.lease("b", max_crashes=100, dead=["a"])
    assert payloads_of(shard) == queued


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("push", [push_compact, push_all_kinds])
@pytest.mark.parametrize("back", ["acquire", "release"])
def test_what_is_given_back_without_a_right_is_not_lost(shard, push, command, back):
    push(shard)
    queued = payloads_of(shard)
    lease = shard.lease("a", max_crashes=100)
    lease.claim(max_payloads=3)
    with denied(shard, command):
        lease.release("claim") if back == "release" else shard.lease("b", max_crashes=100, dead=["a"])
    shard.lease("c", max_crashes=100, dead=["a", "b"])
    assert payloads_of(shard) == queued
