"""Deeds: what people did to jobs, kept among the incidents with who did it and to how many."""

from __future__ import annotations

from lowkiq.admin.jobs.bulks import Bulk
from lowkiq.admin.past.incidents import NewIncident, end, note_deed, tolerant, try_to_note
from lowkiq.admin.words import plural, printable
from lowkiq.queue.call import Caller


def note_action(caller: Caller, namespace: str, queue: str, action: str, ids: int, moved: int, who: str) -> None:
    """Notes an action on several jobs; on one, programs may do more of them than anybody wants to read. Holds last."""
    if ids > 1 or action in {"hold", "release", "stop_waiting"}:
        kind = action.replace("_", " ")
        of = f"{moved:,} of {plural(ids, 'job')}" if moved != ids else plural(ids, "job")
        says = f"{kind.capitalize()}: {of} of {printable(queue, 60)}"
        note_deed(caller, namespace, queue, kind, says, who)


def note_bulk(caller: Caller, namespace: str, bulk: Bulk, who: str) -> None:
    """Notes that an action on all that match has begun."""
    verb = bulk.action.replace("_", " ").capitalize()
    says = f"{verb}: all that match, {bulk.total:,} jobs of {printable(bulk.queue, 60)} ({bulk.match.view})"
    new = NewIncident(
        key=f"bulk:{bulk.id}", kind="bulk action", severity="note", says=says, queue=bulk.queue, who=who, lasts=True
    )
    try_to_note(caller, namespace, new)


def end_bulk(caller: Caller, namespace: str, bulk: Bulk) -> None:
    """Notes that it is over."""
    with tolerant():
        end(caller, namespace, {f"bulk:{bulk.id}": None})
