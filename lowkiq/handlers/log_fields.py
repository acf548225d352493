"""
Fields of the log while a batch runs: queue, shard, node, ids and attempt, as context variables of structlog's.

A thread binds the first three for all that it has claimed of a shard, the others for each batch. To set a variable
takes as long as a blank job does, so one that follows a blank job has its id put into the list that is bound: no line
has that in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token
from typing import Any, Final

from structlog.contextvars import bind_contextvars, reset_contextvars

from lowkiq.job import Job

#: Ids that are bound of a batch: the first ones.
MOST_IDS: Final = 10
#: Seconds of a turn of the claim's loop within which its batch can't have written a line, which takes several times as
#: long. A turn without one takes half of it, also where it has bound a list anew.
BLANK: Final = 2e-6
#: Variables, each with what it had before.
Bound = Sequence[tuple[ContextVar[Any], Token[Any]]]


def _variables(*names: str) -> list[ContextVar[Any]]:
    """The variables that structlog has for these names: it alone makes them."""
    tokens = bind_contextvars(**dict.fromkeys(names))
    reset_contextvars(**tokens)
    return [tokens[name].var for name in names]


_QUEUE, _SHARD, _NODE, _IDS, _ATTEMPT = _variables("queue", "shard", "node", "ids", "attempt")


def bind(queue: str, shard: int, node: str, batch: Sequence[Job]) -> Bound:
    """Binds them all in this thread, or task."""
    attempt = max((job.retry_count for job in batch), default=-1) + 2
    values = (queue, shard, node, [job.id for job in batch[:MOST_IDS]], attempt)
    return [(var, var.set(value)) for var, value in zip((_QUEUE, _SHARD, _NODE, _IDS, _ATTEMPT), values, strict=True)]


def follow(batch: Sequence[Job]) -> list[str]:
    """Binds what is another in the next batch of a claim. Returns the list of its ids."""
    attempt = max(job.retry_count for job in batch) + 2
    if _ATTEMPT.get() != attempt:
        _ATTEMPT.set(attempt)
    ids = [job.id for job in batch[:MOST_IDS]]
    _IDS.set(ids)
    return ids


def unbind(bound: Bound) -> None:
    """Gives them back what they had."""
    for var, token in reversed(bound):
        var.reset(token)
