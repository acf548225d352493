"""The worker of Django's tasks: runs what was enqueued under an id, one after the other."""

from __future__ import annotations

import builtins
import datetime
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import django
import msgspec
from django.utils import timezone
from django.utils.module_loading import import_string

from lowkiq import errors
from lowkiq.errors import Bury, Decision, LowkiqError, short
from lowkiq.handlers.context import current
from lowkiq.job import Job
from lowkiq.worker import Worker

#: Where tasks are: in Django itself, or in the backport.
HOME: Final = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"

if TYPE_CHECKING:
    from django.tasks import task_backends
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.signals import task_finished, task_started
else:
    _base, _signals = import_module(f"{HOME}.base"), import_module(f"{HOME}.signals")
    task_backends = import_module(HOME).task_backends
    Task, TaskContext, TaskError = _base.Task, _base.TaskContext, _base.TaskError
    TaskResult, TaskResultStatus = _base.TaskResult, _base.TaskResultStatus
    task_finished, task_started = _signals.task_finished, _signals.task_started

_utils = import_module("django.utils.json" if django.VERSION >= (6, 0) else "django_tasks.utils")
normalize_json: Callable[[Any], Any] = _utils.normalize_json

P = ParamSpec("P")
R = TypeVar("R")


class Enqueued(msgspec.Struct):
    """A call of a task, as it is kept."""

    #: The path of its task.
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    #: Of the result; without a key also of the job. It keeps calls apart that are equal, as equal payloads merge.
    id: str
    #: The Unix time of `enqueue`.
    at: float
    #: The queue and the backend, by Django's names.
    queue: str
    alias: str
    #: When it was to run at the earliest, as `using` was told.
    run_after: datetime.datetime | None = None


class TaskWorker(Worker[Enqueued]):
    """
    Runs the calls of a job in order, one at a time. One that fails holds up those behind it, until it has been done or
    buried; those before it are done.
    """

    max_payloads = 1

    def perform_one(self, _: str, payloads: list[Enqueued]) -> None:
        for enqueued in payloads:
            _run(enqueued, attempt=current().attempt)

    def retries_exhausted(self, batch: list[Job]) -> None:
        for job in batch:
            for enqueued in job.payloads:
                result = result_of(enqueued, _task_of(enqueued), TaskResultStatus.FAILED, job.retry_count + 1)
                told = f"{job.traceback or job.error or ''}\n"
                result.errors.append(TaskError(exception_class_path=_class_of(job), traceback=told))
                task_finished.send(_backend_of(result), task_result=result)


def result_of(
    enqueued: Enqueued, task: Task[P, R], status: TaskResultStatus = TaskResultStatus.READY, attempt: int = 0
) -> TaskResult[P, R]:
    """The result of a call so far: its attempts are as many as its workers, of which only the last is known."""
    now = timezone.now()
    has_begun, has_ended = attempt > 0, status in {TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL}
    return TaskResult(
        task=task,
        id=enqueued.id,
        status=status,
        enqueued_at=datetime.datetime.fromtimestamp(enqueued.at, datetime.UTC),
        started_at=now if has_begun else None,
        last_attempted_at=now if has_begun else None,
        finished_at=now if has_ended else None,
        args=enqueued.args,
        kwargs=enqueued.kwargs,
        backend=enqueued.alias,
        errors=[],
        worker_ids=["lowkiq"] * attempt,
    )


def _run(enqueued: Enqueued, attempt: int) -> None:
    """
    Calls the task; whatever it raises is for the job. What has returned what JSON can't hold has failed by Django's
    rules, and is buried: it is done, so another try would do it twice.
    """
    task = _task_of(enqueued)
    result = result_of(enqueued, task, TaskResultStatus.RUNNING, attempt)
    task_started.send(_backend_of(result), task_result=result)
    context: Sequence[Any] = [TaskContext(task_result=result)] if task.takes_context else []
    value = task.call(*context, *enqueued.args, **enqueued.kwargs)
    try:
        value = normalize_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Bury(f"it is done, but returned what JSON can't hold: {short(value)}") from error
    for name, found in {
        "status": TaskResultStatus.SUCCESSFUL, "finished_at": timezone.now(), "_return_value": value
    }.items():  # fmt: skip
        object.__setattr__(result, name, found)  # it is frozen, and Django's own backend does so as well
    task_finished.send(_backend_of(result), task_result=result)


def _task_of(enqueued: Enqueued) -> Task[..., Any]:
    """
    The task of a call, as it was enqueued. Raises LowkiqError if there is none here, as on a node of an older deploy.
    """
    try:
        task = import_string(enqueued.task)
    except ImportError as error:
        raise LowkiqError(f"no task {short(enqueued.task)} here: {error}") from error
    if not isinstance(task, Task):
        raise LowkiqError(f"{short(enqueued.task)} is no task but {type(task).__name__}")
    return task.using(queue_name=enqueued.queue, backend=enqueued.alias, run_after=enqueued.run_after)


def _backend_of(result: TaskResult[..., Any]) -> type[Any]:
    return type(task_backends[result.backend])


def _class_of(job: Job) -> str:
    """The path of the class of a job's error: of the one that is handled here, else by the name that is kept."""
    error = sys.exception()
    if isinstance(error, Decision):
        error = error.__cause__ or error
    if error is not None:
        return f"{type(error).__module__}.{type(error).__qualname__}"
    name = (job.error or "").partition(":")[0]
    kind = getattr(builtins, name, None) or getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        kind = Exception
    return f"{kind.__module__}.{kind.__qualname__}"
