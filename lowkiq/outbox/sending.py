"""Sending: pushes the rows of a turn, and tells which of them Redis has, and which it will never take as they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from redis.exceptions import (
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from lowkiq.app import Lowkiq
from lowkiq.codec import error_text
from lowkiq.errors import LowkiqError, PushFailed, unknown_queue
from lowkiq.job import EncodedJob
from lowkiq.log import get_logger
from lowkiq.outbox.rows import Row, UnreadableRow, job_of

logger = get_logger()

#: Refusals of a Redis that is not well: they say nothing of the row, and pass.
_PASSING: Final = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
#: Characters of an error that a row keeps.
MAX_ERROR_CHARS: Final = 1_000
#: Seconds until a refused row is tried again: twice as long each time, so that what a deploy mends goes on soon.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 60.0


class Outcome(NamedTuple):
    """The fate of the rows of a turn; what is in neither stays as it is, behind a refused row of its job id."""

    sent: Sequence[Row]
    #: With the error of each.
    rejected: Sequence[tuple[Row, Exception]]


def send(app: Lowkiq, rows: Iterable[Row]) -> Outcome:
    """
    Pushes rows by queue, in their order. A row that can't be pushed keeps back later ones of its job id, and no others.

    Raises:
        PushFailed: Redis is away, or not well: nothing of this turn may be deleted, and all of it is to be sent again.
    """
    queues: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        queues[row.queue].append(row)
    sent: list[Row] = []
    refused: list[tuple[Row, Exception]] = []
    for queue, group in queues.items():
        outcome = _send_queue(app, queue, group)
        sent += outcome.sent
        refused += outcome.rejected
    for row, error in refused:
        logger.error(
            "outbox_row_refused", row=row.id, queue=row.queue, id=row.job_id, tries=row.tries + 1,
            error=error_text(error), advice="later rows of this id wait for it: mend what the error tells, and it is "
            "sent within a minute; or delete the row",
        )  # fmt: skip
    return Outcome(sent, refused)


def retry_in(row: Row) -> float:
    """Seconds until a refused row is tried again."""
    return min(FIRST_RETRY * 2.0 ** min(row.tries, 20), LONGEST_RETRY)


def _send_queue(app: Lowkiq, queue: str, rows: Sequence[Row]) -> Outcome:
    if queue not in app.workers:
        return _refused(rows, unknown_queue(queue, app.workers))
    jobs, unreadable = _read(rows)
    if not jobs:
        return Outcome([], unreadable)
    try:
        app.push_validated(queue, [job for _, job in jobs])
    except LowkiqError as error:
        if not _is_final(error):
            raise
        of_all = _refused([row for row, _ in jobs], error) if not isinstance(error, PushFailed) else None
        outcome = of_all or _send_by_id(app, queue, jobs)
        return Outcome(outcome.sent, [*unreadable, *outcome.rejected])
    return Outcome([row for row, _ in jobs], unreadable)


def _send_by_id(app: Lowkiq, queue: str, jobs: Sequence[tuple[Row, EncodedJob]]) -> Outcome:
    """Redis has refused something of all together: each id is pushed alone, to find out of which."""
    by_id: dict[bytes, list[tuple[Row, EncodedJob]]] = defaultdict(list)
    for row, job in jobs:
        by_id[job.id].append((row, job))
    sent: list[Row] = []
    refused: list[tuple[Row, Exception]] = []
    for group in by_id.values():
        try:
            app.push_validated(queue, [job for _, job in group])
        except LowkiqError as error:
            if not _is_final(error):
                raise
            refused += _refused([row for row, _ in group], error).rejected
        else:
            sent += [row for row, _ in group]
    return Outcome(sent, refused)


def _is_final(error: LowkiqError) -> bool:
    """False for an error that tells of Redis, and not of what was pushed: it will pass by itself."""
    if not isinstance(error, PushFailed):
        return True
    cause = error.__cause__
    return isinstance(cause, ResponseError) and not isinstance(cause, _PASSING)


def _read(rows: Iterable[Row]) -> tuple[list[tuple[Row, EncodedJob]], list[tuple[Row, Exception]]]:
    """The rows with their jobs, without those that hold none and the later ones of the same id; and the former."""
    jobs: list[tuple[Row, EncodedJob]] = []
    unreadable: list[tuple[Row, Exception]] = []
    held: set[str] = set()
    for row in rows:
        if row.job_id in held:
            continue
        try:
            jobs.append((row, job_of(row)))
        except UnreadableRow as error:
            held.add(row.job_id)
            unreadable.append((row, error))
    return jobs, unreadable


def _refused(rows: Iterable[Row], error: Exception) -> Outcome:
    """The first row of each id is refused; the others stay behind it."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row.job_id, row)
    return Outcome([], [(row, error) for row in first.values()])
