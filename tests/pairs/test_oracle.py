"""
What judges the pairs is sound: Lowkiq with one safeguard taken out (tests/mutants.py) is found out by some pair.

seeds.json has by mutant the pair and the seed that find it. What changes the steps of a history may make these stale:
then others of the pair are tried. `LOWKIQ_TEST_SEEDS=note pytest tests/pairs/test_oracle.py` notes what it finds; one
process only, without -n.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import mutants
from tests.pairs.capabilities import ALL
from tests.pairs.history import play
from tests.pairs.known import known
from tests.pairs.rig import Rig
from tests.support import RedisServer, running_redis

SEEDS = Path(__file__).parent / "seeds.json"
FOUND: dict[str, tuple[list[str], int]] = json.loads(SEEDS.read_text())
#: Histories of a pair within which a mutant must have been found out whose seed is stale.
ENOUGH = 300


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


def first_of_each() -> set[str]:
    """For each capability a mutant or two: the others are long tests."""
    chosen: dict[str, str] = {}
    for name, (pair, _) in FOUND.items():
        for capability in pair:
            chosen.setdefault(capability, name)
    return set(chosen.values())


FIRST = first_of_each()
THERE_ARE = [name for name in FOUND if name in mutants.MUTANTS | mutants.OF_PLACES]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FIRST else [pytest.mark.long]) for name in THERE_ARE]
)
def test_a_mutant_is_found_out(server, name):
    pair, seed = tuple(FOUND[name][0]), FOUND[name][1]
    with pytest.MonkeyPatch.context() as patches:
        rig = Rig(server.url, patches, name)
        try:
            for one in (seed, *range(ENOUGH)):
                failure = play(rig, pair, one)
                if failure and not known(pair, failure.error):
                    return note(name, pair, one)
        finally:
            rig.close()
    pytest.fail(f"not found out in {ENOUGH} histories of {' × '.join(pair)}")


def test_every_capability_finds_some_mutant():
    used = {capability for pair, _ in FOUND.values() for capability in pair}
    assert used == set(ALL), f"nothing is found out by {set(ALL) - used}"


def note(name: str, pair: tuple[str, ...], seed: int) -> None:
    """Keeps what was found, for who asks for that; seeds of mutants that are no more go."""
    if os.environ.get("LOWKIQ_TEST_SEEDS") == "note":
        seeds: dict[str, Any] = json.loads(SEEDS.read_text()) | {name: [pair, seed]}
        write(seeds)


def write(seeds: dict[str, Any]) -> None:
    names = sorted((mutants.MUTANTS | mutants.OF_PLACES).keys() & seeds.keys())
    SEEDS.write_text("{\n" + ",\n".join(f' "{name}": {json.dumps(seeds[name])}' for name in names) + "\n}\n")
