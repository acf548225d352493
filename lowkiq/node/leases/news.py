"""News: what Redis does not know yet of the jobs of a claim, but for those that are simply done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lowkiq import clock
from lowkiq.handlers.retries import Failures
from lowkiq.job import Job
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Crashed, Exhausted, Failure, Outcome, Rest, Snoozed


class News:
    """
    What was sent stays until Redis has confirmed it: a reply can be lost, and a settle repeated. What comes meanwhile
    stays behind it. Whoever uses it holds the claim's lock.
    """

    __slots__ = (
        "_not_done", "_stopped", "crashed", "exhausted", "failed", "letters", "limited", "released", "snoozed",
        "spoiled",
    )  # fmt: skip

    def __init__(self) -> None:
        self.failed: list[Failure] = []
        self.exhausted: list[Exhausted] = []
        self.snoozed: list[Snoozed] = []
        self.crashed: list[Crashed] = []
        #: Jobs that may not start yet, each with when it may (monotonic).
        self.limited: list[tuple[str, float]] = []
        self.spoiled: list[Spoiled] = []
        #: Jobs that are kept from starting, or go back; and what else the ids of spoiled payloads hold.
        self.released: list[str] = []
        #: Those of them that had started.
        self._stopped: set[str] = set()
        #: What follows from jobs that are done.
        self.letters: list[tuple[str, bytes]] = []
        #: Ids of jobs that have ended otherwise than well.
        self._not_done: set[str] = set()

    def __bool__(self) -> bool:
        """True if it tells of jobs that have not ended, too, or may have none."""
        return bool(self.spoiled or self.released or self.limited or self.failed)

    def note(self, failures: Failures) -> None:
        """Adds what became of a batch."""
        self.failed += failures.failed
        self.exhausted += failures.exhausted
        self.snoozed += failures.snoozed
        self.crashed += failures.crashed
        self.letters += failures.letters
        self.released += (*failures.released, *failures.unstarted)
        self._stopped.update(failures.released)
        self._not_done |= failures.ids
        self.note_spoiled(failures.spoiled)

    def note_spoiled(self, spoiled: Sequence[Spoiled]) -> None:
        """Adds payloads that can't be loaded: what else their ids hold goes back."""
        ids = dict.fromkeys(row.id for row in spoiled)
        self.spoiled += spoiled
        self.released += ids
        self._not_done.update(ids)

    def outcome(self, done: Iterable[Job], rest: Rest, *, has_several: bool) -> Outcome:
        """What there is to tell, with jobs that have ended, in whatever way."""
        now = clock.monotonic() if self.limited else 0.0
        return Outcome(
            acked=[job.id for job in done if job.id not in self._not_done],
            released=tuple(self.released),
            failed=tuple(self.failed),
            exhausted=tuple(self.exhausted),
            snoozed=tuple(self.snoozed),
            crashed=tuple(self.crashed),
            spoiled=tuple(self.spoiled),
            limited=[Snoozed(id, max(at - now, 0.0), "limited") for id, at in self.limited],
            rest=rest,
            has_several=has_several,
            stopped=[id for id in self.released if id in self._stopped] if self._stopped else (),
            letters=tuple(self.letters),
        )

    def forget(self, sent: Outcome) -> None:
        """Drops what Redis has confirmed."""
        for rows, confirmed in (
            (self.released, sent.released), (self.failed, sent.failed), (self.exhausted, sent.exhausted),
            (self.snoozed, sent.snoozed), (self.crashed, sent.crashed), (self.limited, sent.limited),
            (self.spoiled, sent.spoiled), (self.letters, sent.letters),
        ):  # fmt: skip
            del rows[: len(confirmed)]
