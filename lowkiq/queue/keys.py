"""
Every name in Redis, and the layout: which keys a shard has and what is in them, told by a number, so that an older
Lowkiq never writes into what a newer one keeps otherwise than it knows.

The text of a layout is in `ns:queues` for each queue, and in `meta` of each shard: "2:24" has 24 shards. push, acquire,
claim and the actions of operators compare it with their own in the script that writes. settle, renew, release and
abandon need not: they are refused to whoever has lost the lease.

Of a queue that was resharded it names the generation of its shards, "2:48:2", whose keys carry {queue@2:7}. While
shards are being moved, the queue's text names those they come from as well, "2:48:2:5:1", and a shard that is moved has
":moved" behind the layout it has moved to, for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from lowkiq.errors import BeingResharded, NewerLayout
from lowkiq.queue.unreadable import quoted
from lowkiq.version import VERSION

#: The layout that this Lowkiq writes. A change that an older one could not work with raises it by one.
LAYOUT_VERSION: Final = 2
#: What is behind the layout to which a shard has moved, in the place of its own (shard.lua).
MOVED: Final = ":moved"
#: What is behind the name of a node that owns such a shard to move it.
MOVER: Final = "/mover"
#: When a blocked job is due in its shard's index (claimed.lua).
NEVER: Final = 1e30
#: Shards of a queue. Each costs memory wherever it is known, so what Redis says is held to this as well.
MOST_SHARDS: Final = 65_536


class Layout(NamedTuple):
    """The layout of a queue, or of one of its shards."""

    version: int
    shards_count: int
    #: How often the queue was given another number of shards, and one more: their keys say so.
    generation: int = 1
    #: The number and the generation of the shards that are being moved into these; 0: none are.
    old_count: int = 0
    old_generation: int = 0

    @classmethod
    def first(cls, shards_count: int) -> Self:
        """That of a queue which begins with so many shards."""
        return cls(LAYOUT_VERSION, shards_count)

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """
        Later versions may say more behind another colon, and who writes it by hand may say the number of shards alone.
        Raises ValueError for what is no layout.
        """
        match = re.fullmatch(rb"(?:([0-9]{1,9}):)?([0-9]{1,9})(?::(.*))?", text, re.DOTALL)
        version, shards_count = (int(match[1] or LAYOUT_VERSION), int(match[2])) if match else (0, 0)
        if version > LAYOUT_VERSION and 1 <= shards_count <= MOST_SHARDS:
            return cls(version, shards_count)
        if not match or not 1 <= shards_count <= MOST_SHARDS or version != LAYOUT_VERSION:
            raise ValueError(f"{quoted(text, 60)} is no layout, like 2:5 with 5 shards, of at most {MOST_SHARDS:,}")
        rest = b"1" if match[3] is None else match[3]
        more = re.fullmatch(rb"([0-9]{1,9})(?::([0-9]{1,9}):([0-9]{1,9})|:moved)?", rest)
        generation, old_count, old_generation = (int(part or 0) for part in more.groups()) if more else (0, 0, 0)
        is_moving = 1 <= old_count <= MOST_SHARDS and 1 <= old_generation < generation
        is_plain = old_count == old_generation == 0 and (generation > 1 or match[3] is None)
        if not is_moving and not is_plain:
            raise ValueError(f"{quoted(text, 60)} is no layout of a queue that was resharded, like 2:48:2")
        return cls(version, shards_count, generation, old_count, old_generation)

    @property
    def text(self) -> str:
        """The text of it."""
        generation = f":{self.generation}" if self.generation > 1 else ""
        old = f":{self.old_count}:{self.old_generation}" if self.is_moving else ""
        return f"{self.version}:{self.shards_count}{generation}{old}"

    @property
    def is_moving(self) -> bool:
        """True while shards of another generation are being moved into these."""
        return self.old_count > 0

    @property
    def own(self) -> Layout:
        """The layout that its shards have, whether others are being moved into them or not."""
        return Layout(self.version, self.shards_count, self.generation)

    @property
    def old(self) -> Layout:
        """The layout of the shards that are being moved."""
        return Layout(self.version, self.old_count, self.old_generation)


def newer_layout(queue: str, version: int | str) -> NewerLayout:
    """The refusal to write into a queue of a later version."""
    return NewerLayout(
        f"queue {queue} has layout {version}, this Lowkiq {VERSION} writes layout {LAYOUT_VERSION}: upgrade it"
    )


def being_moved(part: str) -> BeingResharded:
    """The refusal to act on ids of a shard from which, or to which, jobs are being moved: "orders@2:7"."""
    name, _, index = part.rpartition(":")
    return BeingResharded(
        f"queue {queue_of(name)} is being resharded, its shard {index} just now: try again in some seconds"
    )


def shard(namespace: str, queue: str, index: int, generation: int = 1) -> str:
    """Prefix of a shard's keys. The braces are a hash tag: they live in one Cluster slot, where scripts are atomic."""
    return f"{namespace}:{{{of_generation(queue, generation)}:{index}}}:"


def of_generation(queue: str, generation: int) -> str:
    """The name of the shards of a queue that were made by a reshard, of which no queue has one: "orders@2"."""
    return queue if generation == 1 else f"{queue}@{generation}"


def queue_of(part: str) -> str:
    """The queue of such shards."""
    return part.partition("@")[0]


def places(namespace: str, queue: str) -> str:
    """Prefix of the places of a queue's batches (places.lua). They are of the queue, so in a slot of their own."""
    return f"{namespace}:{{{queue}:places}}:"


def rate(namespace: str, queue: str) -> str:
    """Prefix of what the rates of a queue keep (rate.lua). It is no shard's: no index is called `rate`."""
    return f"{namespace}:{{{queue}:rate}}:"


def _key(form: str) -> Callable[[str], str]:
    """A key that there is once, by the namespace."""
    return lambda namespace: f"{namespace}:{form}"


def _key_of(form: str) -> Callable[[str, str], str]:
    """A key of a queue, a node or the like, by the namespace and the name of that."""
    return lambda namespace, name: f"{namespace}:{form % name}"


#: Hash: queue → its layout.
queues = _key("queues")
#: Hash: what is told of a queue's reshard, for people: who started it and when, how much has moved.
resharding = _key_of("resharding:%s")
#: Zset: node → its last beat.
nodes = _key("nodes")
#: Zset: node to which shards may be dealt → when it has said so last. What it says is beside it, in one slot.
members = _key("{members}")
#: String: each node that shares by itself and the shards that it had when moves were told last, as JSON.
parts = _key("parts")
#: String: the health of a node, as JSON with a TTL.
node = _key_of("node:%s")
#: Channel on which a node is told of work for shards it believes idle (bell.lua makes the same name).
doorbell = _key_of("bell:%s")
#: Prefix of the lists of a queue's history. They share a Cluster slot: a sample is one script.
history = _key_of("{history}:%s:")
#: Prefix of a queue's ledger of failures: `seen` (group → last), `first`, `counts`, and a node's last flush.
failures = _key_of("{failures}:%s:")
#: Exists until the next sample of the history is due.
history_turn = _key("{history}")
#: Hash: queue, a space and the name of a setting → its value, who set it and when, as JSON.
live_settings = _key("settings")
#: String: there as long as Redis has kept what it held; another one after it has lost that.
marker = _key("marker")
#: String: what Redis held before it was found empty, as JSON, until somebody acknowledges that.
emptied = _key("emptied")
#: Hash: key of an alert → who has seen it, until when, and a note, as JSON.
acknowledged = _key("acknowledged")
#: Exists for a while once a node has told that Redis was away: others need not.
away = _key("away")
#: Hash: alert → since when it is noted, and when it was last.
alerts = _key("alerts")
#: String: the number of what a node has last added to such sums. In their slot, as it is one script.
added = _key_of("{history}::added:%s")
#: Zset: incident → when it was. This key and the next two share a Cluster slot.
incidents = _key("{incidents}")
#: Hash: incident → what is said of it, as JSON.
incidents_said = _key("{incidents}:said")
#: Hash: incident that lasted → when it ended.
incidents_ends = _key("{incidents}:ends")
#: The version that the nodes of these queues have run last, and how many there were.
version = _key_of("version:%s")
#: Hash: what the code of nodes declares to recur of a queue, and what was taken away of it (declare.lua).
declared = _key_of("declared:%s")
#: The settings of a queue with which a node has started last.
settings = _key_of("settings:%s")
#: List: what a node is asked for, until it hears. It shares a Cluster slot with the next.
hands_of = _key_of("{hands}:to:%s")
#: A request to a node and how far that is with it, as JSON with a TTL.
hand = _key_of("{hands}:%s")
#: Zset: dump → when it was made. What is said of it, and its text, are beside it.
dumps = _key("{dumps}")
#: What is said of a dump, as JSON; its text is under the same with ":text" behind.
dump = _key_of("{dumps}:%s")
#: Shards that nobody owned at the last look.
unowned = _key("unowned")
#: Zset: session of the web view that somebody has ended → when its cookie ends.
ended_sessions = _key("web:ended")
#: Zset: bulk → when it was started.
bulks = _key("bulks")
#: The progress of a bulk, as JSON with a TTL.
bulk = _key_of("bulk:%s")
#: Exists once somebody has asked a bulk to stop.
bulk_stop = _key_of("bulk:%s:stop")


def pool_bell(namespace: str, name: str, pool: int) -> str:
    """List on which threads of a node are told of it, where scripts can reach both. It expires when nobody listens."""
    return f"{namespace}:bell:{name}:{pool}"


def times(namespace: str, queue: str, day: int | None = None) -> str:
    """String: how long jobs of a queue waited and ran on a day, numbered from 1970 on, or in all (durations.py)."""
    return f"{history(namespace, queue)}times" + ("" if day is None else f":{day}")
