"""Death: a node dies with what it has in hand. All that is run again; only what kills again and again is buried."""

from __future__ import annotations

from random import Random

from lowkiq.errors import Fenced, Moved
from lowkiq.queue.shard import Shard
from lowkiq.shared_page import DeadNode, Running
from tests.pairs.capability import Capability
from tests.pairs.following import outbox_of
from tests.pairs.jobs import Hand


class Death(Capability):
    name = "death"
    steps = {"die": 3, "wake": 2, "isolate": 2}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.world.max_crashes = random.choice((1, 2, 3))
        #: Id → deaths of nodes that ran it; those that run alone; and what runs as one dies now.
        self.state = {"deaths": {}, "alone": {}, "dying": {}}

    def die(self, random: Random) -> None:
        """A node dies; others take its shards, and know what it ran, or not."""
        world = self.world
        hands = world.hands()
        nodes = sorted({lease.node for lease in world.leases.values()} | {hand.lease.node for hand in world.away})
        if not nodes:
            return
        node = random.choice(nodes)
        leases = [lease for lease in world.leases.values() if lease.node == node]
        world.nodes = [world.new_node() if one == node else one for one in world.nodes]
        is_known = random.random() < 0.6
        ran = [hand for hand in hands if hand.lease.node == node and (not is_known or random.random() < 0.7)]
        running = tuple(Running(hand.lease.shard.prefix, hand.number, len(hand.jobs), 0) for hand in ran)
        dead = [DeadNode(node, running if is_known else None)]
        self.state["dying"] = {id: hand.key for hand in ran for id in hand.jobs}
        world.tell(f"{node} dies: {running if is_known else 'nobody knows what ran'}")
        for lease in leases:
            world.acquire(lease.shard, random.choice(world.nodes), dead)
        for shard in {hand.lease.shard for hand in world.away if hand.lease.node == node}:
            self._restore_away(shard, dead)
        self.state["dying"] = {}

    def _restore_away(self, shard: Shard, dead: list[DeadNode]) -> None:
        """The owner of a shard takes back what a dead node ran of it."""
        world = self.world
        lease = world.leases.get(shard.prefix)
        if lease is None:
            world.acquire(shard, "", dead)
            return
        result = world.run(shard.restore_away(*lease.owner, world.max_crashes, dead))
        world.tell(f"{lease.node} takes back what ran of {shard.prefix}: {result}")
        world.restored(shard, {one.name for one in dead})

    def wake(self, random: Random) -> None:
        """One that was thought dead goes on: nobody hears of it."""
        ghosts = [ghost for ghost in self.world.ghosts if ghost.hands]
        if ghosts:
            ghost = random.choice(ghosts)
            hand = random.choice(list(ghost.hands.values()))
            self.world.tell(f"{ghost.node} wakes")
            result = self.world.settle_hand(hand, self.world.outcome_of(hand, None))
            # Once a failover has lost that another owner took the shard it has again what the book says that it has.
            is_lost = isinstance(result, Fenced | Moved) or self.world.has_failed_over
            assert is_lost, f"I1: {ghost.node} settles what it has lost: {result}"

    def isolate(self, random: Random) -> None:
        """A suspect runs alone."""
        hands = [hand for hand in self.world.hands() if any(job.is_suspect for job in hand.jobs.values())]
        if hands:
            hand = random.choice(hands)
            id = random.choice(sorted(hand.jobs))
            lease = hand.lease
            result = self.world.run(lease.shard.isolate(*lease.owner, hand.number, id, is_alone=True))
            self.world.tell(f"{lease.node} runs {id} alone: {result}")
            if result is True:
                self.state["alone"][hand.key[0]] = hand.key, id

    def work(self) -> bool:
        """Owners act on the letters that tell of burials, as their applications are to hear of these."""
        has_done = False
        for lease in list(self.world.leases.values()):
            if not self.world.rig.redis.exists(f"{lease.shard.prefix}outbox"):
                continue
            box = outbox_of(lease)
            self.world.run(box.turn())
            for letter in box.own:
                for record in (letter.following, b""):
                    has_done = not isinstance(self.world.run(box.become(letter, record)), Exception) or has_done
        return has_done

    def on_over(self, id: str, how: str) -> None:
        key = self.state["dying"].get(id)
        if key and how in {"restored", "buried"}:
            self.state["deaths"][id] = self.state["deaths"].get(id, 0) + 1
        if how == "buried":
            died = self.state["deaths"].get(id, 0)
            assert key, f"I7: {id} is buried, and did not run"
            assert self.state["alone"].get(key[0]) == (key, id), f"I7: {id} is buried, and others ran beside it"
            assert died >= self.world.max_crashes, f"I7: {id} is buried after {died} deaths"
        if how not in {"restored", "released", "limited"}:
            self.state["deaths"].pop(id, None)

    def on_started(self, hand: Hand, id: str) -> None:
        suspects = {job.is_suspect for job in hand.jobs.values()}
        assert len(suspects) == 1, "I7: suspects are claimed with others"
