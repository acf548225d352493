"""Running jobs of a queue's page: what nodes have in hand, the longest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lowkiq.admin.beats.health import Running, batch_of
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.reader import JobPreview
from lowkiq.web.snapshot import Snapshot

#: Running jobs that are shown.
SHOWN: Final = 100


@dataclass(frozen=True)
class JobInFlight:
    job: JobPreview
    node: str
    state: str
    #: The batch that performs it, or perhaps does.
    running: Running | None

    @property
    def place(self) -> str:
        """Where on its node it runs."""
        return self.running.place if self.running else ""

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts what is performed before what comes next, and the longest first."""
        return self.state != "performed", -(self.running.seconds if self.running else 0.0), self.job.shard


def running_jobs(previews: Previews, snapshot: Snapshot, queue: str) -> list[JobInFlight]:
    """Jobs in hand: those that are performed, the longest first, then those that come next."""
    return sorted((_flying(job, snapshot, queue) for job in previews.in_flight(SHOWN)), key=lambda row: row.order)


def _flying(job: JobPreview, snapshot: Snapshot, queue: str) -> JobInFlight:
    batches = snapshot.running(queue, job.shard)
    running = batch_of(job.id, batches)
    if running is None:
        shard = snapshot.shard(queue, job.shard)
        state = "claimed, next" if batches else "claimed"
        return JobInFlight(job, snapshot.owner_name(shard.owner if shard else None), state, None)
    state = "performed" if running.has(job.id) else "performed, or next"
    return JobInFlight(job, snapshot.owner_name(running.node.node), state, running)
