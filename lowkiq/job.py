"""A job, and what a push accepts as one."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, Generic, NamedTuple, Protocol, Required, TypeAlias, TypedDict
from zlib import crc32

import msgspec

from lowkiq import clock
from lowkiq.after import NameOf, circle, names_of, part_name, word_of
from lowkiq.codec import error_text
from lowkiq.errors import InvalidJob, short, unknown_option
from lowkiq.fewer import FEWER_KEYS, NONE, TIMES, Debounce, Fewer, Keep
from lowkiq.types.variables import P
from lowkiq.usual import is_nan, usual

#: How the bytes of an id that is no UTF-8 are kept in a string: those of a job that was read are found again by it.
KEPT_BYTES: Final = "surrogateescape"


class Job(msgspec.Struct):
    """An id with its payloads: a claimed job, or one that a query found."""

    id: str
    #: From low to high score.
    payloads: list[Any]
    scores: tuple[float, ...]
    #: The Unix time at which the job is due (absolute, despite its name); of a job in the morgue, when it got there.
    perform_in: float
    #: -1 fresh, 0 after the first failure.
    retry_count: int = -1
    #: The last error: its type and message.
    error: str | None = None
    #: How many payloads there are; a query returns at most `max_payloads` of them.
    payload_count: int = 1
    #: Of a queued job: its id runs just now, so it waits for the end of that run, however long it has been due.
    waits_for_own_run: bool = False
    #: Of a claimed job: what an earlier run has kept by `checkpoint`, encoded.
    checkpoint: bytes | None = None
    #: Where the last error was raised, as far as it is kept; None: nothing but `error` is.
    traceback: str | None = None
    #: What it was tagged with, by this push or an earlier one of its id.
    tags: tuple[str, ...] = ()
    #: Of a queued job: it has failed too often, and waits for a person, since `perform_in`.
    is_blocked: bool = False
    #: Of a claimed job: the spans in which its payloads were pushed, as W3C's traceparent has them (telemetry/).
    contexts: tuple[str, ...] = ()


#: An id, as the worker is annotated.
Id: TypeAlias = str | int | uuid.UUID | datetime.date | decimal.Decimal | enum.Enum


class HasWorker(Protocol):
    """What has a worker without being one: a task of lowkiq.celery."""

    @property
    def worker(self) -> type[Any]: ...


#: A job that another one waits for: its worker, or a task, or the name of the queue; and its id.
Other: TypeAlias = tuple[type | HasWorker | str, Id]


class JobOptions(TypedDict, total=False):
    """What a job can say beside its id and its payload."""

    #: Orders the payloads of an id, lowest first. Default: after all that were pushed before.
    score: float
    #: When the job is due: a Unix time, or a datetime with a time zone. Default: now.
    at: float | datetime.datetime
    #: How long it is until the job is due, by Redis's clock: seconds, or a timedelta. In place of `at`.
    delay: float | datetime.timedelta
    #: The name that `at` has in Ruby.
    perform_in: float | datetime.datetime
    #: Words by which its id is found: 1 to 20 tags of 1 to 100 printable characters. They join those that the id has.
    tags: Sequence[str]
    #: In place of those of its worker; None, or "all", for none of it.
    debounce: Debounce | None
    throttle: float | None
    keep: Keep
    #: It runs once none of these is queued, runs or is in the morgue: pairs of a worker and an id, 1 to 500 of them.
    after: Sequence[Other] | Set[Other]


class NewJob(JobOptions, Generic[P], total=False):
    """A job as `perform_async` takes it. `Worker.job` and `Task.job` make one."""

    id: Required[Id]
    #: Of the worker's type, or a dict of what such a one has.
    payload: P | dict[str, Any]


class Pushed(NamedTuple):
    """The result of a push: ids new in the queue, and payloads merged into ids that were queued already."""

    new: int
    merged: int


class EncodedJob(msgspec.Struct, gc=False):
    """A validated job, as the push script takes it. The garbage collector need not look at it: it has no cycles."""

    id: bytes
    payload: bytes
    score: float | str = ""
    #: "" for now, else a Unix time or, after a +, seconds by Redis's clock.
    perform_in: str = ""
    #: With a line break between two; "" for none. Behind them may be a context (tags.lua).
    tags: str = ""
    #: Whose share it is (`fair_by`); "" for nobody's.
    tenant: str = ""
    #: How it runs less often (fewer.lua); "" for nothing of that.
    fewer: str = ""
    #: After whom it runs (waiting.lua); "" for nobody.
    after: str = ""

    @property
    def is_plain(self) -> bool:
        """True with the default score, now, and without all else."""
        more = self.tags or self.tenant or self.fewer or self.after
        return self.score == "" and self.perform_in == "" and not more


FULL: Final = ("id", "payload", "score", "perform_in", "tags", "tenant", "fewer", "after")
#: Words of a job in a push, by how many of them it has (push.lua).
WORDS: Final[Mapping[int, Sequence[str]]] = {
    2: FULL[:2], 3: ("id", "payload", "tenant"), 4: FULL[:4], 5: FULL[:5], 6: FULL[:6], 7: FULL[:7], 8: FULL,
}  # fmt: skip
COMMON_KEYS: Final = frozenset({"id", "payload", "score", "tags", *TIMES})
JOB_KEYS: Final = COMMON_KEYS | FEWER_KEYS | {"after"}
#: Keys as other job processors call them → what is meant here.
_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("eta", "run_at", "schedule_at", "scheduled_at"), "did you mean `at`?"),
    **dict.fromkeys(("countdown", "in", "schedule_in", "wait"), "did you mean `delay`?"),
    **dict.fromkeys(("args", "arguments", "body", "data", "kwargs", "message", "params"), "did you mean `payload`?"),
    **dict.fromkeys(("job_id", "key", "task_id", "unique_key"), "did you mean `id`?"),
    **dict.fromkeys(("queue", "queue_name"), "a job goes to the queue of the worker that it is pushed to"),
    **dict.fromkeys(("max_retries", "max_retry_count", "priority", "retries", "retry", "timeout"),
                    "all jobs of a worker have what its options say"),
}  # fmt: skip
#: What an id can be where the worker is annotated so (types/codec.py).
_OTHER_IDS: Final = (uuid.UUID, datetime.date, decimal.Decimal, enum.Enum)
#: Tags of a push, and characters of a tag.
MOST_TAGS: Final = 20
LONGEST_TAG: Final = 100
#: Bytes of a tenant.
LONGEST_TENANT: Final = 200
#: A time before this, which was in 2001, is taken for a delay in seconds.
FIRST_TIME: Final = 10**9
#: The longest delay: a hundred years. A due time lies no farther ahead either.
LONGEST_DELAY: Final = 100 * 366 * 86_400
#: Units that a due time is told in by mistake, and how many of them are a second.
_UNITS: Final = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
#: The largest integer up to which a double, as Redis keeps scores, has each.
MOST_SCORE: Final = 2**53


def shard_of(id: bytes, shards_count: int) -> int:
    """The shard of an id: crc32 of its UTF-8 bytes modulo shards_count, as in the original."""
    return crc32(id) % shards_count


def encode_jobs(
    jobs: Iterable[Mapping[str, Any]],
    dump_payload: Callable[[Any], bytes | str],
    *,
    dump_id: Callable[[Any], str] | None = None,
    fair_by: Callable[[Any, Any], str | int] | None = None,
    max_id_bytes: int,
    max_payload_bytes: int,
    fewer: Fewer = NONE,
    first: int = 0,
    name_of: NameOf | None = None,
    own: Any = None,
) -> list[EncodedJob]:
    """
    Validates every job before the first is written. Raises InvalidJob, which names the job and the field.

    Args:
        fewer: how jobs run less often that do not say so themselves.
        first: the number of the first job, where these are a part of a longer list.
        name_of: tells what `after` names; `own` is the worker of these jobs.
    """
    if not isinstance(jobs, list) and (isinstance(jobs, Mapping | str | bytes) or not isinstance(jobs, Iterable)):
        raise InvalidJob(f"perform_async takes a list of jobs, not a {type(jobs).__name__}: wrap it in [ ]")
    encoded = []
    has_fewer = bool(fewer)
    waits: dict[str, list[str]] = {}
    for number, job in enumerate(jobs, first):
        try:
            encoded.append(
                EncodedJob(
                    encode_id(dump_id(job["id"]) if dump_id else job["id"], max_id_bytes),
                    _encode_payload(job.get("payload", ""), dump_payload, max_payload_bytes),
                    encode_score(job["score"]) if "score" in job else "",
                    due_word(job) if "delay" in job or "at" in job or "perform_in" in job else "",
                    _tags(job["tags"]) if "tags" in job else "",
                    _tenant(fair_by, job["id"], job.get("payload", "")) if fair_by else "",
                )
            )
            if has_fewer or not COMMON_KEYS.issuperset(job):
                if unknown := _unknown_key(job):
                    raise InvalidJob(unknown)
                encoded[-1].fewer = fewer.word_of(job)
                if "after" in job and name_of:
                    others = names_of(job["after"], name_of)
                    encoded[-1].after = word_of(others)
                    waits.setdefault(name_of(own, job["id"]), []).extend(others)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # What a hook of the user's has raised is told with it; what only says the same is not.
            raise InvalidJob(_explain(number, job, error)) from error.__cause__
    if waits and (found := circle(waits)):
        raise InvalidJob(f"these jobs would wait for one another: {' after '.join(map(_shown, [*found, found[0]]))}")
    return encoded


def _unknown_key(job: Mapping[str, Any]) -> str:
    """The refusal of a key that a job can't have; "" if it has none."""
    name = next((str(key) for key in job if key not in JOB_KEYS), "")
    if name in _ELSEWHERE:
        return f"unknown key `{name}`, {_ELSEWHERE[name]}"
    return str(unknown_option("key", name, JOB_KEYS)) if name else ""


def _shown(name: str) -> str:
    queue, id = part_name(name)
    return f"{queue} {short(id)}"


def encode_id(id: Any, max_bytes: int, *, errors: str = "strict") -> bytes:
    """
    The bytes of an id. Raises ValueError for what can't be one.

    Args:
        errors: "surrogateescape" for an id that was read from Redis: another program may have pushed what is no UTF-8.
    """
    if not isinstance(id, str):
        id = _text_of(id)
    if not id:
        raise ValueError("id must not be empty")
    try:
        data: bytes = id.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise ValueError(f"id {short(id)} can't be written in UTF-8: escape it first") from None
    if len(data) > max_bytes:
        raise ValueError(f"id {short(id)} has {len(data):,} bytes, max_id_bytes is {max_bytes:,}: hash it")
    return data


def listed_ids(ids: Any) -> list[Any]:
    """Ids as a list. Raises TypeError for what is none: the letters of a text would be taken for ids."""
    if isinstance(ids, str | bytes | bytearray | memoryview) or not isinstance(ids, Iterable):
        raise TypeError(f"ids must be a list, not {short(ids)} ({type(ids).__name__}): write [{short(ids)}]")
    return list(ids)


def _text_of(id: Any) -> str:
    known = usual(id)
    if isinstance(known, bool) or not isinstance(known, int):
        kind = type(id).__name__
        hint = f": write str(id), or annotate the worker's ids {kind}" if isinstance(id, _OTHER_IDS) else ""
        raise TypeError(f"id must be a string or an integer, not {kind}{hint}")
    try:
        return str(known)
    except ValueError:  # CPython's limit of digits
        raise ValueError("id is an integer of more than 4,300 digits: hash it") from None


def _encode_payload(payload: Any, dump_payload: Callable[[Any], bytes | str], max_bytes: int) -> bytes:
    try:
        dumped = dump_payload(payload)
    except Exception as error:
        raise ValueError(f"payload can't be dumped: {error}") from error
    data = dumped if isinstance(dumped, bytes) else _bytes_of(dumped)
    if len(data) > max_bytes:
        raise ValueError(
            f"payload has {len(data):,} bytes, max_payload_bytes is {max_bytes:,}: store it elsewhere, push a reference"
        )
    return data


def _bytes_of(dumped: Any) -> bytes:
    if not isinstance(dumped, str):
        raise TypeError(f"payload was dumped to {type(dumped).__name__}: dump_payload must return bytes or str")
    return dumped.encode()


def due_word(job: Mapping[str, Any]) -> str:
    """When a job is due that says so, as the push script takes it. Raises TypeError or ValueError for what can't be."""
    (name, *others) = (key for key in TIMES if key in job)
    if others:
        raise ValueError(
            f"{' and '.join([name, *others])} {'all' if others[1:] else 'both'} say when it is due: give one of them"
        )
    if name != "delay":
        return _time(name, job[name])
    delay = job["delay"]
    if isinstance(delay, datetime.timedelta):
        delay = delay.total_seconds()
    delay = _number("delay", delay, " or a timedelta")
    if not 0 <= delay <= LONGEST_DELAY:
        raise ValueError(f"delay is {short(job['delay'])}, it must be from 0 to {LONGEST_DELAY:,} seconds")
    return f"+{delay:.6f}"


def _time(name: str, value: Any) -> str:
    """The word of a time, which the key of that name gives."""
    if isinstance(value, datetime.datetime):
        value = usual(value)
        if is_nan(value):
            raise ValueError(f"{name} is {value}, which is no time: leave it out for now, or give one")
        if value.utcoffset() is None:
            raise ValueError(_naive(name, value))
        value = value.timestamp()
    number = _number(name, value, " or a datetime")
    if number < FIRST_TIME:
        raise ValueError(f"{name} {short(value)} is a Unix time; did you mean delay={short(value)}?")
    check_due(name, number)
    return f"{number:.6f}"


def check_due(label: str, at: float) -> None:
    """Raises ValueError for a due time that lies farther ahead than any delay."""
    latest = clock.real() + LONGEST_DELAY
    if at > latest:
        told = f"{label} {at:.15g}"
        for unit, size in _UNITS.items():
            if FIRST_TIME <= at / size <= latest:
                raise ValueError(f"{told} looks like {unit}; did you mean {at / size:.6f}, in seconds?")
        raise ValueError(f"{told} must be a Unix time in seconds, at most a hundred years ahead")


def encode_score(score: Any) -> float:
    """A score as Redis keeps it. Raises TypeError or ValueError for what can't be one, or would be rounded."""
    number = _number("score", score)
    if isinstance(score, int) and abs(score) > MOST_SCORE:
        raise ValueError(
            f"score {short(score)} is beyond 2**53, where Redis would round it, and two could get one place: use a "
            "smaller one in the same order, such as time.time_ns() // 1_000, the time in a UUID, or a snowflake >> 12"
        )
    return number


def _naive(name: str, at: datetime.datetime) -> str:
    """Refusal of a datetime without a time zone, with the one that it would be taken for."""
    try:
        zone = f", and would be taken for {at.astimezone().tzname()}, this machine's"
    except (OverflowError, ValueError, OSError):  # a year that no clock knows
        zone = ""
    return (
        f"{name} {at} has no time zone{zone}: give it one, as in datetime.now(timezone.utc), "
        "or say delay=seconds, which needs none"
    )


def _tags(tags: Any) -> str:
    if isinstance(tags, str | bytes) or not isinstance(tags, Sequence | frozenset | set):
        raise TypeError(f'tags must be a list of words, not {short(tags)}: write tags=["eu"]')
    known = list(dict.fromkeys(map(check_tag, tags)))
    if not 1 <= len(known) <= MOST_TAGS:
        raise ValueError(f"tags are {len(known)}, there can be 1 to {MOST_TAGS} of them: leave the key out for none")
    return "\n".join(known)


def check_tag(tag: Any) -> str:
    """Returns a tag. Raises TypeError or ValueError for what can't be one."""
    if not isinstance(tag, str):
        raise TypeError(f"a tag must be a string, not {short(tag)} ({type(tag).__name__})")
    if not 1 <= len(tag) <= LONGEST_TAG:
        raise ValueError(f"tag {short(tag)} has {len(tag):,} characters, it must have 1 to {LONGEST_TAG}")
    if not tag.isprintable():
        raise ValueError(f"tag {short(tag)} has a character that can't be printed: leave it out")
    return tag


def _tenant(fair_by: Callable[[Any, Any], str | int], id: Any, payload: Any) -> str:
    try:
        tenant = fair_by(id, payload)
    except Exception as error:
        raise ValueError(f"fair_by failed: {error_text(error)}") from error
    if isinstance(tenant, bool) or not isinstance(tenant, str | int):
        raise TypeError(f"fair_by must give a string or an integer, not {short(tenant)} ({type(tenant).__name__})")
    text = tenant if isinstance(tenant, str) else _text_of(tenant)
    if not text or not text.isprintable():
        raise ValueError(f"fair_by gave {short(text)}: a tenant must have printable characters, and no others")
    if len(text.encode()) > LONGEST_TENANT:
        raise ValueError(f"fair_by gave {short(text)}, a tenant may have {LONGEST_TENANT} bytes: hash it")
    return text


def parse_tags(text: bytes) -> tuple[str, ...]:
    """The tags of an id, as they are stored; what no push could have stored is left out."""
    tags = text.decode("utf-8", "replace").split("\n") if text else ()
    return tuple(tag for tag in tags if 1 <= len(tag) <= LONGEST_TAG and tag.isprintable())[:MOST_TAGS]


def _number(field: str, value: Any, alternative: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = f"{field} must be a number{alternative}, not {short(value)} ({type(value).__name__})"
        if isinstance(value, datetime.timedelta):
            text += f": write delay={value.total_seconds():g}, the seconds of it"
        raise TypeError(text)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{field} is too large for a double: {short(value)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{field} must be finite, not {value}")
    return number


def _explain(number: int, job: Any, error: Exception) -> str:
    if not isinstance(job, Mapping):
        return f"job {number}: must be a mapping with an id, not {type(job).__name__}"
    also = f"; {unknown}" if (unknown := _unknown_key(job)) and unknown != str(error) else ""
    if isinstance(error, KeyError) and "id" not in job:
        return f"job {number}: id is missing{also}"
    if "payload" not in job and str(error).startswith("payload"):
        also += "; the job has no payload" if not also else ""
    return f"job {number} (id {short(job.get('id'))}): {error}{also}"
