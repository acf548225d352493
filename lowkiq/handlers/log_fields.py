"""
Fields of the log while a batch runs: queue, shard, node, ids and attempt, as context variables of structlog's.

The first three are bound once for all that a node runs of a shard, the others for each batch. To set a variable takes
as long as a blank job does, so one that follows a blank job has its id put into the list that is bound: no line has
that in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, Final

from structlog.contextvars import bind_contextvars, reset_contextvars

from lowkiq.job import Job
from lowkiq.queue.shard import Shard

#: Ids that are bound of a batch: the first ones.
MOST_IDS: Final = 10
#: Seconds of a turn of the claim's loop within which its batch can't have written a line, which takes several times as
#: long. A turn without one takes half of it.
BLANK: Final = 2e-6


def _variables(*names: str) -> list[ContextVar[Any]]:
    """The variables that structlog has for these names: it alone makes them."""
    tokens = bind_contextvars(**dict.fromkeys(names))
    reset_contextvars(**tokens)
    return [tokens[name].var for name in names]


_id, _retry_count = attrgetter("id"), attrgetter("retry_count")
_QUEUE, _SHARD, _NODE, _IDS, _ATTEMPT = _variables("queue", "shard", "node", "ids", "attempt")


def bind_shard(shard: Shard, node: str) -> None:
    """Binds what all batches of a shard have in common."""
    _QUEUE.set(shard.queue)
    _SHARD.set(shard.index)
    _NODE.set(node)


def bind_batch(batch: Sequence[Job]) -> list[str]:
    """Binds what a batch has of its own. Returns the list of its ids."""
    attempt = max(map(_retry_count, batch), default=-1) + 2
    if _ATTEMPT.get(None) != attempt:
        _ATTEMPT.set(attempt)
    ids = list(map(_id, batch[:MOST_IDS]))
    _IDS.set(ids)
    return ids
