"""ClaimInHand: the jobs of one claim on their way through perform, and what of it Redis does not know yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lowkiq.job import Job
from lowkiq.queue.claims import Claim
from lowkiq.queue.shard import Exhausted, Failure, Outcome, Rest


class Failures(NamedTuple):
    """What failed in a batch; the jobs that are not named are done."""

    failed: Sequence[Failure] = ()
    exhausted: Sequence[Exhausted] = ()


class ClaimInHand:
    """
    Jobs run in their order, so two positions say it all: before `_done` they have an outcome, before `_started` they
    run or have one. Success costs no more than a step of the position.

    Not safe between threads: its shard handler locks. What was sent stays known until it is confirmed, since a reply
    can be lost and a settle can be repeated.
    """

    def __init__(self, claim: Claim) -> None:
        self._jobs = claim.jobs
        self._has_several = claim.has_several
        self._started = self._done = self._settled = 0
        #: Jobs from here on are not to be started: a drain gives them back.
        self._end = len(claim.jobs)
        self._failed: list[Failure] = []
        self._exhausted: list[Exhausted] = []
        self._failed_ids: set[str] = set()
        self._spoiled = list(claim.spoiled)
        #: What else the ids of spoiled payloads hold, and jobs that a drain keeps from starting.
        self._released = list(dict.fromkeys(row.id for row in claim.spoiled)) if claim.spoiled else []

    def start(self, size: int) -> list[Job]:
        """The next batch, empty at the end."""
        first = self._started
        self._started = last = first + size if size < self._end - first else self._end
        return self._jobs[first:last]

    def finish(self, failures: Failures | None) -> None:
        """The batch that was started is done, but for what failed of it."""
        self._done = self._started
        if failures is not None:
            self._failed += failures.failed
            self._exhausted += failures.exhausted
            self._failed_ids.update(row.id for row in failures.failed)
            self._failed_ids.update(row.id for row in failures.exhausted)

    def give_back(self) -> None:
        """Keeps the jobs that have not started from starting."""
        self._released += [job.id for job in self._jobs[self._started : self._end]]
        self._end = self._started

    def has_news(self) -> bool:
        """Whether there is anything to settle."""
        return self._done > self._settled or bool(self._spoiled or self._released)

    def outcome(self, *, last: bool) -> tuple[Outcome, int]:
        """
        What Redis is to be told, and the position to confirm. With `last` it ends the claim; then the jobs that are
        done need not be named: they, or those that never ran, are what is left of it.
        """
        rest: Rest = "keep" if not last else "release" if self._started < self._end else "ack"
        done = self._jobs[self._settled : self._done] if rest != "ack" else ()
        return (
            Outcome(
                acked=[job.id for job in done if job.id not in self._failed_ids],
                released=tuple(self._released),
                failed=tuple(self._failed),
                exhausted=tuple(self._exhausted),
                spoiled=tuple(self._spoiled),
                rest=rest,
                has_several=self._has_several,
            ),
            self._done,
        )

    def confirm(self, sent: Outcome, done: int) -> None:
        """Redis knows what was sent; what came since stays."""
        self._settled = done
        del self._released[: len(sent.released)]
        del self._failed[: len(sent.failed)]
        del self._exhausted[: len(sent.exhausted)]
        del self._spoiled[: len(sent.spoiled)]
