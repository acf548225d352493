"""Reshard: the queue gets another number of shards while all goes on; movers die, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from lowkiq.errors import BeingResharded, Moved, Refused, ShardsCountMismatch
from lowkiq.queue import resharding
from lowkiq.queue.keys import Layout
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import Held, Owned
from lowkiq.shared_page import DeadNode
from tests.pairs.capability import Capability
from tests.pairs.jobs import QUEUE
from tests.pairs.nodes import TTL
from tests.pairs.rig import NAMESPACE

#: Steps of a move, at most.
MOST = 1_000


class Reshard(Capability):
    name = "reshard"
    steps = {"begin_move": 2, "move": 14, "kill_mover": 1, "wake_mover": 1}  # noqa: RUF012

    heals = 0

    def begin(self, random: Random) -> None:
        self.going: Iterator[int] | None = None
        self.ghosts: list[Iterator[int]] = []
        self.movers = 0
        self.deaths = set[str]()

    def begin_move(self, random: Random) -> None:
        world = self.world
        if not world.layout.is_moving:
            world.layout = resharding.begin(world.caller, NAMESPACE, QUEUE, random.choice((1, 3, 4)))
            world.tell(f"reshard: {world.layout.text}")

    def move(self, random: Random) -> None:
        """One step of whoever moves."""
        world = self.world
        if not world.layout.is_moving:
            return
        if self.going is None and not self._take_up(random):
            return
        assert self.going is not None
        try:
            next(self.going)
            world.tell("the mover goes on")
        except ShardsCountMismatch as error:
            world.layout = resharding.give_way(world.caller, NAMESPACE, QUEUE, world.layout) or world.layout
            world.tell(f"the mover meets a reshard that was lost: {error!r}: {world.layout.text}")
            self.going = None
        except (StopIteration, Refused, Moved, BeingResharded) as error:
            world.tell(f"the mover ends: {error!r}")
            self.going = None

    def _take_up(self, random: Random) -> bool:
        world = self.world
        left = resharding.unfinished(world.caller, NAMESPACE, QUEUE, world.layout)
        if not left:
            resharding.end(world.caller, NAMESPACE, QUEUE, world.layout)
            world.layout = Layout.parse(world.caller.command("HGET", f"{NAMESPACE}:queues", QUEUE))
            world.held_by_movers.clear()
            world.tell(f"resharded: {world.layout.text}")
            return False
        route = Route.of(NAMESPACE, QUEUE, world.layout, left[0])
        lease = world.leases.get(route.old.prefix)
        dead = [DeadNode(f"mover-{number}", ()) for number in range(self.movers + 1)]
        dead += [DeadNode(name, ()) for name in sorted(self.deaths)]
        if lease:
            for hand in list(lease.hands.values()):
                world.settle_hand(hand, world.outcome_of(hand, random))
            dead.append(DeadNode(lease.node, ()))
        world.leave_again(route.old, self.deaths)
        self.movers += 1
        name = f"mover-{self.movers}"
        for is_marked in (False, True):
            result = world.run(route.acquire(name, TTL, world.max_crashes, dead, is_marked=is_marked))
            world.tell(f"{name} acquires {route.old.prefix}: {result}")
            if isinstance(result, Owned):
                world.held_by_movers.add(route.old.prefix)
                world.owned(route.old, name, result, [one.name for one in dead])
                del world.leases[route.old.prefix]  # a mover claims nothing
                self.going = resharding.steps(world.caller, route, name, result.epoch)
                return True
            if isinstance(result, Held):  # by who had lost it already when Redis went back, and has gone since
                self.deaths.add(result.holder)
        return False

    def kill_mover(self, random: Random) -> None:
        """Another takes its place; it may wake up, and send what it was about to."""
        if self.going is not None:
            self.ghosts.append(self.going)
            self.going = None

    def wake_mover(self, random: Random) -> None:
        if self.ghosts:
            ghost = random.choice(self.ghosts)
            try:
                next(ghost)
            except (Refused, StopIteration, Moved, ShardsCountMismatch):
                self.ghosts.remove(ghost)

    def heal(self) -> None:
        for _ in range(MOST):
            if not self.world.layout.is_moving:
                return
            self.move(Random(0))
        raise AssertionError("the move does not end")

    def left(self) -> list[str]:
        return ["closed"]
