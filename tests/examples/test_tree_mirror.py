"""The copy tells replays from changes out of order, and the verdict sees every way to be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from examples.tree_copy import Copy, Counts
from examples.tree_mirror import Verdict
from tests.support import running_redis


def change(seq: int, blob: str | None) -> dict[str, Any]:
    return {"seq": seq, "blob": blob}


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with running_redis() as server, server.client() as client:
        yield client


@pytest.fixture
def copy(client: redis.Redis) -> Copy:
    client.flushall()
    return Copy(client)


def test_changes_make_the_tree(copy: Copy) -> None:
    copy.apply(
        {"a": [change(1, "1f"), change(3, "3f")], "b": [change(2, "2f"), change(4, None)], "ü": [change(5, "5f")]}
    )
    assert copy.tree() == {"a": "3f", "ü": "5f"}
    assert copy.counts() == Counts(applied=5)


def test_a_change_seen_before_is_a_replay_and_changes_nothing(copy: Copy) -> None:
    copy.apply({"a": [change(1, "1f"), change(2, "2f")]})
    copy.apply({"a": [change(1, "1f"), change(2, "2f"), change(3, None)]})
    assert copy.tree() == {}
    assert copy.counts() == Counts(applied=3, replays=2)


def test_an_older_replay_is_not_out_of_order(copy: Copy) -> None:
    copy.apply({"a": [change(1, "1f"), change(2, "2f")]})
    copy.apply({"a": [change(1, "1f")]})
    assert copy.tree() == {"a": "2f"}
    assert copy.counts() == Counts(applied=2, replays=1)


def test_an_older_change_never_seen_is_out_of_order_and_shows_in_the_tree(copy: Copy) -> None:
    copy.apply({"a": [change(2, "2f")]})
    copy.apply({"a": [change(1, "1f")]})
    assert copy.tree() == {"a": "1f"}
    assert copy.counts() == Counts(applied=2, out_of_order=1)


def test_order_counts_for_each_path_alone(copy: Copy) -> None:
    copy.apply({"a": [change(10, "1f")]})
    copy.apply({"b": [change(9, "2f")]})
    assert copy.counts() == Counts(applied=2)


def test_numbers_are_compared_as_numbers(copy: Copy) -> None:
    copy.apply({"a": [change(9, "1f"), change(10, "2f")]})
    assert copy.counts() == Counts(applied=2)


def test_a_deletion_is_remembered_for_the_order(copy: Copy) -> None:
    copy.apply({"a": [change(2, None)]})
    copy.apply({"a": [change(1, "1f")]})
    assert copy.counts() == Counts(applied=2, out_of_order=1)


def test_forget_starts_over(copy: Copy) -> None:
    copy.apply({"a": [change(1, "1f")]})
    copy.forget()
    assert copy.tree() == {}
    assert copy.counts() == Counts()


@pytest.mark.parametrize(
    ("tree", "out_of_order", "right"),
    [
        ({"a": "1f"}, 0, True),
        ({"a": "1f"}, 1, False),
        ({}, 0, False),
        ({"a": "1f", "b": "2f"}, 0, False),
        ({"a": "2f"}, 0, False),
    ],
)
def test_verdict_is_right_only_if_everything_is(tree: dict[str, str], out_of_order: int, right: bool) -> None:
    verdict = Verdict({"a": "1f"}, tree, Counts(1, 0, out_of_order), left=0, buried=0)
    assert verdict.right is right
    assert verdict.right or verdict.missing or verdict.extra or verdict.wrong or out_of_order
