"""Recurring: jobs that recur, as an application declares and sets them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from lowkiq.admin.recurring import (
    Action,
    RecurringJob,
    act,
    change_entry,
    in_order,
    note_change,
    read_all,
    read_entry,
    set_by,
)
from lowkiq.errors import LowkiqError, SettingsError, short, unknown_queue
from lowkiq.job import EncodedJob, NewJob, Pushed, encode_id
from lowkiq.queue.call import Caller, redis_time
from lowkiq.queue.homes import home_of
from lowkiq.queue.layouts import opened
from lowkiq.queue.recurring import dated
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.recurrence import BACKLOG, Every, Missed, Rule, make_rule
from lowkiq.settings import Settings
from lowkiq.worker import Worker

#: A worker, or the name of its queue.
Target: TypeAlias = "type[Worker[Any]] | str"


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
    if rule.missed == "all":
        dated(worker.codec, encoded.payload, 0.0)
    return Declared(worker, encoded, rule)


class Recurring:
    """
    `app.recurring`: jobs that recur, set and changed at run time. An id recurs in one way at a time. A worker is named
    by itself or by its queue; to set and run one takes an application that has it.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    def set(
        self,
        worker: Target,
        id: str | int,
        every: Every,
        *,
        payload: Any = "",
        offset: float = 0.0,
        tz: str | None = None,
        missed: Missed = "merge",
        backlog: int = BACKLOG,
        who: str = "",
    ) -> None:
        """
        Has a job be pushed again and again, from its next time on; or changes one that is. One that is paused stays so.

        Args:
            every: seconds, a timedelta, "15m" or "1h 30m"; or cron's five fields, such as `*/5 * * * *`, or "@daily".
            payload: what is pushed each time; its score is the Unix time for which it is.
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
        row = declared(self._app, self._worker(worker), {"id": id, "payload": payload}, rule)
        queue, change = row.worker.queue_name, set_by(rule, row.job.payload, "api")
        (layout,) = opened(self._app.caller, self._app.namespace, {queue: row.worker.shards_count}).values()
        if isinstance(layout, Exception):
            raise layout
        shards = shards_of(self._app.namespace, {queue: layout})
        before, now = change_entry(self._app.caller, shards, row.job.id, change)
        if before != now:
            note_change(self._app.caller, shards[0], row.job.id, f"is now {rule.words}", who)

    def pause(self, worker: Target, id: str | int, reason: str = "", *, who: str = "") -> bool:
        """Has it not fire until it is resumed. False: there is none, or it is paused already."""
        return self._act(worker, id, "pause", who, reason)

    def resume(self, worker: Target, id: str | int, *, who: str = "") -> bool:
        """Has it fire again, from its next time on: what was due meanwhile is not missed. False: it is not paused."""
        return self._act(worker, id, "resume", who)

    def remove(self, worker: Target, id: str | int, *, who: str = "") -> bool:
        """Ends it; what is queued of it runs. One of the code comes back when a node starts. False: there is none."""
        return self._act(worker, id, "remove", who)

    def run_now(self, worker: Target, id: str | int, *, who: str = "") -> Pushed:
        """Pushes it once more now, as if it were due; its times stay as they are. Raises LowkiqError: there is none."""
        return self.run_encoded(self._worker(worker), self._id(worker, id), who)

    def run_encoded(self, worker: type[Worker[Any]], id: bytes, who: str) -> Pushed:
        """The same, with the id as Redis has it."""
        caller, queue = self._app.caller, worker.queue_name
        shards = self._shards(queue)
        _, entry = read_entry(caller, home_of(caller, shards, id), id)
        if entry is None:
            name = short(id.decode("utf-8", "replace"))
            raise LowkiqError(f"nothing recurs as {name} in {queue}: see `lowkiq recurring list`")
        now = redis_time(caller)
        payload = dated(worker.codec, entry.payload, now) if entry.rule.missed == "all" else entry.payload
        pushed = self._app.push_validated(queue, [EncodedJob(id, payload, now)])
        note_change(caller, shards[0], id, "was run", who)
        return pushed

    def list(self, worker: Target | None = None) -> Sequence[RecurringJob]:
        """The jobs that recur, of one worker or of all queues that there are, those that fire next first."""
        if worker:
            return in_order(read_all(self._app.caller, self._shards(_queue_of(worker))))
        ours = {queue: known.shards_count for queue, known in self._app.workers.items()}
        counts = {**self._app.queues(), **ours}
        shards = [shard for queue, count in counts.items() for shard in self._app.shards(queue, count)]
        return in_order(read_all(self._app.caller, shards))

    def __iter__(self) -> Iterator[RecurringJob]:
        return iter(self.list())

    def _act(self, worker: Target, id: str | int, action: Action, who: str, reason: str = "") -> bool:
        return act(self._app.caller, self._shards(_queue_of(worker)), self._id(worker, id), action, who, reason)

    def _id(self, worker: Target, id: str | int) -> bytes:
        known = self._app.workers.get(_queue_of(worker))
        dumped = known.codec.dump_id(id) if known and known.codec.dump_id else id
        try:
            return encode_id(dumped, self._app.settings.max_id_bytes)
        except (TypeError, ValueError) as error:
            raise SettingsError(str(error)) from error

    def _worker(self, worker: Target) -> type[Worker[Any]]:
        known = self._app.workers.get(_queue_of(worker))
        if known is None or worker not in (known, known.queue_name):
            raise SettingsError(
                f"{short(worker)} is no worker of this application, nor the queue of one: that knows how payloads are "
                "written"
            )
        return known

    def _shards(self, queue: str) -> Sequence[Shard]:
        if known := self._app.workers.get(queue):
            return self._app.shards(queue, known.shards_count)
        counts = self._app.queues()
        if queue not in counts:
            raise unknown_queue(queue, counts)
        return self._app.shards(queue, counts[queue])


def _queue_of(worker: Target) -> str:
    return worker if isinstance(worker, str) else worker.queue_name


def set_declared(caller: Caller, shards: Sequence[Shard], rows: Sequence[Declared]) -> None:
    """
    Has a queue's recurring jobs of the code be those that are declared: what the code has no more is removed. People's
    pauses stay.
    """
    for row in rows:
        change_entry(caller, shards, row.job.id, set_by(row.rule, row.job.payload, "code"))
    ids = {row.job.id.decode() for row in rows}
    for job in read_all(caller, shards):
        if job.origin == "code" and job.id not in ids:
            change_entry(caller, shards, job.id.encode(), _gone_from_code)


def _gone_from_code(known: Any) -> Any:
    return None if known is not None and known.origin == "code" else known
