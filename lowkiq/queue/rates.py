"""Rates of a queue in Redis: asks when jobs may start (rate.lua)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller
from lowkiq.rate import Rate

#: Jobs that one call says have started, at most: a claim's are as many.
MOST_STARTED: Final = 1_000


class Unit(NamedTuple):
    """A job as its rate knows it."""

    key: str
    id: str


class Rest(NamedTuple):
    """A key that is to rest, as the far side has said to one of its jobs."""

    unit: Unit
    seconds: float


class Told(NamedTuple):
    """When jobs may start."""

    #: Redis's time.
    now: float
    #: For each job that was asked for when it may: None or PLACED: now; NOT_YET: to be asked again later.
    times: Sequence[float | None]


#: In place of times: not told yet; and now, of a job that has a place in the line, which goes once it has started.
NOT_YET, PLACED = -1.0, 0.0


def rate_call(
    namespace: str,
    queue: str,
    rate: Rate,
    asked: Sequence[Unit],
    *,
    most: int,
    started: Sequence[Unit] = (),
    rests: Sequence[Rest] = (),
) -> Call[Told]:
    """Asks for jobs, of which at most `most` are to start now; and says what has started, and which keys are to rest."""
    arguments: list[Argument] = [_us(rate.spacing), _us(rate.place), _us(rate.tolerance), most]
    arguments.append(len(rests))
    for row in rests:
        arguments += (_bytes(row.unit.key), f"{row.seconds:.6f}", _bytes(row.unit.id))
    for units in (started, asked):
        arguments.append(len(units))
        for unit in units:
            arguments += (_bytes(unit.key), _bytes(unit.id))
    return Call("rate", [keys.rate(namespace, queue)], arguments, _told)


class Waiting(NamedTuple):
    """Jobs of a queue that wait for their rate, each with its time."""

    jobs: int
    #: The last of these times; 0 without any.
    until: float


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


_WORDS: Final = {b"": None, b"+": PLACED, b"-": NOT_YET}


def _score(reply: Any) -> float:
    """The score in the reply to a ZRANGE of one member; a client of RESP3 gets it in a pair."""
    if not reply:
        return 0.0
    return float(reply[0][1] if isinstance(reply[0], list | tuple) else reply[1])


def _us(seconds: float) -> str:
    return f"{seconds * 1_000_000:.3f}"


def _bytes(text: str) -> Argument:
    return text if text.isascii() else text.encode("utf-8", KEPT_BYTES)


def _told(reply: list[bytes]) -> Told:
    now, *times = reply
    return Told(float(now), [_time(time) for time in times])


def _time(reply: bytes) -> float | None:
    return _WORDS[reply] if reply in _WORDS else float(reply)
