"""
Random histories of one shard beside a model of it in plain Python: after every step both hold the same, and what has
changed breaks none of the design's invariants.

LOWKIQ_TEST_ROUNDS sets how many histories there are.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests import mutants
from tests.queue.model.history import HAPPENINGS, JOURNEYS, History
from tests.queue.model.virtual_clock import VirtualClock
from tests.queue.shard_driver import ShardDriver

HISTORIES = int(os.environ.get("LOWKIQ_TEST_ROUNDS", "100"))
STEPS = 80
#: Histories within which a mutant must have been found out.
ENOUGH = 3_000
#: Mutants that few histories meet: they take as long as all others together.
RARE = {
    "compact_claimed_twice",
    "compact_of_any_layout",
    "compact_and_still_open",
    "old_jobs_by_their_last_bits",
    "acked_of_any_claim",
    "score_moves_with_the_due_time",
    "alone_in_any_claim",
    "one_death_more",
    "compact_taken_with_the_rest",
    "release_tells_nobody",
    "isolates_any_claim",
    "release_any_claim",
    "parked_is_due",
    "claimed_of_an_older_layout",
    "finishes_without_fence",
    "finishes_of_any_epoch",
    "finishes_another_claim",
    "finishes_beside",
    "finished_and_not_forgotten",
    "finished_and_still_suspected",
    "finished_and_still_kept",
    "acked_and_still_kept",
    "acked_and_still_cancelled",
    "cancelled_and_still_parked",
}


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
        happening=st.sampled_from(HAPPENINGS),
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
    return VirtualClock(app.redis(), f"{app.settings.namespace}:clock", monkeypatch)


@pytest.mark.timeout(120 + HISTORIES)
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


def random_history(shard: ShardDriver, clock: VirtualClock, seed: int) -> None:
    """The same on every machine and every day."""
    random = Random(seed)
    clean(shard, clock)
    history = History(shard, clock, max_crashes=random.randint(1, 3))
    for _ in range(STEPS):
        history.step(random.choice(HAPPENINGS), random.choice(JOURNEYS), random)
    history.work_off()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in RARE else []) for name in mutants.MUTANTS]
)
def test_a_mutant_is_found_out_by_what_it_breaks(shard, clock, monkeypatch, name):
    mutants.install(name, monkeypatch)
    found = []
    for seed in range(ENOUGH):
        try:
            random_history(shard, clock, seed)
        except AssertionError as error:
            found.append(str(error))
            if found[-1].startswith(mutants.MUTANTS[name].breaks):
                return
    pytest.fail(f"not found out in {ENOUGH} histories, but: {found[:3]}")
