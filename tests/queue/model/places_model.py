"""A model of a queue's places in plain Python, and random histories of both: nodes that take, keep, give and die."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import redis

from lowkiq.queue.call import Caller
from lowkiq.queue.places import QueuePlaces
from tests.queue.model.virtual_clock import VirtualClock

#: Microseconds: of a place, after which who is silent has left the line, and for which who was rung goes first.
TTL, SILENT, FIRST = 10_000_000, 3_000_000, 50_000
NODES = ("a", "b c", "d", "e")


@dataclass
class Model:
    """What Redis should hold, and of whom it should have been rung in how many seconds."""

    taken: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    rung: dict[str, int] = field(default_factory=dict)
    rings: list[tuple[str, float]] = field(default_factory=list)

    def exchange(
        self, now: int, node: str, most: int, wanted: list[str], given: list[str], dead: list[str]
    ) -> list[str]:
        self._free(now, given, dead)
        has = [name for name in wanted if name in self.taken]
        missing = [name for name in wanted if name not in self.taken]
        if missing:
            turns = self._turns(node, most, len(missing))
            self.taken |= dict.fromkeys(missing[:turns], now + TTL)
            has += missing[:turns]
            if turns:
                self._leave(node)
            if turns < len(missing):
                self.waiting.setdefault(node, now)
                self.asked[node] = now
        self._ring(now, most)
        return has

    def keep(self, now: int, most: int, names: list[str]) -> list[str]:
        self._expire(now)
        self.taken |= {name: now + TTL for name in names if name in self.taken}
        free = max(most - len(self.taken), 0)
        missing = [name for name in names if name not in self.taken]
        self.taken |= dict.fromkeys(missing[:free], now + TTL)
        return missing[free:]

    def _free(self, now: int, given: list[str], dead: list[str]) -> None:
        self._expire(now)
        for name in given:
            self.taken.pop(name, None)
        self.rung = {node: until for node, until in self.rung.items() if now < until <= now + FIRST}
        for node in [node for node, at in self.asked.items() if at <= now - SILENT]:
            del self.asked[node]
            self.waiting.pop(node, None)
        for node in dead:
            self._leave(node)
            self.taken = {name: until for name, until in self.taken.items() if name.rpartition(" ")[0] != node}

    def _expire(self, now: int) -> None:
        self.taken = {name: until for name, until in self.taken.items() if until > now}

    def _leave(self, node: str) -> None:
        for line in (self.waiting, self.asked, self.rung):
            line.pop(node, None)

    def line(self) -> list[str]:
        return sorted(self.waiting, key=lambda node: (self.waiting[node], node))

    def _turns(self, node: str, most: int, missing: int) -> int:
        was_rung = self.rung.pop(node, None) is not None
        line = self.line()
        before = 0 if was_rung else len(self.rung) + (line.index(node) if node in line else len(line))
        free = most - len(self.taken)
        others = len(self.rung) + len([other for other in line if other != node])
        return 0 if free <= before else min(missing, max(1, free - others))

    def _ring(self, now: int, most: int) -> None:
        turns = most - len(self.taken) - len(self.rung)
        if turns <= 0:
            return
        for place, node in enumerate(self.line()[: turns + 1]):
            if place < turns:
                del self.waiting[node]
                self.rung[node] = now + FIRST
            self.rings.append((node, 0.0 if place < turns else FIRST / 1e6))


class History:
    """Random steps of several nodes beside the model; after each of them both hold the same."""

    def __init__(
        self, client: redis.Redis, caller: Caller, clock: VirtualClock, namespace: str, random: Random
    ) -> None:
        self.client, self.caller, self.clock, self.random = client, caller, clock, random
        self.calls = {node: QueuePlaces(namespace, "q", node, TTL / 1e6) for node in NODES}
        self.prefix = self.calls["a"].prefix
        self.bell = client.pubsub(ignore_subscribe_messages=True)
        self.bell.psubscribe(f"{namespace}:bell:*")
        self.bell.get_message(timeout=1)
        self.model = Model()
        self.most = random.randint(1, 4)
        self.numbers = 0
        #: Node → what it believes to have, by when it is to have kept it.
        self.has: dict[str, dict[str, int]] = {node: {} for node in NODES}

    def step(self) -> None:
        self.clock.step(self.random.choice((0, 1, 1_000, 20_000, 60_000, 1_000_000, 2_000_000, 4_000_000)))
        self.random.choice((self._take, self._take, self._take, self._give, self._swap, self._keep, self._change))()
        self._compare()

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self) -> None:
        self._exchange(self.random.choice(NODES), self.random.randint(1, 3), 0)

    def _give(self) -> None:
        self._exchange(self.random.choice(NODES), 0, 2)

    def _swap(self) -> None:
        self._exchange(self.random.choice(NODES), 1, 1)

    def _exchange(self, node: str, wanted: int, given: int) -> None:
        names = [self.calls[node].name(self.numbers + n) for n in range(wanted)]
        self.numbers += wanted
        gives = self.random.sample(sorted(self.has[node]), min(given, len(self.has[node])))
        others = [other for other in NODES if other != node]
        dead = [self.random.choice(others)] if self.random.random() < 0.1 else []
        for other in dead:
            self.has[other].clear()
        for name in gives:
            del self.has[node][name]
        for _ in range(self.random.choice((1, 1, 2))):  # a reply may be lost
            call = self.calls[node].take(self.most, names, gives, dead)
            got = self.caller.run(call)
            assert got == self.model.exchange(self.clock.now, node, self.most, names, gives, dead), "what it has got"
        self.has[node] |= dict.fromkeys(got, self.clock.now + TTL)
        assert self._valid() <= self.most or not got, "more run than may"
        free = self.most - len(self.model.taken)
        assert free <= len(self.model.rung) or not self.model.waiting, "a place is free, and nobody is told"

    def _keep(self) -> None:
        node = self.random.choice(NODES)
        if names := sorted(self.has[node]):
            lost = self.caller.run(self.calls[node].keep(self.most, names))
            assert lost == self.model.keep(self.clock.now, self.most, names), "what is lost"
            self.has[node] = {name: self.clock.now + TTL for name in names if name not in lost}

    def _change(self) -> None:
        """Somebody sets another max_running, or a node dies without a word."""
        if self.random.random() < 0.5:
            self.most = self.random.randint(1, 4)
        else:
            self.has[self.random.choice(NODES)].clear()

    # ── what must hold ──────────────────────────────────────────────────────────────────────────────────────────────

    def _valid(self) -> int:
        """Places that nodes may use, by what they were told."""
        return sum(until > self.clock.now for has in self.has.values() for until in has.values())

    def _compare(self) -> None:
        for name in ("taken", "waiting", "asked", "rung"):
            rows: Any = self.client.zrange(self.prefix + name, 0, -1, withscores=True)
            found = {member.decode(): round(score * 1e6) for member, score in rows}
            assert found == getattr(self.model, name), name
        told: list[tuple[str, float]] = []
        while message := self.bell.get_message(timeout=0.02 if len(told) < len(self.model.rings) else 0):
            node = message["channel"].decode().partition(":bell:")[2]
            word, prefix, due_in = message["data"].decode().rsplit(" ", 2)
            assert (word, prefix) == ("place", self.prefix)
            told.append((node, float(due_in)))
        assert told == self.model.rings, "who was rung"
        self.model.rings.clear()
