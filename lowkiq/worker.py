"""Worker: the class of a queue. Its options, what it does with jobs, and how they get there."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, Unpack, overload

from msgspec import UNSET, UnsetType

from lowkiq.admin.jobs.morgue import Morgue
from lowkiq.admin.jobs.queries import Queries
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.codec import error_text
from lowkiq.errors import InvalidJob, LowkiqError, SettingsError, short
from lowkiq.fewer import NONE, Debounce, Equal, Fewer, Keep
from lowkiq.job import JOB_KEYS, EncodedJob, HasWorker, Id, Job, JobOptions, NewJob, Pushed
from lowkiq.policies import Retry
from lowkiq.rate import Rate
from lowkiq.types.codec import PLAIN, Codec
from lowkiq.types.shape import Shape
from lowkiq.types.variables import P


class Application(Protocol):
    """The application that a worker is registered with, a Lowkiq, as far as the worker needs it."""

    def push(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed: ...
    async def apush(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed: ...
    def validated(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> list[EncodedJob]: ...
    def queries(self, queue: str, shards_count: int) -> Queries: ...
    def actions(self, queue: str, shards_count: int) -> UndoableActions: ...
    def morgue(self, queue: str, shards_count: int) -> Morgue: ...


#: What `perform_async` is given; of any type, since overrides may take what they like. A dict is no list of jobs.
Jobs: TypeAlias = "Sequence[Any] | Iterator[Any] | ValuesView[Any]"
#: When a job is due: a Unix time, or a datetime with a time zone; and in how long: seconds, or a timedelta.
Due: TypeAlias = float | datetime.datetime | None
Delay: TypeAlias = float | datetime.timedelta | None
#: Takes a worker, and validated jobs for it.
Hold: TypeAlias = "Callable[[type[Worker[Any]], Sequence[EncodedJob]], Pushed]"
#: What takes pushes inside a perform whose worker has pushes="on_success", in place of Redis.
held_pushes: ContextVar[Hold | None] = ContextVar("lowkiq_held_pushes", default=None)


#: What runs here, if a job does (handlers/context.py).
running: ContextVar[Any] = ContextVar("lowkiq_running", default=None)


class _Bound:
    """`Worker.queries`, `Worker.actions`, `Worker.morgue`: those of its queue, through its application."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __get__(self, instance: object, owner: type[Worker[Any]]) -> Any:
        return getattr(owner.registered_app(), self._method)(owner.queue_name, owner.shards_count)


class Worker(Generic[P]):
    """
    A queue's class. Subclass it, write `perform` or `perform_one`, and register it with `@app.worker`. Of payloads of a
    type it is a `Worker[OrderChange]`.

    A node makes one instance of it, which its threads share.
    """

    #: How finely the queue spreads over nodes: a shard is one node's at a time. It is what the queue begins with; Redis
    #: tells what it has (`actions.reshard`).
    shards_count: ClassVar[int] = 5
    #: How many ids one perform gets at most.
    batch_size: ClassVar[int] = 1
    #: Batches of one shard that may run at a time on its node, each with other ids: None for as many as threads are
    #: free, 1 as in the original Lowkiq.
    concurrency: ClassVar[int | None] = None
    #: Batches of the queue that may run at a time, on all nodes: None for any number.
    max_running: ClassVar[int | None] = None
    #: Payloads of an id that one perform gets at most, lowest first; the rest follow: None for those of the setting.
    max_payloads: ClassVar[int | None] = None
    #: Retries after which, if it fails once more, the oldest payload of a job goes to the morgue.
    max_retry_count: ClassVar[int] = 25
    #: When and how often a job is tried again: Exponential(…), Fixed(…), or a mapping from classes of exceptions to
    #: those, Bury or Discard. None, or an error that is not in the mapping: as retry_in and max_retry_count say.
    retry: ClassVar[Retry] = None
    #: The fate of a job after its last try: "bury" its oldest payload, and go on with the others; "block" it, with all
    #: that is pushed to it, until somebody comes; or "discard" its oldest payload, and go on.
    when_exhausted: ClassVar[Literal["bury", "block", "discard"]] = "bury"
    #: Seconds that a batch may take. One that takes longer is asked to stop (`current().cancelled`); an async one is
    #: cancelled, and one with isolation="process" killed, which counts as a failure. None: as long as it likes.
    perform_timeout: ClassVar[float | None] = None
    #: An id is due once nothing was pushed to it for a while: Debounce(2, at_most=30).
    debounce: ClassVar[Debounce | None] = None
    #: Seconds between two starts of an id, at least: what is pushed meanwhile is handed over together.
    throttle: ClassVar[float | None] = None
    #: Payloads of an id that are kept while it is queued: "all"; "last": only that with the highest score; or "first".
    keep: ClassVar[Keep] = "all"
    #: The place of an equal payload that is pushed again while its id is queued: "last", that of its latest push, so
    #: that the last word is the last state; or "first", as the original has it. None: that of the setting.
    equal: ClassVar[Equal | None] = None
    #: The last four together, set when the worker is registered.
    fewer: ClassVar[Fewer] = NONE
    #: Where batches run: on the node's threads (async ones on its event loop), or in processes of their own, whose
    #: death is a failure of the batch and no more.
    isolation: ClassVar[Literal["thread", "process", "spawn"]] = "thread"
    #: How many jobs may start within a time, over all nodes: Rate(100, per=60), or of each key: Rate(…, by=…).
    rate: ClassVar[Rate | None] = None
    #: A function of an id and a payload that tells whose job it is, such as a tenant's name: all who have jobs due get
    #: equal shares of the queue, however much each of them has pushed. None: first come, first served.
    fair_by: ClassVar[Callable[[Any, Any], str | int] | None] = None
    #: When a push inside perform takes place: "now", be the batch done or not; or "on_success": with the settle, if it
    #: is done, as `current().then` has it.
    pushes: ClassVar[Literal["now", "on_success"]] = "now"
    #: How perform is called, and what its payloads and ids are; set when the worker is registered.
    shape: ClassVar[Shape] = Shape()
    codec: ClassVar[Codec] = PLAIN
    #: Default: the name of the class.
    queue_name: ClassVar[str] = ""

    app: ClassVar[Application | None] = None

    if TYPE_CHECKING:
        queries: ClassVar[Queries]
        actions: ClassVar[UndoableActions]
        morgue: ClassVar[Morgue]

        # Of a function: it stays one (registration.FunctionWorker). Its result is not told here.
        @overload
        def __new__(cls, /) -> Self: ...
        @overload
        def __new__(cls, payloads_by_id: dict[Any, list[P]], /, **more: Any) -> Any: ...
        @overload
        def __new__(cls, id: Any, payloads: list[P], /, *rest: Any, **more: Any) -> Any: ...
        @overload
        def __new__(cls, /, **named: Any) -> Any: ...
        def __new__(cls, /, *args: Any, **kwargs: Any) -> Any: ...
        @staticmethod
        def id(payload: Any, /) -> Any: ...
        @staticmethod
        def score(payload: Any, /) -> float: ...
    else:
        #: Functions of a payload, which tell its id and its score: so `push` can make jobs of payloads.
        id = score = None
        queries = _Bound("queries")
        actions = _Bound("actions")
        morgue = _Bound("morgue")

    def perform(self, payloads_by_id: dict[Any, list[P]], /) -> Any:
        """
        Does the work. It may be `async def`.

        Args:
            payloads_by_id: at most `batch_size` ids, each with its payloads from low to high score.

        Raises:
            PartialFailure: only the ids that it names have failed.
            Exception: the whole batch has failed.
        """
        raise NotImplementedError(f"{type(self).__name__}.perform")

    def perform_one(self, id: Any, payloads: list[P], /) -> Any:
        """
        Does the work of one id, instead of `perform`. It may be `async def`.

        Args:
            payloads: from low to high score.

        Raises:
            Exception: the job has failed.
        """
        raise NotImplementedError(f"{type(self).__name__}.perform_one")

    if TYPE_CHECKING:
        # It may have either signature.
        def retry_in(self, *args: Any, **kwargs: Any) -> float: ...
    else:

        def retry_in(self, retry_count: int, error: object = None, /) -> float:  # noqa: ARG002 (overrides may use it)
            """
            Seconds until the next try: retry_count⁴ + 15 + rand(30)·(retry_count + 1), after Sidekiq.

            Args:
                retry_count: 0 after the first failure.
                error: the exception, or a text of PartialFailure; an override that does not take it need not.
            """
            jitter = random.randrange(30) * (retry_count + 1)  # noqa: S311 (spreads load, guards nothing)
            return float(retry_count**4 + 15 + jitter)

    def retries_exhausted(self, batch: list[Job], /) -> Any:
        """
        Called when payloads go to the morgue because their job has failed, and each of `max_retry_count` retries too;
        or because it is not to be tried again (Bury), or its process has died `max_crashes` times.

        Args:
            batch: the jobs, each with the payload that goes, or with all that go, and its error.
        """

    @classmethod
    def perform_async(cls, jobs: Jobs, /) -> Pushed:
        """
        Queues jobs. Override it to derive ids, scores or times, from whatever it is given then.

        Args:
            jobs: mappings with `id`, and optionally `payload`, `score`, `tags`, `at` or `delay`, `debounce`,
                `throttle`, `keep` and `after` (NewJob), such as `job` makes.

        Returns:
            how many ids were new in the queue, and how many payloads were merged into ids queued already.

        Raises:
            InvalidJob: names the job and the field; nothing was written.
            PushFailed: Redis did not take all of it, or not within `push_timeout`; pushing it again is safe.
            ShardsCountMismatch: the queue has another number of shards; nothing was written.
        """
        return cls.registered_app().push(cls, jobs)

    @classmethod
    async def aperform_async(cls, jobs: Jobs, /) -> Pushed:
        """Queues jobs, awaited: the event loop goes on meanwhile. It does not call `perform_async`."""
        return await cls.registered_app().apush(cls, jobs)

    @classmethod
    def job(cls, id: Id, payload: P | dict[str, Any] | UnsetType = UNSET, **options: Unpack[JobOptions]) -> NewJob[P]:
        """
        A job as a value, for whatever takes jobs of this worker: `current().then(Invoice, [Invoice.job(17, "paid")])`.
        Nothing is pushed by this, and what can't be is refused there.

        Args:
            options: the other keys of NewJob: `score`, `at`, `delay`, `tags`, `debounce`, `throttle`, `keep`, `after`.
        """
        job: Any = {"id": id, **options}
        if payload is not UNSET:
            job["payload"] = payload
        made: NewJob[P] = job
        return made

    @classmethod
    def push(cls, *payloads: P, tags: Sequence[str] | None = None, at: Due = None, delay: Delay = None) -> Pushed:
        """
        Queues payloads, as `perform_async` does with jobs: their ids are those that `id=` makes of them, and their
        scores those of `score=`, if that is set. All get these tags, and are due at that time.

        Raises:
            SettingsError: the worker has no `id=`.
            InvalidJob, PushFailed, ShardsCountMismatch: as perform_async.
        """
        return cls.perform_async(cls._jobs(payloads, {"tags": tags, "at": at, "delay": delay}))

    @classmethod
    async def apush(
        cls, *payloads: P, tags: Sequence[str] | None = None, at: Due = None, delay: Delay = None
    ) -> Pushed:
        """As `push`, by `aperform_async`."""
        return await cls.aperform_async(cls._jobs(payloads, {"tags": tags, "at": at, "delay": delay}))

    @classmethod
    def _jobs(cls, payloads: Iterable[P], options: Mapping[str, Any]) -> list[NewJob]:
        """The jobs of payloads. Raises InvalidJob for one whose id or score can't be told."""
        if cls.id is None:
            raise SettingsError(
                f"{cls.__name__} can't tell the id of a payload: register it with @app.worker(id=lambda payload: …), "
                'or use perform_async([{"id": …, "payload": …}])'
            )
        jobs = [cls._job(number, payload) for number, payload in enumerate(payloads)]
        given: Any = {key: value for key, value in options.items() if value is not None}
        for job in jobs if given else ():
            job.update(given)
        return jobs

    @classmethod
    def _job(cls, number: int, payload: P) -> NewJob:
        job: NewJob = {"id": cls._told("id", number, payload), "payload": payload}
        if cls.score is not None:
            job["score"] = cls._told("score", number, payload)
        return job

    @classmethod
    def _told(cls, name: str, number: int, payload: P) -> Any:
        """What `id=` or `score=` tells of a payload. Raises InvalidJob."""
        try:
            told = getattr(cls, name)(payload)
        except Exception as error:
            hint = "; push takes payloads one by one: push(*payloads)" if isinstance(payload, list | tuple) else ""
            if isinstance(payload, Mapping) and "id" in payload and JOB_KEYS.issuperset(payload):
                hint = "; push takes payloads, and this is a job: perform_async([…]) takes those"
            try:
                cls.codec.dump(payload)
            except Exception as unfit:  # noqa: BLE001 (the hooks are the user's)
                hint = f" (the payload can't be dumped: {unfit}){hint}"
            raise InvalidJob(f"payload {number}: {name}= failed: {error_text(error)}{hint}") from error
        if told is None:
            raise InvalidJob(f"payload {number}: {name}= gave None")
        return told

    @classmethod
    def registered_app(cls) -> Application:
        if cls.app is None:
            raise LowkiqError(f"{cls.__name__} is not registered: put @app.worker above it")
        return cls.app


#: A worker, or what has one.
Target: TypeAlias = type[Worker[P]] | HasWorker


def worker_of(target: Target[P]) -> type[Worker[P]]:
    """The worker that jobs of a worker, or of a task of lowkiq.celery, go to. Raises SettingsError for what is none."""
    found: Any = target if isinstance(target, type) else getattr(target, "worker", None)
    if not isinstance(found, type) or not issubclass(found, Worker):
        raise SettingsError(
            f"{short(target)} is no worker: give the class, or the function, that @app.worker has made one"
        )
    return found
