"""Ids are bytes that nothing reads: whatever they hold, a job goes its whole way."""

from __future__ import annotations

import pytest

from lowkiq.job import shard_of
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver

IDS = [
    " ", "a b", "{}", "{other:3}", "}{", ":", "a:b", "::", "*", "payloads", "errors", "morgue", "claim", "due", "owner",
    "meta", "payloads:x", "morgue:payloads", "\x00", "a\nb", "\r\n", "ключ", "🔑", "\u202e", "%s", "%", "[a-z]", "?",
    "\\", "-inf", "nan", "(1", "-1", "x" * 512, "é" * 256,
]  # fmt: skip


@pytest.mark.parametrize("id", IDS)
def test_an_id_goes_through_every_script(shard, id):
    """Beside a plain one, which must not notice."""
    shard.push("plain", b"untouched", 1.0, PAST)
    plain = shard.queued()["plain"]
    shard.push_all((id, b"x", 1.0, PAST - 1), (id, b"y", 2.0, PAST - 1))

    lease = shard.lease()
    (job,) = lease.claim(limit=1)
    assert (job.id, job.payloads) == (id, [b"x", b"y"])
    lease.fail(id, delay=-FUTURE)
    (job,) = lease.claim(limit=1)
    assert (job.id, job.retry_count) == (id, 0)
    lease.release("claim")
    lease.claim(limit=1)
    taken = shard.lease("b", dead=["a"])
    assert shard.crashes() == {id: 1}
    taken.claim(limit=1)
    taken.exhaust(id)
    assert shard.morgue()[id].payloads == {b"x": 1.0}
    assert shard.queued()[id].payloads == {b"y": 2.0}

    assert shard.actions.bury([id]) == 1
    assert shard.morgue()[id].payloads == {b"x": 1.0, b"y": 2.0}
    assert shard.actions.morgue_queue_up([id]) == 1
    shard.actions.bury([id])
    assert shard.actions.morgue_delete([id]) == 1
    shard.push(id, b"x", 1.0)
    assert shard.actions.delete([id]) == 1
    assert shard.queued() == {"plain": plain}
    assert shard.morgue() == shard.claimed() == {}


@pytest.mark.parametrize("id", IDS)
def test_an_id_is_found(app, id):
    @app.worker(queue_name="q", shards_count=3)
    def work(payloads_by_id):
        pass

    work.perform_async([{"id": id, "payload": 1}])
    assert [job.id for job in work.queries.fetch([id])] == [id]
    assert [job.id for job in work.queries.range_by_perform_in()] == [id]
    assert [job.id for job in work.queries.find("*")] == [id]
    shard = ShardDriver(app, index=shard_of(id.encode(), 3), shards_count=3)
    assert list(shard.queued()) == [id]
