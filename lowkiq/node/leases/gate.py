"""Gate: asks Redis, for one queue on this node, which claimed jobs may start now, as its rate says."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import LowkiqError
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Limited
from lowkiq.job import Job
from lowkiq.node.runtime import Runtime
from lowkiq.queue.rates import MOST_RESTS, MOST_STARTED, Rest, Told, Unit, Unused, rate_call
from lowkiq.rate import Rate

#: What each answer leaves of the lateness that Redis is told of; and the most of it, in seconds.
SHRINKS: Final = 0.97
MOST_LATE: Final = 2.0


class Grant(NamedTuple):
    """A job that may start."""

    unit: Unit
    #: True if it has a place in the line, which is to be forgotten once it has started.
    is_placed: bool
    #: From when on, and until when (monotonic); after that it has to be asked for again.
    at: float
    until: float
    #: The time that Redis knows it by; "" without a rate.
    known: str = ""
    #: Seconds by which it may be late, as Redis was told.
    late: float = 0.0


class Permits(NamedTuple):
    """The answer for some jobs."""

    #: Id → what it may; they come first among those that are neither refused nor failed.
    granted: Mapping[str, Grant]
    #: Id → when it is to come again (monotonic).
    refused: Mapping[str, float]
    #: Jobs whose key can't be told.
    failed: Sequence[tuple[Job, BaseException]]


class Gate:
    """
    Shared by all shards of a queue. What is to be told beside goes with the next call: which jobs have started, so that
    their places are forgotten, and which keys are to rest.
    """

    def __init__(self, performer: Performer, runtime: Runtime) -> None:
        self._performer = performer
        self._queue = performer.worker.queue_name
        self._runtime = runtime
        self._lock = threading.Lock()
        self._started: dict[Unit, None] = {}
        self._rests: list[Rest] = []
        self._unused: list[Unused] = []
        #: The shortest round trip yet, in seconds. What is granted is not taken for old before it could arrive: a delay
        #: that all starts have alike makes no window fuller.
        self._shortest_trip = math.inf
        #: Seconds by which starts may be late, as Redis is told: windows are longer by it. On a machine that is too
        #: busy, answers would come too late again and again, and nothing would ever start. So each of which nothing
        #: could start doubles it, and each shrinks it.
        self._late = 0.0

    @property
    def rate(self) -> Rate | None:
        """The rate, as it is set now."""
        return self._performer.worker.rate

    @property
    def is_to_rest(self) -> bool:
        """True while Redis is to be told of keys that rest."""
        return bool(self._rests)

    def ask(self, jobs: Sequence[Job], most: int, *, alone: bool) -> Permits:
        """
        Asks for jobs, of which at most `most` are to start. Some may start in a moment only; if `alone`, one such comes
        without others. Raises RedisError: then none may.
        """
        units, failed = self._units(jobs)
        asked_at = clock.monotonic()
        if not (rate := self.rate):  # somebody has just unset it
            now = {id: Grant(unit, is_placed=False, at=asked_at, until=math.inf) for id, unit in units.items()}
            return Permits(dict(list(now.items())[:most]), {}, failed)
        late_by = self._late = self._late * SHRINKS if self._late > rate.fresh / 8 else 0.0
        told = self._call(rate, list(units.values()), most, alone=alone, late=late_by)
        heard_at = clock.monotonic()
        self._shortest_trip = min(self._shortest_trip, heard_at - asked_at)
        # Redis's clock was read between the two.
        early, late = asked_at - told.now, heard_at - told.now
        fresh = self._shortest_trip + rate.fresh + late_by
        granted: dict[str, Grant] = {}
        refused: dict[str, float] = {}
        for unit, (word, at, known) in zip(units.values(), told.answers, strict=True):
            if word == "wait":
                refused[unit.id] = late + at
            elif word != "ask":
                granted[unit.id] = Grant(unit, word == "placed", late + at, early + at + fresh, known, late_by)
        return Permits(granted, refused, failed)

    def note_started(self, units: Iterable[Unit]) -> None:
        """Notes that jobs have started which had a place in the line."""
        with self._lock:
            self._started.update(dict.fromkeys(units))

    def note_unused(self, grants: Sequence[Grant], *, are_all: bool) -> None:
        """Notes that jobs have not started which might have; `are_all` if nothing that ran before has kept them."""
        now, rate = clock.monotonic(), self.rate
        with self._lock:
            self._unused += [Unused(row.unit.key, row.known) for row in grants if row.known]
            if rate and are_all and (late := [row.late for row in grants if row.until <= now]):
                self._late = min(max(self._late, 2 * max(late), rate.fresh), MOST_LATE)

    def note_limited(self, granted: Mapping[str, Grant], limited: Sequence[Limited]) -> None:
        """Notes that the far side of these jobs has had enough."""
        if not (rate := self.rate):
            return
        with self._lock:
            for row in limited:
                own = granted[row.id].unit if row.id in granted else Unit("", row.id)
                key = row.key if rate.by and row.key is not None else own.key
                self._rests.append(Rest(Unit(key, row.id if key == own.key else ""), row.seconds))

    def flush(self) -> None:
        """Tells Redis of keys that rest, if there are any. Raises RedisError: then the next call does."""
        if self._rests and (rate := self.rate):
            self._call(rate, (), 0, alone=True)

    def _call(self, rate: Rate, asked: Sequence[Unit], most: int, *, alone: bool, late: float = 0.0) -> Told:
        with self._lock:
            rests, self._rests = self._rests, []
            unused, self._unused = self._unused[:MOST_RESTS], []  # told once at most, whatever becomes of the call
            started = list(self._started)[:MOST_STARTED]
            for unit in started:
                del self._started[unit]
        call = rate_call(
            self._runtime.namespace, self._queue, rate, asked, most=most, alone=alone,
            patience=self._runtime.settings.claim_window, started=started, rests=rests[:MOST_RESTS],
            unused=unused, late=late,
        )  # fmt: skip
        try:
            told: Told = self._runtime.caller.run(call)
        except (LowkiqError, RedisError):
            with self._lock:
                self._rests = [*rests, *self._rests]
                self._started = dict.fromkeys([*started, *self._started])
            raise
        with self._lock:
            self._rests = [*rests[MOST_RESTS:], *self._rests]
        return told

    def _units(self, jobs: Sequence[Job]) -> tuple[dict[str, Unit], list[tuple[Job, BaseException]]]:
        """The key of each job; and the jobs of which that can't be told."""
        rate = self.rate
        if rate is None or rate.by is None:
            return {job.id: Unit("", job.id) for job in jobs}, []
        units: dict[str, Unit] = {}
        failed: list[tuple[Job, BaseException]] = []
        for job in jobs:
            try:
                units[job.id] = Unit(self._key(rate, job), job.id)
            except BaseException as error:  # noqa: BLE001 (it is the user's, and fails its job)
                failed.append((job, error))
        return units, failed

    def _key(self, rate: Rate, job: Job) -> str:
        codec = self._performer.worker.codec
        payload: Any = job.payloads[0]
        if type(payload) is bytes and self._performer.load is bytes:
            payload = codec.load(payload)  # of a worker whose jobs have processes of their own
        return rate.key_of(job.id, payload, codec.load_id)
