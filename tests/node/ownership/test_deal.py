"""Which node each shard is dealt to, where nobody numbers nodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lowkiq.node.ownership.deal import deal

COUNTS = st.integers(1, 60)
WEIGHTS = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 9), min_size=1)


def sizes(dealt: Sequence[str | None]) -> Counter[str | None]:
    return Counter(dealt)


def moves(before: Sequence[str | None], after: Sequence[str | None]) -> int:
    return sum(was != now for was, now in zip(before, after, strict=True))


@given(COUNTS, WEIGHTS, st.randoms(use_true_random=False))
def test_each_node_gets_its_share_of_the_threads_within_one_shard(
    count: int, weights: dict[str, int], luck: random.Random
) -> None:
    holders = [luck.choice([*weights, "gone", None]) for _ in range(count)]
    dealt = deal("q", count, weights, holders)
    total = sum(weights.values())
    for node, weight in weights.items():
        assert abs(sizes(dealt)[node] - count * weight / total) < 1
    assert len(dealt) == count and None not in dealt


@given(COUNTS, WEIGHTS, st.randoms(use_true_random=False))
def test_all_that_know_the_same_come_to_the_same(count: int, weights: dict[str, int], luck: random.Random) -> None:
    holders = [luck.choice([*weights, None]) for _ in range(count)]
    shuffled = list(weights.items())
    luck.shuffle(shuffled)
    assert deal("q", count, weights, holders) == deal("q", count, dict(shuffled), holders)


@given(COUNTS, st.sets(st.sampled_from("abcdefghij"), min_size=1))
def test_who_joins_is_given_its_share_and_nothing_else_moves(count: int, nodes: set[str]) -> None:
    before = deal("q", count, dict.fromkeys(nodes, 5), [None] * count)
    after = deal("q", count, dict.fromkeys({*nodes, "new"}, 5), before)
    assert moves(before, after) == sizes(after)["new"]
    assert sizes(after)["new"] in {count // (len(nodes) + 1), count // (len(nodes) + 1) + 1}


@given(COUNTS, st.sets(st.sampled_from("abcdefghij"), min_size=2))
def test_of_who_leaves_only_its_own_shards_move(count: int, nodes: set[str]) -> None:
    before = deal("q", count, dict.fromkeys(nodes, 5), [None] * count)
    leaver = min(nodes)
    after = deal("q", count, dict.fromkeys(nodes - {leaver}, 5), before)
    assert moves(before, after) == sizes(before)[leaver]


@given(COUNTS, WEIGHTS, st.randoms(use_true_random=False))
def test_half_of_the_moves_done_the_rest_is_still_the_same(
    count: int, weights: dict[str, int], luck: random.Random
) -> None:
    """Shards move one by one: what is to move next must not depend on what has."""
    holders = [luck.choice([*weights, None]) for _ in range(count)]
    goal = deal("q", count, weights, holders)
    on_the_way = [luck.choice([was, to]) for was, to in zip(holders, goal, strict=True)]
    last = deal("q", count, weights, on_the_way)
    assert moves(on_the_way, last) <= moves(on_the_way, goal)


def test_queues_of_one_shard_are_spread_over_the_nodes() -> None:
    weights = dict.fromkeys(("a", "b", "c", "d"), 5)
    spread = Counter(deal(f"queue-{number}", 1, weights, [None])[0] for number in range(400))
    assert set(spread) == set(weights) and max(spread.values()) < 2 * min(spread.values())


def test_without_nodes_nobody_has_anything() -> None:
    assert deal("q", 3, {}, ["gone", None, None]) == [None, None, None]


@given(COUNTS, WEIGHTS, st.randoms(use_true_random=False))
def test_a_shard_with_a_place_lies_there_and_all_others_somewhere(
    count: int, weights: dict[str, int], luck: random.Random
) -> None:
    holders = [luck.choice([*weights, None]) for _ in range(count)]
    places = {luck.randrange(count + 3): luck.choice([*weights, "gone"]) for _ in range(luck.randint(0, 9))}
    dealt = deal("q", count, weights, holders, places)
    assert all(dealt[shard] == node for shard, node in places.items() if node in weights and shard < count)
    assert None not in dealt


def test_two_that_change_places_move_no_other() -> None:
    weights = dict.fromkeys("abc", 5)
    before = deal("q", 30, weights, [None] * 30)
    one, other = before.index("a"), before.index("b")
    after = deal("q", 30, weights, before, {one: "b", other: "a"})
    assert [shard for shard in range(30) if before[shard] != after[shard]] == sorted([one, other])


def test_what_is_placed_counts_within_a_node_s_share() -> None:
    dealt = deal("q", 40, dict.fromkeys("abcd", 5), [None] * 40, dict.fromkeys(range(5), "a"))
    assert set(sizes(dealt).values()) == {10}
