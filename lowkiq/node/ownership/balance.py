"""Balance: which shards change places because some nodes are much busier than others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

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
