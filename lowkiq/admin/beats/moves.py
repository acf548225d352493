"""
Moves: shards that have changed nodes, where nodes share them by themselves, as incidents: one for each change, be it of
one shard or thousands. The node whose turn of housekeeping it is compares what all tell with what was told last.

A change takes some seconds, as shards move when their jobs end. So it is noted once it is over, or after a minute. What
moves for its load is an incident of its own already (node/ownership/elastic.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lowkiq.admin.beats.health import MOST_BEAT_BYTES, Count, NodeHealth, Shards, Text
from lowkiq.admin.beats.members import read_placements
from lowkiq.admin.past.incidents import NewIncident, Severity, note
from lowkiq.admin.words import first_of, listed, plural, printable
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller
from lowkiq.queue.unreadable import parsed, quoted

#: Seconds after which a change is noted that is not over.
LONGEST: Final = 60.0
#: Nodes, and pairs of them, that a sentence names.
NAMED: Final = 3

Place = tuple[str, int]


class Part(msgspec.Struct, frozen=True):
    """A node, and what it had when that was told last."""

    number: Count
    host: Text
    pid: Count
    owned: Shards


class Told(msgspec.Struct, frozen=True):
    """What was told last."""

    #: When, by Redis's clock: it names the incident of what comes next.
    at: float
    #: When nodes were first seen to have something else; None: they have not.
    since: float | None
    parts: Annotated[dict[Text, Part], Meta(max_length=10_000)]


class Moves:
    """Called by the node whose turn it is. Noted first: one that is killed then leaves the rest to the next one."""

    def __init__(self, caller: Caller, namespace: str) -> None:
        self._caller, self._namespace = caller, namespace
        self._key = keys.parts(namespace)

    def __call__(self, nodes: Sequence[NodeHealth]) -> None:
        """Notes what has moved since it was told last, by all nodes that have beaten lately. Raises RedisError."""
        time, stored = self._caller.read([("TIME",), ("GETRANGE", self._key, 0, MOST_BEAT_BYTES - 1)], b"")
        sharing = [node for node in nodes if node.is_elastic]
        if not (stored or sharing):
            return
        at, last = time[0] + time[1] / 1e6, self._parse(stored) if stored else None
        parts = _parts(sharing, last)
        if last is None:
            self._tell(stored, Told(at, None, parts))
        elif parts == last.parts:
            if last.since is not None:  # it has moved back
                self._tell(stored, msgspec.structs.replace(last, since=None))
        elif not _goes_on(nodes, parts) or (last.since is not None and at - last.since >= LONGEST):
            self._note(last, parts, nodes)
            self._tell(stored, Told(at, None, parts))
        elif last.since is None:
            self._tell(stored, msgspec.structs.replace(last, since=at))

    def _note(self, last: Told, parts: Mapping[str, Part], nodes: Sequence[NodeHealth]) -> None:
        was, here = _owners(last.parts), _owners(parts)
        moved = {place: (was[place], name) for place, name in here.items() if was.get(place, name) != name}
        if moved:
            placements = read_placements(self._caller, self._namespace)
            placed = {(keys.queue_of(part), shard, one.node) for (part, shard), one in placements.items()}
            moved = {place: pair for place, pair in moved.items() if (*place, pair[1]) not in placed}
        if moved:
            change = _Change(last.parts, parts, moved, self._vanished(last, nodes))
            says = f"{change}{'; others are still to move' if _goes_on(nodes, parts) else ''}"
            severity: Severity = "warn" if change.vanished else "note"
            new = NewIncident(key=f"moved:{last.at:.6f}", kind="moved", severity=severity, says=says)
            note(self._caller, self._namespace, [new])

    def _vanished(self, last: Told, nodes: Sequence[NodeHealth]) -> set[str]:
        """Nodes that are gone without a goodbye: their heartbeats are late, or still kept."""
        living = {node.node for node in nodes}
        gone = [name for name in last.parts if name not in living]
        kept = self._caller.read([("ZSCORE", keys.nodes(self._namespace), name) for name in gone], None) if gone else []
        found = {name for name, beat in zip(gone, kept, strict=True) if beat is not None}
        return found | {node.node for node in nodes if node.is_late}

    def _parse(self, stored: bytes) -> Told | None:
        return parsed([], quoted(self._key), "", _TOLD.decode, stored)  # it is written anew

    def _tell(self, stored: bytes, told: Told) -> None:
        """What another node has told meanwhile stays."""
        text = msgspec.json.encode(told)
        if len(text) <= MOST_BEAT_BYTES:
            self._caller.run(Call("version", [self._key], [stored, MOST_BEAT_BYTES, text], bytes))


class _Change:
    def __init__(
        self,
        was: Mapping[str, Part],
        now: Mapping[str, Part],
        moved: Mapping[Place, tuple[str, str]],
        vanished: set[str],
    ) -> None:
        self._moved = moved
        self._parts = {**was, **now}
        self._alike = Counter((part.host, part.number) for part in self._parts.values())
        self._came = [name for name in now if name not in was]
        went = [name for name in was if name not in now or (was[name].owned and not now[name].owned)]
        numbers = {(now[name].host, now[name].number): name for name in self._came}
        heirs = {name: numbers.get((was[name].host, was[name].number)) for name in went}
        self._replaced = [name for name, heir in heirs.items() if heir]
        self._came = [name for name in self._came if name not in heirs.values()]
        self.vanished = [name for name in went if name in vanished and not heirs[name]]
        self._left = [name for name in went if name not in vanished and not heirs[name]]

    def __str__(self) -> str:
        what = listed(list(self._causes())) or "Nodes share anew"
        return f"{what[:1].upper()}{what[1:]}: {plural(len(self._moved), 'shard')} moved {self._pairs()}"

    def _causes(self) -> Iterator[str]:
        words = {
            "went away without saying goodbye": self.vanished,
            "left": self._left,
            "joined": self._came,
        }
        for verb, names in words.items():
            if names:
                yield f"{self._named(names)} {verb}"
        if self._replaced:
            yield f"{self._named(self._replaced)} {'was' if len(self._replaced) == 1 else 'were'} replaced"

    def _pairs(self) -> str:
        """Says how many went from each to whom, or to each from whom, whichever is shorter."""
        pairs = Counter(self._moved.values())
        by_source = len({source for source, _ in pairs}) <= len({target for _, target in pairs})
        grouped: dict[str, Counter[str]] = {}
        for (source, target), count in pairs.items():
            one, other = (source, target) if by_source else (target, source)
            grouped.setdefault(one, Counter())[other] += count
        first, second = ("from", "to") if by_source else ("to", "from")
        rows = sorted(grouped.items(), key=lambda row: -row[1].total())
        found = []
        for one, others in rows[:NAMED]:
            told = [f"{self._name(name)} ({count:,})" for name, count in others.most_common(NAMED)]
            if rest := others.total() - sum(count for _, count in others.most_common(NAMED)):
                told.append(f"others ({rest:,})")
            found.append(f"{first} {self._name(one)} {second} {listed(told)}")
        if rest := sum(others.total() for _, others in rows[NAMED:]):
            found.append(f"{first} others ({rest:,})")
        return "; ".join(found)

    def _named(self, names: Sequence[str]) -> str:
        if len(names) <= NAMED:
            return listed([self._name(name) for name in names])
        hosts = sorted({printable(self._parts[name].host, 40) for name in names})
        return f"{len(names):,} nodes on {first_of(hosts, NAMED, str)}"

    def _name(self, node: str) -> str:
        part = self._parts[node]
        # Several supervisors on one machine; or a node and its successor.
        process = f" (process {part.pid})" if self._alike[part.host, part.number] > 1 else ""
        return f"node {part.number}{process} on {printable(part.host, 40)}"


def _parts(nodes: Sequence[NodeHealth], last: Told | None) -> dict[str, Part]:
    """
    Each node with what it has; of a shard that several tell of, that with the newest heartbeat. A shard that none has
    is on its way: it stays with the node that had it, if that is known.
    """
    owners: dict[Place, str] = {}
    for node in sorted(nodes, key=lambda node: -node.beat_age):
        if not node.is_late:
            owners |= dict.fromkeys(_places(node.owned), node.node)
    known = {node.node: Part(node.node_number, node.host, node.pid, {}) for node in nodes if not node.is_late}
    running = [node for node in nodes if not node.is_late]
    for name, part in last.parts.items() if last else ():
        for place in _places(part.owned):
            if place not in owners and any(node.runs(place[0]) for node in running):
                owners[place] = name
                known.setdefault(name, part)
    owned: dict[str, dict[str, list[int]]] = {name: {} for name in known}
    for (queue, shard), name in sorted(owners.items()):
        owned[name].setdefault(queue, []).append(shard)
    return {name: msgspec.structs.replace(part, owned=owned[name]) for name, part in known.items()}


def _owners(parts: Mapping[str, Part]) -> dict[Place, str]:
    return {place: name for name, part in parts.items() for place in _places(part.owned)}


def _places(owned: Mapping[str, Sequence[int]]) -> list[Place]:
    return [(queue, shard) for queue, shards in owned.items() for shard in shards]


def _goes_on(nodes: Sequence[NodeHealth], parts: Mapping[str, Part]) -> bool:
    """True if a node waits for shards, or has some to hand over; or is gone, and nobody has told yet of having them."""
    living = {node.node: node for node in nodes if node.is_elastic and not node.is_late}
    are_waiting = any(node.waited_for or (node.is_leaving and any(node.owned.values())) for node in living.values())
    return are_waiting or not parts.keys() <= living.keys()


_TOLD: Final = msgspec.json.Decoder(Told)
