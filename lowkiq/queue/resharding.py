"""
Resharding: gives a queue another number of shards while it is in use. The layout of the queue names both generations
then (keys.py), and whichever node's turn it is moves the old shards into the new ones, one after the other
(moving.lua). All that there is to know of it is in Redis, so it goes on wherever it was stopped.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from lowkiq.errors import BeingResharded, Fenced, SettingsError
from lowkiq.job import shard_of
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller
from lowkiq.queue.keys import MOST_SHARDS, Layout
from lowkiq.queue.shard import Held, Owned, Shard, shards_of
from lowkiq.shared_page import DeadNode

#: Rows that are moved at a time, and bytes (the last row may exceed them): some milliseconds of Redis.
ROWS, BYTES = 500, 1 << 20
#: Pairs of an old and a new shard of which one feeds the other. Each is told of, and hears when nothing comes any more.
MOST_PAIRS: Final = 1 << 20
#: Words of a row, where they are not two (pack.lua).
WIDTHS: Final = {
    "away": 6, "claim:each": 3, "due": 3, "morgue": 3, "payloads": 3, "morgue:payloads": 3, "tracks": 3, "outbox": 4,
    "waits:each": 3, "morgue:waits:each": 3, "waiters:each": 3, "heard:each": 3,
}  # fmt: skip
#: Counters of a shard that go on in a new one.
COUNTERS: Final = ("pushed", "merged", "processed", "failed", "superseded")
_AGAIN: Final = "it holds something again: it is to be begun anew"
#: Microseconds by which new shards begin ahead of where the old one is: pushes to it go on meanwhile.
MARGIN: Final = 100_000


class Chunk(NamedTuple):
    """Rows of one kind that an old shard holds, as flat words."""

    what: str
    words: Sequence[bytes]

    @property
    def width(self) -> int:
        """Words of a row."""
        return WIDTHS.get(self.what, 2)

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.words) // self.width

    @property
    def moved(self) -> int:
        """Jobs that are moved with it."""
        return self.rows if self.what in {"due", "morgue"} else 0


class Reach(NamedTuple):
    """How far scores, and the numbers of letters, go in a shard, in microseconds."""

    score: int
    number: int


#: No shard's go only so far: whoever marks by it just looks.
NOWHERE: Final = Reach(-1, -1)


class Mark(NamedTuple):
    """An old shard as whoever marks it as moved sees it."""

    is_marked: bool
    #: In microseconds.
    now: int
    reach: Reach
    #: As its meta has it, and its pause.
    seen: bytes
    paused: bytes


class Route(NamedTuple):
    """The way of the jobs of one old shard: to which new ones, and how these know it."""

    old: Shard
    new: Sequence[Shard]
    layout: Layout

    @classmethod
    def of(cls, namespace: str, queue: str, layout: Layout, index: int) -> Route:
        """The way of the old shard of that index."""
        step = math.gcd(layout.old_count, layout.shards_count)
        fed = range(index % step, layout.shards_count, step)
        new = [Shard(namespace, queue, to, layout.own) for to in fed]
        return cls(Shard(namespace, queue, index, layout.old), new, layout)

    @property
    def mark(self) -> str:
        """The layout of the old shard, once it is marked."""
        return self.layout.own.text + keys.MOVED

    def acquire(
        self, node: str, ttl: float, max_crashes: int, dead_nodes: Sequence[DeadNode], *, is_marked: bool
    ) -> Call[Owned | Held]:
        """Takes the lease of the old shard, for a mover: what is claimed of it goes back."""
        shard = Shard(self.old.namespace, self.old.queue, self.old.index, self.layout.old)
        if is_marked:
            shard.layout = self.mark
        return shard.acquire(node, ttl, max_crashes, dead_nodes)

    def feed(self, epoch: str, mark: Mark, reach: Reach) -> list[Call[int]]:
        """Has new shards wait for what is to come, and begin behind that reach; 0: one has had all there is."""
        step = math.gcd(self.layout.old_count, self.layout.shards_count)
        words: list[Argument] = [self.old.index, epoch, self.layout.old_count, step, reach.score, mark.seen]
        words += [b"-" if mark.is_marked else mark.paused, reach.number]
        return [Call("feed", [shard.prefix], [shard.layout, *words], int) for shard in self.new]

    def set_mark(self, node: str, epoch: str, reach: Reach = NOWHERE, paused: bytes = b"") -> Call[Mark]:
        """Marks it, if it does not reach further, and its pause is that one."""
        words: list[Argument] = [node, epoch, self.mark, reach.score, paused, reach.number]
        return Call("mark_moved", [self.old.prefix], words, _mark)

    def pack(self, node: str, epoch: str, rows: int = ROWS) -> Call[Chunk | None]:
        """Reads some of what it holds; None if it is empty."""
        return Call("pack", [self.old.prefix], [node, epoch, rows, BYTES], _chunk)

    def adopt(self, epoch: str, chunk: Chunk, are_waiting: Sequence[int]) -> list[Call[int]]:
        """Has new shards take what is theirs of it; of those that do not wait for it (`feed`) each has that already."""
        by_shard: dict[int, list[bytes]] = {}
        words, width, count = chunk.words, chunk.width, self.layout.shards_count
        for at in range(0, len(words), width):
            by_shard.setdefault(shard_of(words[at], count), []).extend(words[at : at + width])
        first, step = self.new[0].index, math.gcd(self.layout.old_count, count)
        calls = []
        for index, some in by_shard.items():
            place = (index - first) // step
            if not are_waiting[place]:
                continue
            shard = self.new[place]
            head: list[Argument] = [shard.layout, self.old.index, epoch, chunk.what]
            calls.append(Call("adopt", [shard.prefix], [*head, *some], int))
        return calls

    def note(self, node: str, epoch: str, step: int) -> Call[int]:
        """Notes that the new shards have what was sent before it, in the same round trip."""
        return Call("note_step", [self.old.prefix], [node, epoch, step], int)

    def drop(self, node: str, epoch: str, step: int, chunk: Chunk) -> Call[int]:
        """Deletes what was adopted in that step."""
        words, width = chunk.words, chunk.width
        if chunk.what == "away" or chunk.what.endswith(("payloads", ":each")):
            gone = [word for at in range(0, len(words), width) for word in words[at : at + 2]]
        else:
            gone = list(words[2 if chunk.what == "outbox" else 0 :: width])
        return Call("drop_moved", [self.old.prefix], [node, epoch, step, chunk.what, *gone], int)

    def end_feed(self, epoch: str, counters: Sequence[bytes | None]) -> list[Call[int]]:
        """Tells new shards that all has come; one of them goes on counting."""
        heir = self.old.index % self.layout.shards_count
        counted: list[Argument] = []
        for name, count in zip(COUNTERS, counters, strict=True):
            if count and count.isdigit():
                counted += [name, count]
        return [
            Call(
                "end_feed",
                [shard.prefix],
                [shard.layout, self.old.index, epoch, *(counted if shard.index == heir else ())],
                int,
            )
            for shard in self.new
        ]

    def close(self, node: str, epoch: str, step: int) -> Call[bool]:
        """Leaves of it what sends people on, and the lease. False: it holds something."""
        return Call("close_moved", [self.old.prefix], [node, epoch, step], bool)


def begin(caller: Caller, namespace: str, queue: str, shards_count: int) -> Layout:
    """
    Gives a queue another number of shards; nodes then move its jobs there. It may have begun already.

    Returns:
        the layout that is now in force: `is_moving`, unless it has that number.

    Raises:
        SettingsError: it can't have that number, or Redis knows no such queue.
        BeingResharded: it is being given another number.
        NewerLayout: a newer Lowkiq keeps it.
    """
    if not (type(shards_count) is int and 1 <= shards_count <= MOST_SHARDS):
        raise SettingsError(f"a queue can't have {shards_count!r} shards: from 1 to {MOST_SHARDS:,}")
    text = caller.command("HGET", keys.queues(namespace), queue)
    if text is None:
        raise SettingsError(f"Redis knows no queue {queue}: shards_count of its worker is what it begins with")
    known = Layout.parse(text)
    if known.version > keys.LAYOUT_VERSION:
        raise keys.newer_layout(queue, known.version)
    known = bring_back(caller, namespace, queue, known) or known
    if known.is_moving and known.shards_count != shards_count:
        raise BeingResharded(
            f"queue {queue} is being resharded from {known.old_count} to {known.shards_count} shards: "
            f"wait until that is over, then reshard it to {shards_count}"
        )
    if known.shards_count == shards_count:
        return known
    if math.lcm(known.shards_count, shards_count) > MOST_PAIRS:
        raise SettingsError(
            f"from {known.shards_count} to {shards_count} shards too many would wait for one another: "
            f"choose a multiple of {known.shards_count}, or one that divides it"
        )
    moving = Layout(keys.LAYOUT_VERSION, shards_count, known.generation + 1, known.shards_count, known.generation)
    if not _relayout(caller, namespace, queue, text, moving):
        return begin(caller, namespace, queue, shards_count)  # somebody else was faster
    return moving


def bring_back(caller: Caller, namespace: str, queue: str, known: Layout) -> Layout | None:
    """
    Goes on with a reshard whose beginning a failover has lost, though shards on other servers are marked as moved.
    Returns the layout that is in force then; None: nothing of the kind was lost.
    """
    lost = None if known.is_moving else _marked(caller, namespace, queue, known)
    return lost if lost and _relayout(caller, namespace, queue, known.text, lost) else None


def give_way(caller: Caller, namespace: str, queue: str, layout: Layout) -> Layout | None:
    """
    Goes on with a reshard that a failover has lost, where one to another number has begun since and meets shards of it
    that hold something. Returns the layout that is in force then; None: there is none, or this one has moved some.
    """
    found = _layouts(caller, namespace, queue, layout.own)
    same = [one for one in found if one.generation == layout.generation]
    lost = next((one for one in same if one.shards_count != layout.shards_count), None)
    if lost is None or _marked(caller, namespace, queue, layout.old):
        return None
    first = lost._replace(old_count=layout.old_count, old_generation=layout.old_generation)
    return first if _relayout(caller, namespace, queue, layout.text, first) else None


def _marked(caller: Caller, namespace: str, queue: str, layout: Layout) -> Layout | None:
    """The layout of a reshard by which some shards of that layout are marked as moved."""
    found = _layouts(caller, namespace, queue, layout)
    mark = next((one for one in found if one.generation > layout.generation), None)
    return mark and mark._replace(old_count=layout.shards_count, old_generation=layout.generation)


def _layouts(caller: Caller, namespace: str, queue: str, layout: Layout) -> list[Layout]:
    """The layouts that the shards of one have in Redis, as far as they can be read."""
    shards = shards_of(namespace, {queue: layout})
    found: list[Layout] = []
    for text in caller.read([("HGET", shard.prefix + "meta", "layout") for shard in shards], b""):
        with contextlib.suppress(ValueError):  # anybody may have written it
            found.append(Layout.parse(text or b""))
    return found


def end(caller: Caller, namespace: str, queue: str, layout: Layout) -> bool:
    """Ends a reshard whose old shards are all empty. False: somebody has already, or a failover has filled them."""
    if not _relayout(caller, namespace, queue, layout.text, layout.own):
        return False
    if not unfinished(caller, namespace, queue, layout):
        return True
    _relayout(caller, namespace, queue, layout.own.text, layout)
    return False


def unfinished(caller: Caller, namespace: str, queue: str, layout: Layout) -> list[int]:
    """The old shards of a queue that have not been emptied yet."""
    shards = shards_of(namespace, {queue: layout.old})
    closed = caller.read([("HGET", shard.prefix + "meta", "closed") for shard in shards], None)
    return [shard.index for shard, text in zip(shards, closed, strict=True) if not text]


def _relayout(caller: Caller, namespace: str, queue: str, known: str | bytes, layout: Layout) -> bool:
    """Puts a layout in the place of the known one. False: there is another by now."""
    call = Call("relayout", [keys.queues(namespace)], [queue, known, layout.text], bytes)
    return caller.run(call) == layout.text.encode()


def _mark(reply: list[Any]) -> Mark:
    is_marked, now, last_score, seen, paused, posted = reply
    return Mark(bool(is_marked), int(now), Reach(_whole(last_score), _whole(posted)), seen, paused)


def _whole(number: bytes) -> int:
    """A number of a shard; 0 for what is none, as scripts have it."""
    with contextlib.suppress(ValueError, OverflowError):
        return int(float(number))
    return 0


def _chunk(reply: list[bytes]) -> Chunk | None:
    return Chunk(reply[0].decode(), reply[1:]) if reply else None


def steps(caller: Caller, route: Route, node: str, epoch: str) -> Iterator[int]:
    """
    Moves all of one old shard whose lease that mover has; between two steps it may renew that. What is sent again after
    a loss changes nothing, so it may be begun anew at any point, by whichever mover has the lease.

    Yields:
        how many jobs each step has moved.

    Raises:
        Fenced: another mover has the lease; or a failover has lost the reshard before it was acquired, and it is given
            back.
    """
    old, layout = route.old, route.layout
    # Whoever has heard of the reshard before a failover lost it acquires the lease after: else that is lost, too.
    if caller.command("HGET", keys.queues(old.namespace), old.queue) != layout.text.encode():
        caller.run(old.release(node, epoch, 0, "lease"))
        raise Fenced(f"queue {old.queue} is not being resharded to {layout.shards_count} shards, or not any more")
    mark = caller.run(route.set_mark(node, epoch))
    yield 0
    margin = 0 if mark.is_marked else MARGIN
    while True:
        least = 0 if mark.is_marked else mark.now
        reach = Reach(*(max(number, least) + margin for number in mark.reach))
        are_waiting = _raise(caller.run_all(route.feed(epoch, mark, reach)))
        mark = caller.run(route.set_mark(node, epoch, reach, mark.paused))
        yield 0
        if mark.is_marked:
            break
        margin *= 2
    counters = caller.command("HMGET", route.old.prefix + "meta", *COUNTERS)
    chunk, step = caller.run(route.pack(node, epoch)), 1
    while chunk is not None:
        _raise(caller.run_all([*route.adopt(epoch, chunk, are_waiting), route.note(node, epoch, step)]))
        yield 0
        _, following = _raise(caller.run_all([route.drop(node, epoch, step, chunk), route.pack(node, epoch)]))
        yield chunk.moved
        chunk, step = following, step + 1
    # New shards are told that all has come under an epoch of which they hear as the old one is seen to be empty: where
    # a failover has lost the one, they don't know the other.
    last = str(int(epoch) + 1)
    again, *_ = _raise(caller.run_all([route.pack(node, epoch), *route.feed(last, mark, mark.reach)]))
    yield 0
    if again is not None:
        raise Fenced(_AGAIN)
    _raise(caller.run_all([*route.end_feed(last, counters), route.note(node, epoch, step)]))
    yield 0
    if not caller.run(route.close(node, epoch, step)):
        raise Fenced(_AGAIN)


def _raise(results: list[Any]) -> list[Any]:
    """The results; raises the first error, that of a mover who comes too late before all others."""
    errors = [result for result in results if isinstance(result, Exception)]
    for error in sorted(errors, key=lambda error: not isinstance(error, Fenced)):
        raise error
    return results
