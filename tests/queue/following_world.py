"""FollowingWorld: jobs from which others follow, and that wait for others, with owners who die at any call."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any

from lowkiq import Lowkiq, clock
from lowkiq.after import OPEN, word_of
from lowkiq.errors import BeingResharded, Fenced, Moved, OtherLayout, Paused, Refused
from lowkiq.job import EncodedJob, shard_of
from lowkiq.queue import keys, resharding
from lowkiq.queue.call import Call
from lowkiq.queue.homes import home_of
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.letters import Homes, Letter, Outbox, _deliver, ask_again, push_letter, relay
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
#: Queues that are being resharded at the same time, at most, and how often one begins.
SIMULTANEOUS, RESHARDS = 2, 0.03
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
        #: Ids of WAITING that a person holds; and those whose payloads somebody has put back behind newer ones.
        self.held: set[str] = set()
        self.put_back_ids: set[str] = set()
        #: What was deleted and may be undone: its name, the id, its payloads.
        self.deleted: list[tuple[str, str, list[bytes]]] = []
        self.boxes: list[Outbox] = []
        #: Questions and answers that were sent, and may come once more, late.
        self.sent: list[tuple[Outbox, Letter]] = []
        #: Queues that are being resharded, each with its layout before, and the old shards of which nothing has moved.
        self.moving: dict[str, Layout] = {}
        self.still_old: dict[str, list[Shard]] = {}
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

    def homes_of(self, queue: str, id: str) -> list[Shard]:
        """The shards in which an id may be: while they move two, the old one first."""
        old = self.moving.get(queue)
        index = shard_of(id.encode(), old.shards_count) if old else 0
        older = [Shard(self.namespace, queue, index, old)] if old else []
        return [*older, self.shard(queue, id)]

    def all_shards(self) -> list[Shard]:
        old = [shard for some in self.still_old.values() for shard in some]
        return [*old, *(shard for queue in self.layouts for shard in self.shards(queue))]

    def some(self) -> Shard:
        return self.random.choice(self.all_shards())

    def is_here(self, queue: str, id: str) -> bool:
        """Whether something of an id is queued, runs, or is dead; read key by key."""
        return any(self._is_in(shard.prefix, id) for shard in self.homes_of(queue, id))

    def _is_in(self, prefix: str, id: str) -> bool:
        redis = self.app.redis()
        lists = [prefix + "claim", *(f"{prefix}aside:{number.decode()}" for number in redis.hkeys(prefix + "asides"))]
        claimed = any(id.encode() in redis.lrange(key, 0, -1)[::2] for key in lists)
        return claimed or bool(redis.hexists(prefix + "payloads", id) or redis.hexists(prefix + "morgue:payloads", id))

    def look(self) -> None:
        """Notes of what those that wait wait no more."""
        for others in self.waits.values():
            others -= {one for one in others if not self.is_here(*one)}

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────────

    def push(self, id: str | None = None) -> None:
        self.number += 1
        id, payload = id or self.random.choice(IDS), b"%06d" % self.number
        self._push("a", EncodedJob(id.encode(), payload))
        self.expected.setdefault(("a", id), []).append(payload)

    def push_waiting(self, *wanted: tuple[str, str]) -> None:
        self.number += 1
        id, payload = f"waits-{self.random.randint(1, 4)}", b"%06d" % self.number
        if wanted:
            id = "waits-1"
        others = set(wanted) or {
            (self.random.choice(PIPELINE), self.random.choice(IDS)) for _ in range(self.random.randint(1, 3))
        }
        names = [f"{queue} 2 {other}" for queue, other in others]
        self._push(WAITING, EncodedJob(id.encode(), payload, after=word_of(names)))
        self.expected.setdefault((WAITING, id), []).append(payload)
        self.waits.setdefault(id, set()).update(others)

    def _push(self, queue: str, job: EncodedJob) -> None:
        """As a producer does: to the old shard until that sends it on."""
        for shard in self.homes_of(queue, job.id.decode()):
            (result,) = self.caller.run_all([push_call(shard, [job], once())])
            if not isinstance(result, Moved):
                assert not isinstance(result, Exception), result
                return
        raise AssertionError("it was sent on by both")

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
                assert job.id not in self.held, f"{job.id} ran though somebody holds it"

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
        shard = home_of(self.caller, self._in_force(queue), id.encode())
        payloads = self._payloads(shard, id, "morgue:payloads" if which == "morgue" else "payloads")
        if self._run(Call("drop", [shard.prefix], [shard.layout, which, id], int)):
            self.gone.update(payloads)
            if queue == WAITING and which == "queue" and id not in self._dead():
                self.waits.pop(id, None)

    def _dead(self) -> set[str]:
        """Ids of WAITING that somebody has killed."""
        redis: Any = self.app.redis()
        every = {shard.prefix for shard in self.all_shards()} | {shard.prefix for shard in self._in_force(WAITING)}
        return {id.decode() for prefix in every for id in redis.hkeys(prefix + "morgue:payloads")}

    def _in_force(self, queue: str) -> list[Shard]:
        old = self.moving.get(queue)
        older = [Shard(self.namespace, queue, index, old) for index in range(old.shards_count)] if old else []
        return [*older, *self.shards(queue)]

    def _at_home(self, script: str, *words: Any) -> tuple[str, Any]:
        """Does something to an id that waits; gives that, and None if it is refused."""
        id = f"waits-{self.random.randint(1, 4)}"
        shard = home_of(self.caller, self._in_force(WAITING), id.encode())
        return id, self._run(Call(script, [shard.prefix], [shard.layout, *words, id], lambda reply: reply))

    def hold(self) -> None:
        """A person holds an id, be it queued or not."""
        id, done = self._at_home("hold", b"{}")
        self.held |= set() if done is None else {id}

    def let_go(self) -> None:
        """And lets one go; what it waits for it goes on waiting for."""
        id, done = self._at_home("let_go")
        self.held -= set() if done is None else {id}

    def kill(self) -> None:
        """Somebody moves an id that waits to the morgue."""
        self._at_home("bury", 1_000, "any")

    def revive(self) -> None:
        """And back: it waits for all that there has always been something of since."""
        self._note_put_back(*self._at_home("revive", 1_000))

    def delete_and_keep(self) -> None:
        """Somebody deletes an id that waits so that it can be undone."""
        self.number += 1
        id, name = f"waits-{self.random.randint(1, 4)}", f"{self.number:016x}"
        which = self.random.choice(["queue", "queue", "morgue"])
        shard = home_of(self.caller, self._in_force(WAITING), id.encode())
        payloads = self._payloads(shard, id, "payloads" if which == "queue" else "morgue:payloads")
        call = Call("put_away", [shard.prefix], [shard.layout, which, name, 600, id], lambda reply: reply[0])
        if self._run(call):
            self.gone.update(payloads)
            self.deleted.append((name, id, payloads))

    def undo(self) -> None:
        """And undoes that, unless its shard has moved since."""
        if self.deleted:
            name, id, payloads = self.random.choice(self.deleted)
            shard = home_of(self.caller, self._in_force(WAITING), id.encode())
            call = Call("put_back", [shard.prefix], [shard.layout, name, id], int)
            if self._run(call):
                self.deleted.remove((name, id, payloads))
                self.gone.difference_update(payloads)
                self.put_back_ids.add(id)

    def _note_put_back(self, id: str, done: Any) -> None:
        if done and done[0]:
            self.put_back_ids.add(id)

    def _payloads(self, shard: Shard, id: str, name: str = "payloads") -> list[bytes]:
        redis = self.app.redis()
        several = redis.zrange(f"{shard.prefix}{name}:{id}", 0, -1)
        held: Any = redis.hget(shard.prefix + name, id)
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
        if self.random.random() < 0.2:  # a first try that comes after its repetition, or beside it
            late = Outbox(box.shard, *self._nobody, lambda: True)
            late.stuck |= box.stuck  # what is held up is not in it
            _deliver(self.caller, self.homes, {late: page})
        _deliver(self.caller, self.homes, {box: page})
        self.sent += [(box, letter) for letter in page if letter.kind in {b"ask", b"told"}]
        box.go_on()
        if not box.has_more or self.random.random() < 0.2:
            self.boxes.remove(box)  # it dies, or is at the end

    _nobody = ("nobody", "0")

    def come_late(self) -> None:
        """A question or an answer comes once more, whatever has become of it since."""
        if self.sent:
            _, letter = self.random.choice(self.sent)
            box = Outbox(self.some(), *self._nobody, lambda: True)
            _deliver(self.caller, self.homes, {box: [letter]})

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
        if self.layouts[queue].shards_count == count or queue in self.moving:
            return
        old = self.shards(queue)
        self.moving[queue], self.still_old[queue] = self.layouts[queue], list(old)
        moving = resharding.begin(self.caller, self.namespace, queue, count)
        self.layouts[queue] = moving.own
        self.random.shuffle(old)
        for shard in old:
            self.still_old[queue].remove(shard)
            owner = self.owners.pop(shard, None)
            self.claims.pop(shard, None)
            route = Route.of(self.namespace, queue, moving, shard.index)
            dead = [DeadNode(owner[0], ())] if owner else []
            owned = self.caller.run(route.acquire("mover", 600, 99, dead, is_marked=False))
            assert isinstance(owned, Owned)
            for _ in resharding.steps(self.caller, route, "mover", owned.epoch):
                yield
        resharding.end(self.caller, self.namespace, queue, moving)
        del self.moving[queue], self.still_old[queue]

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """Everything runs that can: what is dead is revived, or deleted, nobody holds anything, and nobody dies."""
        self.boxes.clear()
        for shard in self.shards(WAITING):
            ids = [f"waits-{number}" for number in range(1, 5)]
            self._run(Call("let_go", [shard.prefix], [shard.layout, *ids], int))
            killed: Any = self.app.redis().zrange(shard.prefix + "morgue", 0, -1)
            self._run(Call("revive", [shard.prefix], [shard.layout, 1_000, *killed], list))
            self.put_back_ids |= {id.decode() for id in killed}
        self.held.clear()
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
            is_in_order = one[1] in self.put_back_ids or performed == sorted(performed)
            assert is_in_order, f"{one}: out of order: {performed}"
        for shard in self.all_shards():
            for name in ("outbox", "letters", "heard", "waits", "waiters", "held", "asks", "morgue:waits"):
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
    "ask_again": 1, "hold": 1, "let_go": 1, "kill": 1, "revive": 2, "delete_and_keep": 1, "undo": 2, "come_late": 2,
}  # fmt: skip


def history(app: Lowkiq, seed: int, steps: int = 150) -> None:
    """A random history. Raises AssertionError if something is lost, done twice, out of order or too early."""
    random = Random(seed)
    world = FollowingWorld(app, random)
    moving: list[Iterator[None]] = []
    for _ in range(steps):
        if len(moving) < SIMULTANEOUS and random.random() < RESHARDS:
            moving.append(world.reshard())
        moving = [one for one in moving if random.random() < 0.3 or next(one, "over") != "over"]
        (name,) = random.choices(list(ACTIONS), list(ACTIONS.values()))
        getattr(world, name)()
        world.look()
    for _ in chain.from_iterable(moving):
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


def who_asks_anew_in_a_new_shard_is_not_told_of_before(app: Lowkiq) -> None:
    """
    A job waits for one that is done, is pushed again, and waited for by a push that comes while the shard moves. Raises
    AssertionError if the answer to the first question counts for the second.
    """
    world = FollowingWorld(app, Random(1))
    shard = world.shard("a", "one")
    world.push("one")
    world.push_waiting(("a", "one"))
    world.relay_all()
    world.run_all(shard)
    while world.performed.get(("a", "one")) is None:
        world.run_all(shard)
    moving = world.reshard(WAITING, 3)
    while not world.app.redis().hexists(world.shard(WAITING, "waits-1").prefix + "feeders", "0"):
        next(moving)
    old = world.first(WAITING, "waits-1")
    while b":moved" not in (world.app.redis().hget(old.prefix + "meta", "layout") or b""):
        next(moving)
    world.push("one")
    world.push_waiting(("a", "one"))
    for _ in moving:
        pass
    world.relay_all()
    world.claim(world.shard(WAITING, "waits-1"))
    world.finish()
    world.check()


def who_asks_anew_there_is_not_told_of_before_whose_numbers_were_ahead(app: Lowkiq) -> None:
    """The same where Redis's clock was set back before."""
    world = FollowingWorld(app, Random(1))
    set_numbers_ahead(world, world.shard(WAITING, "waits-1"))
    who_asks_anew_in_a_new_shard_is_not_told_of_before(app)


def the_end_is_told_in_a_new_shard_whose_numbers_were_ahead(app: Lowkiq) -> None:
    """Who has asked before a shard moved is told there, wherever the clock is. Raises AssertionError if it is not."""
    world = FollowingWorld(app, Random(1))
    set_numbers_ahead(world, world.shard("a", "one"))
    world.push("one")
    world.push_waiting(("a", "one"))
    world.relay_all()
    for _ in world.reshard("a", 3):
        pass
    world.finish()
    world.check()


def set_numbers_ahead(world: FollowingWorld, shard: Shard) -> None:
    """As if its letters had been written before Redis's clock was set back by an hour."""
    posted = world.app.redis().time()[0] * 1_000_000 + 3_600_000_000
    world.app.redis().hset(shard.prefix + "meta", "posted", posted)


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


def batches_with_the_same_end(app: Lowkiq) -> None:
    """
    Two batches are open with the same job at the end, and a step of each has run. Raises AssertionError if that runs
    before both have ended, or if what comes late of one that has ended keeps it waiting.
    """
    world = FollowingWorld(app, Random(1))
    shard, marks = world.shard(WAITING, "waits-1"), [f"{OPEN}:one", f"{OPEN}:two"]
    end = EncodedJob(b"waits-1", b"report")

    def wait(mark: str, *others: str, is_all: bool = False) -> bool:
        call = Call("wait", [shard.prefix], [shard.layout, end.id, mark, int(is_all), *others], bool)
        return bool(world.caller.run(call))

    def may_run() -> bool:
        for _ in range(3):  # what is asked, and told
            relay(world.caller, world.homes, [world._outbox(one) for one in world.all_shards()])
        return not app.redis().zscore(shard.prefix + "held", "waits-1")

    for one in world.all_shards():
        world.acquire(one)
    for mark in marks:
        world._run(push_call(shard, [EncodedJob(end.id, end.payload, after=word_of([mark]))], once()))
    assert wait(marks[0], "a 2 one")
    assert wait(marks[0], is_all=True)
    assert not may_run(), "it runs though the other one is open"
    assert not wait(marks[0], is_all=True), "an end that comes again is taken for one"
    world.push("two")
    assert not wait(marks[0], "a 2 two"), "what comes late of a batch that has ended is waited for"
    assert wait(marks[1], "a 2 three")
    assert wait(marks[1], is_all=True)
    assert may_run(), "it waits for a batch that has ended"
