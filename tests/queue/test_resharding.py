"""Resharding: whatever happens meanwhile, and wherever a mover dies, nothing is lost and each id keeps its order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lowkiq.queue import resharding
from lowkiq.queue.call import Caller
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Exhausted, Failure, Outcome
from lowkiq.shared_page import DeadNode
from tests.queue.reshard_world import QUEUE, Node, ReshardWorld
from tests.queue.shard_driver import ShardDriver

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


# ── all that a shard may hold, and a death at each call of its mover ────────────────────────────────────────────────


class Strike(Exception):
    """The mover dies."""


class StruckCaller(Caller):
    """Fails at one of its calls: before it is sent, or when it has taken effect and nobody hears of it."""

    def __init__(self, caller: Caller, *, is_late: bool) -> None:
        super().__init__(caller.client)
        self.left, self._is_late = 0, is_late
        plain = self.command

        def command(*words: Any) -> Any:
            return self._struck(lambda: plain(*words))

        self.command = command

    def run_all(self, calls, replicas=None):
        return self._struck(lambda: super(StruckCaller, self).run_all(calls, replicas))

    def read(self, commands, otherwise):
        return self._struck(lambda: super(StruckCaller, self).read(commands, otherwise))

    def _struck(self, send):
        self.left -= 1
        is_struck = self.left == 0
        if is_struck and not self._is_late:
            raise Strike
        result = send()
        if is_struck:
            raise Strike
        return result


def fill(world: ReshardWorld) -> None:
    """Puts all kinds of jobs into the queue."""
    worker = world.app.worker(queue_name=QUEUE, shards_count=world.layout.shards_count)(lambda _: None)
    ids = [f"id-{number}" for number in range(24)]
    rows: list[Any] = [{"id": id, "payload": id, "tags": ["eu", id]} for id in ids[:8]]
    rows += [{"id": id, "payload": n, "score": n} for id in ids[4:16] for n in range(3)]
    rows += [{"id": id, "payload": 1, "perform_in": 4e9 + number} for number, id in enumerate(ids[16:])]
    worker.actions.track(["id-0", "id-9", "never pushed"])
    worker.perform_async(rows)
    for shard in world.shards():
        world._acquire(shard)
        node = world.nodes[shard.prefix]
        claim = world.caller.run(shard.claim(node.name, node.epoch, 1, 8, 2, bytes))
        ids_of = [job.id for job in claim.jobs]
        world.caller.run_all([shard.checkpoint(node.name, node.epoch, 1, ids_of[0], b"half of it")] if ids_of else [])
        outcome = Outcome(
            failed=[Failure(id, 1, 3600.0, "boom") for id in ids_of[:2]],
            exhausted=[
                *(Exhausted(id, "dead") for id in ids_of[2:4]),
                *(Exhausted(id, "who knows", "block") for id in ids_of[4:5]),
            ],
            rest="release",
        )
        world.caller.run(shard.settle(node.name, node.epoch, 1, outcome))
        # Nodes have died while these ran.
        for heir in ("heir", "its heir"):
            world.caller.run(shard.claim(node.name, node.epoch, 2, 1, 2, bytes))
            owned = world.caller.run(shard.acquire(heir, 600, 9, [DeadNode(node.name)]))
            node = world.nodes[shard.prefix] = Node(shard, heir, owned.epoch)
    worker.actions.hold(["id-20", *ids[8:12], "never pushed"], reason="a customer called")
    for shard in world.shards():  # parks what is held
        node = world.nodes.pop(shard.prefix)
        world.caller.run(shard.claim(node.name, node.epoch, 3, 100, 2, bytes))
        world.caller.run(shard.release(node.name, node.epoch, 3, "lease"))


def held_by(world: ReshardWorld, layout: Layout) -> dict[str, Any]:
    """All that the shards of a layout hold together."""
    found: dict[str, Any] = {}
    for index in range(layout.shards_count):
        look = ShardDriver(world.app, QUEUE, index, layout).look()  # type: ignore[arg-type]
        rows = {
            "queued": look.queued(),
            "morgue": look.morgue(),
            "errors": look.errors(),
            **{name: look.hash(name) for name in ("crashes", "crowds", "checkpoints", "holds", "tracks", "behind")},
            **{name: look.zset(name) for name in ("held", "blocked")},
            "notes": {name: row for name, (_, row) in look.keys.items() if name.startswith("tracked")},
        }
        for name, some in rows.items():
            assert not found.setdefault(name, {}).keys() & some.keys(), "an id is in one shard"
            found[name] |= some
        for tag, count in look.zset("tag_counts").items():
            counts = found.setdefault("tag_counts", {})
            counts[tag] = counts.get(tag, 0) + count
    return found


def counters(world: ReshardWorld) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for shard in world.shards():
        for name in (b"pushed", b"processed", b"failed", b"merged"):
            found[name] = found.get(name, 0) + int(world.caller.command("HGET", shard.prefix + "meta", name) or 0)
    return found


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 2)])
def test_wherever_its_mover_dies_all_comes_over_as_it_was(app, monkeypatch, counts, is_late):
    monkeypatch.setattr(resharding, "ROWS", 5)
    monkeypatch.setattr(resharding.Route.pack, "__defaults__", (5,))
    world = ReshardWorld(app, counts[0], Random(1))
    old = world.layout
    fill(world)
    before, counted = held_by(world, old), counters(world)
    assert [name for name, rows in before.items() if not rows] == []
    world.begin(counts[1])
    plain, at, strikes = world.caller, 0, 0
    struck = world.caller = StruckCaller(plain, is_late=is_late)
    while world.layout.is_moving:
        at += 1
        world.caller, struck.left = struck, at % 13 + 1
        try:
            while world.move():
                pass
        except Strike:
            strikes += 1
            world.steps = None
        finally:
            world.caller = plain
            world.layout = world.known()
    assert strikes > 20
    assert held_by(world, world.layout) == before
    assert counters(world) == counted
    for index in range(old.shards_count):
        left = ShardDriver(app, QUEUE, index, old).look().keys
        assert set(left) == {"meta"}, "it sends on, and no more"
