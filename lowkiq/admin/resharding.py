"""Resharding, for people: begins it, and tells how far it is. Nodes do it (queue/resharding.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lowkiq.admin.beats.hands import ring_all
from lowkiq.admin.metrics import read_layouts, read_lengths
from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.words import age, plural, printable
from lowkiq.queue import keys, resharding
from lowkiq.queue.call import Argument, Caller, redis_time
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.queue.unreadable import bounded

#: Seconds for which is told how a reshard went, once it is over; and without a step after which it stands still.
KEPT: Final = 7 * 86_400
STILL: Final = 60.0
#: Characters of a name that are kept.
MOST_WHO: Final = 200
#: Digits of a count that are read.
MOST_DIGITS: Final = 15


class Resharding(msgspec.Struct, frozen=True, kw_only=True):
    """A reshard that goes on, or was the queue's last."""

    #: Shards that the queue had before, and those it gets.
    before: int
    shards: int
    #: Jobs that have moved, and those that are left in old shards; both of the queue and of the morgue.
    moved: int
    left: int
    is_over: bool
    #: When it began, and when something was moved last, by Redis's clock.
    began_at: float
    moved_at: float
    #: Seconds that it has taken until now, or took.
    seconds: float
    #: Who has begun it, and the node that moves, or moved last.
    who: str = ""
    node: str = ""

    @property
    def percent(self) -> int:
        """How much of it is done; 100 once all is."""
        return 100 if self.is_over else min(int(100 * self.moved / max(self.moved + self.left, 1)), 99)

    @property
    def stands_for(self) -> float:
        """Seconds for which nothing was moved; 0 once it is over."""
        return 0.0 if self.is_over else max(self.seconds - (self.moved_at - self.began_at), 0.0)

    @property
    def says(self) -> str:
        """A sentence for people, without its full stop."""
        if self.is_over:
            return f"resharded {self.before} → {self.shards}: {self.moved:,} jobs moved in {self.seconds:.1f} s"
        still = f", nothing for {age(self.stands_for)}" if self.stands_for >= STILL else ""
        return f"resharding {self.before} → {self.shards}: {self.percent} %{still}"


def reshard(caller: Caller, namespace: str, queue: str, shards_count: int, who: str = "") -> Resharding:
    """
    Gives a queue another number of shards, while it is in use. Nodes move its jobs; this only begins it, and may be
    repeated.

    Raises:
        SettingsError: the queue can't have that number of shards, or Redis knows no such queue.
        BeingResharded: it is being given another number.
    """
    layout = resharding.begin(caller, namespace, queue, shards_count)
    now = redis_time(caller)
    if layout.is_moving:
        key = keys.resharding(namespace, queue)
        began: list[Argument] = ["generation", layout.generation, "moved", 0, "who", who[:MOST_WHO]]
        began += ["began_at", f"{now:.6f}", "moved_at", f"{now:.6f}"]
        (known,) = caller.read([("HGET", key, "generation")], b"")
        if known != str(layout.generation).encode():
            began += ["before", layout.old_count, "shards", layout.shards_count]
            caller.commands([("UNLINK", key), ("HSET", key, *began)])
            says = f"Queue {printable(queue, 60)}: {plural(layout.old_count, 'shard')} become {layout.shards_count:,}"
            note_deed(caller, namespace, queue, "reshard", says, who)
        ring_all(caller, namespace)
    found = read_progress(caller, namespace, queue, layout)
    count = layout.shards_count
    return found or Resharding(
        before=count, shards=count, moved=0, left=0, is_over=True, began_at=now, moved_at=now, seconds=0.0
    )


def read_progress(caller: Caller, namespace: str, queue: str, layout: Layout | None = None) -> Resharding | None:
    """How far the reshard of a queue is; how the last one went if none goes on, if that is known."""
    (told,) = caller.read([("HGETALL", keys.resharding(namespace, queue))], {})
    text: Mapping[bytes, bytes] = told if isinstance(told, Mapping) else dict(zip(told[::2], told[1::2], strict=True))
    if layout is None:
        layout = read_layout(caller, namespace, queue)
    is_moving = layout is not None and layout.is_moving
    if layout is None or not (text or is_moving):
        return None
    now = redis_time(caller)
    began_at, moved_at = (bounded(text.get(name, b"%f" % now)) for name in (b"began_at", b"moved_at"))
    left = 0
    if is_moving:
        old = [Shard(namespace, queue, index, layout.old) for index in range(layout.old_count)]
        left = sum(read_lengths(caller, old, "due")) + sum(read_lengths(caller, old, "morgue"))
    return Resharding(
        before=layout.old_count or _number(text, b"before"),
        shards=layout.shards_count,
        moved=_number(text, b"moved"),
        left=left,
        is_over=not is_moving,
        began_at=began_at,
        moved_at=moved_at,
        seconds=max((now if is_moving else moved_at) - began_at, 0.0),
        who=text.get(b"who", b"")[:MOST_WHO].decode("utf-8", "replace"),
        node=text.get(b"node", b"")[:MOST_WHO].decode("utf-8", "replace"),
    )


def read_moving(
    caller: Caller, namespace: str, layouts: Mapping[str, int | Layout] | None = None
) -> dict[str, Resharding]:
    """How far those queues are that are being resharded."""
    known = read_layouts(caller, namespace) if layouts is None else layouts
    moving = {queue: layout for queue, layout in known.items() if isinstance(layout, Layout) and layout.is_moving}
    found = {queue: read_progress(caller, namespace, queue, layout) for queue, layout in moving.items()}
    return {queue: one for queue, one in found.items() if one is not None}


def read_layout(caller: Caller, namespace: str, queue: str) -> Layout | None:
    """The layout of a queue as Redis knows it; None if it knows none that can be read."""
    (text,) = caller.read([("HGET", keys.queues(namespace), queue)], None)
    try:
        return Layout.parse(text) if text else None
    except ValueError:
        return None


def shards_in_force(caller: Caller, shards: Sequence[Shard]) -> Sequence[Shard]:
    """
    The shards that the queue of these has by now, and those that are being moved: whoever looks at it may have begun
    before it was resharded, and code may name another number.
    """
    if not shards:
        return shards
    namespace, queue = shards[0].namespace, shards[0].queue
    layout = read_layout(caller, namespace, queue)
    # Of a newer one scripts say that it is to be left alone.
    is_readable = layout is not None and layout.version <= keys.LAYOUT_VERSION
    return shards_of(namespace, {queue: layout}) if layout and is_readable else shards


def note_moved(caller: Caller, namespace: str, queue: str, node: str, moved: int) -> None:
    """Notes that a node has moved so many jobs more."""
    key, now = keys.resharding(namespace, queue), redis_time(caller)
    caller.commands(
        [
            ("HINCRBY", key, "moved", moved),
            ("HSET", key, "moved_at", f"{now:.6f}", "node", node[:MOST_WHO]),
            ("EXPIRE", key, KEPT),
        ]
    )


def _number(text: Mapping[bytes, bytes], name: bytes) -> int:
    digits = text.get(name, b"0")[:MOST_DIGITS]
    return int(digits) if digits.isdigit() else 0
