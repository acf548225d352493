"""Ways: the shards that a producer sends the jobs of a queue to, and how it follows a reshard (resharding.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lowkiq.errors import Moved
from lowkiq.job import WORDS, EncodedJob, shard_of
from lowkiq.queue.call import Call, chunked
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
