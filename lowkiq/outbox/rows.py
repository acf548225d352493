"""Rows of an outbox: a validated job as a table keeps it, and the way back."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lowkiq.errors import LowkiqError, short
from lowkiq.job import EncodedJob, check_due, encode_score
from lowkiq.worker import Worker

#: The score of a row without one of its own is this and its id: later rows come later, a row that is sent again keeps
#: its place, and all come after what was pushed without an outbox, as default scores are Unix times until 2096.
FIRST_SCORE: Final = 4_000_000_000
#: Fields of a job that are bytes: in the row they are text, or else in a list, in base64.
_BYTES: Final = tuple(field.name for field in msgspec.structs.fields(EncodedJob) if field.type is bytes)

#: A job's perform_in: none, a Unix time, or after a + seconds.
_TIME: Final = re.compile(r"(\+?[0-9]{1,15}\.[0-9]{6})?")


class NewRow(NamedTuple):
    """A row to be written: `id`, which rises, is the table's to give; `error` is NULL, `tries` and `retry_at` are 0."""

    queue: str
    #: The job's id for people, and to find the rows of one id.
    job_id: str
    #: The job in JSON, as it will be pushed.
    job: str


class Row(NamedTuple):
    """A row that was read."""

    id: int
    queue: str
    job_id: str
    job: str
    #: How often it was refused so far.
    tries: int = 0
    error: str | None = None


class UnreadableRow(LowkiqError):
    """A row of an outbox that holds no job: something else has written it, or a newer Lowkiq."""


def rows_of(worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> list[NewRow]:
    """The rows of validated jobs, in their order."""
    return [NewRow(worker.queue_name, _shown(job.id), _text_of(job)) for job in jobs]


def job_of(row: Row) -> EncodedJob:
    """
    The job of a row, as it was validated.

    Raises:
        UnreadableRow: it holds none.
    """
    try:
        values = msgspec.json.decode(row.job)
        for name in _BYTES:
            if name in values:
                values[name] = _bytes_of(values[name])
        job = _checked(msgspec.convert(values, EncodedJob, builtin_types=(bytes,)), values)
        job.score = encode_score(FIRST_SCORE + row.id if job.score == "" else values["score"])
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise UnreadableRow(f"row {row.id} holds no job: {error}: {short(row.job)}") from error
    return job


def _checked(job: EncodedJob, values: Mapping[str, Any]) -> EncodedJob:
    """Returns it, unless it has what no push may have. Raises ValueError."""
    if unknown := values.keys() - job.__struct_fields__:
        raise ValueError(f"{sorted(unknown)} are no fields of a job that this Lowkiq knows")
    if isinstance(job.score, str) and job.score:
        raise ValueError(f"score {short(job.score)} is no number")
    if not _TIME.fullmatch(job.perform_in):
        raise ValueError(f"perform_in {short(job.perform_in)} is no time")
    if job.perform_in:
        check_due("perform_in", float(job.perform_in))
    return job


def _shown(id: bytes) -> str:
    """An id as every database can keep it: PostgreSQL's text has no zero character."""
    return id.decode().replace("\0", "\N{SYMBOL FOR NULL}")


def _text_of(job: EncodedJob) -> str:
    values = {name: value for name in job.__struct_fields__ if (value := getattr(job, name)) != ""}
    for name in _BYTES:
        if name in values:
            values[name] = _jsonable(values[name])
    return msgspec.json.encode(values).decode()


def _jsonable(data: bytes) -> str | list[str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return [base64.b64encode(data).decode()]


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    try:
        (text,) = value
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError) as error:
        raise ValueError(f"{short(value)} is neither text nor base64") from error
