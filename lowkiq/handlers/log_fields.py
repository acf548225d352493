"""
Fields of the log while a batch runs: queue, shard, node, ids and attempt, as context variables of structlog's.

A thread binds the first three, and mostly the attempt, for all that it has claimed of a shard. For a blank job it then
sets one variable, in a line of the claim's own loop: that is all that it costs.
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


_QUEUE, _SHARD, _NODE, IDS, ATTEMPT = _variables("queue", "shard", "node", "ids", "attempt")


def bind(queue: str, shard: int, node: str, batch: Sequence[Job]) -> Bound:
    """Binds them all in this thread, or task."""
    attempt = max((job.retry_count for job in batch), default=-1) + 2
    values = (queue, shard, node, [job.id for job in batch[:MOST_IDS]], attempt)
    return [(var, var.set(value)) for var, value in zip((_QUEUE, _SHARD, _NODE, IDS, ATTEMPT), values, strict=True)]


def ids_of(batch: Sequence[Job]) -> list[str]:
    """The ids of the next batch of a claim, to be bound. Binds its attempt, which may be another."""
    attempt = max(job.retry_count for job in batch) + 2
    if ATTEMPT.get() != attempt:
        ATTEMPT.set(attempt)
    return [job.id for job in batch[:MOST_IDS]]


def unbind(bound: Bound) -> None:
    """Gives them back what they had."""
    for var, token in reversed(bound):
        var.reset(token)
