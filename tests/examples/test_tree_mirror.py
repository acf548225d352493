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


#: What is so → batches of changes, the tree that they make, and the counts.
BATCHES: dict[str, tuple[list[dict[str, list[dict[str, Any]]]], dict[str, str], Counts]] = {
    "changes make the tree": (
        [{"a": [change(1, "1f"), change(3, "3f")], "b": [change(2, "2f"), change(4, None)], "ü": [change(5, "5f")]}],
        {"a": "3f", "ü": "5f"}, Counts(applied=5),
    ),
    "a change seen before is a replay and changes nothing": (
        [{"a": [change(1, "1f"), change(2, "2f")]}, {"a": [change(1, "1f"), change(2, "2f"), change(3, None)]}],
        {}, Counts(applied=3, replays=2),
    ),
    "an older replay is not out of order": (
        [{"a": [change(1, "1f"), change(2, "2f")]}, {"a": [change(1, "1f")]}],
        {"a": "2f"}, Counts(applied=2, replays=1),
    ),
    "an older change never seen is out of order and shows in the tree": (
        [{"a": [change(2, "2f")]}, {"a": [change(1, "1f")]}], {"a": "1f"}, Counts(applied=2, out_of_order=1),
    ),
    "order counts for each path alone": (
        [{"a": [change(10, "1f")]}, {"b": [change(9, "2f")]}], {"a": "1f", "b": "2f"}, Counts(applied=2),
    ),
    "numbers are compared as numbers": ([{"a": [change(9, "1f"), change(10, "2f")]}], {"a": "2f"}, Counts(applied=2)),
    "a deletion is remembered for the order": (
        [{"a": [change(2, None)]}, {"a": [change(1, "1f")]}], {"a": "1f"}, Counts(applied=2, out_of_order=1),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("batches", "tree", "counts"), BATCHES.values(), ids=BATCHES)
def test_batches_make_a_tree_and_counts(copy: Copy, batches: list[Any], tree: dict[str, str], counts: Counts) -> None:
    for batch in batches:
        copy.apply(batch)
    assert (copy.tree(), copy.counts()) == (tree, counts)


def test_forget_starts_over(copy: Copy) -> None:
    copy.apply({"a": [change(1, "1f")]})
    copy.forget()
    assert copy.tree() == {}
    assert copy.counts() == Counts()


@pytest.mark.parametrize(
    ("tree", "out_of_order", "right"),
    [
        ({"a": "1f"}, 0, True), ({"a": "1f"}, 1, False), ({}, 0, False), ({"a": "1f", "b": "2f"}, 0, False),
        ({"a": "2f"}, 0, False),
    ],
)  # fmt: skip
def test_verdict_is_right_only_if_everything_is(tree: dict[str, str], out_of_order: int, right: bool) -> None:
    verdict = Verdict({"a": "1f"}, tree, Counts(1, 0, out_of_order), left=0, buried=0)
    assert verdict.right is right
    assert verdict.right or verdict.missing or verdict.extra or verdict.wrong or out_of_order
