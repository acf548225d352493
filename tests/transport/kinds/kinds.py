"""Redis of any kind, where a test wants no more than its URL and a client: LOWKIQ_TEST_REDIS_KIND=cluster."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.transport.kinds.cluster import RedisCluster
from tests.transport.kinds.sentinel import RedisSentinel
from tests.transport.kinds.tls import RedisTls

KINDS = {
    "cluster": lambda: RedisCluster(3, 0),
    "sentinel": lambda: RedisSentinel(1, 1),
    "tls": RedisTls,
}

#: Tests that look at a server's own counters, socket, files or scripts, or name shards of several slots at once.
OF_ONE_SERVER = frozenset(
    {
        "test_a_claim_that_was_repeated_with_what_came_before_it_can_be_given_up",
        "test_a_full_memory_leaves_no_shard_changed",
        "test_a_hundred_at_once_share_one_poll",
        "test_a_mutant_of_places_is_found_out",
        "test_a_peek_tells_when_the_oldest_job_of_each_shard_is_due",
        "test_a_shard_of_another_layout_is_refused_and_what_comes_after_it",
        "test_a_snapshot_is_new_enough_for_an_interval_and_then_polled_again",
        "test_a_script_has_no_more_jobs_and_bytes_than_one_for_a_shard",
        "test_an_emptied_redis_gives_no_negative_rate",
        "test_each_of_several_shards_is_renewed_or_not",
        "test_every_script_compiles",
        "test_few_jobs_a_shard_share_scripts",
        "test_it_works_with_a_client_of_the_users_making",
        "test_one_who_leaves_does_not_disturb_the_others",
        "test_places_are_what_their_model_says",
        "test_ranges_work_with_a_client_of_the_users_making",
        "test_the_owner_of_each_shard_is_rung",
        "test_warnings_of_redis_are_told",
        "test_what_is_over_the_budget_is_not_even_read",
        "test_who_comes_when_all_have_left_gets_the_poll_that_goes_on",
        "test_who_renews_learns_that_another_node_wants_the_shard_as_its_part",
    }
)


def kind_wanted() -> str:
    """What LOWKIQ_TEST_REDIS_KIND says: server (the default), sentinel, cluster or tls."""
    return os.environ.get("LOWKIQ_TEST_REDIS_KIND", "server")


def leave_out(items: list[pytest.Item]) -> None:
    """Skips what only a single server can show, when another kind is wanted."""
    kind = kind_wanted()
    for item in items:
        # What is published at one server of a cluster is heard at another a moment later.
        is_heard_at_once = "bells" in getattr(item, "fixturenames", ())
        is_direct = kind in {"sentinel", "cluster"} and "connected" in getattr(item, "fixturenames", ())
        if kind != "server" and (
            is_direct or is_heard_at_once or getattr(item, "originalname", item.name) in OF_ONE_SERVER
        ):
            item.add_marker(pytest.mark.skip(reason=f"of a single server, not {kind}"))


def of_kind(kind: str) -> Any:
    """A context manager that starts it, with fewer replicas than where these matter."""
    return KINDS[kind]()
