"""FollowingWorld: jobs from which others follow, and that wait for others, with owners who die at any call."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from lowkiq import Lowkiq, clock
from lowkiq.after import word_of
from lowkiq.errors import BeingResharded, Fenced, Moved, OtherLayout, Paused, Refused
from lowkiq.job import EncodedJob, shard_of
from lowkiq.queue import keys, resharding
from lowkiq.queue.call import Call
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.letters import Homes, Outbox, _deliver, ask_again, push_letter, relay
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import Exhausted, Failure, Outcome, Owned, Shard
from lowkiq.shared_page import DeadNode
from tests.queue.stamps import once

#: What is pushed to the first follows to the second, and on to the third, under the same id.
PIPELINE = ("a", "b", "c")
WAITING = "w"
#: Seconds within which everything that can has run.
PATIENCE = 60.0
IDS = [f"id-{number}" for number in range(5)]


class Held:
    """A claim of some shard."""

    def __init__(self, node: str, epoch: str, number: int, jobs: dict[str, list[bytes]]) -> None:
        self.node, self.epoch, self.number, self.jobs = node, epoch, number, jobs


class FollowingWorld:
    def __init__(self, app: Lowkiq, random: Random) -> None:
        self.app, self.caller, self.random = app, app.caller, random
        self.namespace = app.settings.namespace
        self.layouts = {queue: Layout(keys.LAYOUT_VERSION, 2) for queue in (*PIPELINE, WAITING)}
        opened(self.caller, self.namespace, dict.fromkeys(self.layouts, 2))
        self.number = 0
        self._shards: dict[tuple[str, Layout], list[Shard]] = {}
        self.owners: dict[Shard, tuple[str, str]] = {}
        self.claims: dict[Shard, Held] = {}
        self.numbers: dict[Shard, int] = {}
        #: Queue and id → what was to be run, in order, and what was.
        self.expected: dict[tuple[str, str], list[bytes]] = {}
        self.performed: dict[tuple[str, str], list[bytes]] = {}
        #: Payloads that are in the morgue, or were deleted.
        self.gone: set[bytes] = set()
        #: Of one that waits: those of which there was always something since.
        self.waits: dict[str, set[tuple[str, str]]] = {}
        self.boxes: list[Outbox] = []
        #: The queue that is being given another number of shards.
        self.moving = ""
        self.homes = Homes(self.caller, self.namespace)

    # ── where things are ────────────────────────────────────────────────────────────────────────────────────────────

    def shards(self, queue: str) -> list[Shard]:
        layout = self.layouts[queue]
        if (queue, layout) not in self._shards:
            made = [Shard(self.namespace, queue, index, layout) for index in range(layout.shards_count)]
            self._shards[queue, layout] = made
        return self._shards[queue, layout]

    def shard(self, queue: str, id: str) -> Shard:
        return self.shards(queue)[shard_of(id.encode(), self.layouts[queue].shards_count)]

    def first(self, queue: str, id: str) -> Shard:
        """The shard that an id had at first."""
        return Shard(self.namespace, queue, shard_of(id.encode(), 2), Layout(keys.LAYOUT_VERSION, 2))

    def all_shards(self) -> list[Shard]:
        return [shard for queue in self.layouts for shard in self.shards(queue)]

    def some(self) -> Shard:
        return self.random.choice(self.all_shards())

    def is_here(self, queue: str, id: str) -> bool:
        """Whether something of an id is queued, runs, or is dead; read key by key."""
        prefix = self.shard(queue, id).prefix
        redis = self.app.redis()
        lists = [prefix + "claim", *(f"{prefix}aside:{number.decode()}" for number in redis.hkeys(prefix + "asides"))]
        claimed = any(id.encode() in redis.lrange(key, 0, -1)[::2] for key in lists)
        return claimed or bool(redis.hexists(prefix + "payloads", id) or redis.hexists(prefix + "morgue:payloads", id))

    def look(self) -> None:
        """Notes of what those that wait wait no more."""
        for others in self.waits.values():
            others -= {one for one in others if one[0] != self.moving and not self.is_here(*one)}

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────────

    def push(self, id: str | None = None) -> None:
        if self.moving == "a":
            return  # a producer would push to the old shards first, as other tests have it
        self.number += 1
        id, payload = id or self.random.choice(IDS), b"%06d" % self.number
        self._run(push_call(self.shard("a", id), [EncodedJob(id.encode(), payload)], once()))
        self.expected.setdefault(("a", id), []).append(payload)

    def push_waiting(self, *wanted: tuple[str, str]) -> None:
        if self.moving == WAITING:
            return
        self.number += 1
        id, payload = f"waits-{self.random.randint(1, 4)}", b"%06d" % self.number
        if wanted:
            id = "waits-1"
        others = set(wanted) or {
            (self.random.choice(PIPELINE), self.random.choice(IDS)) for _ in range(self.random.randint(1, 3))
        }
        names = [f"{queue} 2 {other}" for queue, other in others]
        self._run(push_call(self.shard(WAITING, id), [EncodedJob(id.encode(), payload, after=word_of(names))], once()))
        self.expected.setdefault((WAITING, id), []).append(payload)
        self.waits.setdefault(id, set()).update(others)

    def acquire(self, shard: Shard | None = None) -> None:
        """Another node takes a shard, since its owner is thought dead."""
        shard = shard or self.some()
        self.number += 1
        before = self.owners.get(shard)
        dead = [DeadNode(before[0], ())] if before else []
        name = f"node-{self.number}"
        owned = self._run(shard.acquire(name, 600, 99, dead))
        if isinstance(owned, Owned):
            self.owners[shard] = name, owned.epoch
            self.claims.pop(shard, None)

    def claim(self, shard: Shard | None = None) -> None:
        shard = shard or self.some()
        if shard not in self.owners:
            self.acquire(shard)
        if shard in self.claims or shard not in self.owners:
            return
        node, epoch = self.owners[shard]
        self.numbers[shard] = number = self.numbers.get(shard, 0) + 1
        found = self._run(shard.claim(node, epoch, number, self.random.randint(1, 4), 10, bytes))
        if found is not None and found.jobs:
            self.claims[shard] = Held(node, epoch, number, {job.id: list(job.payloads) for job in found.jobs})
            for job in found.jobs:
                assert not self.waits.get(job.id), f"{job.id} ran before {self.waits[job.id]}"

    def settle(self, shard: Shard | None = None) -> None:
        held = [one for one in self.claims if one.queue in self.layouts and (shard is None or one == shard)]
        if not held:
            return
        shard = self.random.choice(held)
        claim, queue = self.claims.pop(shard), shard.queue
        acked, failed, exhausted, letters = [], [], [], []
        for id in claim.jobs:
            fate = self.random.random()
            if fate < 0.75 or queue == WAITING:
                acked.append(id)
            elif fate < 0.9:
                failed.append(Failure(id, 0, 0.0, "no"))
            else:
                exhausted.append(Exhausted(id, "no", "bury_all"))
            letters += self._letters(queue, id, claim.jobs[id])
        outcome = Outcome(acked=acked, failed=failed, exhausted=exhausted, letters=letters)
        result = None
        for _ in range(self.random.randint(1, 2)):  # its reply may be lost
            result = self._run(shard.settle(claim.node, claim.epoch, claim.number, outcome)) or result
        if result is not None:
            self._note(queue, claim, acked, [row.id for row in exhausted])

    def run_all(self, shard: Shard) -> None:
        """Runs what is due there, until nothing is."""
        self.claim(shard)
        while shard in self.claims:
            self.settle(shard)
            self.look()
            self.claim(shard)

    def _letters(self, queue: str, id: str, payloads: list[bytes]) -> list[tuple[str, bytes]]:
        if queue not in PIPELINE[:-1]:
            return []
        following = PIPELINE[PIPELINE.index(queue) + 1]
        return [(id, push_letter(id, following, 2, EncodedJob(id.encode(), payload))) for payload in payloads]

    def _note(self, queue: str, claim: Held, acked: list[str], buried: list[str]) -> None:
        for id in acked:
            self.performed.setdefault((queue, id), []).extend(claim.jobs[id])
            if queue in PIPELINE[:-1]:
                following = PIPELINE[PIPELINE.index(queue) + 1]
                self.expected.setdefault((following, id), []).extend(claim.jobs[id])
        for id in buried:
            self.gone.update(claim.jobs[id])

    def delete(self) -> None:
        """Somebody deletes what is dead, or queued, of an id."""
        one = self.random.choice([(self.random.choice(PIPELINE), self.random.choice(IDS)), (WAITING, "waits-1")])
        self.delete_one(*one, self.random.choice(["morgue", "queue"]))

    def delete_one(self, queue: str, id: str, which: str = "queue") -> None:
        if queue == self.moving:
            return
        shard = self.shard(queue, id)
        if which == "queue":
            self.gone.update(self._queued(shard, id))
            if queue == WAITING:
                self.waits.pop(id, None)
        self._run(Call("drop", [shard.prefix], [shard.layout, which, id], int))

    def _queued(self, shard: Shard, id: str) -> list[bytes]:
        redis = self.app.redis()
        several = redis.zrange(f"{shard.prefix}payloads:{id}", 0, -1)
        held: Any = redis.hget(shard.prefix + "payloads", id)
        if several or held is None:
            return [*several]
        return [held[4:] if held[0] >= 128 else held.partition(b":")[2]]

    # ── letters ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _outbox(self, shard: Shard) -> Outbox:
        owner = self.owners[shard]
        return Outbox(shard, *owner, lambda: self.owners.get(shard) == owner)

    def begin_relay(self) -> None:
        owned = [shard for shard in self.owners if shard in self.all_shards()]
        if owned:
            shard = self.random.choice(owned)
            self.boxes.append(self._outbox(shard))

    def relay(self) -> None:
        """A step of somebody who takes letters along, and may be nobody's owner any more; then it may die."""
        if not self.boxes:
            self.begin_relay()
        if not self.boxes:
            return
        box = self.random.choice(self.boxes)
        page = self._run(box.turn())
        if page is None:
            self.boxes.remove(box)
            return
        if self.random.random() < 0.2:
            self.boxes.remove(box)  # it dies with what it has read
            return
        _deliver(self.caller, self.homes, {box: page})
        box.go_on()
        if not box.has_more or self.random.random() < 0.2:
            self.boxes.remove(box)  # it dies, or is at the end

    def relay_all(self) -> None:
        """Somebody takes all letters along, and answers to them."""
        for _ in range(5):
            for shard in self.all_shards():
                if shard not in self.owners:
                    self.acquire(shard)
            relay(self.caller, self.homes, [self._outbox(shard) for shard in self.all_shards()])

    def ask_again(self) -> None:
        shard = self.random.choice(self.shards(WAITING))
        if shard in self.owners:
            try:
                self.caller.run(ask_again(shard, *self.owners[shard], b"0", 0.0))
            except (Fenced, OtherLayout, BeingResharded):
                return

    # ── another number of shards ────────────────────────────────────────────────────────────────────────────────────

    def reshard(self, queue: str = "", count: int = 0) -> Iterator[None]:
        """One queue gets another number of shards; between two steps anything may happen, but to that queue."""
        queue = queue or self.random.choice([*PIPELINE, WAITING])
        count = count or self.random.choice([1, 3, 4])
        if self.layouts[queue].shards_count == count:
            return
        self.moving = queue
        moving = resharding.begin(self.caller, self.namespace, queue, count)
        old, self.layouts[queue] = self.shards(queue), moving.own
        for shard in old:
            owner = self.owners.pop(shard, None)
            self.claims.pop(shard, None)
            route = Route.of(self.namespace, queue, moving, shard.index)
            dead = [DeadNode(owner[0], ())] if owner else []
            owned = self.caller.run(route.acquire("mover", 600, 99, dead, is_marked=False))
            assert isinstance(owned, Owned)
            for _ in resharding.steps(self.caller, route, "mover", owned.epoch):
                yield
        resharding.end(self.caller, self.namespace, queue, moving)
        self.moving = ""

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """Everything runs that can: what is dead is deleted, and nobody dies any more."""
        self.boxes.clear()
        until = clock.monotonic() + PATIENCE  # scores of shards that were moved to are ahead of the clock for a moment
        while clock.monotonic() < until:
            for shard in self.all_shards():
                self.acquire(shard)
                dead: Any = self.app.redis().zrange(shard.prefix + "morgue", 0, -1)
                for id in dead:
                    self._run(Call("drop", [shard.prefix], [shard.layout, "morgue", id], int))
            self.look()
            outboxes = [self._outbox(shard) for shard in self.all_shards()]
            failed = relay(self.caller, self.homes, outboxes)
            self.look()
            for shard in self.all_shards():
                self.run_all(shard)
            if not failed and not any(self._has_work(shard) for shard in self.all_shards()):
                return
        raise AssertionError("it finds no end")

    def _has_work(self, shard: Shard) -> bool:
        return bool(self.app.redis().exists(shard.prefix + "due", shard.prefix + "outbox"))

    def check(self) -> None:
        """Raises AssertionError."""
        redis = self.app.redis()
        for one, expected in self.expected.items():
            performed = self.performed.get(one, [])
            lost = [payload for payload in expected if payload not in performed and payload not in self.gone]
            assert not lost, f"{one}: lost {lost}"
            assert len(set(performed)) == len(performed), f"{one}: twice: {performed}"
            assert set(performed) <= set(expected), f"{one}: {performed}, of {expected}"
            assert performed == sorted(performed), f"{one}: out of order: {performed}"
        for shard in self.all_shards():
            for name in ("outbox", "letters", "heard", "waits", "waiters", "held"):
                assert not redis.exists(shard.prefix + name), f"{shard.prefix}{name} is left"

    def _run(self, call: Call[Any]) -> Any:
        """What a call gives; None if it is refused, as it may be."""
        (result,) = self.caller.run_all([call])
        if isinstance(result, Fenced | Moved | Paused | BeingResharded | Refused | OtherLayout):
            return None
        if isinstance(result, Exception):
            raise result
        return result


ACTIONS = {
    "push": 6, "push_waiting": 2, "claim": 8, "settle": 8, "relay": 14, "begin_relay": 1, "acquire": 1, "delete": 1,
    "ask_again": 1,
}  # fmt: skip


def history(app: Lowkiq, seed: int, steps: int = 150) -> None:
    """A random history. Raises AssertionError if something is lost, done twice, out of order or too early."""
    random = Random(seed)
    world = FollowingWorld(app, random)
    moving: Iterator[None] | None = None
    for _ in range(steps):
        if moving is None and random.random() < 0.02:
            moving = world.reshard()
        if moving is not None and next(moving, "over") == "over":
            moving = None
        (name,) = random.choices(list(ACTIONS), list(ACTIONS.values()))
        getattr(world, name)()
        world.look()
    for _ in moving or ():
        world.relay()
        world.look()
    world.finish()
    world.check()


def many_wait_for_one(app: Lowkiq) -> None:
    """More than are told at a time. Raises AssertionError if any is forgotten."""
    world = FollowingWorld(app, Random(1))
    world.caller.run(push_call(world.shard("a", "one"), [EncodedJob(b"one", b"1")], once()))
    for number in range(450):
        id = f"waits-{number}"
        job = EncodedJob(id.encode(), b"w", after=word_of(["a 2 one"]))
        world.caller.run(push_call(world.shard(WAITING, id), [job], once()))
        world.expected[WAITING, id] = [b"w"]
    world.finish()
    world.check()


def a_run_is_waited_for(app: Lowkiq) -> None:
    """Nothing is queued any more of what runs. Raises AssertionError if that counts as done."""
    world = FollowingWorld(app, Random(1))
    world.push("one")
    world.claim(world.shard("a", "one"))
    world.push_waiting(("a", "one"))
    world.relay_all()
    world.claim(world.shard(WAITING, "waits-1"))
    world.finish()
    world.check()


def the_dead_are_waited_for(app: Lowkiq) -> None:
    """Of what is in the morgue nothing is queued or runs. Raises AssertionError if that counts as done."""
    world = FollowingWorld(app, Random(1))
    shard = world.shard("a", "one")
    world.push("one")
    world.claim(shard)
    held = world.claims.pop(shard)
    buried = Outcome(exhausted=[Exhausted("one", "no", "bury_all")])
    world.caller.run(shard.settle(held.node, held.epoch, held.number, buried))
    world.gone.update(held.jobs["one"])
    world.push_waiting(("a", "one"))
    world.relay_all()
    world.claim(world.shard(WAITING, "waits-1"))
    world.finish()
    world.check()


def who_waits_anew_is_not_told_of_before(app: Lowkiq) -> None:
    """Word that was under way when a job was deleted and pushed again. Raises AssertionError if it counts."""
    world = FollowingWorld(app, Random(1))
    shard = world.shard("a", "one")
    world.push("one")
    world.push_waiting(("a", "one"))
    world.relay_all()
    world.claim(shard)
    held = world.claims.pop(shard)
    world.caller.run(shard.settle(held.node, held.epoch, held.number, Outcome(acked=["one"])))
    world.performed["a", "one"] = held.jobs["one"]
    world.look()
    world.caller.run(world._outbox(shard).turn())
    world.delete_one(WAITING, "waits-1")
    world.push("one")
    world.push_waiting(("a", "one"))
    world.relay_all()
    world.claim(world.shard(WAITING, "waits-1"))
    world.finish()
    world.check()


def what_follows_keeps_its_order(app: Lowkiq) -> None:
    """
    A step, and a report after it, follow from one job while the shard of the step moves. Raises AssertionError if the
    report runs first.
    """
    world = FollowingWorld(app, Random(1))
    shard = world.shard("a", "one")
    world.push("one")
    world.claim(shard)
    held = world.claims.pop(shard)
    step = push_letter("one", "b", 2, EncodedJob(b"one", b"step"))
    after = word_of(["c 2 nothing", "b 2 one"])
    report = push_letter("one", WAITING, 2, EncodedJob(b"waits-1", b"report", after=after))
    further = push_letter("one", WAITING, 2, EncodedJob(b"waits-1", b"report 2"))
    letters = [("one", letter) for letter in (step, report, further)]
    world.caller.run(shard.settle(held.node, held.epoch, held.number, Outcome(acked=["one"], letters=letters)))
    world.performed["a", "one"] = held.jobs["one"]
    world.expected["b", "one"], world.expected[WAITING, "waits-1"] = [b"step"], [b"report", b"report 2"]
    moving = world.reshard("b", 3)
    next(moving), next(moving)
    while b":moved" not in (world.app.redis().hget(world.first("b", "one").prefix + "meta", "layout") or b""):
        next(moving)
    for _ in range(2):
        relay(world.caller, world.homes, [world._outbox(shard)])
        assert not world.is_here(WAITING, "waits-1"), "the report is there before the step"
    for _ in moving:
        pass
    world.waits["waits-1"] = {("b", "one")}
    relay(world.caller, world.homes, [world._outbox(shard)])
    assert world.is_here("b", "one")
    assert world.is_here(WAITING, "waits-1")
    world.relay_all()
    world.claim(world.shard(WAITING, "waits-1"))
    world.finish()
    world.check()


def who_was_paused_past_his_lease_sends_nothing(app: Lowkiq) -> None:
    """What he has read, the next owner has had received, and forgotten. Raises AssertionError if it runs twice."""
    world = FollowingWorld(app, Random(1))
    shard = world.shard("a", "one")
    world.push("one")
    world.run_all(shard)
    paused = world._outbox(shard)
    page = world.caller.run(paused.turn())
    assert page
    world.acquire(shard)
    world.relay_all()
    after = world.shard("b", "one")
    world.run_all(after)
    assert _deliver(world.caller, world.homes, {paused: page})
    world.look()
    world.finish()
    world.check()
