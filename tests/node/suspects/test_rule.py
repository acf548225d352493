"""The rule by which deaths are held against jobs, in simulated worlds: only poison is buried, and all of it."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.node.suspects.sim import Job, Rule, World

SEEDS = 40
DAY = 86_400.0


def world(seed: int, rule: Rule | None = None) -> World:
    """One to three trees; one to eight poisons, of which some come later; long and quick innocents."""
    luck = random.Random(seed)
    nodes, trees = luck.choice([1, 2, 4]), luck.choice([1, 2, 3])
    slowest = luck.choice([0.05, 1.0, 5.0, 20.0])
    jobs = [Job(f"quick-{n}", luck.uniform(0.001, 0.05), due=luck.uniform(0, 60)) for n in range(60)]
    jobs += [Job(f"long-{n}", luck.uniform(10, 60), due=luck.uniform(0, 30)) for n in range(luck.randint(0, 6))]
    for n in range(luck.randint(1, 8)):
        kills = luck.choice(["tree", "tree", "process", "node"])
        jobs.append(
            Job(f"poison-{n}", luck.uniform(0.001, slowest), kills, due=luck.choice([0.0, luck.uniform(0, 300)]))
        )
    return World(seed, trees, nodes, jobs, rule)


def wrong(world: World) -> list[Job]:
    """Innocents that were buried. (Poison never ends but in the morgue.)"""
    world.run(until=3 * DAY)
    return [job for job in world.jobs if job.end == "buried" and not job.kills]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_poison_is_buried_and_no_innocent(seed: int) -> None:
    here = world(seed)
    assert wrong(here) == []
    assert all(job.end == ("buried" if job.kills else "done") for job in here.jobs)
    assert max(job.deaths for job in here.jobs) <= 2 + here.rule.most_crowds


@pytest.mark.parametrize(
    ("rule", "seed"),
    [
        pytest.param(Rule(knows_alone=False), 10, id="whoever was alone once is judged by any death"),
        pytest.param(Rule(most_crowds=4), 2, id="four deaths beside others bury"),
        pytest.param(Rule(tried=99), 2, id="nobody is tried"),
        pytest.param(Rule(knows_apart=False), 2, id="one that is alone is judged by its node's death"),
    ],
)
def test_any_other_rule_buries_innocents(rule: Rule, seed: int) -> None:
    assert wrong(world(seed, rule))


def test_what_kills_its_node_from_apart_is_buried_within_three_hours() -> None:
    """Its node dies ever more rarely; if that counted for nothing, it would for ever."""
    for rule in (Rule(), Rule(counts_apart=False)):
        here = World(0, 1, 1, [Job("poison", 0.01, "node")], rule)
        with contextlib.nullcontext() if rule.counts_apart else pytest.raises(AssertionError, match="not dry"):
            here.run(until=3 * 3600)
            assert here.deaths == 1 + rule.most_crowds
