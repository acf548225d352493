"""Claims: the jobs in the reply to a claim, or in a ring that hands one over."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from lowkiq.codec import error_text, name_of
from lowkiq.job import KEPT_BYTES, Job, parse_tags
from lowkiq.telemetry.texts import MARK, parse_contexts

#: A compact record begins with a 1 and so many of the last bits of when its job is due (payloads.lua).
COMPACT = 1 << 31
COMPACT_BITS = COMPACT - 1
_first_bits = struct.Struct(">I").unpack_from


class Spoiled(NamedTuple):
    """A claimed payload that can't be decoded."""

    id: str
    payload: bytes
    error: str


class Handed(msgspec.Struct, frozen=True):
    """A job that a push has put into an open claim (push.lua)."""

    epoch: str
    number: int
    id: bytes
    payload: bytes
    #: Its score and due time, in text.
    at: bytes


class Claim(msgspec.Struct):
    """Jobs taken from a shard and not yet settled."""

    jobs: list[Job]
    #: Jobs with at least one payload that can't be decoded.
    spoiled: list[Spoiled]
    #: Seconds until the oldest job left in the queue is due, None when nothing is left, or the claim was handed over.
    due_in: float | None
    #: True if an id has several payloads.
    has_several: bool = False
    #: Of a suspect, which is claimed alone: at how many deaths beside others it ran, after the first. Its payloads are
    #: still bytes, since to load one may be what kills. 0: it is none.
    crowds: int = 0
    #: Redis's time of it; 0 if that is not known.
    at: float = 0.0


def due_in(due: bytes, now: bytes) -> float | None:
    """Seconds until a job is due (negative: overdue), None when there is none."""
    return float(due) - float(now) if due else None


def parse_claim(
    reply: list[Any], load: Callable[[bytes], Any], check_id: Callable[[str], object] | None = None
) -> Claim:
    """Parses the reply to a claim. `load` and `check_id`, which raise for what they can't convert, are the worker's."""
    jobs: list[Job] = []
    spoiled: list[Spoiled] = []
    now, due, found, last, *rare = reply
    last_due = int(last)
    crowds = int(rare[0][0]) if rare and rare[0] else 0
    if crowds:
        load, check_id = bytes, None
    if check_id:
        found, spoiled = _with_ids(found, check_id)
    has_several = bool(spoiled)  # who knows
    fields = iter(found)
    for id_bytes, record in zip(fields, fields, strict=True):
        id = id_bytes.decode("utf-8", KEPT_BYTES)
        if type(record) is bytes:
            (bits,) = _first_bits(record)
            if bits >= COMPACT:  # the hot path: a job that is due not long before the last one
                due_at = score = (last_due - ((last_due - bits) & COMPACT_BITS)) / 1_000_000
                retry_count, payload = -1, record[4:]
            else:
                words = record.split(b":", 3)
                due_at, retry_count, score, payload = float(words[0]), int(words[1]), float(words[2]), words[3]
            try:
                jobs.append(Job(id, [load(payload)], (score,), due_at, retry_count))
            except BaseException as error:  # noqa: BLE001 (load_payload is the user's, and the payload may be anything)
                spoiled.append(Spoiled(id, payload, _undecodable(error)))
            continue
        has_several = True
        head, *pairs = record
        perform_in, retry_count = head.split(b":")
        job, bad = _job_of_several(id, float(perform_in), int(float(retry_count)), pairs, load)
        spoiled += bad
        if not bad:
            jobs.append(job)
    checkpoints, tagged = (*rare[1:], [], [])[:2]
    if checkpoints:
        _give_back(checkpoints, found, jobs)
    if tagged:
        _tag(tagged, jobs)
    return Claim(jobs, spoiled, due_in(due, now), has_several, crowds, float(now))


def _give_back(checkpoints: list[bytes], found: list[Any], jobs: list[Job]) -> None:
    """Gives jobs what earlier runs of their payloads have kept, if it is of any of these payloads."""
    records = dict(zip(found[::2], found[1::2], strict=True))
    kept = {}
    for id, text in zip(checkpoints[::2], checkpoints[1::2], strict=True):
        length, _, rest = text.partition(b":")
        size = int(length) if length.isdigit() else len(text)
        if size <= len(rest) and rest[:size] in map(name_of, _payloads(records.get(id, []))):
            kept[id.decode("utf-8", KEPT_BYTES)] = rest[size:]
    for job in jobs:
        job.checkpoint = kept.get(job.id)


def _tag(tagged: list[bytes], jobs: list[Job]) -> None:
    """Gives jobs their tags, and the contexts behind them."""
    fields = iter(tagged)
    texts = {id.decode("utf-8", KEPT_BYTES): text for id, text in zip(fields, fields, strict=True)}
    for job in jobs:
        text = texts.get(job.id, b"")
        job.tags = parse_tags(text)
        if MARK.encode() in text:
            job.contexts = parse_contexts(text)


def claim_handed(
    handed: Handed, load: Callable[[bytes], Any], check_id: Callable[[str], object] | None = None
) -> Claim:
    """The open claim, with the job that was handed over."""
    id, score = handed.id.decode("utf-8", KEPT_BYTES), float(handed.at)
    if bad := _id_error(id, check_id):
        return Claim([], [Spoiled(id, handed.payload, bad)], None)
    try:
        return Claim([Job(id, [load(handed.payload)], (score,), score, -1)], [], None, at=score)
    except BaseException as error:  # noqa: BLE001 (as above)
        return Claim([], [Spoiled(id, handed.payload, _undecodable(error))], None)


def load_all(job: Job, load: Callable[[bytes], Any], check_id: Callable[[str], object] | None = None) -> list[Spoiled]:
    """Loads the payloads of a suspect. Returns those that can't be decoded; if its id can't be, that is all of them."""
    if error := _id_error(job.id, check_id):
        return [Spoiled(job.id, payload, error) for payload in job.payloads]
    loaded, bad = _load_all(job.id, job.payloads, load)
    job.payloads = loaded
    return bad


def _load_all(id: str, encoded: list[bytes], load: Callable[[bytes], Any]) -> tuple[list[Any], list[Spoiled]]:
    payloads, bad = [], []
    for payload in encoded:
        try:
            payloads.append(load(payload))
        except BaseException as error:  # noqa: BLE001 (as above)
            bad.append(Spoiled(id, payload, _undecodable(error)))
    return payloads, bad


def _job_of_several(
    id: str, perform_in: float, retry_count: int, pairs: list[bytes], load: Callable[[bytes], Any]
) -> tuple[Job, list[Spoiled]]:
    payloads, bad = _load_all(id, pairs[::2], load)
    scores = tuple(map(float, pairs[1::2]))
    return Job(id, payloads, scores, perform_in, retry_count, payload_count=len(payloads)), bad


def _with_ids(found: list[Any], check_id: Callable[[str], object]) -> tuple[list[Any], list[Spoiled]]:
    """Parts what was found into the jobs whose ids can be converted, and the payloads of the others."""
    kept: list[Any] = []
    bad: list[Spoiled] = []
    for id_bytes, record in zip(found[::2], found[1::2], strict=True):
        id = id_bytes.decode("utf-8", KEPT_BYTES)
        if error := _id_error(id, check_id):
            bad += [Spoiled(id, payload, error) for payload in _payloads(record)]
        else:
            kept += (id_bytes, record)
    return kept, bad


def _payloads(record: Any) -> list[bytes]:
    """The payloads of a job as it was found."""
    if type(record) is not bytes:
        return list(record[1::2])
    (bits,) = _first_bits(record)
    return [record[4:] if bits >= COMPACT else record.split(b":", 3)[3]]


def _id_error(id: str, check_id: Callable[[str], object] | None) -> str | None:
    try:
        if check_id:
            check_id(id)
    except BaseException as error:  # noqa: BLE001 (an id may be anything, and its type the user's)
        return f"the worker's type of ids can't hold this one: {error_text(error)}"[:1000]
    return None


def _undecodable(error: BaseException) -> str:
    return f"load_payload can't decode this payload: {error_text(error)}"[:1000]
