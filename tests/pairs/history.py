"""History: the steps of two capabilities in one world, by a seed; how it ends; and how a failure is made short."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from redis.exceptions import ResponseError

from lowkiq.errors import LowkiqError
from lowkiq.queue.shard import Outcome
from tests.pairs.capabilities import ALL
from tests.pairs.capability import Capability
from tests.pairs.jobs import SECOND, Hand
from tests.pairs.rig import Rig
from tests.pairs.world import LOOK_EVERY, World

Pair = tuple[str, ...]
#: Steps of a history.
STEPS = 40
#: How far time goes on while all is worked off, in microseconds: whatever waits for a time is due by then.
WAITS = (0, SECOND, 60 * SECOND, 3_600 * SECOND, 40 * 86_400 * SECOND)
#: Rounds of work between two of them, at most: a job that is never done would make it endless.
MOST_ROUNDS = 60
#: Tries in which a failure is made short.
MOST_TRIES = 120
#: Lines of its log that a failure tells.
TOLD = 40
#: Keys of a shard that stay when nothing of any id is left.
STAY = frozenset({"meta", "owner", "deeds"})


class Step(NamedTuple):
    """One step: whose it is ("" for the world's own), its name, and the seed of all that it chooses."""

    of: str
    name: str
    seed: int

    def __str__(self) -> str:
        return f"{self.of}.{self.name}:{self.seed}" if self.of else f"{self.name}:{self.seed}"


class Failure(NamedTuple):
    """A history that has found something."""

    pair: Pair
    seed: int
    steps: Sequence[Step]
    error: str
    log: Sequence[str]

    @property
    def replay(self) -> str:
        return f"make pairs ARGS='--pair {','.join(self.pair)} --seed {self.seed}'"

    def __str__(self) -> str:
        steps = " ".join(map(str, self.steps))
        log = "\n    ".join(self.log[-TOLD:])
        head = f"{' × '.join(self.pair)}, seed {self.seed}: {self.error}"
        return f"{head}\n  replay: {self.replay}\n  steps: {steps}\n    {log}"


def steps_of(pair: Pair, seed: int) -> list[Step]:
    """The steps of a history; each has a seed of its own, so that it does the same without those before it."""
    random = Random(f"{pair} {seed}")
    choices = {("", name): times for name, times in World.steps.items()}
    for name in pair:
        choices |= {(name, step): times for step, times in ALL[name].steps.items()}
    chosen = random.choices(list(choices), list(choices.values()), k=STEPS)
    return [Step(of, name, random.getrandbits(32)) for of, name in chosen]


def play(rig: Rig, pair: Pair, seed: int, steps: Sequence[Step] | None = None) -> Failure | None:
    """Plays the history of that seed, or these steps of it."""
    steps = steps_of(pair, seed) if steps is None else steps
    rig.begin()
    world = World(rig, [ALL[name] for name in pair], Random(f"{pair} {seed} world"), is_equal_last=EQUAL_LAST)
    try:
        _play(world, steps)
    except (AssertionError, LowkiqError, ResponseError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error) or f"{type(error).__name__} in {where.name}:{where.lineno}"
        return Failure(
            pair,
            seed,
            steps,
            text if isinstance(error, AssertionError) else f"{type(error).__name__}: {text}",
            world.log,
        )
    return None


def _play(world: World, steps: Sequence[Step]) -> None:
    by_name: dict[str, World | Capability] = {"": world} | {one.name: one for one in world.capabilities}
    for number, step in enumerate(steps, 1):
        getattr(by_name[step.of], step.name)(Random(step.seed))
        if number % LOOK_EVERY == 0:
            world.check()
    world.check()
    world.is_working_off = True
    for one in sorted(world.capabilities, key=lambda one: one.heals):
        one.heal()
    work_off(world)
    _nothing_is_stuck(world)
    for one in world.capabilities:
        one.free()
    work_off(world)
    _nothing_is_left(world)


def work_off(world: World) -> None:
    """Runs everything that may run, while time goes on."""
    for wait in WAITS:
        world.advance(wait)
        for _ in range(MOST_ROUNDS):
            if not _round(world):
                break
        else:
            raise AssertionError("it finds no end")
    world.check()


def _round(world: World) -> bool:
    """Ends what is in hand, claims of every shard, and has capabilities do theirs. False: there was nothing to do."""
    has_done = False
    hands = world.hands()
    outcomes = [world.outcome_of(hand, None) for hand in hands]
    sent = [_as_nodes_do(hand, outcome) for hand, outcome in zip(hands, outcomes, strict=True)]
    calls = [
        hand.lease.shard.settle(*hand.lease.owner, hand.number, each) for hand, each in zip(hands, sent, strict=True)
    ]
    for hand, outcome, each, result in zip(hands, outcomes, sent, world.run_all(calls), strict=True):
        ended = outcome._replace(acked=world.rest_of(hand)) if each.rest == "ack" else outcome
        world.heard_of_settle(hand, ended, result)
        has_done = True
    for one in world.capabilities:
        has_done = one.work() or has_done
    for shard in world.shards:
        if shard.prefix not in world.leases:
            world.acquire(shard)
    leases = [world.leases[shard.prefix] for shard in world.shards if shard.prefix in world.leases]
    world.rounds += 1  # each is the first to ask at times, where not all may
    first = world.rounds % max(len(leases), 1)
    leases = world.may_claim([*leases[first:], *leases[:first]])
    found = world.run_all([world.claim_call(lease) for lease in leases])
    for lease, claim in zip(leases, found, strict=True):
        has_done = world.heard_of_claim(lease, claim) is not None or has_done
    return has_done


def _as_nodes_do(hand: Hand, outcome: Outcome) -> Outcome:
    """They name no job where all are done, unless something follows."""
    if outcome.letters:
        return outcome
    return Outcome(rest="ack", has_several=hand.has_several)


def _nothing_is_stuck(world: World) -> None:
    for id, record in world.book.records.items():
        assert not record.claimed, f"stuck: {id} is still in hand"
        if record.queued:
            reasons = [reason for one in world.capabilities if (reason := one.reason(id))]
            assert reasons, f"stuck: {id} is queued, and nothing keeps it: {sorted(record.queued)}"


def _nothing_is_left(world: World) -> None:
    for id, record in world.book.records.items():
        assert not record.queued, f"stuck: {id} is queued, and nobody stops it any more: {sorted(record.queued)}"
        if record.morgue:
            world.actions.act("delete", "morgue", [id])
            world.book.deleted(id, "morgue")
            world.left(id, "deleted")
    for _ in range(3):
        _round(world)
    world.check()
    stay = STAY | {name for one in world.capabilities for name in one.left()}
    for shard, look in zip(world.shards, world.looks(), strict=True):
        left = [name for name in look.keys if name.partition(":")[0] not in stay]
        assert not left, f"left over in {shard.prefix}: {sorted(left)}"


def shorten(rig: Rig, failure: Failure) -> Failure:
    """Leaves out steps without which it fails as well (delta debugging)."""
    size, tries, best = max(len(failure.steps) // 2, 1), 0, failure
    while tries < MOST_TRIES:
        at, has_shortened = 0, False
        while at < len(best.steps) and tries < MOST_TRIES:
            fewer = [*best.steps[:at], *best.steps[at + size :]]
            tries += 1
            found = play(rig, best.pair, best.seed, fewer)
            if found and _kind(found.error) == _kind(failure.error):
                best, has_shortened = found, True
            else:
                at += size
        if size == 1 and not has_shortened:
            break
        size = max(size // 2, 1)
    return best


def _kind(error: str) -> str:
    """Two failures with the same first word are taken for the same."""
    return error.split(" ", maxsplit=1)[0]


#: Equal payloads have their latest place (crossings, 4).
EQUAL_LAST = True
