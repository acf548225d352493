"""
Elastic: has a node learn, beat by beat, which shards are its part, where nobody has numbered the nodes. Some shards
change places because some nodes are much busier than others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from lowkiq.admin.beats.health import BEAT_INTERVAL, NodeHealth
from lowkiq.admin.beats.members import Member, Members, Placement
from lowkiq.admin.words import plural, printable
from lowkiq.log import get_logger
from lowkiq.node.leases.lease import Lease
from lowkiq.node.ownership.deal import deal
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import grouped, redis_time
from lowkiq.queue.shard import Shard

#: A shard: its queue and index.
Place = tuple[str, int]

#: How much busier than the mean a node may be, for its threads.
TOLERANCE: Final = 1.25
#: Mean share of their threads that nodes must be busy for before anything moves: nobody waits for idle ones.
LEAST_BUSY: Final = 0.1
#: Share of all shards that change places at a look, at most.
MOST_MOVES: Final = 0.05


def balance(
    loads: Mapping[str, Mapping[Place, float]], weights: Mapping[str, int], resting: Collection[Place]
) -> dict[Place, str]:
    """
    Shards that are to change places, each with its new node: always two at a time, so that each node keeps its number.

    Args:
        loads: node → shard that it has → threads that it keeps busy; a node runs the queues that it has shards of.
        weights: node → its threads.
        resting: shards that have just moved, or can't.
    """
    total = {node: sum(shards.values()) for node, shards in loads.items()}
    mean = sum(total.values()) / max(sum(weights[node] for node in loads), 1)
    here = {node: dict(shards) for node, shards in loads.items()}
    found: dict[Place, str] = {}
    pairs_left = max(int(sum(map(len, loads.values())) * MOST_MOVES / 2), 1)
    while mean >= LEAST_BUSY and pairs_left and len(here) > 1:
        busiest = max(here, key=lambda node: (total[node] / weights[node], node))
        if total[busiest] / weights[busiest] <= TOLERANCE * mean:
            break
        swap = _best_swap(here, total, weights, busiest, {*resting, *found})
        if swap is None:
            break
        hot, cold, other = swap
        gain = here[busiest][hot] - here[other][cold]
        found[hot], found[cold] = other, busiest
        here[other][hot], here[busiest][cold] = here[busiest].pop(hot), here[other].pop(cold)
        total[busiest] -= gain
        total[other] += gain
        pairs_left -= 1
    return found


def _best_swap(
    here: Mapping[str, Mapping[Place, float]],
    total: Mapping[str, float],
    weights: Mapping[str, int],
    busiest: str,
    resting: Collection[Place],
) -> tuple[Place, Place, str] | None:
    """The shard of the busiest node that goes, the one that comes for it, and from where: the busier of both after
    that is as little busy as can be, and less than the busiest is now."""
    best, lowest = None, total[busiest] / weights[busiest] * 0.99
    for other in sorted(here, key=lambda node: total[node] / weights[node])[: len(here) // 2 + 1]:
        if other == busiest:
            continue
        colds: dict[str, tuple[float, Place]] = {}
        for place, load in here[other].items():
            if place not in resting and (place[0] not in colds or load < colds[place[0]][0]):
                colds[place[0]] = (load, place)
        for hot, load in here[busiest].items():
            if hot in resting or hot[0] not in colds:
                continue
            cold_load, cold = colds[hot[0]]
            gain = load - cold_load
            after = max((total[busiest] - gain) / weights[busiest], (total[other] + gain) / weights[other])
            if gain > 0 and after < lowest:
                best, lowest = (hot, cold, other), after
    return best


logger = get_logger()

#: Shards that the log names when a node's part has changed.
MOST_LOGGED: Final = 20
#: Seconds for which a shard that has moved for its load stays where it is; and for which its place is kept.
REST, KEPT = 60.0, 3_600.0


class Elastic:
    """
    Called before anything runs, and with each beat; nodes that come and go ring the others for one. A shard that is no
    longer the node's part is one that it stands in for: its jobs run on until the node whose part it is asks for it.

    Args:
        may_have: tells whether shards may be dealt to this node: not while it takes no jobs, or ends.
        look: called when its part has changed: some shards are to be asked for, others are perhaps wanted.
        free_threads: tells how many of its threads can run its shards, None if none is to.
    """

    def __init__(
        self,
        runtime: Runtime,
        leases: Iterable[Lease],
        may_have: Callable[[], bool],
        look: Callable[[], None],
        free_threads: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self.follow(leases)
        self._may_have = may_have
        self._look = look
        self._free_threads = free_threads
        self._members = Members(runtime.caller, runtime.namespace, runtime.node)
        #: Dead nodes that the others know of.
        self._left: set[str] = set()

    def follow(self, leases: Iterable[Lease]) -> None:
        """Has these shards dealt from here on: those of each generation of a queue by themselves."""
        self._leases = grouped((lease.shard.part, lease) for lease in leases)

    def __call__(self) -> None:
        """Raises RedisError."""
        dead = {node.name for node in self._runtime.dead_nodes()} - self._left
        self._members.leave(dead)
        self._left |= dead
        may_have = self._may_have()
        if not self._members.tell(self._own() if may_have else None):
            return
        came, went = list[Lease](), list[Lease]()
        for queue, leases in self._leases.items():
            dealt = self._deal(queue, leases, self._members.known)
            for lease, node in zip(leases, dealt, strict=True):
                is_foster = not may_have or node != self._runtime.node
                if is_foster != lease.is_foster:
                    (went if is_foster else came).append(lease)
                    lease.is_foster = is_foster
        if came or went:
            logger.debug("part_changed", nodes=len(self._members.known), came=_named(came), went=_named(went))
            self._look()

    def balance(self, nodes: Sequence[NodeHealth]) -> None:
        """
        Has shards change places where a node is much busier than others; called by the node whose turn it is. One that
        has moved rests, and counts with the load that it had: what its new node tells of it grows but slowly. Raises
        RedisError.
        """
        now, places = redis_time(self._runtime.caller), self._members.placements
        told = {node.node: node.loads for node in nodes}
        known = {name: member for name, member in self._members.known.items() if name in told and member.owned}
        moved = {shard: place for shard, place in places.items() if now - place.at < REST}
        loads = {name: _loads_of(name, member, told[name], moved) for name, member in known.items()}
        found = balance(loads, {name: member.weight for name, member in known.items()}, moved)
        # A place is only for as long as its node is there; and what lies where it should does not need one for ever.
        over = [shard for shard, place in places.items() if place.node not in known or now - place.at > KEPT]
        if found or over:
            was = {shard: load for shards in loads.values() for shard, load in shards.items()}
            given = {shard: Placement(node, now, round(was[shard], 3)) for shard, node in found.items()}
            self._members.give(given, over)
            for (queue, index), place in given.items():
                logger.info("balanced", queue=queue, shard=index, to=place.node, load=place.load)
            if given:
                self._runtime.incidents.note("balanced", _told(given))

    def heirs(self) -> dict[Shard, str]:
        """The nodes that this node's shards go to when it ends, as far as it knows them."""
        others = {name: member for name, member in self._members.known.items() if name != self._runtime.node}
        found = {}
        for queue, leases in self._leases.items():
            for lease, node in zip(leases, self._deal(queue, leases, others), strict=True):
                if node is not None:
                    found[lease.shard] = node
        return found

    def _own(self) -> Member:
        """What it has, and can do: nothing of queues whose jobs can't start."""
        refused, free, most = self._runtime.refusals, self._free_threads(), self._runtime.settings.threads_per_node
        can_start = {True: self._runtime.loop.lag <= BEAT_INTERVAL, False: free != 0}
        owned = {
            queue: [lease.shard.index for lease in leases if lease.epoch is not None]
            for queue, leases in self._leases.items()
            if can_start[leases[0].performer.is_async] and not refused.has(leases[0].shard.queue)
        }
        return Member(most if free is None else min(max(free, 1), most), owned)

    def _deal(self, queue: str, leases: list[Lease], members: Mapping[str, Member]) -> list[str | None]:
        """The node that each of these shards is to have. Of what this node has, its word is newer than its beat."""
        running = {name: member for name, member in members.items() if queue in member.owned}
        holders: list[str | None] = [None] * len(leases)
        for name, member in sorted(running.items()):
            for index in member.owned[queue]:
                if index < len(holders):
                    holders[index] = name
        for lease in leases:
            if lease.epoch is not None:
                holders[lease.shard.index] = self._runtime.node
            elif holders[lease.shard.index] == self._runtime.node:
                holders[lease.shard.index] = lease.holder
        places = {index: place.node for (of, index), place in self._members.placements.items() if of == queue}
        return deal(queue, len(leases), {name: member.weight for name, member in running.items()}, holders, places)


def _loads_of(
    name: str,
    member: Member,
    told: Mapping[str, Mapping[int, float]],
    moved: Mapping[tuple[str, int], Placement],
) -> dict[tuple[str, int], float]:
    """The load of each shard that a node has, or is given just now."""
    shards = {(queue, index) for queue, some in member.owned.items() for index in some} - moved.keys()
    loads = {(queue, index): told.get(queue, {}).get(index, 0.0) for queue, index in shards}
    return loads | {shard: place.load for shard, place in moved.items() if place.node == name}


def _told(given: Mapping[tuple[str, int], Placement]) -> str:
    (queue, index), hottest = max(given.items(), key=lambda row: row[1].load)
    which = f"shard {index} of {printable(queue, 60)}, which kept {hottest.load:.1f} threads busy, goes to"
    return f"moved {plural(len(given), 'shard')} off a busy node: {which} {printable(hottest.node, 80)}"


def _named(leases: list[Lease]) -> list[str]:
    return [f"{lease.shard.queue}:{lease.shard.index}" for lease in leases[:MOST_LOGGED]]
