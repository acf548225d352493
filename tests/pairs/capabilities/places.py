"""Places: of a queue with max_running no more claims run at a time, whichever node has them."""

from __future__ import annotations

from random import Random

from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.shard import Outcome
from tests.pairs.capability import Capability
from tests.pairs.jobs import QUEUE, Hand
from tests.pairs.rig import NAMESPACE

#: Seconds for which a place is had: longer than a history, and shorter than all of it is worked off.
KEPT = 30 * 86_400.0
#: Rounds in which somebody may get no place, and nobody anything to do.
TURNS = 9


class Places(Capability):
    name = "places"
    steps = {"exchange": 2}  # noqa: RUF012
    #: No push hands a job over to who has no place.
    is_closed = True

    def begin(self, random: Random) -> None:
        self.most = random.randint(1, 3)
        self.number = 0
        #: Node → places that it has and that are free; and the place of each claim in hand.
        self.has: dict[str, list[str]] = {}
        self.used: dict[tuple[str, str, int], tuple[str, str]] = {}
        #: Nodes that are about to claim; places that they did not need; and whether anybody got none.
        self.promised: list[str] = []
        self.unused: list[tuple[str, str]] = []
        self.was_refused = False
        #: Rounds in which nobody had anything to do, and since when.
        self.idle, self.since = 0, 0

    def on_round(self) -> None:
        self.promised.clear()
        self._give()

    def may_claim(self, node: str) -> bool:
        if len(self.has.get(node, ())) <= self.promised.count(node) and not self._take(node):
            self.was_refused = True
            return False
        self.promised.append(node)
        return True

    def on_claimed(self, node: str, hand: Hand | None) -> None:
        """What it does not need it gives back, or others would wait for ever."""
        if hand is not None:
            self.idle = 0
        elif self.has.get(node):
            self.unused.append((node, self.has[node].pop()))

    def work(self) -> bool:
        """Whoever got no place asks again: there are three nodes, each of which has its turn."""
        if self.since != self.world.now:
            self.since, self.idle = self.world.now, 0
        if self.was_refused:
            # Of those who ask at one moment the first by name has its turn: in life no two moments are one.
            self.world.advance(1)
            self.since = self.world.now
        self.idle = self.idle + 1 if self.was_refused else 0
        self.was_refused = False
        return 0 < self.idle <= TURNS

    def exchange(self, random: Random) -> None:
        """A node gives what it does not need, and asks for another."""
        node = random.choice(self.world.nodes)
        if len(self.has.get(node, ())) < 2:
            self._take(node)

    def heal(self) -> None:
        for node, places in self.has.items():
            self.unused += [(node, place) for place in places]
        self.has.clear()

    def _take(self, node: str) -> bool:
        places = QueuePlaces(NAMESPACE, QUEUE, node, KEPT)
        self.number += 1
        dead = sorted({owner for owner, _ in self.used.values()} - set(self.world.nodes))
        got = self.world.run(places.take(self.most, [places.name(self.number)], (), dead))
        self.world.tell(f"{node} takes a place: {got}")
        self.has.setdefault(node, []).extend(got)
        return bool(got)

    def _give(self) -> None:
        """Gives back places of claims that are over, and unused ones."""
        over = {key for key in self.used if not any(hand.key == key for hand in self.world.hands())}
        given: dict[str, list[str]] = {}
        for node, place in (*(self.used.pop(key) for key in sorted(over)), *self.unused):
            given.setdefault(node, []).append(place)
        self.unused.clear()
        places = {node: QueuePlaces(NAMESPACE, QUEUE, node, KEPT) for node in given}
        self.world.run_all([places[node].take(self.most, (), some) for node, some in given.items()])

    def on_failover(self) -> None:
        """Nodes keep the places that they have. What runs under one that is lost runs on beside the others."""
        held = [*self.used.values(), *((node, place) for node, places in self.has.items() for place in places)]
        lost: set[str] = set()
        for node in sorted({node for node, _ in held}):
            places = QueuePlaces(NAMESPACE, QUEUE, node, KEPT)
            gone = self.world.run(places.keep(self.most, [place for owner, place in held if owner == node]))
            lost.update(gone)
            self.world.tell(f"{node} keeps its places, but for {gone}")
        self.used = {key: value for key, value in self.used.items() if value[1] not in lost}
        self.has = {node: [place for place in places if place not in lost] for node, places in self.has.items()}

    def on_started(self, hand: Hand, id: str) -> None:
        if hand.key in self.used:
            return
        free = self.has.get(hand.lease.node)
        assert free, f"places: {hand.lease.node} runs {id} without a place"
        self.used[hand.key] = hand.lease.node, free.pop()
        running = sum(hand.key in self.used for hand in self.world.hands())
        assert running <= self.most, f"places: {running} claims run, {self.most} may"

    def on_ended(self, hand: Hand, outcome: Outcome) -> None:
        if self.world.is_working_off:
            self._give()
