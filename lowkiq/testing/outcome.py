"""Outcome: what became of a job when it ran."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowkiq.errors import Discard, RetryIn, Snooze
from lowkiq.handlers.retries import Failures
from lowkiq.job import Job


@dataclass(frozen=True)
class Outcome:
    """One run of one job."""

    queue: str
    id: str
    #: What perform was given.
    payloads: Sequence[Any]
    #: 1 in the first run.
    attempt: int
    #: When it ran, by the fake's clock.
    at: float
    #: It is over: performed, or discarded by a Discard.
    done: bool = False
    #: It has failed, and is tried again in so many seconds.
    retry_in: float | None = None
    #: It has not failed, and comes back in so many seconds (Snooze, RateLimited).
    snoozed: float | None = None
    #: It has failed, and its payloads are in the morgue: the oldest one, or with a Bury all that it was given.
    buried: bool = False
    #: It has failed, and waits for a person (`when_exhausted="block"`).
    blocked: bool = False
    #: Its oldest payload is gone (`when_exhausted="discard"`); with a Discard it is done.
    discarded: bool = False
    #: It was cancelled while it ran, and is not done (`actions.cancel`): nothing of this run comes back.
    cancelled: bool = False
    #: What it has raised, or the text that a PartialFailure had for it; of a RetryIn the error that it was raised from.
    error: BaseException | str | None = None

    @property
    def failed(self) -> bool:
        """True if it has failed, whatever becomes of it."""
        return self.retry_in is not None or self.buried or self.blocked or (self.discarded and not self.done)


def outcomes_of(
    queue: str,
    jobs: Sequence[Job],
    failures: Failures,
    raised: Mapping[str, BaseException | str],
    at: float,
    cancelled: Collection[str],
) -> list[Outcome]:
    """The outcome of each job of a batch, but of those that did not run."""
    delays = {row.id: row.delay for row in failures.failed}
    naps = {row.id: row.delay for row in failures.snoozed}
    fates = {row.id: row.fate for row in failures.exhausted}
    gone = {id for id in (*delays, *naps, *fates) if id in cancelled}
    for rows in (delays, naps, fates):
        for id in gone & rows.keys():
            del rows[id]
    found = []
    for job in jobs:
        fate, error = fates.get(job.id), raised.get(job.id)
        is_done = not (fate or job.id in delays or job.id in naps or job.id in gone)
        found.append(
            Outcome(
                queue,
                job.id,
                job.payloads,
                job.retry_count + 2,
                at,
                done=is_done,
                retry_in=delays.get(job.id),
                snoozed=naps.get(job.id),
                buried=fate in {"bury", "bury_all"},
                blocked=fate == "block",
                discarded=fate == "discard" or (is_done and error is not None),
                cancelled=job.id in gone,
                error=_shown(error),
            )
        )
    return found


def _shown(error: BaseException | str | None) -> BaseException | str | None:
    if isinstance(error, Snooze | Discard):
        return None
    return error.__cause__ or error if isinstance(error, RetryIn) else error
