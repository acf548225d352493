"""Which shards change places when one node is much busier than others."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq.node.ownership.deal import deal
from lowkiq.node.ownership.elastic import LEAST_BUSY, TOLERANCE, Place, balance

NODES = ("a", "b", "c", "d")
WEIGHTS = dict.fromkeys(NODES, 5)

Loads = dict[str, dict[Place, float]]


def spread(loads: Loads) -> float:
    """How busy the busiest is beside the mean."""
    totals = [sum(shards.values()) for shards in loads.values()]
    return max(totals) * len(totals) / sum(totals)


def apply(loads: Loads, moves: dict[Place, str]) -> Loads:
    rows = [(place, moves.get(place, node), load) for node, shards in loads.items() for place, load in shards.items()]
    return {node: {place: load for place, to, load in rows if to == node} for node in loads}


def skewed(hot_on: str) -> Loads:
    """A hundred shards on four nodes, five of them ten times the others, all on one node."""
    dealt = deal("q", 100, WEIGHTS, [None] * 100)
    hot = [shard for shard in range(100) if dealt[shard] == hot_on][:5]
    return {
        node: {("q", shard): 0.5 if shard in hot else 0.05 for shard in range(100) if dealt[shard] == node}
        for node in NODES
    }


def test_a_skew_settles_within_a_minute_and_no_shard_moves_twice() -> None:
    loads, moved = skewed("b"), set[Place]()
    assert spread(loads) > 1.8
    for _ in range(12):  # a look each five seconds
        moves = balance(loads, WEIGHTS, moved)
        assert not moved & moves.keys()
        assert len(moves) <= 5  # of a hundred
        moved |= moves.keys()
        loads = apply(loads, moves)
    assert spread(loads) <= TOLERANCE
    assert balance(loads, WEIGHTS, ()) == {}


@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_each_node_keeps_its_number_of_shards_and_nothing_becomes_worse(luck: random.Random, count: int) -> None:
    loads: Loads = {node: {} for node in NODES}
    for shard in range(count):
        loads[luck.choice(NODES)]["q", shard] = luck.choice([0.0, 0.1, 0.1, 2.0])
    after = apply(loads, balance(loads, WEIGHTS, ()))
    assert {node: len(shards) for node, shards in after.items()} == {node: len(some) for node, some in loads.items()}
    if sum(sum(shards.values()) for shards in loads.values()):
        assert spread(after) <= spread(loads) + 1e-9


def test_shards_change_places_only_with_others_of_their_queue() -> None:
    loads = {"a": {("hot", 0): 3.0, ("hot", 1): 3.0}, "b": {("other", 0): 0.0}}
    assert balance(loads, {"a": 5, "b": 5}, ()) == {}


@pytest.mark.parametrize("load", [LEAST_BUSY * 0.9, 0.0])
def test_nodes_that_are_mostly_idle_are_left_alone(load: float) -> None:
    loads = {"a": {("q", 0): load * 5, ("q", 1): load * 5}, "b": {("q", 2): 0.0, ("q", 3): 0.0}}
    assert balance(loads, {"a": 5, "b": 5}, ()) == {}


def test_so_are_those_that_are_busier_by_little() -> None:
    loads = {"a": {("q", 0): 1.1, ("q", 1): 1.1}, "b": {("q", 2): 0.9, ("q", 3): 0.9}}
    assert balance(loads, {"a": 5, "b": 5}, ()) == {}


def test_a_hot_shard_goes_and_the_coldest_comes() -> None:
    loads = {"a": {("q", 0): 5.0, ("q", 1): 5.0}, "b": {("q", 2): 3.0, ("q", 3): 0.0}}
    assert balance(loads, {"a": 5, "b": 5}, ()) == {("q", 0): "b", ("q", 3): "a"}


def test_what_has_just_moved_stays_and_two_hot_ones_go_to_two_nodes() -> None:
    loads = skewed("b")
    first = balance(loads, WEIGHTS, ())
    assert len(first) == 4 and len({*first.values()} - {"b"}) == 2
    assert not first.keys() & balance(loads, WEIGHTS, first).keys()


def test_one_shard_that_keeps_a_node_busy_by_itself_is_not_sent_around() -> None:
    loads = {"a": {("q", 0): 5.0, ("q", 1): 0.0}, "b": {("q", 2): 0.0, ("q", 3): 0.0}}
    assert balance(loads, {"a": 5, "b": 5}, ()) == {}


def test_a_node_of_more_threads_may_do_more() -> None:
    loads = {"a": {("q", 0): 2.0, ("q", 1): 2.0}, "b": {("q", 2): 1.0, ("q", 3): 1.0}}
    assert balance(loads, {"a": 10, "b": 5}, ()) == {}
    assert balance(loads, {"a": 5, "b": 10}, ())
    loads = {"a": {("q", at): 1.0 for at in range(4)}, "b": {("q", at): 1.3 for at in range(4, 7)}}
    assert balance(loads, {"a": 10, "b": 5}, ()), "b has less to do, and fewer threads"
