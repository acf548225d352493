"""Pushes of one job each that go in one script: what is plain is taken, and all else is left as it was."""

from __future__ import annotations

import pytest

from lowkiq.job import EncodedJob
from lowkiq.queue.push_calls import push_apart_call
from tests.queue.shard_driver import FUTURE, ShardDriver
from tests.queue.stamps import once


def push_apart(*shards_and_ids: tuple[ShardDriver, str]) -> list[int]:
    groups = [(shard.shard, [EncodedJob(id.encode(), b"apart", "", "") for id in ids]) for shard, ids in shards_and_ids]
    return shards_and_ids[0][0].caller.run(push_apart_call(groups, once()))


def payloads(shard: ShardDriver) -> dict[str, list[bytes]]:
    return {id: list(job.payloads) for id, job in shard.queued().items()}


@pytest.fixture
def shard(shard) -> ShardDriver:
    shard.push("z", b"before")
    return shard


def test_what_is_plain_is_queued_as_pushes_queue_it(shard):
    assert push_apart((shard, "abc")) == [1, 1, 1]
    scores = [shard.queued()[id].payloads[b"apart"] for id in "abc"]
    assert scores == sorted(set(scores))
    assert [shard.queued()[id].perform_in for id in "abc"] == scores
    assert (shard.meta("pushed"), shard.meta("merged")) == (4, 0)
    assert shard.meta("last_score") == round(scores[-1] * 1e6)
    assert shard.push("d") == (1, 0)
    assert [job.id for job in shard.lease().claim()] == ["z", "a", "b", "c", "d"]


def test_what_is_queued_is_left_with_all_that_follows_in_its_shard(shard):
    before = shard.jobs()
    assert push_apart((shard, "za")) == [0, 0]
    assert shard.jobs() == before
    assert push_apart((shard, "abzcab")) == [1, 1, 0, 0, 0, 0]
    assert push_apart((shard, "cdcd")) == [1, 1, 0, 0]
    assert payloads(shard) == {"z": [b"before"], **{id: [b"apart"] for id in "abcd"}}


def test_what_runs_is_queued_and_what_is_parked_is_left(shard):
    lease = shard.lease()
    lease.claim()
    assert push_apart((shard, "z")) == [1]
    assert lease.claim_beside() == []
    before = shard.jobs()
    assert push_apart((shard, "z")) == [0]
    assert shard.jobs() == before


def test_what_is_to_come_is_left(shard):
    shard.push("later", b"x", "", FUTURE)
    before = shard.jobs()
    calls = [EncodedJob(b"later", b"y", "", "")]
    assert shard.caller.run(push_apart_call([(shard.shard, calls)], once())) == [0]
    assert shard.jobs() == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda shard: shard.redis.hset(shard.key("meta"), "layout", "2"),
        lambda shard: shard.redis.hset(shard.key("meta"), "layout", "3:1"),
        lambda shard: shard.redis.hset(shard.key("meta"), "layout", "1"),
        lambda shard: shard.redis.hset(shard.key("meta"), "seen", 1),
        lambda shard: shard.redis.hset(shard.key("meta"), "last_score", round((shard.now() + 60) * 1e6)),
        lambda shard: shard.redis.hset(shard.key("meta"), "last_score", "none"),
        lambda shard: shard.redis.hset(shard.key("meta"), "pushed", "none"),
        lambda shard: shard.redis.hset(shard.key("owner"), "waiting", "inf"),
        lambda shard: shard.redis.hset(shard.key("owner"), "waiting", "1.000000"),
        lambda shard: shard.redis.unlink(shard.key("meta")),
        lambda shard: shard.redis.set(shard.key("owner"), "x"),
        lambda shard: shard.redis.set(shard.key("due"), "x"),
        lambda shard: shard.redis.set(shard.key("meta"), "x"),
    ],
    ids=[
        "another layout", "a newer layout", "an older layout",
        "a clock that was set back", "a clock that was just set back",
        "no last score", "no count", "an owner that waits", "an owner that waits for a time", "a new shard",
        "no owner", "no queue", "no meta",
    ],
)  # fmt: skip
def test_a_shard_that_is_not_plain_is_left_and_others_are_not(app, shard, spoil):
    other = ShardDriver(app, "other")
    other.push("z")
    spoil(shard)
    before = shard.redis.dump(shard.key("due")), shard.redis.dump(shard.key("payloads"))
    assert push_apart((shard, "ab"), (other, "ab"), (shard, "c")) == [0, 0, 1, 1, 0]
    assert (shard.redis.dump(shard.key("due")), shard.redis.dump(shard.key("payloads"))) == before


def test_repeating_it_changes_nothing(shard):
    call = push_apart_call([(shard.shard, [EncodedJob(id, b"apart") for id in (b"a", b"b", b"z", b"c")])], once())
    assert shard.caller.run(call) == [1, 1, 0, 0]
    before = shard.jobs()
    assert shard.caller.run(call) == [1, 1, 0, 0]
    assert shard.jobs() == before


def test_what_it_has_left_is_left_also_when_its_first_try_comes_after_it_was_pushed(shard):
    """A new shard is left to a push, which makes it; then what is late would find all that it needs."""
    new = ShardDriver(shard.app, "new")
    call = push_apart_call([(new.shard, [EncodedJob(b"a", b"apart")])], once())
    assert new.caller.run(call) == [0]
    assert new.push("a") == (1, 0)
    new.lease().claim()
    before = new.jobs()
    assert new.caller.run(call) == [0]
    assert new.jobs() == before
