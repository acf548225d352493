"""Lowkiq: an application. Its settings, its workers, and its connections to Redis."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Concatenate, ParamSpec, Unpack, overload

import redis

from lowkiq import settings as settings_module
from lowkiq.admin import metrics
from lowkiq.admin.alerts.alert import Thresholds
from lowkiq.admin.alerts.look import State, read_state
from lowkiq.admin.events import Events
from lowkiq.admin.jobs.morgue import Morgue
from lowkiq.admin.jobs.queries import Queries
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.past.statistics import Statistics, day_of, number_of, statistics_of
from lowkiq.admin.resharding import shards_in_force
from lowkiq.batch import Batch
from lowkiq.errors import SettingsError, short, unknown_queue
from lowkiq.hooks import Middleware, is_async, wrap
from lowkiq.job import EncodedJob, NewJob, Pushed, encode_id, encode_jobs
from lowkiq.options import OF_WORKERS, WorkerOptions
from lowkiq.queue.awaited import AwaitedPushes
from lowkiq.queue.call import Caller, redis_time
from lowkiq.queue.keys import Layout
from lowkiq.queue.loops import LoopsOfPushes
from lowkiq.queue.push import Producer
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.recurrence import BACKLOG, Every, Missed, make_rule
from lowkiq.recurring import Declaration, Declared, Recurring, StoredEntries, declared, recurring_target
from lowkiq.redaction import redact
from lowkiq.redis_url import parse
from lowkiq.registration import FunctionWorker, Registration, W, prepare, unknown_worker_option
from lowkiq.telemetry import make_telemetry
from lowkiq.telemetry.texts import with_context
from lowkiq.transport.cluster import ClusterClient
from lowkiq.transport.connect import client_for_producers
from lowkiq.transport.server import Replicas
from lowkiq.types.variables import K, P
from lowkiq.worker import Target, Worker, held_pushes, worker_of

S = ParamSpec("S")


def _keywords(
    _: Callable[[], Callable[S, Any]],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, S], None]]:
    """Has type checkers know the keywords of a function: those that another one takes."""
    return lambda function: function


class Lowkiq:
    """
    An application: the only state that the library keeps.

    Args:
        settings: see `lowkiq.settings.Settings`. What is not given comes from the environment, else has a default.

    Raises:
        SettingsError: names the setting, its value and what it may be.
    """

    @_keywords(lambda: settings_module.Keywords)
    def __init__(self, *given: Any, **settings: Any) -> None:
        if given:
            url = f"redis_url={redact(given[0])!r}" if isinstance(given[0], str) else "redis_url=…"
            raise SettingsError(f"Lowkiq takes settings by their names, such as Lowkiq({url})")
        self.settings = settings_module.build(settings)
        #: Queue name → worker class, in the order of registration.
        self.workers: dict[str, type[Worker[Any]]] = {}
        #: Jobs that recur, as the code has them.
        self._declared: list[Declared] = []
        self._producers: dict[str, Producer] = {}
        self._awaited = LoopsOfPushes(self._awaited_pushes)
        self._telemetry = make_telemetry(self.settings.telemetry)

    @overload
    def worker(self, target: W, /) -> W: ...
    @overload
    def worker(self, target: Callable[[dict[K, list[P]]], Any], /) -> type[Worker[P]]: ...
    @overload
    def worker(self, target: Callable[[K, list[P]], Any], /) -> type[Worker[P]]: ...
    @overload
    def worker(self, /, **options: Unpack[WorkerOptions]) -> Registration: ...
    def worker(self, target: Any = None, /, **options: Any) -> Any:
        """
        Registers a Worker subclass, or a function: `@app.worker`, `@app.worker(batch_size=10)`. A function of one
        parameter gets a batch, one of two an id and its payloads.

        Raises:
            SettingsError: an option is unknown or can't be used, or the queue has a worker already.
        """
        for name in options:
            if name not in OF_WORKERS:
                raise unknown_worker_option(name)
        if target is None:
            return lambda decorated: self._register(decorated, options)
        return self._register(target, options)

    def every(
        self,
        every: Every,
        *,
        id: str | int | None = None,
        payload: Any = "",
        offset: float = 0.0,
        tz: str | None = None,
        missed: Missed = "merge",
        backlog: int = BACKLOG,
    ) -> Declaration:
        """
        Has a job of what it decorates recur: `@app.every("*/5 * * * *", tz="Europe/Berlin")`. That is a worker, or a
        class or a function that becomes one, be it one without parameters; or a task of lowkiq.celery, which stays one,
        and whose arguments are the payload, by their names. Nodes set it in Redis as they start, in
        place of what the code had before; people may pause it there.

        Args:
            id: of the job; the name of the queue by default, and of a task what its key says.
            every, payload, offset, tz, missed, backlog: as of `app.recurring.set`.

        Raises:
            SettingsError, InvalidJob: names what can't be.
        """
        rule = make_rule(every, offset=offset, tz=tz, missed=missed, backlog=backlog)

        def declare(target: Any) -> Any:
            is_known = isinstance(target, type) and target in self.workers.values()
            is_task = hasattr(target, "recurring_job")  # of lowkiq.celery: it has a worker already
            worker = target.worker if is_task else target if is_known else self.worker(recurring_target(target))
            if isinstance(worker, FunctionWorker) and not isinstance(target, type):
                worker.__wrapped__ = staticmethod(target)
            job: NewJob = {"id": worker.queue_name, "payload": payload}
            if is_task:
                job = target.recurring_job(payload)
            if id is not None:
                job["id"] = id
            row = declared(self, worker, job, rule)
            if any((one.worker, one.job.id) == (worker, row.job.id) for one in self._declared):
                raise SettingsError(
                    f"{worker.queue_name} has two jobs that recur as {short(row.job.id.decode())}: give each an id"
                )
            self._declared.append(row)
            return target if is_task else worker

        return declare

    @cached_property
    def recurring(self) -> Recurring:
        """Jobs that recur: set, list, pause, resume and remove them, or run one now."""
        return Recurring(self, StoredEntries(self))

    @property
    def namespace(self) -> str:
        """The start of every key."""
        return self.settings.namespace

    def push(self, worker: Target[P], jobs: Iterable[NewJob[P]]) -> Pushed:
        """
        Queues jobs, as `Worker.perform_async` does: client middlewares around validation and push.

        Args:
            worker: whose jobs they are; or a task of lowkiq.celery, whose jobs `task.job` makes.
        """
        worker = worker_of(worker)
        middlewares = self.settings.client_middlewares
        if not middlewares and isinstance(jobs, list):  # asked first: it costs a single push less than what follows
            return self._push(worker, jobs)
        require_sync(middlewares, "aperform_async")
        batch = listed(jobs)
        result: Pushed = wrap(middlewares, worker, batch, partial(self._push, worker, batch))()
        return result

    async def apush(self, worker: Target[P], jobs: Iterable[NewJob[P]]) -> Pushed:
        """The same, awaited: see `Worker.aperform_async`. Client middlewares get an awaitable from `call()`."""
        worker = worker_of(worker)
        middlewares = self.settings.client_middlewares
        if not middlewares and isinstance(jobs, list) and self._telemetry is None and held_pushes.get() is None:
            return await self._awaited.current().push(self._producer(worker), jobs, partial(self._encode, worker))
        batch = listed(jobs)
        result = wrap(middlewares, worker, batch, partial(self._apush, worker, batch))()
        pushed: Pushed = await result if inspect.isawaitable(result) else result
        return pushed

    def validated(self, worker: type[Worker[P]], jobs: Iterable[NewJob[P]]) -> list[EncodedJob]:
        """The jobs as they would be pushed, without pushing them: for what keeps them meanwhile. Raises InvalidJob."""
        return self._encode(worker, jobs)

    def push_validated(self, queue: str, jobs: Sequence[EncodedJob]) -> Pushed:
        """Queues what was validated before, in its order; `queue` is that of a worker. Errors are those of push."""
        return self._producer(self.workers[queue]).push(jobs)

    def batch(self, on_done: tuple[Target[P], NewJob[P]], *, name: str | None = None) -> Batch:
        """
        Jobs after all of which another one runs: `with app.batch(on_done=(Report, Report.job("eu"))) as batch`, and
        inside `batch.push(OrderSync, jobs)`, of any number and any workers; or the same with `async with` and `apush`.

        Args:
            name: of a batch that goes on with what one of that name has left open, with the same job at the end, as its
                process died or its block raised. Without one only the next try of the job goes on that has opened it.

        Raises:
            InvalidJob: of `on_done`; nothing was written.
        """
        target, job = on_done
        worker = worker_of(target)
        (encoded,) = self._encode(worker, [job])
        return Batch(self, self._producer(worker), worker, encoded, name)

    def name_of(self, worker: Any, id: Any) -> str:
        """
        A job as those name it who wait for it: "queue shards_count id". Raises ValueError, TypeError.

        Args:
            worker: a worker of this application or a task, or the name of its queue.
        """
        known = self.workers.get(worker) if isinstance(worker, str) else worker_of(worker)
        if known is None or self.workers.get(known.queue_name) is not known:
            raise ValueError(f"{short(worker)} is no worker of this application, nor the queue of one")
        dumped = known.codec.dump_id(id) if known.codec.dump_id else id
        text = encode_id(dumped, self.settings.max_id_bytes).decode()
        return f"{known.queue_name} {known.shards_count} {text}"

    def metrics(self) -> dict[str, QueueMetrics]:
        """The numbers of every queue, also of those whose worker is not in this application."""
        queues = self._layouts()
        return metrics.by_queue(queues, metrics.read_shards(self.caller, shards_of(self.settings.namespace, queues)))

    def nodes(self) -> State:
        """The health of every node, from its heartbeats, and all alerts: `is_well` when there is none."""
        return read_state(self.caller, self.settings.namespace, self.thresholds, self._layouts())

    @property
    def thresholds(self) -> Thresholds:
        """The limits above which something is an alert."""
        return Thresholds.of(self.settings)

    def statistics(self, queue: str, day: datetime.date | None = None) -> Statistics:
        """
        How long jobs of a queue waited and ran on a day of the last 365, in UTC by Redis's clock; today by default.

        Raises:
            UnknownQueue: Redis knows no queue of that name, and this application has no worker for it.
        """
        if queue not in self.workers and queue not in (known := self.queues()):
            raise unknown_queue(queue, known)
        number = day_of(redis_time(self.caller)) if day is None else number_of(day)
        return statistics_of(self.caller, self.settings.namespace, queue, number)

    def queues(self) -> dict[str, int]:
        """Every queue that Redis knows, with its shards_count."""
        return metrics.known_queues(self.caller, self.settings.namespace)

    def events(
        self,
        queue: str | None = None,
        ids: Collection[str | int] | None = None,
        kinds: Collection[str] | None = None,
    ) -> Events:
        """
        What happens to jobs from now on, as an iterator, also an async one: `with app.events("OrderSync") as events`.

        Args:
            queue: one queue; None for all that there are now.
            ids: only of these.
            kinds: only such events, see `lowkiq.admin.events.KINDS`; gaps are told of in any case.

        Raises:
            SettingsError: there is no such queue, or no such kind.
        """
        queues = self._layouts()
        if queue is not None and queue not in queues:
            raise SettingsError(f"no queue {short(queue)} here; known are: {', '.join(queues) or 'none'}")
        found = queues if queue is None else {queue: queues[queue]}
        return Events(self.caller, self.settings.namespace, found, ids=ids, kinds=kinds)

    def queries(self, queue: str, shards_count: int) -> Queries:
        """Queries of a queue, by its name."""
        settings = self.settings
        return Queries(
            self.caller,
            self.shards(queue, shards_count),
            load_payload=settings.load_payload,
            load_error=settings.load_error,
            max_id_bytes=settings.max_id_bytes,
            max_payloads=settings.max_payloads,
        )

    def actions(self, queue: str, shards_count: int) -> UndoableActions:
        """Actions on a queue, by its name."""
        return UndoableActions(self.caller, self.shards(queue, shards_count), max_id_bytes=self.settings.max_id_bytes)

    def morgue(self, queue: str, shards_count: int) -> Morgue:
        """The morgue of a queue, by its name."""
        return Morgue(self.queries(queue, shards_count), self.actions(queue, shards_count))

    def shards(self, queue: str, shards_count: int) -> list[Shard]:
        """The shards of a queue: of one that was resharded those that it has, and those that are being moved."""
        return [*shards_in_force(self.caller, shards_of(self.settings.namespace, {queue: shards_count}))]

    def redis(self) -> redis.Redis:
        """The client that producers use, for keys of your own; of Cluster a RedisCluster. Replies are bytes."""
        client: Any = self.caller.client
        if isinstance(client, ClusterClient):
            client = client.cluster
        made: redis.Redis = client
        return made

    def close(self) -> None:
        """Closes the connections; the next use opens new ones."""
        self._awaited.close()
        if "caller" in vars(self):
            self.caller.close()

    async def aclose(self) -> None:
        """Closes them at the end of an event loop: waits for its pushes first."""
        await self._awaited.end()
        self.close()

    def _layouts(self) -> dict[str, int | Layout]:
        """All queues, each as Redis knows it, as far as it does."""
        ours = {name: worker.shards_count for name, worker in self.workers.items()}
        return {**ours, **metrics.read_layouts(self.caller, self.settings.namespace)}

    @cached_property
    def caller(self) -> Caller:
        """Sends script calls over the producers' connections."""
        return Caller(client_for_producers(self.settings))

    def _push(self, worker: type[Worker[P]], jobs: Iterable[NewJob[P]]) -> Pushed:
        push = held_pushes.get() or self._push_now
        if self._telemetry is None:
            return push(worker, self._encode(worker, jobs))
        with self._telemetry.push(worker.queue_name, jobs) as context:
            return push(worker, self._encode(worker, jobs, context=context))

    def _push_now(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> Pushed:
        return self._producer(worker).push(jobs)

    async def _apush(self, worker: type[Worker[Any]], jobs: Any) -> Pushed:
        if not isinstance(jobs, list):
            self._encode(worker, jobs)  # raises
        if held_pushes.get() is not None:
            return self._push(worker, jobs)  # which waits for nothing
        pushes, producer = self._awaited.current(), self._producer(worker)
        if self._telemetry is None:
            return await pushes.push(producer, jobs, partial(self._encode, worker))
        with self._telemetry.push(worker.queue_name, jobs) as context:
            return await pushes.push(producer, jobs, partial(self._encode, worker, context=context))

    def _encode(
        self, worker: type[Worker[P]], jobs: Iterable[NewJob[P]], first: int = 0, context: str = ""
    ) -> list[EncodedJob]:
        settings = self.settings
        encoded = encode_jobs(
            jobs,
            worker.codec.dump,
            dump_id=worker.codec.dump_id,
            fair_by=worker.fair_by,
            max_id_bytes=settings.max_id_bytes,
            max_payload_bytes=settings.max_payload_bytes,
            fewer=worker.fewer,
            first=first,
            name_of=self.name_of,
            own=worker,
        )
        if context:
            for job in encoded:
                job.tags = with_context(job.tags, context)
        return encoded

    def _awaited_pushes(self) -> AwaitedPushes:
        settings = self.settings
        return AwaitedPushes(
            self.caller,
            settings.push_timeout,
            is_direct=settings.redis is None
            and parse(settings.redis_url).kind == "server"
            and not settings.wait_replicas,
        )

    def _register(self, target: Any, options: Mapping[str, Any]) -> type[Worker[Any]]:
        worker = prepare(target, options, self.settings)
        if worker.queue_name in self.workers:
            known = self.workers[worker.queue_name]
            raise SettingsError(
                f"queue {worker.queue_name} has a worker already: give {worker.__name__} a queue_name, as in "
                f'@app.worker(queue_name="{worker.queue_name}_2"). The other is {known.__module__}.{known.__qualname__}'
            )
        worker.app = self
        self.workers[worker.queue_name] = worker
        return worker

    def _producer(self, worker: type[Worker[Any]]) -> Producer:
        known = self._producers.get(worker.queue_name)
        if known is None:
            settings = self.settings
            replicas = Replicas(settings.wait_replicas, settings.wait_timeout) if settings.wait_replicas else None
            known = Producer(
                self.caller,
                settings.namespace,
                worker.queue_name,
                worker.shards_count,
                replicas,
                push_timeout=settings.push_timeout,
            )
            self._producers[worker.queue_name] = known
        return known


def require_sync(middlewares: Iterable[Middleware], awaited: str) -> None:
    """Raises SettingsError for a client middleware that only the awaited call, of that name, can be within."""
    if found := next(filter(is_async, middlewares), None):
        raise SettingsError(
            f"client middleware {short(found)} is async, so it can only be around pushes that are awaited: "
            f"await {awaited} instead, or make it a plain function"
        )


def listed(jobs: Any) -> Any:
    """A list of what a generator yields; what is not a list of jobs is left for encode_jobs to refuse."""
    is_list = isinstance(jobs, Iterable) and not isinstance(jobs, Mapping | str | bytes)
    return list(jobs) if is_list else jobs
