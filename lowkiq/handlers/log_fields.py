"""
Fields of the log while a batch runs: queue, shard, node, ids and attempt, as context variables of structlog's.

A thread binds the first three for all that it has claimed of a shard, and the others for each batch: blank jobs take
little longer than to set a variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token
from typing import Any, Final

from structlog.contextvars import bind_contextvars, reset_contextvars

from lowkiq.job import Job

#: Ids that are bound of a batch: the first ones.
MOST_IDS: Final = 10
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


def rebind(batch: Sequence[Job]) -> None:
    """Binds what is another in the next batch of the same claim. It is called for every blank job."""
    if len(batch) == 1:
        job = batch[0]
        _IDS.set([job.id])
        tried = job.retry_count
    else:
        _IDS.set([job.id for job in batch[:MOST_IDS]])
        tried = max(job.retry_count for job in batch)
    if _ATTEMPT.get() != tried + 2:
        _ATTEMPT.set(tried + 2)


def unbind(bound: Bound) -> None:
    """Gives them back what they had."""
    for var, token in reversed(bound):
        var.reset(token)
