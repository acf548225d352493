"""Rates of a queue in Redis: asks when jobs may start (rate.lua)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller
from lowkiq.rate import Rate

#: Jobs that one call says have started, at most: a claim's are as many.
MOST_STARTED: Final = 1_000
#: Keys that one call says are to rest.
MOST_RESTS: Final = 200

Word = Literal["start", "placed", "wait", "ask"]
_WORDS: Final[Mapping[bytes, Word]] = {b"start": "start", b"placed": "placed", b"wait": "wait", b"ask": "ask"}


class Unit(NamedTuple):
    """A job as its rate knows it."""

    key: str
    id: str


class Unused(NamedTuple):
    """A start that was granted, and did not come to be."""

    key: str
    #: The time that Redis knows it by.
    known: str


class Rest(NamedTuple):
    """A key that is to rest, as the far side has said to one of its jobs."""

    unit: Unit
    seconds: float


class Answer(NamedTuple):
    """The word on a job."""

    #: It may start then, `placed` if it has a place in the line; it is to wait until then; or to be asked for again,
    #: once others have started.
    word: Word
    #: By Redis's clock.
    at: float
    #: The time that Redis knows a start by: what may come late, by its latest one.
    known: str


class Told(NamedTuple):
    """The words on all jobs that were asked for, in their order."""

    #: Redis's time.
    now: float
    answers: Sequence[Answer]


class Waiting(NamedTuple):
    """Jobs of a queue that wait for their rate, each for its time."""

    jobs: int
    #: The last of these times; 0 without any.
    until: float


def rate_call(
    namespace: str,
    queue: str,
    rate: Rate,
    asked: Sequence[Unit],
    *,
    most: int,
    patience: float = 0.0,
    alone: bool = True,
    late: float = 0.0,
    started: Sequence[Unit] = (),
    rests: Sequence[Rest] = (),
    unused: Sequence[Unused] = (),
) -> Call[Told]:
    """
    Asks for jobs, of which at most `most` are to start within `patience` seconds; if `alone`, only the first of them is
    waited for at all; a start may come `late` seconds late. And says what has started, which keys are to rest, and what
    was granted in vain: that only once.
    """
    arguments: list[Argument] = [_us(rate.window), _us(rate.place), _us(rate.early), rate.most, rate.group]
    in_vain = Counter(unused)
    arguments += (most, _us(patience), int(alone), _us(late), len(in_vain))
    for (key, known), count in in_vain.items():
        arguments += (_bytes(key), known, count)
    arguments.append(len(rests))
    for row in rests:
        arguments += (_bytes(row.unit.key), f"{row.seconds:.6f}", _bytes(row.unit.id))
    for units in (started, asked):
        arguments.append(len(units))
        for unit in units:
            arguments += (_bytes(unit.key), _bytes(unit.id))
    return Call("rate", [keys.rate(namespace, queue)], arguments, _told)


def read_waiting(caller: Caller, namespace: str, queues: Sequence[str], now: float) -> dict[str, Waiting]:
    """By queue, where any waits. Jobs that were deleted since count until their time. Raises RedisError."""
    commands: list[tuple[Argument, ...]] = []
    for queue in queues:
        for name in ("planned", "delayed"):
            key = f"{keys.rate(namespace, queue)}{name}"
            commands += (("ZCOUNT", key, now, "+inf"), ("ZRANGE", key, -1, -1, "WITHSCORES"))
    replies = caller.read(commands, 0) if commands else []
    found: dict[str, Waiting] = {}
    for number, queue in enumerate(queues):
        counts = replies[number * 4 : number * 4 + 4 : 2]
        last = [_score(reply) for reply in replies[number * 4 + 1 : number * 4 + 4 : 2]]
        if jobs := sum(map(int, counts)):
            found[queue] = Waiting(jobs, max(last))
    return found


def _score(reply: Any) -> float:
    """The score in the reply to a ZRANGE of one member; a client of RESP3 gets it in a pair."""
    if not reply:
        return 0.0
    return float(reply[0][1] if isinstance(reply[0], list | tuple) else reply[1])


def _us(seconds: float) -> str:
    return f"{seconds * 1_000_000:.3f}"


def _bytes(text: str) -> Argument:
    return text if text.isascii() else text.encode("utf-8", KEPT_BYTES)


def _told(reply: list[Any]) -> Told:
    now, *rest = reply
    fields = iter(rest)
    return Told(float(now), [_answer(*pair) for pair in zip(fields, fields, fields, strict=True)])


def _answer(word: bytes, at: bytes, known: bytes) -> Answer:
    return Answer(_WORDS[word], float(at or 0), known.decode())
