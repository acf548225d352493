"""Resharding: whatever happens meanwhile, and wherever a mover dies, nothing is lost and each id keeps its order."""

from __future__ import annotations

from random import Random

import pytest

from tests.queue.reshard_world import ReshardWorld

#: What happens, and how often.
HAPPENINGS = [*3 * ["push"], "push_as_before", *2 * ["claim"], "steal", *2 * ["move"], "kill_mover", "wake_ghost"]


def history(app, seed: int, counts: tuple[int, ...]) -> ReshardWorld:
    random = Random(seed)
    world = ReshardWorld(app, counts[0], random)
    for count in counts[1:]:
        for number in range(120):
            if number == 20:
                world.begin(count)
            getattr(world, random.choice(HAPPENINGS))()
        while world.move():
            pass
    world.work_off()
    return world


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (2, 3), (3, 2), (2, 4, 2), (1, 3, 1), (5, 12)])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_and_each_id_keeps_its_order(app, counts, seed):
    world = history(app, seed, counts)
    for id, payloads in world.pushed.items():
        performed, dead = world.performed.get(id, []), world.deaths.get(id, [])
        assert sorted([*performed, *dead]) == payloads, id
        assert performed == sorted(performed), id
