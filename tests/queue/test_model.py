"""
Random histories of one shard beside a model of it in plain Python: after every step both hold the same, and what has
changed breaks none of the design's invariants.

LOWKIQ_TEST_ROUNDS sets how many histories there are.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lowkiq.testing.model.shard_state import MOST_CONTEXTS
from tests import mutants
from tests.queue.model.history import (
    EVERYTHING,
    HAPPENINGS,
    JOURNEYS,
    WITH_AWAY,
    WITH_DECISIONS,
    WITH_FAILOVERS,
    WITH_FEWER,
    WITH_HOLDS,
    WITH_LANES,
    WITH_PAUSES,
    WITH_REPEATS,
    WITH_UNDO,
    History,
)
from tests.queue.model.virtual_clock import VirtualClock
from tests.queue.shard_driver import ShardDriver

HISTORIES = int(os.environ.get("LOWKIQ_TEST_ROUNDS", "40"))
STEPS = 80
#: Histories within which a mutant must have been found out.
ENOUGH = 3_000
#: A history that finds a mutant out, which is tried first: to find one anew takes minutes for some. Those without are
#: long tests. What changes the model or a script may make these stale, and the search slow again:
#: `LOWKIQ_TEST_SEEDS=note pytest tests/queue/test_model.py` notes those it finds. One process only, without -n.
SEEDS = Path(__file__).parent / "model/seeds.json"
KNOWN = json.loads(SEEDS.read_text())
#: Mutants whose seeds are stale since claims may be away, and a death is held against who ran at two; or that only a
#: fault of the oracle's had found out. Each is searched for anew, for minutes, until it is noted where it was found.
SOUGHT = frozenset(json.loads((SEEDS.parent / "sought.json").read_text()))


class ShardMachine(RuleBasedStateMachine):
    """One rule for all that can happen: with a rule each, Hypothesis would leave half of them out of every history."""

    def __init__(self, shard: ShardDriver, clock: VirtualClock) -> None:
        super().__init__()
        self.shard, self.clock = shard, clock
        self.is_sound = True

    @initialize(max_crashes=st.integers(1, 3))
    def begin(self, max_crashes):
        clean(self.shard, self.clock)
        self.history = History(self.shard, self.clock, max_crashes)

    @rule(
        happening=st.sampled_from(EVERYTHING),
        journey=st.sampled_from(JOURNEYS),
        random=st.integers(0, 1 << 32).map(Random),
    )
    def step(self, happening, journey, random):
        self.is_sound = False
        self.history.step(happening, journey, random)
        self.is_sound = True

    def teardown(self):
        if self.is_sound:
            self.history.work_off()


def clean(shard: ShardDriver, clock: VirtualClock) -> None:
    if names := [name for name in shard.dump() if name != clock.key]:
        shard.redis.unlink(*names)


@pytest.fixture
def clock(app, monkeypatch):
    # A batch of two is one of many, or none would be.
    mutants.replace("payloads.lua", "local BULK = 24", "local BULK = 4", monkeypatch)
    mutants.replace("tags.lua", "local MOST_CONTEXTS = 64", f"local MOST_CONTEXTS = {MOST_CONTEXTS}", monkeypatch)
    return VirtualClock(app.redis(), monkeypatch)


@pytest.mark.timeout(1_800)
def test_a_shard_does_what_its_model_does_and_keeps_the_invariants(shard, clock):
    run_state_machine_as_test(
        lambda: ShardMachine(shard, clock),
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=STEPS,
            deadline=None,
            report_multiple_bugs=False,
            # Without shrinking, which takes minutes: each try is a whole history on Redis.
            phases=(Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )


def random_history(shard: ShardDriver, clock: VirtualClock, seed: int, happenings: Sequence[str] = HAPPENINGS) -> None:
    """The same on every machine and every day."""
    random = Random(seed)
    clean(shard, clock)
    history = History(shard, clock, max_crashes=random.randint(1, 3))
    for _ in range(STEPS):
        history.step(random.choice(happenings), random.choice(JOURNEYS), random)
    history.work_off()


@pytest.mark.parametrize("seed", range(8))
def test_epochs_rise_though_redis_fails_over_and_its_clock_is_set_back(shard, clock, seed):
    random_history(shard, clock, seed, WITH_FAILOVERS)


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """How long a mutant takes to be found out: seconds, by its seed, or minutes."""
    if name in SOUGHT:
        return [pytest.mark.rare]
    return [] if name in KNOWN else [pytest.mark.long]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=marks_of(name)) for name in mutants.MUTANTS],
)
def test_a_mutant_is_found_out_by_what_it_breaks(shard, clock, monkeypatch, name):
    mutants.install(name, monkeypatch)
    happenings = happenings_for(name)
    known = KNOWN.get(name)
    found = []
    for seed in [*([] if known is None else [known]), *range(ENOUGH)]:
        try:
            random_history(shard, clock, seed, happenings)
        except AssertionError as error:
            found.append(str(error))
            if found[-1].startswith(mutants.MUTANTS[name].breaks):
                return note(name, seed)
    pytest.fail(f"not found out in {ENOUGH} histories, but: {found[:3]}")


def happenings_for(name: str) -> Sequence[str]:
    """The histories in which a mutant is likely to be found out."""
    if mutants.MUTANTS[name].is_of_decisions:
        is_of_all = mutants.MUTANTS[name].file == "put_back.lua" or name.startswith(
            ("held", "lane", "limited_and_throttled")
        )
        return EVERYTHING if is_of_all else WITH_DECISIONS
    if mutants.MUTANTS[name].file in {"fewer.lua", "rules.lua"} or name.startswith("fewer"):
        return WITH_FEWER
    happening_by = {"paused": WITH_PAUSES, "held": WITH_HOLDS, "lane": WITH_LANES, "failover": WITH_FAILOVERS}
    happening_by |= {"away_and_rests": EVERYTHING, "away": WITH_AWAY}
    happening_by |= dict.fromkeys(("apart_again", "apart_too"), WITH_REPEATS)
    for begin, happenings in happening_by.items():
        if name.startswith(begin):
            return happenings
    return WITH_UNDO if mutants.MUTANTS[name].file in {"kept.lua", "put_away.lua", "put_back.lua"} else HAPPENINGS


def note(name: str, seed: int) -> None:
    """Keeps what was found, for who asks for that; seeds of mutants that are no more go."""
    if os.environ.get("LOWKIQ_TEST_SEEDS") == "note":
        with SEEDS.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # several processes may be at it
            seeds = json.load(file) | {name: seed}
            kept = {name: seeds[name] for name in sorted(mutants.MUTANTS.keys() & seeds.keys())}
            file.seek(0)
            file.truncate()
            file.write(json.dumps(kept, indent=1) + "\n")
