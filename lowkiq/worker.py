"""Worker: the class of a queue. Its options, what it does with jobs, and how they get there."""

from __future__ import annotations

import difflib
import inspect
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

from lowkiq.admin.actions import Actions
from lowkiq.admin.queries import Queries
from lowkiq.errors import LowkiqError, SettingsError
from lowkiq.job import Job, NewJob, Pushed
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.settings import NAME
from lowkiq.shape import Shape

OPTIONS: Final = (
    "queue_name", "shards_count", "batch_size", "concurrency", "max_retry_count", "perform_timeout", "isolation",
)  # fmt: skip


class Application(Protocol):
    """The application that a worker is registered with, a Lowkiq, as far as the worker needs it."""

    def push(self, worker: type[Worker], jobs: Iterable[NewJob]) -> Pushed: ...
    async def apush(self, worker: type[Worker], jobs: Iterable[NewJob]) -> Pushed: ...
    def queries(self, queue: str, shards_count: int) -> Queries: ...
    def actions(self, queue: str, shards_count: int) -> Actions: ...


class _Bound:
    """`Worker.queries` and `Worker.actions`: those of the worker's queue, through its application."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __get__(self, instance: object, owner: type[Worker]) -> Any:
        return getattr(owner.registered_app(), self._method)(owner.queue_name, owner.shards_count)


class Worker:
    """
    A queue's class. Subclass it, write `perform`, and register it with `@app.worker`.

    A node makes one instance of it, which its threads share.
    """

    #: How finely the queue spreads over nodes: a shard is one node's at a time. It can't be changed while the queue is
    #: in use.
    shards_count: ClassVar[int] = 5
    #: How many ids one perform gets at most.
    batch_size: ClassVar[int] = 1
    #: Batches of one shard that may run at a time on its node, each with other ids: None for as many as threads are
    #: free, 1 as in the original Lowkiq.
    concurrency: ClassVar[int | None] = None
    #: Retries after which, if it fails once more, the oldest payload of a job goes to the morgue.
    max_retry_count: ClassVar[int] = 25
    #: Seconds that a batch may take. One that takes longer is asked to stop (`current().cancelled`); an async one is
    #: cancelled, and one with isolation="process" killed, which counts as a failure. None: as long as it likes.
    perform_timeout: ClassVar[float | None] = None
    #: Where batches run: on the node's threads (async ones on its event loop), or in processes of their own, whose
    #: death is a failure of the batch and no more.
    isolation: ClassVar[Literal["thread", "process"]] = "thread"
    #: How perform is called; set when the worker is registered.
    shape: ClassVar[Shape] = Shape()
    #: Default: the name of the class.
    queue_name: ClassVar[str] = ""

    app: ClassVar[Application | None] = None

    if TYPE_CHECKING:
        queries: ClassVar[Queries]
        actions: ClassVar[Actions]
    else:
        queries = _Bound("queries")
        actions = _Bound("actions")

    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        """
        Does the work.

        Args:
            payloads_by_id: at most `batch_size` ids, each with its payloads from low to high score.

        Raises:
            PartialFailure: only the ids that it names have failed.
            Exception: the whole batch has failed.
        """
        raise NotImplementedError(f"{type(self).__name__}.perform")

    def retry_in(self, retry_count: int) -> float:
        """
        Seconds until the next try: retry_count⁴ + 15 + rand(30)·(retry_count + 1) (Lowkiq's formula, after Sidekiq).

        Args:
            retry_count: 0 after the first failure.
        """
        jitter = random.randrange(30) * (retry_count + 1)  # noqa: S311 (spreads load, guards nothing)
        return float(retry_count**4 + 15 + jitter)

    def retries_exhausted(self, batch: list[Job]) -> None:
        """
        Called when payloads go to the morgue because their job has failed, and each of `max_retry_count` retries too.

        Args:
            batch: the jobs, each with the payload that goes and its error.
        """

    @classmethod
    def perform_async(cls, jobs: Iterable[NewJob]) -> Pushed:
        """
        Queues jobs. Override it to derive ids, scores or times.

        Args:
            jobs: mappings with `id`, and optionally `payload`, `score` and `perform_in` or `delay`.

        Returns:
            how many ids were new in the queue, and how many payloads were merged into ids queued already.

        Raises:
            InvalidJob: names the job and the field; nothing was written.
            PushFailed: Redis did not take all of it, or not within `push_timeout`; pushing it again is safe.
            ShardsCountMismatch: the queue has another number of shards; nothing was written.
        """
        return cls.registered_app().push(cls, jobs)

    @classmethod
    async def aperform_async(cls, jobs: Iterable[NewJob]) -> Pushed:
        """The same to be awaited: the event loop goes on meanwhile. It does not call `perform_async`."""
        return await cls.registered_app().apush(cls, jobs)

    @classmethod
    def registered_app(cls) -> Application:
        """The application that the worker is registered with."""
        if cls.app is None:
            raise LowkiqError(f"{cls.__name__} is not registered: put @app.worker above it")
        return cls.app


def function_worker(function: Callable[[dict[str, list[Any]]], Any]) -> type[Worker]:
    """A worker class around a function that is its `perform`."""
    _check_callable_runs(f"worker {function.__name__}", function)

    def perform(_: Worker, payloads_by_id: dict[str, list[Any]]) -> Any:
        return function(payloads_by_id)

    shape = Shape(is_async=inspect.iscoroutinefunction(function))
    members = {"perform": perform, "shape": shape, "__doc__": function.__doc__, "__module__": function.__module__}
    return type(function.__name__, (Worker,), members)


def _check_callable_runs(label: str, function: Callable[..., Any]) -> None:
    """A call of an async function or of a generator runs nothing: its jobs would be acknowledged undone."""
    is_async = inspect.isasyncgenfunction(function)
    if is_async or inspect.isgeneratorfunction(function):
        kind = "async" if is_async else "a generator"
        raise SettingsError(f"{label} is {kind}, and would never run: make it a plain function")


def check_options(worker: type[Worker]) -> None:
    """Raises SettingsError for an option that can't be used, or one that is nearly the name of an option."""
    label = f"worker {worker.__name__}"
    for name in vars(worker):
        if name not in OPTIONS and not name.startswith("_") and not hasattr(Worker, name):
            close = difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.85)
            if close:
                raise SettingsError(f"{label}: unknown option `{name}`, did you mean `{close[0]}`?")
    _check_callable_runs(f"{label}: perform", worker.perform)
    if not isinstance(worker.queue_name, str) or not NAME.fullmatch(worker.queue_name):
        raise SettingsError(f"{label}: queue_name {worker.queue_name!r} must match {NAME.pattern}; set one")
    for name, low, high in _RANGES:
        value = getattr(worker, name)
        if name == "concurrency" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise SettingsError(f"{label}: {name} is {value!r}, it must be an integer from {low:,} to {high:,}")


_RANGES: Final = (
    ("shards_count", 1, MOST_SHARDS),
    ("batch_size", 1, 1_000),
    ("concurrency", 1, 1_000),
    ("max_retry_count", 0, 1_000_000),
)
