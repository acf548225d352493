"""ActionWords: how actions are called, what they will do, and what they have done, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lowkiq.admin.jobs.states import STATES
from lowkiq.admin.jobs.undo import KEPT_SECONDS, is_deletion
from lowkiq.web.render import formatting


@dataclass(frozen=True)
class Wording:
    """The words of an action."""

    #: On the button.
    label: str
    #: What happens to the jobs, after "will".
    will: str
    #: What has happened to them, after their count.
    done: str
    #: Whether it can't be taken back.
    is_final: bool = False
    #: Why it has not happened to others.
    others: str = "were there no longer, or run"
    #: What it does to ids that run.
    in_flight: str = "What runs is not touched: of an id that runs, only what waits for the end of that run is meant."


WORDINGS: Final[Mapping[str, Wording]] = {
    "perform_now": Wording(
        "Perform now",
        "become due at once; those that are due already, or wait for their own run, keep their place",
        "made due",
        others="were due already, wait for their own run, run, or were there no longer",
    ),
    "revive": Wording("Revive", "return to the queue, due now and with no failures counted", "revived"),
    "retry": Wording(
        "Retry", "go on, due now and with no failures counted", "made to go on", others="were not blocked any longer"
    ),
    "skip": Wording(
        "Skip",
        "lose their oldest payload, and go on with the others",
        "made to go on without their oldest payload",
        is_final=True,
        others="were not blocked any longer",
    ),
    "bury": Wording("Bury", "move to the morgue, from where they can be revived", "moved to the morgue"),
    "delete": Wording("Delete", "be deleted, with all payloads", "deleted", is_final=True),
    "cancel": Wording(
        "Cancel",
        "be cancelled: what is queued is deleted, and what runs is asked to stop. A run that does not get done by then "
        "does not come back; one that does is done",
        "cancelled",
        is_final=True,
        others="were there no longer",
        in_flight="Of what runs, async jobs get CancelledError, and processes are killed. A job on a thread ends when "
        "it asks current().cancelled, and runs on if it never does.",
    ),
    "hold": Wording(
        "Hold",
        "be kept from running until somebody releases them; pushes merge into them",
        "held",
        others="were held already",
        in_flight="What runs is finished; what is pushed to it meanwhile is held.",
    ),
    "release": Wording(
        "Release",
        "run again, each at its own time, or now; those that wait for others go on waiting",
        "released",
        others="were not held by anybody",
    ),
    "stop_waiting": Wording(
        "Stop waiting",
        "run without those jobs that they wait for, unless somebody holds them as well",
        "made to wait no more",
        others="waited for none",
    ),
}
#: What one job is spared the question for: none of them loses anything.
HARMLESS: Final = frozenset({"perform_now", "revive", "retry", "hold", "release"})

#: What an undo has done.
UNDONE: Final = Wording("Undo", "come back", "put back where they were")


def jobs_of(view: str, count: int) -> str:
    """So many jobs of a view."""
    return formatting.plural(count, *STATES[view].noun)


def result_of(query: Mapping[str, str]) -> str | None:
    """
    What an action did, for the page after it. The address has only its name and numbers: nobody can put words of their
    own into a link to us.
    """
    wording = WORDINGS.get(query.get("done", ""))
    moved, of = _count(query.get("moved")), _count(query.get("of"))
    if query.get("done") == "nothing":
        return "No job was selected: nothing was done."
    if query.get("done") == "undo":
        wording = UNDONE
    if wording is None or moved is None or of is None:
        return None
    if query.get("done") == "undo" and not moved:
        return f"There was nothing left to undo: deletions are kept for {KEPT_SECONDS} s."
    if moved >= of:
        return f"{formatting.plural(moved, 'job')} {wording.done}."
    those = f"{moved:,} of {formatting.plural(of, 'job')} {wording.done}"
    return f"{those}: the others {wording.others}."


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004


def undo_of(query: Mapping[str, str]) -> str | None:
    """The name of the deletion that the page after it offers to undo."""
    name = query.get("undo", "")
    return name if query.get("done") == "delete" and is_deletion(name) else None
