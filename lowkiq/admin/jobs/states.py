"""States: where a job can be. Pages, API and search ask this one table for their names, and for where they are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from lowkiq.admin.jobs.paging import EVERYTHING, Bounds
from lowkiq.admin.jobs.reader import JobPreview
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.queue.keys import NEVER

#: What orders a list, and what a range of it goes by.
DUE, FAILURES, BURIED, BLOCKED, HELD = "due", "failures", "buried", "blocked", "held"


@dataclass(frozen=True)
class State:
    """A state: its words, and the index of its jobs."""

    #: On its tab, and what its jobs are called.
    title: str
    noun: tuple[str, str]
    #: What it means, in a sentence.
    explained: str
    #: The key of the index, the place that fetch.lua knows, and the hash of errors.
    index: str
    where: str
    errors: str
    #: What the index orders by; and whether a list begins at its end.
    order: str
    is_reverse: bool
    #: The part of the index that is due, or is not; None: all of it.
    is_due: bool | None = None
    #: It has a tab of its own.
    has_tab: bool = True
    #: Its field of QueueMetrics.
    count: str = ""

    def bounds(self, now: float) -> Bounds:
        """The part of the index that is meant at that time."""
        if self.is_due is None:
            return EVERYTHING
        return (-math.inf, f"{now:.6f}") if self.is_due else (f"({now:.6f}", f"({NEVER}")

    def has(self, score: float, now: float) -> bool:
        """True if an id with that score in the index is in the state. At infinity are those that wait for their run."""
        is_blocked = self.index == "due" and score == NEVER
        return self.is_due is None or (not is_blocked and (score <= now or score == math.inf) == self.is_due)


def _queued(title: str, explained: str, count: str, *, is_due: bool | None) -> State:
    noun = f"{title.lower()} job"
    return State(title, (noun, f"{noun}s"), explained, "due", "queue", "errors", DUE, False, is_due, count=count)


STATES: Final[Mapping[str, State]] = {
    "waiting": _queued("Waiting", "Due, and run next; retries whose time has come are among them.", "due", is_due=True),
    "scheduled": _queued(
        "Scheduled", "Due later; retries that wait for their next try are among them.", "scheduled", is_due=False
    ),
    "in_flight": State(
        "Running", ("running job", "running jobs"), "In the hands of nodes: they run, or come next.",
        "claim", "claim", "errors", DUE, False, count="busy",
    ),
    "retries": State(
        "Retrying", ("failed job", "failed jobs"), "Have failed and will be tried again. Each of them also counts as "
        "Waiting or Scheduled.", "retries", "queue", "errors", FAILURES, True, count="retries",
    ),
    "blocked": State(
        "Blocked", ("blocked job", "blocked jobs"), "Have failed too often, and keep all their payloads: nothing of "
        "their ids runs until somebody retries, skips or deletes them.", "blocked", "queue", "errors", BLOCKED, False,
        count="blocked",
    ),
    "held": State(
        "Held", ("held job", "held jobs"), "Kept from running by somebody, until released. Each also counts as Waiting "
        "or Blocked if it is queued.", "held", "queue", "errors", HELD, True, count="held",
    ),
    "morgue": State(
        "Morgue", ("job of the morgue", "jobs of the morgue"), "Failed too often: nothing runs them until somebody "
        "revives them.", "morgue", "morgue", "morgue:errors", BURIED, True, count="morgue_length",
    ),
    "due": replace(
        _queued("Queued", "Waiting, Scheduled and Blocked together.", "length", is_due=None), has_tab=False
    ),
}  # fmt: skip
#: Other names that addresses may have.
ALIASES: Final = {"running": "in_flight", "retrying": "retries", "queued": "due", "dead": "morgue"}
#: States whose jobs an index lists; what runs is in no index.
INDEXED: Final = tuple(name for name in STATES if name != "in_flight")


def state_named(name: str) -> str:
    """The name of a state in the table, by any of its names; Waiting for one that there is not."""
    name = ALIASES.get(name, name)
    return name if name in STATES else "waiting"


def counts_of(metrics: QueueMetrics) -> dict[str, int]:
    """The number of jobs in each state. Waiting, Scheduled and Blocked add up to Queued; Retrying is a part of it."""
    return {name: int(getattr(metrics, state.count)) for name, state in STATES.items()}


def state_of(job: JobPreview, now: float) -> str:
    """The title of the state of a job, as the tabs of its queue's page have it."""
    if job.is_blocked:
        return STATES["blocked"].title
    if job.where != "queue":
        return STATES["in_flight" if job.where == "claim" else "morgue"].title
    if job.is_held:
        return STATES["held"].title
    if job.retry_count >= 0:
        return STATES["retries"].title
    return STATES["waiting" if job.waits_for_own_run or job.at <= now else "scheduled"].title
