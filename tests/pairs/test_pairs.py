"""
Every pair of capabilities in histories that a seed replays. `make pairs` plays more of them.

LOWKIQ_TEST_ROUNDS sets how many histories each pair has in the long test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.pairs.capabilities import ALL
from tests.pairs.history import shorten
from tests.pairs.known import known
from tests.pairs.rig import Rig
from tests.pairs.suite import pairs_of, play_pairs
from tests.support import running_redis

#: Histories that have found something once: a pair and its seeds.
FOUND = {("move", "reshard"): (2017, 2029, 2032), ("debounce", "reshard"): (26,)}
#: Histories of a pair in the long test.
MANY = int(os.environ.get("LOWKIQ_TEST_ROUNDS", "6"))


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with running_redis() as server, pytest.MonkeyPatch.context() as patches:
        rig = Rig(server.url, patches)
        yield rig
        rig.close()


def found(rig: Rig, name: str, seeds: range) -> list[str]:
    """What histories of a capability with those that come after it have found, but for known faults."""
    pairs = [pair for pair in pairs_of([name]) if pair[0] == name]
    failures = [failure for _, failure in play_pairs(pairs, seeds, rig) if failure]
    return [str(shorten(rig, failure)) for failure in failures if not known(failure.pair, failure.error)][:3]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(ALL)[:-1])
def test_what_holds_for_one_capability_holds_beside_each_other(rig, name):
    assert not found(rig, name, range(1))


def test_what_a_history_has_found_once_is_not_found_again(rig):
    seeds = {(pair, seed) for pair, kept in FOUND.items() for seed in kept}
    assert not [failure for pair, seed in sorted(seeds) for _, failure in play_pairs([pair], [seed], rig) if failure]


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", list(ALL)[:-1])
def test_many_histories_of_each_pair(rig, name):
    assert not found(rig, name, range(1, 1 + MANY))
