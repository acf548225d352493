"""JobRows: jobs as the lists of a queue's page show them, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowkiq.admin.previews import Previews
from lowkiq.admin.reader import JobPreview
from lowkiq.web.owners import Owners
from lowkiq.web.render import words

#: Characters of a payload or an error in a line.
PREVIEW = 120


@dataclass(frozen=True)
class JobRow:
    """A job in a list."""

    job: JobPreview
    #: How often it failed.
    failures: int
    #: The first line of its error, else the beginning of its lowest payload, as far as those may be shown.
    preview: str
    #: Whether the preview is the error.
    is_error: bool


@dataclass(frozen=True)
class FlyingRow:
    """A job in flight."""

    job: JobPreview
    #: The node, and its thread if one performs the shard.
    node: str
    thread: str
    state: str
    #: Seconds of the batch that the thread performs, None if none is.
    seconds: float | None


def job_rows(jobs: Sequence[JobPreview], *, payloads: bool) -> list[JobRow]:
    """A row a job."""
    return [_row(job, payloads) for job in jobs]


def failures(job: JobPreview) -> int:
    """How often a queued job failed: retry_count is 0 after the first time."""
    return job.retry_count + 1


def first_line(error: str | None) -> str:
    """The line of an error that says most: of a traceback, the last."""
    lines = [line.strip() for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback ") else lines[0]


def flying_rows(previews: Previews, owners: Owners, queue: str, most: int) -> list[FlyingRow]:
    """Jobs in flight: those that are performed, the longest first, then those that come next."""
    rows = [_flying(job, owners, queue) for job in previews.in_flight(most)]
    return sorted(rows, key=lambda row: (row.state != "performed", -(row.seconds or 0.0), row.job.shard))


def _row(job: JobPreview, payloads: bool) -> JobRow:
    error = first_line(job.error)
    if error:
        return JobRow(job, failures(job), words.printable(error, PREVIEW), is_error=True)
    lowest = job.payloads[0] if job.payloads and payloads else None
    text = lowest.data[: 4 * PREVIEW].decode("utf-8", "replace") if lowest else ""
    return JobRow(job, failures(job), words.printable(text, PREVIEW), is_error=False)


def _flying(job: JobPreview, owners: Owners, queue: str) -> FlyingRow:
    running = owners.running(queue, job.shard)
    if running is None:
        shard = owners.shard(queue, job.shard)
        return FlyingRow(job, owners.name(shard.owner if shard else None), "", "claimed", None)
    state = {True: "performed", None: "performed, or next", False: "claimed, next"}[running.has(job.id)]
    return FlyingRow(job, owners.name(running.node.node), running.thread.name, state, running.seconds)
