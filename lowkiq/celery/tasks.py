"""Tasks: a function with the methods of a Celery task, whose calls are jobs of a queue of its own."""

from __future__ import annotations

import datetime
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeAlias, TypeVar

from lowkiq.celery.calls import Calls, Rules
from lowkiq.celery.queues import TaskQueue
from lowkiq.celery.refusals import (
    OF_RESULTS,
    OF_TASKS,
    MaxRetriesExceededError,
    NotSupported,
    attribute,
    refuse_call_options,
)
from lowkiq.errors import Decision, InvalidJob, SettingsError
from lowkiq.handlers.context import current
from lowkiq.job import NewJob, Pushed
from lowkiq.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Sent:
    """What `delay` returns: Celery's AsyncResult, without a result."""

    def __init__(self, id: str, pushed: Pushed) -> None:
        #: Of the job: what `key` says.
        self.id = id
        #: new=1: the id was not queued. merged=1: the call joined what was queued of it.
        self.pushed = pushed

    def __repr__(self) -> str:
        return f"<Sent {self.id}: {self.pushed}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise attribute("what delay returns", name, OF_RESULTS)


class Request:
    """What a bound task knows of its run, as `self.request`."""

    def __init__(self, call_id: str | None = None, retries: int = 0, *, called_directly: bool = True) -> None:
        self._call_id = call_id
        #: 0 in the first run of a call.
        self.retries = retries
        self.called_directly = called_directly
        self.is_eager = False

    @property
    def id(self) -> str:
        """What tells this call from all others, for a task with merge=False."""
        if self._call_id is None:
            raise NotSupported(
                "request.id: calls with equal arguments are one job here, so a call has no id of its own unless the "
                "task says merge=False; the job's id is lowkiq.current().jobs[0].id"
            )
        return self._call_id


class Task(Generic[P, R]):
    """
    A function whose calls run on Lowkiq: those of one id one at a time and in order.

    Args:
        queue: which it may share with other tasks.
    """

    MaxRetriesExceededError = MaxRetriesExceededError

    def __init__(
        self,
        function: Callable[..., R],
        name: str,
        queue: TaskQueue,
        calls: Calls,
        rules: Rules,
        *,
        is_bound: bool,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        #: The function itself.
        self.run = function
        self.max_retries = rules.max_retries
        self.default_retry_delay = rules.default_retry_delay
        self._calls = calls
        self._rules = rules
        self._is_bound = is_bound
        #: The worker of its queue, with queries and actions.
        self.worker: type[Worker[Any]] = queue.worker
        self._queue = queue
        queue.add(name, self.perform, calls.call)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs it here and now."""
        return self._call(Request(), args, kwargs)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """
        Queues a call, due now.

        Raises:
            TypeError: it can't be called so.
            InvalidJob, PushFailed, ShardsCountMismatch: as Worker.perform_async.
        """
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: float | None = None,
        eta: datetime.datetime | None = None,
        **options: Any,
    ) -> Sent:
        """
        Queues a call, due in so many seconds, or at a time.

        Raises:
            NotSupported: another option of Celery's, by its name, with the way out.
            TypeError, InvalidJob, PushFailed, ShardsCountMismatch: as `delay`.
        """
        if options.get("queue") == self.worker.queue_name:
            del options["queue"]
        refuse_call_options(f"task {self.name}", options)
        job = self._job(tuple(args or ()), kwargs or {})
        if countdown is not None:
            job["delay"] = countdown
        if eta is not None:
            job["at"] = eta
        return Sent(str(job["id"]), self.worker.perform_async([job]))

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """
        A call as a value, for whatever takes jobs of a worker, which takes the task in its place:
        `lowkiq.current().then(bill, [bill.job(17, "paid")])`. It is a dict, to which other keys of NewJob may be added.

        Raises:
            TypeError: it can't be called so.
            InvalidJob: it has no id.
        """
        return self._job(args, kwargs)

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Queues a call when Django's transaction has been committed; at once outside of one."""
        _on_commit(functools.partial(self.delay, *args, **kwargs))

    def apply_async_on_commit(self, *args: Any, **options: Any) -> None:
        """The same of `apply_async`."""
        _on_commit(functools.partial(self.apply_async, *args, **options))

    def recurring_job(self, payload: Any) -> NewJob:
        """
        The job of a call that recurs (`app.every`, `app.recurring.set`).

        Raises:
            SettingsError: it can't be called so.
        """
        try:
            return self._job((), {} if payload == "" else payload)
        except (TypeError, InvalidJob) as error:
            raise SettingsError(
                f'{error}; app.every calls it with payload=, its arguments by their names: payload={{"id": 17}}'
            ) from None

    @property
    def request(self) -> Request:
        """What the call that runs here knows of itself."""
        return _request.get() or Request()

    def retry(
        self,
        args: None = None,
        kwargs: None = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime.datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> NoReturn:
        """
        Has this call tried again; later ones of its id wait for it. Called directly, it raises the error itself.

        Raises:
            RetryIn: until the last try; then `exc`, or the error that is handled here, or MaxRetriesExceededError.
            NotSupported: other arguments, or another option of Celery's.
        """
        if args is not None or kwargs is not None or not throw:
            raise NotSupported(
                "self.retry tries the same call again, and ends this run: keep what it has done by "
                "lowkiq.current().checkpoint(…), or push a new call"
            )
        refuse_call_options("self.retry", options)
        error = exc or sys.exc_info()[1]
        if self.request.called_directly:
            raise error or MaxRetriesExceededError("self.retry was called by a task that was called directly")
        self._rules.again(self.request.retries, error, countdown, eta, max_retries)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise attribute("a task on Lowkiq", name, OF_TASKS)

    def perform(self, payload: Any) -> None:
        """Runs the call that a payload stands for, as a node does. Raises RetryIn where it is to be tried again."""
        call = self._calls.call(payload)
        request = Request(call.token, current().attempt - 1, called_directly=False)
        try:
            self._call(request, call.args, call.kwargs)
        except Decision:
            raise
        except Exception as error:
            if self._rules.retries_by_itself(error):
                self._rules.again_by_itself(request.retries, error)
            raise

    def _job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        job = self._calls.job(args, kwargs)
        job["payload"] = self._queue.named(self.name, job["payload"])
        return job

    def _call(self, request: Request, args: Any, kwargs: Any) -> R:
        before = _request.set(request)
        try:
            return self.run(self, *args, **kwargs) if self._is_bound else self.run(*args, **kwargs)
        finally:
            _request.reset(before)


#: The first argument of a task with bind=True.
Bound: TypeAlias = Task[..., Any]

#: The call that runs on this thread.
_request: ContextVar[Request | None] = ContextVar("lowkiq_celery_request", default=None)


def _on_commit(push: Callable[[], object]) -> None:
    from django.db import transaction  # noqa: PLC0415 (only who uses Django's transactions needs it)

    transaction.on_commit(push)
