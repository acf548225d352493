"""Deeds: what people did to jobs, kept among the incidents with who did it and to how many."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import structlog
from redis.exceptions import RedisError

from lowkiq.admin.jobs.bulks import Bulk
from lowkiq.admin.past.incidents import NewIncident, end, note
from lowkiq.admin.words import printable
from lowkiq.queue.call import Caller

logger = structlog.get_logger("lowkiq")


def note_action(caller: Caller, namespace: str, queue: str, action: str, ids: int, moved: int, who: str) -> None:
    """Notes an action on several jobs; on one, programs may do more of them than anybody wants to read."""
    if ids > 1:
        kind = action.replace("_", " ")
        of = f"{moved:,} of {ids:,} jobs" if moved != ids else f"{ids:,} jobs"
        says = f"{kind.capitalize()}: {of} of {printable(queue, 60)}"
        new = NewIncident(
            key=f"deed:{secrets.token_hex(8)}", kind=kind, severity="note", says=says, queue=queue, who=who
        )
        _keep(lambda: note(caller, namespace, [new]))


def note_bulk(caller: Caller, namespace: str, bulk: Bulk, who: str) -> None:
    """Notes that an action on all that match has begun."""
    verb = bulk.action.replace("_", " ").capitalize()
    says = f"{verb}: all that match, {bulk.total:,} jobs of {printable(bulk.queue, 60)} ({bulk.match.view})"
    new = NewIncident(
        key=f"bulk:{bulk.id}", kind="bulk action", severity="note", says=says, queue=bulk.queue, who=who, lasts=True
    )
    _keep(lambda: note(caller, namespace, [new]))


def end_bulk(caller: Caller, namespace: str, bulk: Bulk) -> None:
    """Notes that it is over."""
    _keep(lambda: end(caller, namespace, {f"bulk:{bulk.id}": None}))


def _keep(write: Callable[[], object]) -> None:
    """What was done was done: that it can't be noted is no error of it."""
    try:
        write()
    except RedisError as error:
        logger.warning("deed_not_noted", error=f"{type(error).__name__}: {error}"[:300])
