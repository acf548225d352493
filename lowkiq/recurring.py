"""Recurring: jobs that recur, as an application declares and sets them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from msgspec import UNSET

from lowkiq import worker as workers
from lowkiq.admin.recurring import (
    Action,
    Change,
    RecurringJob,
    asked_by,
    change_entry,
    in_order,
    note_change,
    read_all,
    set_by,
)
from lowkiq.errors import LowkiqError, SettingsError, short, unknown_queue
from lowkiq.job import EncodedJob, Id, NewJob, Pushed, encode_id
from lowkiq.queue.call import Caller, raise_first, redis_time
from lowkiq.queue.layouts import opened
from lowkiq.queue.recurring import Entry, dated
from lowkiq.queue.shard import Shard
from lowkiq.recurrence import BACKLOG, Every, Missed, Rule, make_rule
from lowkiq.settings import Settings
from lowkiq.worker import Worker, worker_of

#: A worker or a task of lowkiq.celery, or the name of the queue.
Target: TypeAlias = workers.Target | str


class Declared(NamedTuple):
    """A recurring job that is in the code: nodes set it as they start."""

    worker: type[Worker[Any]]
    job: EncodedJob
    rule: Rule


class App(Protocol):
    """The application, as far as recurring jobs need it."""

    @property
    def namespace(self) -> str: ...
    @property
    def caller(self) -> Caller: ...
    @property
    def workers(self) -> dict[str, type[Worker[Any]]]: ...
    def queues(self) -> dict[str, int]: ...
    @property
    def settings(self) -> Settings: ...
    def validated(self, worker: type[Worker[Any]], jobs: list[NewJob]) -> list[EncodedJob]: ...
    def push_validated(self, queue: str, jobs: Sequence[EncodedJob]) -> Pushed: ...
    def shards(self, queue: str, shards_count: int) -> list[Shard]: ...


class Entries(Protocol):
    """Where the entries of an application are; ids are encoded."""

    def now(self) -> float:
        """The time by which they fire, as a Unix time."""

    def open(self, worker: type[Worker[Any]]) -> None:
        """Makes a worker's queue known. Raises LowkiqError: it has another layout."""

    def read(self, queue: str, id: bytes) -> Entry | None:
        """An entry. Raises UnknownQueue, BeingResharded, LowkiqError for one that can't be read."""

    def change(self, queue: str, id: bytes, change: Change) -> bool:
        """Changes an entry; False: there was nothing to change. Raises UnknownQueue, BeingResharded."""

    def note(self, queue: str, id: bytes, what: str, who: str) -> None:
        """Notes what somebody did to one."""

    def list(self, queue: str | None) -> Iterable[RecurringJob]:
        """Those of a queue, or all. Raises UnknownQueue."""


class RecurringTask(Protocol):
    """What is no worker but has one, and makes its own jobs: a task of lowkiq.celery."""

    worker: type[Worker[Any]]

    def recurring_job(self, payload: Any) -> NewJob:
        """The job that recurs. Raises SettingsError."""


T = TypeVar("T", bound=RecurringTask)


class Declaration(Protocol):
    """`@app.every(…)`: what it makes of a task, and of all else."""

    @overload
    def __call__(self, target: T, /) -> T: ...
    @overload
    def __call__(self, target: Any, /) -> type[Worker[Any]]: ...


def recurring_target(target: Any) -> Any:
    """What becomes a worker; a function without parameters as one of an id and its payloads, which it does not get."""
    if isinstance(target, type) or not callable(target) or inspect.signature(target).parameters:
        return target
    if inspect.iscoroutinefunction(target):

        async def perform_async(_: str, __: Sequence[Any]) -> None:
            await target()

        return _named(perform_async, target)

    def perform(_: str, __: Sequence[Any]) -> None:
        target()

    return _named(perform, target)


def _named(function: Any, after: Any) -> Any:
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(function, name, getattr(after, name, None))
    return function


def declared(app: App, worker: type[Worker[Any]], job: NewJob, rule: Rule) -> Declared:
    """Raises SettingsError, InvalidJob for what can't recur."""
    (encoded,) = app.validated(worker, [job])
    _check_dates(worker, encoded.payload, rule)
    return Declared(worker, encoded, rule)


def _check_dates(worker: type[Worker[Any]], payload: bytes, rule: Rule) -> None:
    """Raises SettingsError for a payload that can't say for when it is, though it must."""
    if rule.missed == "all":
        dated(worker.codec, payload, 0.0)


class Recurring:
    """
    `app.recurring`: jobs that recur, set and changed at run time. An id recurs in one way at a time. A worker is named
    by itself or by its queue; to set and run one takes an application that has it.
    """

    def __init__(self, app: App, entries: Entries) -> None:
        self._app, self._entries = app, entries

    def set(
        self,
        worker: Target,
        id: Id | NewJob,
        every: Every,
        *,
        payload: Any = UNSET,
        offset: float = 0.0,
        tz: str | None = None,
        missed: Missed = "merge",
        backlog: int = BACKLOG,
        who: str = "",
    ) -> bool:
        """
        Has a job be pushed again and again, from its next time on; or changes one that is. One that is paused stays so.
        False: it is so already.

        Args:
            id: of the job; or the job, with its payload, as `task.job(17, "paid")` makes it.
            every: seconds, a timedelta, "15m" or "1h 30m"; or cron's five fields, such as `*/5 * * * *`, or "@daily".
            payload: what is pushed each time; its score is the Unix time for which it is. What is not given stays as it
                is; of a new one it is "".
            offset: seconds by which an interval is shifted; they count from 1970 in UTC.
            tz: the time zone of cron's fields, such as "Europe/Berlin". UTC by default.
            missed: what becomes of times that passed while no node was there: "merge" gives one run for all of them,
                "skip" none for those that are more than a minute late, and "all" one each, at most the last `backlog`;
                with "all" payloads are mappings, and get the time as `due`.
            who: sets it, for people.

        Raises:
            SettingsError, InvalidJob: names what can't be; nothing was written.
        """
        rule = make_rule(every, offset=offset, tz=tz, missed=missed, backlog=backlog)
        known = self._worker(worker)
        if isinstance(id, Mapping):
            id, payload = _parts(id, payload)
        elif payload is not UNSET and hasattr(worker, "recurring_job"):
            payload = worker.recurring_job(payload)["payload"]
        job = self._kept(known, id) if payload is UNSET else None
        if job is None:
            (job,) = self._app.validated(known, [{"id": id, "payload": "" if payload is UNSET else payload}])
        _check_dates(known, job.payload, rule)
        self._entries.open(known)
        return self._change(
            known.queue_name, job.id, set_by(rule, job.payload, "api", job.tenant), f"is now {rule.words}", who
        )

    def pause(self, worker: Target, id: Id, reason: str = "", *, who: str = "") -> bool:
        """Has it not fire until it is resumed. False: there is none, or it is paused already."""
        return self._act(worker, id, "pause", who, reason)

    def resume(self, worker: Target, id: Id, *, who: str = "") -> bool:
        """Has it fire again, from its next time on: what was due meanwhile is not missed. False: it is not paused."""
        return self._act(worker, id, "resume", who)

    def remove(self, worker: Target, id: Id, *, who: str = "") -> bool:
        """
        Ends it; what is queued of it runs. One of the code stays away until the code says something else of it. False:
        there is none.
        """
        return self._act(worker, id, "remove", who)

    def run_now(self, worker: Target, id: Id, *, who: str = "") -> Pushed:
        """Pushes it once more now, as if it were due; its times stay as they are. Raises LowkiqError: there is none."""
        return self.run_encoded(self._worker(worker), self._id(worker, id), who)

    def run_encoded(self, worker: type[Worker[Any]], id: bytes, who: str) -> Pushed:
        """The same, with the id as Redis has it."""
        queue, entry = worker.queue_name, self._entries.read(worker.queue_name, id)
        if entry is None:
            name = short(id.decode("utf-8", "replace"))
            raise LowkiqError(f"nothing recurs as {name} in {queue}: see `lowkiq recurring list`")
        job = entry.job(id, self._entries.now(), worker.codec, worker.fewer)
        pushed = self._app.push_validated(queue, [job])
        self._entries.note(queue, id, "was run", who)
        return pushed

    def list(self, worker: Target | None = None) -> Sequence[RecurringJob]:
        """The jobs that recur, of one worker or of all queues that there are, those that fire next first."""
        return in_order(self._entries.list(_queue_of(worker) if worker else None))

    def __iter__(self) -> Iterator[RecurringJob]:
        return iter(self.list())

    def _act(self, worker: Target, id: Id, action: Action, who: str, reason: str = "") -> bool:
        change = asked_by(action, self._entries.now(), who, reason)
        return self._change(_queue_of(worker), self._id(worker, id), change, f"was {action}d", who)

    def _change(self, queue: str, id: bytes, change: Change, what: str, who: str) -> bool:
        """Changes an entry, and notes what was done."""
        if not self._entries.change(queue, id, change):
            return False
        self._entries.note(queue, id, what, who)
        return True

    def _kept(self, worker: type[Worker[Any]], id: Id) -> EncodedJob | None:
        """The job that recurs as that id by now; its payload as Redis has it."""
        encoded = self._id(worker, id)
        entry = self._entries.read(worker.queue_name, encoded)
        return EncodedJob(encoded, entry.payload, tenant=entry.tenant) if entry else None

    def _id(self, worker: Target, id: Id) -> bytes:
        known = self._app.workers.get(_queue_of(worker))
        dumped = known.codec.dump_id(id) if known and known.codec.dump_id else id
        try:
            return encode_id(dumped, self._app.settings.max_id_bytes)
        except (TypeError, ValueError) as error:
            raise SettingsError(str(error)) from error

    def _worker(self, worker: Target) -> type[Worker[Any]]:
        known = self._app.workers.get(_queue_of(worker))
        if known is None or (worker if isinstance(worker, str) else worker_of(worker)) not in (known, known.queue_name):
            raise SettingsError(
                f"{short(worker)} is no worker of this application, nor the queue of one: that knows how payloads are "
                "written"
            )
        return known


def _queue_of(worker: Target) -> str:
    return worker if isinstance(worker, str) else worker_of(worker).queue_name


def _parts(job: Mapping[str, Any], payload: Any) -> tuple[Id, Any]:
    """The id and the payload of a job that is to recur. Raises SettingsError for one that says more than these."""
    more = {*job, *(["payload="] if payload is not UNSET else [])} - {"id", "payload"}
    if more or "id" not in job:
        raise SettingsError(
            f"a job that recurs is {short(job)}: it has an id and a payload, and no more; its times are said by every="
        )
    return job["id"], job.get("payload", UNSET)


class StoredEntries:
    def __init__(self, app: App) -> None:
        self._app = app

    def now(self) -> float:
        return redis_time(self._app.caller)

    def open(self, worker: type[Worker[Any]]) -> None:
        layouts = opened(self._app.caller, self._app.namespace, {worker.queue_name: worker.shards_count})
        raise_first([*layouts.values()])

    def read(self, queue: str, id: bytes) -> Entry | None:
        return change_entry(self._app.caller, self._shards(queue), id, lambda known: known)[1]

    def change(self, queue: str, id: bytes, change: Change) -> bool:
        before, now = change_entry(self._app.caller, self._shards(queue), id, change)
        return before != now

    def note(self, queue: str, id: bytes, what: str, who: str) -> None:
        note_change(self._app.caller, self._app.namespace, queue, id, what, who)

    def list(self, queue: str | None) -> Iterable[RecurringJob]:
        if queue is not None:
            return read_all(self._app.caller, self._shards(queue))
        counts = {**self._app.queues(), **self._ours()}
        shards = [shard for name, count in counts.items() for shard in self._app.shards(name, count)]
        return read_all(self._app.caller, shards)

    def _shards(self, queue: str) -> Sequence[Shard]:
        counts = self._ours()
        if queue not in counts and queue not in (counts := self._app.queues()):
            raise unknown_queue(queue, counts)
        return self._app.shards(queue, counts[queue])

    def _ours(self) -> Mapping[str, int]:
        return {queue: worker.shards_count for queue, worker in self._app.workers.items()}
