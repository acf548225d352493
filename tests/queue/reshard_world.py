"""ReshardWorld: a queue that is being resharded, as producers, nodes and movers see it, which may die at any call."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from lowkiq import Lowkiq
from lowkiq.errors import BeingResharded, Fenced, Moved, Paused, Refused
from lowkiq.job import EncodedJob, shard_of
from lowkiq.node.leases.homes import Homes
from lowkiq.queue import resharding
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import Exhausted, Failure, Held, Outcome, Owned, Released, Shard
from lowkiq.shared_page import DeadNode
from tests.queue.stamps import once

QUEUE = "q"
IDS = [f"id-{number}" for number in range(12)]
#: Of some ids that are pushed so (fewer.lua) only the last payload is kept.
KEPT = {"id-10", "id-11"}
FEWER = {
    "id-8": "0.000000:0.010000::",
    "id-9": "::0.001000:",
    "id-10": ":::last",
    "id-11": "0.001000:0.002000:0.001000:last",
}
TENANTS = {id: f"tenant-{number % 3}" for number, id in enumerate(IDS[3:])}


class Node:
    """A node's lease of one shard, and its claim."""

    def __init__(self, shard: Shard, name: str, epoch: str) -> None:
        self.shard, self.name, self.epoch, self.number = shard, name, epoch, 0
        self.claimed: dict[str, list[bytes]] = {}
        #: Where the claim is, once it has outlived the lease; and what is to be told of it.
        self.homes = Homes(shard, 0)
        self.outcome: Any = None


class ReshardWorld:
    """One queue. What was performed is kept as it was, id by id."""

    def __init__(self, app: Lowkiq, old: int, random: Random) -> None:
        self.app, self.caller, self.random = app, app.caller, random
        self.namespace = app.settings.namespace
        opened(self.caller, self.namespace, {QUEUE: old})
        self.layout = self.first = Layout(2, old)
        self.pushed: dict[str, list[bytes]] = {}
        self.performed: dict[str, list[bytes]] = {}
        self.deaths: dict[str, list[bytes]] = {}
        #: The tokens with which ids were claimed.
        self.epochs: dict[str, list[int]] = {}
        self.nodes: dict[str, Node] = {}
        self.steps: Iterator[int] | None = None
        #: Those whose claims have outlived their leases.
        self.away: list[Node] = []
        #: Movers that were thought dead, and wake up.
        self.ghosts: list[Iterator[int]] = []
        self.route: Route | None = None
        self.movers = 0
        self.number = 0

    # ── producers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def push(self) -> None:
        self._push(self.random.choice(IDS), self.layout)

    def push_as_before(self) -> None:
        """As a producer that has slept since the beginning."""
        self._push(self.random.choice(IDS), self.first)

    def _push(self, id: str, layout: Layout) -> None:
        """Pushes the id's next payload, as a producer that knows this layout."""
        self.number += 1
        payload = b"%06d" % self.number
        for one in [layout.old, layout.own] if layout.is_moving else [layout]:
            shard = self.shard(id, one)
            job = EncodedJob(id.encode(), payload, "", "", "", TENANTS.get(id, ""), FEWER.get(id, ""))
            (result,) = self.caller.run_all([push_call(shard, [job], once())])
            if not isinstance(result, Moved):
                assert not isinstance(result, Exception), result
                break
        else:
            assert self.known() != layout
            self.layout = self.known()
            self.number -= 1
            return self._push(id, self.layout)
        self.pushed.setdefault(id, []).append(payload)
        return None

    def shard(self, id: str, layout: Layout) -> Shard:
        return Shard(self.namespace, QUEUE, shard_of(id.encode(), layout.shards_count), layout)

    def known(self) -> Layout:
        return Layout.parse(self.caller.command("HGET", f"{self.namespace}:queues", QUEUE))

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def shards(self) -> list[Shard]:
        layouts = [self.layout.old, self.layout.own] if self.layout.is_moving else [self.layout]
        return [Shard(self.namespace, QUEUE, index, one) for one in layouts for index in range(one.shards_count)]

    def steal(self) -> None:
        """A node is found dead, and another one takes its shard."""
        self._acquire(self.random.choice(self.shards()), steals=True)

    def _acquire(self, shard: Shard, *, steals: bool = False) -> None:
        dead = [DeadNode(self.nodes.pop(shard.prefix).name, ())] if steals and shard.prefix in self.nodes else []
        self.movers += 1
        name = f"node-{self.movers}"
        (result,) = self.caller.run_all([shard.acquire(name, 600, 9, dead)])
        if isinstance(result, Held) and result.holder.startswith("node-") and shard.prefix not in self.nodes:
            # Somebody who has lost it, as its epoch was raised, and has gone since.
            (result,) = self.caller.run_all([shard.acquire(name, 600, 9, [DeadNode(result.holder, ())])])
        if isinstance(result, Owned):
            self.nodes[shard.prefix] = Node(shard, name, result.epoch)
        else:
            assert not isinstance(result, Exception) or isinstance(result, Moved), result

    def claim(self) -> None:
        """Claims, or settles what was claimed."""
        self._claim(self.random.choice(self.shards()))

    def _claim(self, shard: Shard) -> None:
        node = self.nodes.get(shard.prefix)
        if node is None:
            return self._acquire(shard)
        if node.claimed:
            return self._settle(node)
        node.number += 1
        call = shard.claim(node.name, node.epoch, node.number, self.random.randint(1, 4), 3, bytes)
        (result,) = self.caller.run_all([call])
        if isinstance(result, Fenced | Moved):
            self.nodes.pop(shard.prefix)
        elif not isinstance(result, Paused):
            assert not isinstance(result, Exception), result
            node.claimed = {job.id: list(job.payloads) for job in result.jobs}
            running = {id for other in self.away for id in other.claimed}
            assert not running & node.claimed.keys(), f"I4: {running & node.claimed.keys()} run elsewhere"
            for id in node.claimed:
                self.epochs.setdefault(id, []).append(int(node.epoch))
        return None

    def leave(self) -> None:
        """A node leaves a shard; what it has claimed runs on."""
        self._leave(self.nodes.pop(self.random.choice(self.shards()).prefix, None))

    def _leave(self, node: Node | None) -> None:
        if node is None:
            return
        away = [node.number] if node.claimed and self.random.random() < 0.7 else []
        call = node.shard.release(node.name, node.epoch, node.number, "lease", 600, away)
        (result,) = self.caller.run_all([call])
        if isinstance(result, Released) and away:
            node.homes = Homes(node.shard, node.number)
            self.away.append(node)

    def settle_away(self) -> None:
        if self.away:
            self._settle_away(self.random.choice(self.away))

    def _settle_away(self, node: Node) -> None:
        """As a node does: where its shard was moved it follows, and what is on its way it tells again."""
        node.outcome = node.outcome or self._outcome(node)
        for home in node.homes.all:
            told = node.outcome.of(home.ids)
            (result,) = self.caller.run_all([home.shard.settle(node.name, node.epoch, home.number, told)])
            if isinstance(result, Moved):
                node.homes.follow(home, str(result), node.claimed)
            elif not isinstance(result, BeingResharded):
                assert not isinstance(result, Exception), result
                self._note_settled(node, told)
                node.homes.lose(home)
        if not node.homes.all:
            assert not node.claimed, f"{node.claimed.keys()} are nowhere"
            self.away.remove(node)

    def _settle(self, node: Node) -> None:
        outcome = self._outcome(node)
        (result,) = self.caller.run_all([node.shard.settle(node.name, node.epoch, node.number, outcome)])
        if isinstance(result, Fenced | Moved):
            self.nodes.pop(node.shard.prefix, None)
            return
        assert not isinstance(result, Exception), result
        self._note_settled(node, outcome)

    def _outcome(self, node: Node) -> Outcome:
        acked: list[str] = []
        failed: list[Failure] = []
        exhausted: list[Exhausted] = []
        for id in node.claimed:
            match self.random.choice(["ack", "ack", "ack", "fail", "bury"]):
                case "ack":
                    acked.append(id)
                case "fail":
                    failed.append(Failure(id, 0, self.random.choice([0.0, 3600.0]), "boom"))
                case _:
                    exhausted.append(Exhausted(id, "dead"))
        return Outcome(acked=acked, failed=failed, exhausted=exhausted)

    def _note_settled(self, node: Node, outcome: Outcome) -> None:
        for id in outcome.acked:
            self.performed.setdefault(id, []).extend(node.claimed.pop(id))
        for row in outcome.exhausted:
            self.deaths.setdefault(row.id, []).append(node.claimed.pop(row.id)[0])
        for failure in outcome.failed:
            node.claimed.pop(failure.id)

    # ── the move ────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, count: int) -> None:
        self.layout = resharding.begin(self.caller, self.namespace, QUEUE, count)

    def move(self) -> bool:
        """One step of the mover; False once all has moved."""
        if not self.layout.is_moving:
            return False
        if self.steps is None and not self._take_up():
            return self.layout.is_moving
        assert self.steps is not None
        try:
            next(self.steps)
        except StopIteration:
            self.steps = None
        except Refused:
            self.steps = None
        return True

    def _take_up(self) -> bool:
        left = resharding.unfinished(self.caller, self.namespace, QUEUE, self.layout)
        if not left:
            assert resharding.end(self.caller, self.namespace, QUEUE, self.layout)
            self.layout = self.known()
            return False
        self.route = route = Route.of(self.namespace, QUEUE, self.layout, left[0])
        self._leave(self.nodes.pop(route.old.prefix, None))
        self.movers += 1
        name = f"mover-{self.movers}"
        dead = [DeadNode(f"mover-{number}", ()) for number in range(self.movers)]
        for is_marked in (False, True):
            call = route.acquire(name, 600, 9, dead, is_marked=is_marked)
            (result,) = self.caller.run_all([call])
            if isinstance(result, Held):  # its owner has lost it as all had come, and has not heard of that yet
                dead.append(DeadNode(result.holder, ()))
                (result,) = self.caller.run_all([route.acquire(name, 600, 9, dead, is_marked=is_marked)])
            if isinstance(result, Owned):
                self.steps = resharding.steps(self.caller, route, name, result.epoch)
                return True
            assert isinstance(result, Moved), result
        return False

    def end_move(self) -> None:
        for _ in range(1_000):
            if not self.move():
                return
        raise AssertionError("the move does not end")

    def kill_mover(self) -> None:
        """Another takes its place; it may wake up, and send what it was about to."""
        if self.steps is not None:
            self.ghosts.append(self.steps)
        self.steps = None

    def wake_ghost(self) -> None:
        if self.ghosts:
            ghost = self.random.choice(self.ghosts)
            try:
                next(ghost)
            except (Refused, StopIteration):
                self.ghosts.remove(ghost)

    def work_off(self) -> None:
        """Ends the move, and runs all that is left."""
        self.end_move()
        for _ in range(10_000):
            for shard in self.shards():
                prefix = shard.prefix
                now = int(self.caller.command("TIME")[0])
                later = self.caller.command("ZRANGEBYSCORE", prefix + "due", now + 2, 2 * now, "LIMIT", 0, 100)
                if later:
                    self.caller.command("ZADD", prefix + "due", *[word for id in later for word in (now - 1, id)])
                self._claim(shard)
            for node in tuple(self.away):
                self._settle_away(node)
            left = [self.caller.command("EXISTS", f"{one.prefix}due", f"{one.prefix}claim") for one in self.shards()]
            if not any(left) and not self.away and not any(node.claimed for node in self.nodes.values()):
                return
        raise AssertionError("it does not end")
