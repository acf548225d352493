"""History: producers, nodes, operators, the network and the clock, each doing what it likes to one shard."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from lowkiq.admin.metrics import read_shards
from lowkiq.job import EncodedJob
from lowkiq.queue.bell import parse_ring
from lowkiq.queue.call import Call
from lowkiq.queue.push import Producer
from lowkiq.queue.shard import Owned, peek
from lowkiq.telemetry.texts import MARK
from lowkiq.testing.model.shard_model import ShardModel
from lowkiq.testing.model.shard_rules import Ran
from lowkiq.testing.model.shard_state import SECOND, Asked, ClaimName, Delay
from tests.queue.model import messages
from tests.queue.model.invariants import Witness
from tests.queue.model.messages import Message
from tests.queue.model.people import DECIDED, MOST, UNKNOWN, NodeAgent, act, hold, pause, unblock, undo
from tests.queue.model.read_state import bell_of, read_state
from tests.queue.model.virtual_clock import BEGINNING, VirtualClock
from tests.queue.shard_driver import ShardDriver

RIGHT, WRONG, OLD, WRONG_AND_OLD = "2:1", "2:2", "1:1", "1:2"
IDS = ("a", "b", "c", "d")
#: Payloads that several pushes share, and what could be taken for something else.
COMMON = (b"", b"p", b"1:q", b"*", b":")
#: Scores and due times.
TIMES = (None, SECOND, 2 * SECOND, 3 * SECOND, BEGINNING, BEGINNING + 30 * SECOND)
CONTEXTS = [f"{MARK}00-{number:032x}-{number:016x}-01" for number in range(1, 5)]
TAGS = ((), (), ("x",), ("y", "x"), ("x", CONTEXTS[0]), *((one,) for one in CONTEXTS))
#: Mostly an id has a tenant.
TENANTS = ("g", "g", "h", "i", "")
DUE_TIMES = (*TIMES, Delay(0), Delay(30 * SECOND))
#: Seconds by which the clock is moved.
STEPS = (1e-6, 0.5, 5, 16, 16, 61, 61, 3600, -1e-6, -0.5, -5, -61, -3600)
#: Microseconds that a push waits for an answer.
PATIENCE = 20 * SECOND
#: Messages that may still be on their way, and of which a failure tells.
LATE = 40
TOLD = 25

#: What becomes of a call on its way: mostly all is well; its reply is lost; it comes later than its sender waits.
JOURNEYS = ("well",) * 6 + ("reply lost", "late")
#: What happens next: method of History and how often.
FREQUENCIES = {
    "push": 5,
    "push_apart": 2,
    "work": 7,
    "settle": 2,
    "isolate": 3,
    "checkpoint": 2,
    "leave_a_mark": 1,
    "acquire": 2,
    "be_taken_over": 3,
    "listen": 3,
    "hear": 3,
    "renew_or_release": 2,
    "arrive_late_or_twice": 3,
    "act": 4,
    "move_the_clock": 3,
    "look_or_flush": 1,
}
HAPPENINGS = tuple(name for name, times in FREQUENCIES.items() for _ in range(times))
#: Where deletions are undone, too. (Histories without keep what is known of them: seeds.json.)
WITH_UNDO = (*HAPPENINGS, *["undo"] * 6, "lapse")
#: Where the shard is paused now and then, too.
WITH_PAUSES = (*HAPPENINGS, *["pause"] * 4, *["rest"] * 3)
#: Where ids are held now and then, too.
WITH_HOLDS = (*HAPPENINGS, *["hold"] * 6)
#: Where handlers decide what becomes of their jobs, too; and all of it.
WITH_DECISIONS = (*HAPPENINGS, *["decide"] * 6, *["unblock"] * 3)
#: Where pushes ask for fewer runs, too.
WITH_FEWER = (*WITH_UNDO, *["push_fewer"] * 8)
WAITS = (None, None, (SECOND, 3 * SECOND), (5 * SECOND, 16 * SECOND), (30 * SECOND, 30 * SECOND))
THROTTLES = (None, None, 5 * SECOND, 60 * SECOND, 0)
KEEPS = ("", "", "last", "lowest", "first", "all")
#: Where nodes leave the shard while their claims run on, too.
WITH_AWAY = (*HAPPENINGS, *["leave"] * 4, *["work_away"] * 6, *["restore_away"] * 2)
EVERYTHING = (
    *(*WITH_UNDO, *["push_fewer"] * 4, *["pause"] * 4, *["rest"] * 3, *["hold"] * 4, *["decide"] * 4),
    *(*["unblock"] * 2, *["push_fairly"] * 6, *["leave"] * 2, *["work_away"] * 3, "restore_away"),
)
#: Where Redis fails over now and then, and has lost the last lease.
WITH_FAILOVERS = (*HAPPENINGS, *["fail_over"] * 6, *["move_the_clock"] * 3)
#: Where mostly pushes come, and come late or twice.
WITH_REPEATS = (
    *(*["push"] * 6, *["push_apart"] * 4, *["arrive_late_or_twice"] * 5, *["move_the_clock"] * 3),
    *("acquire", "listen", "work", "settle", "renew_or_release"),
)
#: Where ids have tenants, which take turns.
WITH_LANES = (*HAPPENINGS, *["push_fairly"] * 8, *["work"] * 4)


class History:
    """One history. Each step is chosen by who calls; what exactly happens in it, by chance."""

    def __init__(self, shard: ShardDriver, clock: VirtualClock, max_crashes: int) -> None:
        self.shard, self.clock = shard, clock
        self.clock.set(BEGINNING)
        self.model = ShardModel()
        self.model.now = clock.now
        self.state = read_state(shard)
        self.sent: list[Message] = []
        #: The numbers of the last calls of those who push.
        self.senders = dict.fromkeys(("~a", "~b", "~c"), 0)
        self.told: list[str] = []
        self.serial = itertools.count()
        self.generation = itertools.count()
        self.max_crashes = max_crashes
        self.witness = Witness(max_crashes)
        self.nodes = [self.new_node(slot) for slot in range(3)]

    def new_node(self, slot: int) -> NodeAgent:
        """The first one is of an older Lowkiq."""
        generation = next(self.generation)
        name = f"n{slot}-{generation}"
        return NodeAgent(name, bell_of(self.shard.shard, name), RIGHT if generation else OLD, self.max_crashes)

    def step(self, happening: str, journey: str, random: Random) -> None:
        """Raises AssertionError when something is wrong; it tells of the last messages."""
        try:
            method: Callable[[Random, str], None] = getattr(self, happening)
            method(random, journey)
        except AssertionError as error:
            error.add_note("\n".join(self.told[-TOLD:]))
            raise

    # ── the network ─────────────────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, message: Message) -> Any:
        """Redis, and the model, get a message; they must do the same."""
        before = self.state
        by_lanes = message.script == "claim" and before.tenants
        expected = None if by_lanes else messages.outcome_of(lambda: message.on(self.model))
        reply = messages.outcome_of(lambda: self.shard.caller.run(message.call(self.shard.shard)))
        self.told.append(f"{message} → {reply}")
        self.state = read_state(self.shard)
        if by_lanes:
            expected = self.claim_like(message, reply)
        self.model.forget_tenants()
        self.witness.now = self.clock.now
        self.witness.see(message, reply, before, self.state)
        assert messages.rounded(reply) == messages.rounded(expected), f"{message} was told {reply}, not {expected}"
        assert self.state == self.model.state, f"after {message}"
        return reply

    def claim_like(self, message: Message, reply: Any) -> Any:
        """What the model says of a claim that has met what Redis did."""
        if isinstance(reply, list):
            self.model.met = ([job[0] for job in reply], self.state.queued)
            self.model.met_enough = sum(len(job[1]) for job in reply) >= message.most_in_all
        try:
            return messages.outcome_of(lambda: message.on(self.model))
        finally:
            self.model.met = None

    def send(self, message: Message, journey: str) -> Any:
        """What its sender hears."""
        self.sent = [*self.sent[-LATE:], message]
        if journey == "late":
            return UNKNOWN
        reply = self.deliver(message)
        return reply if journey == "well" else UNKNOWN

    def ask(self, node: NodeAgent, message: Message, journey: str) -> Any:
        reply = self.send(message, journey)
        node.hear(message, reply)
        return reply

    def arrive_late_or_twice(self, random: Random, journey: str) -> None:
        # A finish can do harm only while its claim's number is the last one.
        apt = [message for message in self.sent if message.script == "finish" and self.is_of_last_number(message)]
        if apt and random.random() < 0.5:
            self.deliver(random.choice(apt))
        elif self.sent:
            back = random.randint(1, random.choice([6, 12, LATE]))
            self.deliver(self.sent[-min(back, len(self.sent))])

    def is_of_last_number(self, message: Message) -> bool:
        return bool(message.number == self.state.claim_number)

    # ── the clock ───────────────────────────────────────────────────────────────────────────────────────────────────

    def move_the_clock(self, random: Random, journey: str) -> None:
        seconds = random.choice(STEPS)
        self.move_clock(seconds)
        if seconds < 0 and random.random() < 0.5:  # people see jobs that seem to wait
            self.deliver(messages.action(RIGHT, "perform_now", random.choice(IDS)))

    def move_clock(self, seconds: float) -> None:
        self.clock.step(round(seconds * SECOND))
        self.model.now = self.clock.now
        self.told.append(f"clock: {self.clock.now}")

    # ── producers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def push(self, random: Random, journey: str) -> None:
        rows = [self.new_row(random) for _ in range(random.choice([1, 1, 2, 4]))]
        # An older producer, until a node has come that is not.
        layout = OLD if self.state.layout in {None, OLD} and random.random() < 0.5 else RIGHT
        message = messages.push(layout, rows, self.stamp(random))
        if self.send(message, journey) == UNKNOWN and random.random() < 0.5:
            self.send(message, "well")

    def push_fairly(self, random: Random, journey: str) -> None:
        rows = [(*self.new_row(random)[:5], random.choice(TENANTS)) for _ in range(random.choice([1, 1, 2, 4]))]
        if self.send(messages.push(RIGHT, rows, self.stamp(random)), journey) == UNKNOWN and random.random() < 0.5:
            self.send(self.sent[-1], "well")

    def push_fewer(self, random: Random, journey: str) -> None:
        rows = [self.new_row(random) for _ in range(random.choice([1, 1, 2, 4]))]
        asked = [self.some_asked(random) for _ in rows]
        message = messages.push(RIGHT if self.state.layout != OLD else OLD, rows, self.stamp(random), asked)
        if self.send(message, journey) == UNKNOWN and random.random() < 0.5:
            self.send(message, "well")

    def some_asked(self, random: Random) -> Asked:
        wait, at_most = random.choice(WAITS) or (None, 0)
        return Asked(wait, at_most, random.choice(THROTTLES), random.choice(KEEPS))

    def push_apart(self, random: Random, journey: str) -> None:
        """What is left is pushed again, each id's for itself. Whoever doesn't know what that is repeats the call."""
        rows = [(*self.new_row(random)[:2], None, None, (), "") for _ in range(random.choice([1, 2, 4, 6]))]
        message = messages.push_apart(RIGHT, rows, self.stamp(random))
        reply = self.send(message, journey)
        if reply == UNKNOWN:
            reply = self.send(message, random.choice(JOURNEYS))
        left = [row for number, row in enumerate(rows) if reply != UNKNOWN and not reply[number]]
        for id in dict.fromkeys(row[0] for row in left):
            some = [row for row in left if row[0] == id]
            self.send(messages.push(RIGHT, some, self.stamp(random)), random.choice(JOURNEYS))

    def stamp(self, random: Random) -> tuple[str, int]:
        """That of the next call of a sender, who may have given up the one before, and waits so long."""
        sender = random.choice(tuple(self.senders))
        self.senders[sender] = max(self.senders[sender] + 1, self.clock.now + PATIENCE)
        return sender, self.senders[sender]

    def new_row(self, random: Random) -> messages.Row:
        payload = random.choice(COMMON) if random.random() < 0.2 else b"%d" % next(self.serial)
        if random.random() < 0.6:
            return random.choice(IDS), payload, None, None, (), ""
        tags = random.choice(TAGS)
        return random.choice(IDS), payload, random.choice(TIMES), random.choice(DUE_TIMES), tags, ""

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, random: Random, journey: str) -> None:
        if others := [node for node in self.nodes if node.epoch is None]:
            node = random.choice(others)
            # Who says that the holder is dead may be wrong.
            dead = {self.state.node: self.ran(random)} if self.state.node and random.random() < 0.5 else {}
            dead |= self.dead_of_away(random)
            self.ask(node, node.acquire(dead, is_foster=random.random() < 0.3), journey)

    def work(self, random: Random, journey: str) -> None:
        """Settles a claim and makes the next in one round trip, or makes one beside those that there are."""
        node = self.some_owner(random)
        if node is None:
            self.acquire(random, "well")
            return
        if random.random() < 0.5 and (finish := node.finish(random)):
            self.finish(random, node, finish, journey)
            return
        settles = len(node.hands) >= MOST or (node.hands and random.random() < 0.5)
        calls = [node.settle(random, random.choice(["ack", "release"]))] if settles else []
        calls += node.claim(random, random.choice([1, 1, 2, 4]), random.randint(1, 3), random.randint(1, 5))
        for message in calls:
            # What of it does not arrive may still be on its way, or Redis had no room for it but had for the next.
            self.ask(node, message, random.choice(["reply lost", "late"]) if journey == "late" else journey)

    def finish(self, random: Random, node: NodeAgent, finish: Message, journey: str) -> None:
        """What is not finished in one is settled, and the next claim made, under the number that was meant for it."""
        if self.ask(node, finish, journey) is None:
            for message in node.finish_the_usual_way(finish, (random.choice([1, 1, 2, 4]), 3, 5)):
                self.ask(node, message, random.choice(JOURNEYS))

    def settle(self, random: Random, journey: str) -> None:
        if working := [node for node in self.nodes if node.hands]:
            node = random.choice(working)
            self.ask(node, node.settle(random, random.choice(["keep", "keep", "ack", "release"])), journey)

    def decide(self, random: Random, journey: str) -> None:
        if working := [node for node in self.nodes if node.hands]:
            node = random.choice(working)
            self.ask(node, node.settle(random, random.choice(["keep", "ack", "release"]), DECIDED), journey)
        else:
            self.work(random, journey)

    def isolate(self, random: Random, journey: str) -> None:
        if judges := [node for node in self.nodes if node.suspects]:
            node = random.choice(judges)
            self.ask(node, node.isolate(random), journey)
        else:
            self.work(random, journey)

    def checkpoint(self, random: Random, journey: str) -> None:
        if working := [node for node in self.nodes if node.hands]:
            node = random.choice(working)
            self.ask(node, node.checkpoint(random), journey)

    def leave_a_mark(self, random: Random, journey: str) -> None:
        """An older Lowkiq has ended a cancelled run, and knew of no mark."""
        over = [number for number in range(self.state.claim_number) if number not in self.state.claims]
        earlier = [(self.state.epoch - 1, number) for number in (*self.state.own, self.state.claim_number)]
        mark, id = random.choice([*((self.state.epoch, number) for number in over), *earlier]), random.choice(IDS)
        if id not in self.state.cancels:
            self.shard.redis.hset(self.shard.key("cancels"), id, f"{mark[0]} {mark[1]}")
            self.model.state.cancels[id] = self.state.cancels[id] = mark
            self.told.append(f"{id} has a mark of a run that is over: {mark}")

    def renew_or_release(self, random: Random, journey: str) -> None:
        if node := self.some_owner(random):
            calls = [node.renew, node.renew, lambda: node.give_back(random), lambda: node.release("lease")]
            self.ask(node, random.choice(calls)(), journey)

    def be_taken_over(self, random: Random, journey: str) -> None:
        """Who is only paused goes on later, as if it still owned the shard."""
        node = self.some_owner(random)
        if node is None:
            return
        slot = self.nodes.index(node)
        how = random.choice(["dead", "dead", "dead", "abandoned", "paused", "back"])
        if how == "back":  # it had lost the shard, and nobody wanted it
            node.lose()
            self.ask(node, node.acquire({}, is_foster=False), journey)
            return
        if how == "abandoned":
            self.ask(node, node.abandon(), journey)
        if how != "paused":
            self.nodes[slot] = self.new_node(slot)
        other = self.nodes[(slot + 1) % len(self.nodes)]
        if other.epoch is None and random.random() < 0.8:
            dead = {node.name: self.ran(random), **self.dead_of_away(random)}
            self.ask(other, other.acquire(dead, is_foster=False), "well")

    # ── claims that are away ────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, random: Random, journey: str) -> None:
        if node := self.some_owner(random):
            message = node.leave(random)
            self.ask(node, message, journey)

    def work_away(self, random: Random, journey: str) -> None:
        if working := [node for node in self.nodes if node.away]:
            node = random.choice(working)
            self.ask(node, node.of_away(random), journey)
        else:
            self.work(random, journey)

    def restore_away(self, random: Random, journey: str) -> None:
        if node := self.some_owner(random):
            self.ask(node, node.restore_away(self.dead_of_away(random)), journey)

    def dead_of_away(self, random: Random) -> dict[str, Ran]:
        """Some of those who have claims that are away, whom somebody takes for dead, and may be wrong."""
        nodes = sorted({away.node for away in self.state.away.values()})
        return {node: self.ran(random) for node in nodes if random.random() < 0.3}

    def fail_over(self, random: Random, journey: str) -> None:
        """A primary takes over that knows nothing of the last lease, whose owner goes on for a while."""
        able = [node for node in self.nodes if not node.name.endswith("-0")]  # of this layout
        others = [node for node in able if node.epoch is None]
        if not others or self.state.claims:
            return
        dead = {self.state.node: None} if self.state.node else {}
        replica, known = self.shard.copy(), deepcopy(self.model.state)
        node = random.choice(others)
        self.ask(node, node.acquire(dead, is_foster=False), "well")
        self.shard.restore(replica)
        self.model.state = known
        self.state = read_state(self.shard)
        self.told.append("failover: that was lost")
        self.move_clock(random.choice((1, 2, 11)))
        successor = random.choice(able)
        successor.lose()
        self.ask(successor, successor.acquire(dead, is_foster=False), "well")

    def ran(self, random: Random) -> Ran:
        """What a supervisor knows that a node ran when it died: mostly it is of the claims in Redis."""
        if random.random() < 0.5:
            return None if random.random() < 0.7 else ()
        # Another number now and then, and none below zero: what a push has handed over is claim 0.
        runs = (
            (abs(_number(name) - (random.random() < 0.1)), random.randint(1, 2), random.randint(0, len(claim)))
            for name, claim in self.state.claims.items()
            if random.random() < 0.8
        )
        return tuple((number, jobs, after, after % 2 == 1) for number, jobs, after in runs)

    def listen(self, random: Random, journey: str) -> None:
        """The thread of a node waits for its bell. It may be one that wrongly believes to own the shard."""
        if node := self.some_owner(random):
            self.shard.redis.set(f"{node.bell}:idle", 1)
            self.model.state.idle.add(node.bell)
            self.state.idle.add(node.bell)
            self.told.append(f"{node.name} listens")

    def hear(self, random: Random, journey: str) -> None:
        node = random.choice(self.nodes)
        while message := self.shard.redis.lpop(node.bell):
            self.told.append(f"{node.name} hears {message!r}" if journey == "well" else f"{message!r} is lost")
            assert isinstance(message, bytes)
            ring = parse_ring(message)
            if ring.handed and journey == "well":
                node.rung(ring.handed)

    def some_owner(self, random: Random) -> NodeAgent | None:
        """A node that believes to own the shard; mostly one that does."""
        believers = [node for node in self.nodes if node.epoch is not None]
        owners = [node for node in believers if node.name == self.state.node]
        if believers:
            return random.choice(owners if owners and random.random() < 0.8 else believers)
        return None

    # ── others ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def act(self, random: Random, journey: str) -> None:
        """An operator, or somebody who has another shards_count."""
        if random.random() < 0.15:
            self.come_with_another_shards_count(random)
        else:
            self.send(act(random, IDS, RIGHT), journey)

    def undo(self, random: Random, journey: str) -> None:
        self.send(undo(random, IDS, RIGHT if random.random() < 0.9 else WRONG, self.state.kept), journey)

    def pause(self, random: Random, journey: str) -> None:
        self.send(pause(random, self.some_layout(random)), journey)

    def hold(self, random: Random, journey: str) -> None:
        self.send(hold(random, IDS, self.some_layout(random)), journey)

    def some_layout(self, random: Random) -> str:
        """Mostly the right one. Who comes first says which that is."""
        return RIGHT if self.state.layout is None or random.random() < 0.9 else WRONG

    def rest(self, random: Random, journey: str) -> None:
        """An owner was told that its shard is paused, be it long ago."""
        if node := self.some_owner(random):
            self.ask(node, node.rest(), journey)

    def unblock(self, random: Random, journey: str) -> None:
        self.send(unblock(random, IDS, RIGHT), journey)

    def lapse(self, random: Random, journey: str) -> None:
        """A minute has gone by, and no deletion can be undone any more."""
        if names := [name for name in self.shard.names() if name.startswith("undo:")]:
            assert all(self.shard.redis.ttl(self.shard.key(name)) > 0 for name in names), "kept for ever"
            self.shard.redis.unlink(*map(self.shard.key, names))
        self.witness.lapse(self.state)
        self.model.state.kept.clear()
        self.state.kept.clear()
        self.told.append("deletions have lapsed")

    def look_or_flush(self, random: Random, journey: str) -> None:
        looks: list[Callable[[], Any]] = [self.look, self.shard.redis.script_flush]
        random.choice(looks)()

    def come_with_another_shards_count(self, random: Random) -> None:
        producer = Producer(self.shard.caller, self.shard.app.settings.namespace, "q", 1)
        producer.register()
        stranger = Producer(self.shard.caller, self.shard.app.settings.namespace, "q", 2)
        stranger.register()
        assert stranger.shard_of(EncodedJob(b"a", b"1")).layout == RIGHT, "it follows the queue"
        owner, epoch = self.state.node or "x", self.state.epoch
        if self.state.layout is not None:
            strangers = [
                messages.push(WRONG, [self.new_row(random)], self.stamp(random)),
                messages.push_apart(WRONG, [self.new_row(random)], self.stamp(random)),
                messages.acquire(WRONG, "stranger", "", 15 * SECOND, self.max_crashes, {owner: None}),
                messages.claim(WRONG, owner, epoch, self.state.claim_number + 1, 4, 4, 4),
                *(act(random, IDS, WRONG) for _ in range(2)),
                messages.push(WRONG_AND_OLD, [self.new_row(random)], self.stamp(random)),
            ]
            if self.state.layout == OLD:
                strangers.append(messages.claim(RIGHT, owner, epoch, self.state.claim_number + 1, 4, 4, 4))
            else:
                strangers += [
                    messages.push(OLD, [self.new_row(random)], self.stamp(random)),
                    messages.push_apart(OLD, [self.new_row(random)], self.stamp(random)),
                    act(random, IDS, OLD),
                ]
            self.deliver(random.choice(strangers))

    def look(self) -> None:
        before = self.shard.dump()
        (numbers,) = read_shards(self.shard.caller, [self.shard.shard])
        state = self.state
        assert (numbers.length, numbers.busy, numbers.morgue_length, numbers.owner, numbers.epoch) == (
            len(state.queued), len(state.claimed), len(state.morgue), state.node, state.epoch,
        )  # fmt: skip
        parked = [entry for entry in state.queued.values() if entry.waits]
        blocked = [entry.blocked for entry in state.queued.values() if entry.blocked]
        assert (numbers.waiting, numbers.blocked, numbers.claims) == (len(parked), len(blocked), len(state.claims))
        told = state.paused and state.paused[0] / SECOND
        assert (numbers.pause and numbers.pause.since) == told
        at_rest = state.node is None or state.until <= self.clock.now or state.rests == state.epoch
        assert numbers.held == len(state.held)
        assert numbers.is_at_rest == bool(told and at_rest)
        assert (numbers.processed, numbers.failed) == (state.counters["processed"], state.counters["failed"])
        assert numbers.superseded == state.counters["superseded"]
        queued = [entry for entry in state.queued.values() if not entry.waits]
        for busy in (False, True):
            (due_in,) = self.shard.caller.run(peek([self.shard.shard], [busy]))
            assert (due_in is None) == (not queued and (busy or not state.own))
        for where, held in (("queue", state.queued), ("claim", state.claimed), ("morgue", state.morgue)):
            fetched = self.fetch(where)
            assert fetched == {id: set(entry.payloads.items()) for id, entry in held.items()}
        behind = self.shard.actions.behind_newer(IDS)
        assert set(behind) == {id for id in state.morgue if self.model.behind_newer(id)}, f"behind newer: {behind}"
        assert self.shard.dump() == before

    def fetch(self, where: str) -> dict[str, set[tuple[bytes, int]]]:
        rows = self.shard.caller.run(Call("fetch", [self.shard.shard.prefix], [where, 1000, "", *IDS], list))
        told = {
            word: {id for id, row in zip(IDS, rows, strict=True) if row and row[4] == word}
            for word in (b"behind", b"held", b"blocked")
        }
        queued, held = self.state.queued, self.state.held
        assert where != "queue" or told == {
            b"blocked": {id for id, entry in queued.items() if entry.blocked},
            b"held": {id for id, entry in queued.items() if id in held and not entry.blocked},
            b"behind": {id for id, entry in queued.items() if entry.waits and id not in held},
        }
        return {
            id: {(payload, round(float(score) * SECOND)) for payload, score in zip(row[7::3], row[8::3], strict=True)}
            for id, row in zip(IDS, rows, strict=True)
            if row
        }

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def work_off(self) -> None:
        """The end of every history: a node that comes last can do all that there is, and then nothing is left."""
        self.witness.at_the_end(self.state)
        self.lapse(_Acks(), "well")
        if self.state.layout is None:
            return
        if self.state.paused:
            self.deliver(messages.resume(RIGHT))
        if self.state.held:
            self.deliver(messages.let_go(RIGHT, sorted(self.state.held)))
        self.move_clock(1_000_000)
        last = self.new_node(9)
        dead = dict.fromkeys([*filter(None, [self.state.node]), *(away.node for away in self.state.away.values())])
        reply = self.ask(last, last.acquire(dead, is_foster=False), "well")
        assert isinstance(reply, Owned)
        for id in [id for id, entry in self.state.queued.items() if entry.blocked]:
            self.deliver(messages.action(RIGHT, "unblock", "retry", id))
        for _ in range(1000):
            (message,) = last.claim(_Acks(), 4, 3, 100)
            if not self.ask(last, message, "well"):
                comes = [entry.due for entry in self.state.queued.values() if entry.due > self.clock.now]
                if not (self.state.spaced or comes):
                    break
                self.move_clock(61)
                continue
            self.ask(last, last.settle(_Acks(), "ack"), "well")
        assert not self.state.queued, "what is due was not claimed"
        for id in list(self.state.morgue):
            self.deliver(messages.action(RIGHT, "drop", "morgue", id))
        self.ask(last, last.release("lease"), "well")
        self.witness.at_the_end(self.state)
        assert self.shard.names() == {"meta", "owner"}
        assert set(self.shard.redis.hkeys(self.shard.key("owner"))) == {b"epoch", b"asker", b"asked"}


def _number(name: ClaimName) -> int:
    return name if isinstance(name, int) else name[1]


class _Acks(Random):  # whatever there is to choose from, a job is done
    def choice(self, options: Any) -> Any:
        return "acked" if "acked" in options else options[0]
