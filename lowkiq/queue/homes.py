"""
Homes: which shard of a queue an id is in, for people's questions and actions; and, for producers, who ask nobody, Ways:
the shards that they send jobs to, and how they follow a reshard (resharding.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from lowkiq.errors import Moved
from lowkiq.job import WORDS, EncodedJob, shard_of
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, chunked
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard, shards_of

#: Seconds between looks at the layout of a queue that is being resharded: when that has ended, pushes are quick again.
LOOK: Final = 1.0
#: Times that a push is sent on, at most: it takes another reshard for each but the first two.
MOST_TIMES: Final = 10


class Ways:
    """
    One layout as a producer knows it. While shards are being moved, an id's way is to its old one until that sends the
    push on; from then on, and for good, to its new one. So pushes of an id go to one place at any time.
    """

    def __init__(self, namespace: str, queue: str, layout: Layout) -> None:
        self.layout = layout
        #: The old ones first, if any are moved.
        self.shards = shards_of(namespace, {queue: layout})
        self.count = layout.shards_count
        self._old_count = layout.old_count
        self._old = {shard.prefix: shard.index for shard in self.shards[: layout.old_count]}
        #: Old shards that are known to have moved.
        self._moved: set[int] = set()
        #: The command of a push of one job up to the id, by the index of the shard (push.py).
        self.heads: dict[int, bytes] = {}

    def shard_of(self, id: bytes) -> Shard:
        """The shard that an id's jobs go to."""
        old = self._old_count
        if old and (index := shard_of(id, old)) not in self._moved:
            return self.shards[index]
        return self.shards[old + shard_of(id, self.count)]

    def sent_on(self, prefix: str) -> bool:
        """Notes that a shard has sent a push on. False: that says that the layout is another one by now."""
        if prefix not in self._old:
            return False
        self._moved.add(self._old[prefix])
        return True


def sent_on(call: Call[Any], result: Any) -> tuple[list[str], list[EncodedJob]]:
    """The shards of a push that have sent their jobs on, and these jobs."""
    if isinstance(result, Moved):
        places: Sequence[int] = range(len(call.keys))
    elif isinstance(result, tuple):
        places = [place for what in result if isinstance(what, Moved) for place in places_of(what)]
    else:
        return [], []
    width = int(call.arguments[3])
    several = len(call.keys) > 1
    counts = list(map(int, call.arguments[4 : 4 + len(call.keys)])) if several else []
    words: Sequence[Any] = call.arguments[4 + len(counts) :]
    counts = counts or [len(words) // width]
    names = WORDS[width]
    jobs: list[EncodedJob] = []
    for place in places:
        first = sum(counts[:place]) * width
        own = words[first : first + counts[place] * width]
        jobs += [EncodedJob(**dict(zip(names, some, strict=True))) for some in chunked(own, width)]
    return [call.keys[place] for place in places], jobs


def places_of(moved: Moved) -> list[int]:
    """The places, in a push to several shards, of those that have sent their jobs on (push.lua)."""
    return [int(place) - 1 for place in str(moved).partition(" ")[2].split()]


T = TypeVar("T")

#: The keys that have the jobs of a shard, for `home_of`.
JOBS: Final = ("payloads", "morgue:payloads")


def homes_of(shards: Sequence[Shard], id: bytes) -> list[Shard]:
    """The shards, of all of its queue, that may have an id: while they are being moved two, the old one first."""
    old = sum(shard.generation != shards[-1].generation for shard in shards)
    homes = [shards[shard_of(id, old)]] if old else []
    return [*homes, shards[old + shard_of(id, len(shards) - old)]]


def homes_in(namespace: str, queue: str, layout: int | Layout, id: bytes) -> list[Shard]:
    """The same, of a queue of that layout."""
    if isinstance(layout, Layout) and layout.is_moving:
        return [shard for one in (layout.old, layout.own) for shard in homes_in(namespace, queue, one, id)]
    count = layout if isinstance(layout, int) else layout.shards_count
    return [Shard(namespace, queue, shard_of(id, count), layout)]


def home_of(caller: Caller, shards: Sequence[Shard], id: bytes, of: Sequence[str] = ()) -> Shard:
    """
    The shard that has an id, or is to have it: the old one until that was moved, and has nothing of it any more. Raises
    RedisError.

    Args:
        of: names of keys, for who wants to read in those only. Who acts on an id leaves that out: as long as anything
            of it is to come nobody can.
    """
    *older, home = homes_of(shards, id)
    if not older:
        return home
    (old,) = older
    return old if caller.run(Call("home", [old.prefix], [id, *of], bool)) else home


def act_at(caller: Caller, shard: Shard, call: Call[T]) -> T:
    """Runs a call on ids of a shard. Raises BeingResharded, also where a shard that was moved would send it on."""
    try:
        return caller.run(call)
    except Moved as error:
        raise keys.being_moved(f"{shard.queue}:{shard.index}") from error
