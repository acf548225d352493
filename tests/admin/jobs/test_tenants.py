"""Tenants of a fair queue: whose backlog is the largest, from a bounded read, whatever somebody has written there."""

from __future__ import annotations

import pytest

from lowkiq.admin.jobs.tags import SAMPLE, TenantBacklog
from tests.queue.shard_driver import FUTURE


@pytest.fixture
def work(app):
    @app.worker(queue_name="q", shards_count=3, fair_by=lambda _, payload: payload)
    def work(payloads_by_id): ...

    return work


def push(work, tenant, count, **more):
    work.perform_async([{"id": f"{tenant}-{n}", "payload": tenant, **more} for n in range(count)])


def test_the_largest_backlogs_come_first_and_are_counted_exactly(work, app):
    push(work, "ann", 12)
    push(work, "bob", 30, perform_in=FUTURE)
    push(work, "cid", 1)
    assert work.queries.tenants() == [TenantBacklog("bob", 30), TenantBacklog("ann", 12), TenantBacklog("cid", 1)]
    assert work.queries.tenants(1) == [TenantBacklog("bob", 30)]
    assert work.queries.tenants(0) == []
    work.actions.delete([f"bob-{n}" for n in range(30)])
    assert [one.tenant for one in work.queries.tenants()] == ["ann", "cid"]


def test_who_has_most_is_found_among_more_than_are_looked_at(work):
    push(work, "big", 10 * SAMPLE)
    for n in range(SAMPLE):
        push(work, f"small {n}", 1)
    assert work.queries.tenants(1) == [TenantBacklog("big", 10 * SAMPLE)]


def test_a_queue_without_tenants_has_none(app):
    @app.worker(queue_name="plain", shards_count=3)
    def plain(payloads_by_id): ...

    plain.perform_async([{"id": 1}])
    assert plain.queries.tenants() == []


@pytest.mark.parametrize("key", ["tenants", "due", "lane:ann"])
def test_what_somebody_else_has_written_hides_nobody(work, app, key):
    push(work, "ann", 20)
    prefix = app.shards("q", 3)[0].prefix
    app.redis().unlink(f"{prefix}{key}")
    app.redis().set(f"{prefix}{key}", "junk")
    ((tenant, ids),) = work.queries.tenants()
    assert tenant == "ann"
    assert 0 < ids <= 20


def test_a_name_that_is_none_is_left_out_or_shown_as_far_as_it_can_be(work, app):
    push(work, "ann", 1)
    for shard in app.shards("q", 3):
        for id in app.redis().hkeys(f"{shard.prefix}tenants"):
            app.redis().hset(f"{shard.prefix}tenants", id, b"x" * 10_000)
    assert work.queries.tenants() == []
