"""
Deeds: a row for each thing that can be done to jobs: of which views, by which script, and in which words. Whatever
offers a deed, takes it, asks back or tells of it reads its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lowkiq.queue.call import Argument

#: Payloads of an id that a script merges at a time; the rest follows in the next.
MERGE: Final = 500
#: Stands, among the words of a script, for who does it and why (pauses.py).
TOLD: Final = "who and why"

Script = tuple[str, *tuple[Argument, ...]]


@dataclass(frozen=True, kw_only=True)
class Deed:
    """What can be done to jobs."""

    #: View → the script, and its words before the ids. The first view is where ids are if nobody says.
    scripts: Mapping[str, Script]
    #: On the button.
    label: str
    #: What happens to the jobs, after "will".
    will: str
    #: What has happened to them, after their count.
    done: str
    #: Why it has not happened to others.
    others: str = "were there no longer, or run"
    #: What it does to ids that run.
    in_flight: str = "What runs is not touched: of an id that runs, only what waits for the end of that run is meant."
    #: It can't be taken back.
    is_final: bool = False
    #: One job is spared the question: nothing is lost.
    is_harmless: bool = False
    #: It is kept among the incidents also of one job: it lasts.
    lasts: bool = False
    #: What an incident begins with, in place of its name.
    noted: str = ""

    @property
    def view(self) -> str:
        """Where ids are if nobody says."""
        return next(iter(self.scripts))


_UNSTARTED: Final = ("due", "waiting", "scheduled")
_ANY: Final = (*_UNSTARTED, "blocked", "held")

#: Name → deed, in the order of the buttons.
DEEDS: Final[Mapping[str, Deed]] = {
    "perform_now": Deed(
        scripts=dict.fromkeys(("due", "scheduled", "retries"), ("perform_now",)),
        label="Perform now",
        will="become due at once; those that are due already, or wait for their own run, keep their place",
        done="made due",
        others="were due already, wait for their own run, run, or were there no longer",
        is_harmless=True,
    ),
    "revive": Deed(
        scripts={"morgue": ("revive", MERGE)},
        label="Revive",
        will="return to the queue, due now and with no failures counted",
        done="revived",
        is_harmless=True,
    ),
    "retry": Deed(
        scripts={"blocked": ("unblock", "retry")},
        label="Retry",
        will="go on, due now and with no failures counted",
        done="made to go on",
        others="were not blocked any longer",
        is_harmless=True,
    ),
    "skip": Deed(
        scripts={"blocked": ("unblock", "skip")},
        label="Skip",
        will="lose their oldest payload, and go on with the others",
        done="made to go on without their oldest payload",
        others="were not blocked any longer",
        is_final=True,
    ),
    "release": Deed(
        scripts={"held": ("let_go",)},
        label="Release",
        will="run again, each at its own time, or now; those that wait for others go on waiting",
        done="released",
        others="were not held by anybody",
        is_harmless=True,
        lasts=True,
    ),
    "stop_waiting": Deed(
        scripts={"held": ("stop_waiting",)},
        label="Stop waiting",
        will="run without those jobs that they wait for, unless somebody holds them as well",
        done="made to wait no more",
        others="waited for none",
        lasts=True,
        noted="Made to wait no more",
    ),
    "bury": Deed(
        scripts={**dict.fromkeys(_ANY, ("bury", MERGE, "any")), "retries": ("bury", MERGE, "failed")},
        label="Bury",
        will="move to the morgue, from where they can be revived",
        done="moved to the morgue",
    ),
    "delete": Deed(
        scripts={
            **dict.fromkeys(_ANY, ("drop", "queue")),
            "retries": ("drop", "failed"),
            "morgue": ("drop", "morgue"),
        },
        label="Delete",
        will="be deleted, with all payloads",
        done="deleted",
        is_final=True,
    ),
    "cancel": Deed(
        scripts=dict.fromkeys(_UNSTARTED, ("cancel",)),
        label="Cancel",
        will="be cancelled: what is queued is deleted, and what runs is asked to stop. A run that does not get done by "
        "then does not come back; one that does is done",
        done="cancelled",
        others="were there no longer",
        in_flight="Of what runs, async jobs get CancelledError, and processes are killed. A job on a thread ends when "
        "it asks current().cancelled, and runs on if it never does.",
        is_final=True,
    ),
    "hold": Deed(
        # Also what is blocked, so that it does not run when somebody retries all.
        scripts=dict.fromkeys((*_UNSTARTED, "blocked"), ("hold", TOLD)),
        label="Hold",
        will="be kept from running until somebody releases them; pushes merge into them",
        done="held",
        others="were held already",
        in_flight="What runs is finished; what is pushed to it meanwhile is held.",
        is_harmless=True,
        lasts=True,
    ),
}


def kind_of(name: str) -> str:
    """The kind of incident that a deed is."""
    return name.replace("_", " ")
