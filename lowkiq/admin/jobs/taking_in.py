"""Taking in: jobs that another queue had come into this one, as if a deletion of them were undone."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lowkiq.admin.jobs.undo import KEPT_SECONDS, UndoableActions
from lowkiq.errors import InvalidJob, short
from lowkiq.job import check_due, encode_id, shard_of
from lowkiq.queue.call import Argument, Call, Caller, chunked, raise_first
from lowkiq.queue.shard import Shard

#: Payloads that one script is given: it can unpack 4,000 words.
MOST_PAYLOADS: Final = 1_000
#: Jobs of one step.
STEP: Final = 100


class Incoming(NamedTuple):
    """A job that another queue had, or its part in the morgue."""

    id: str
    #: Scores and payloads, as they are to be stored.
    payloads: Sequence[tuple[float, bytes]]
    #: The Unix time at which it is due, or got into the morgue.
    at: float
    #: -1 fresh.
    retry_count: int = -1
    error: str | None = None
    is_dead: bool = False


def take_in(
    caller: Caller, shards: Sequence[Shard], jobs: Iterable[Incoming], *, max_id_bytes: int, max_payload_bytes: int
) -> int:
    """
    Takes in jobs, with their due times, retry counts and errors, where their ids are queued here as well: then payloads
    merge. Taking in again what has not run changes nothing. Returns how many jobs were moved.

    Raises:
        InvalidJob: names the job; nothing was written.
        ShardsCountMismatch, NewerLayout: likewise.
    """
    known = [(job, _id(job, max_id_bytes, max_payload_bytes)) for job in jobs]
    moved = 0
    # Of an id in the queue and in the morgue, or one with many payloads, one part after the other.
    for step in chunked([(id, part) for job, id in known for part in _parts(job)], STEP):
        for some in _apart(step):
            moved += _take_in(caller, shards, some, max_id_bytes)
    return moved


def _take_in(caller: Caller, shards: Sequence[Shard], jobs: Sequence[tuple[bytes, Incoming]], max_id_bytes: int) -> int:
    name = secrets.token_hex(8)
    calls = []
    for id, job in jobs:
        shard = shards[shard_of(id, len(shards))]
        retries = "" if job.retry_count < 0 else job.retry_count
        words: list[Argument] = [shard.layout, name, KEPT_SECONDS, id, "morgue" if job.is_dead else "queue"]
        words += [f"{job.at:.6f}", retries, job.error or ""]
        for score, payload in job.payloads:
            words += [repr(score), payload]
        calls.append(Call("lay_out", [shard.prefix], words, int))
    raise_first(caller.run_all(calls))
    return UndoableActions(caller, shards, max_id_bytes=max_id_bytes).put_back(name)


def _parts(job: Incoming) -> list[Incoming]:
    """A job in parts of few enough payloads."""
    return [job._replace(payloads=some) for some in chunked(sorted(job.payloads), MOST_PAYLOADS)]


def _apart(jobs: Sequence[tuple[bytes, Incoming]]) -> list[list[tuple[bytes, Incoming]]]:
    """Jobs in lists of which each has an id once."""
    lists: list[dict[bytes, Incoming]] = []
    for id, job in jobs:
        for some in lists:
            if id not in some:
                some[id] = job
                break
        else:
            lists.append({id: job})
    return [list(some.items()) for some in lists]


def _id(job: Incoming, max_id_bytes: int, max_payload_bytes: int) -> bytes:
    """The bytes of its id. Raises InvalidJob for a job that can't be stored."""
    try:
        id = encode_id(job.id, max_id_bytes)
        if math.isfinite(job.at):
            check_due("its time", job.at)
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"job {short(job.id)}: {error}") from error
    if not job.payloads:
        raise InvalidJob(f"job {short(job.id)} has no payload")
    for score, payload in job.payloads:
        if not math.isfinite(score) or not math.isfinite(job.at):
            raise InvalidJob(f"job {short(job.id)}: score {score} and time {job.at} must be finite")
        if len(payload) > max_payload_bytes:
            raise InvalidJob(
                f"job {short(job.id)}: payload has {len(payload):,} bytes, there may be {max_payload_bytes:,}"
            )
    return id
