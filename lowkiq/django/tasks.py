"""
A backend for Django's tasks (Django 6.0 and later; `django-tasks` before): `TASKS = {"default": {"BACKEND":
"lowkiq.django.tasks.LowkiqBackend"}}`.

Each `enqueue` is a job with an id of its own. Tasks that are `ordered_by` one of their arguments have its value as
their job's id: those with the same value run one at a time, in the order in which they were enqueued.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.module_loading import import_string

from lowkiq import clock
from lowkiq.django.application import get_app
from lowkiq.django.task_worker import HOME, Enqueued, TaskWorker, result_of
from lowkiq.errors import short, unknown_option
from lowkiq.job import NewJob
from lowkiq.options import OF_WORKERS
from lowkiq.worker import Worker

if TYPE_CHECKING:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskResult
    from django.tasks.exceptions import InvalidTask
    from django.tasks.signals import task_enqueued
else:
    task_backends = import_module(HOME).task_backends
    BaseTaskBackend = import_module(f"{HOME}.backends.base").BaseTaskBackend
    task_enqueued = import_module(f"{HOME}.signals").task_enqueued
    _exceptions = import_module(f"{HOME}.exceptions")
    InvalidTask = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError

#: Options of the backend: those of a worker, but for what the backend itself decides.
OPTIONS: Final = OF_WORKERS.keys() - {
    "queue_name", "batch_size", "max_payloads", "debounce", "throttle", "keep", "equal", "id", "score", "fair_by",
    "pushes",
}  # fmt: skip
#: Attribute of a task's function with what `ordered_by` was given.
_KEY: Final = "lowkiq_ordered_by"

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


def ordered_by(key: str | Callable[..., str | int | None]) -> Callable[[F], F]:
    """
    Below `@task`: has those with the same key run one at a time, in order, over all tasks of a queue.

    Args:
        key: the name of an argument, or a function that makes the key of all of them; None of it is no key.
    """

    def mark(function: F) -> F:
        setattr(function, _KEY, key)
        return function

    return mark


class LowkiqBackend(BaseTaskBackend):
    """
    Enqueues tasks as jobs. What the order of a key can't promise is refused: priorities, and a `run_after` together
    with a key. Results aren't kept, so none can be asked for.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = False
    supports_get_result = False

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, dict(params))
        if not self.queues:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: QUEUES must name the queues, or nodes don't know them")
        for name in self.options:
            if name not in OPTIONS:
                raise unknown_option(f"option of TASKS[{alias!r}]", name, OPTIONS)
        # The queue of tasks → the worker of its jobs.
        self._workers = {queue: self._register(queue) for queue in sorted(self.queues)}

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raises InvalidTask for a task that can't be run, or not as it asks for."""
        super().validate_task(task)
        key = getattr(task.func, _KEY, None)
        if isinstance(key, str) and key not in inspect.signature(task.func).parameters:
            raise InvalidTask(f"{task.func.__name__} is ordered by {key!r}, but takes no such argument.")
        if key is not None and task.run_after is not None:
            raise InvalidTask(
                f"{task.func.__name__} is ordered by a key, so it can't run after {task.run_after}: what is enqueued "
                "later would have to wait, or to overtake it."
            )

    def enqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """
        Queues a task.

        Raises:
            InvalidTask: it can't be run as it asks for, or its key is none.
            InvalidJob, PushFailed: as `perform_async`.
        """
        self.validate_task(task)
        enqueued = Enqueued(
            task=task.module_path,
            args=list(args),
            kwargs=kwargs,
            id=get_random_string(32),
            at=clock.real(),
            queue=task.queue_name,
            alias=self.alias,
            run_after=task.run_after,
        )
        result = result_of(enqueued, task)
        # As JSON has them: a tuple is a list, and what JSON can't hold was refused.
        enqueued.args, enqueued.kwargs = result.args, result.kwargs
        job: NewJob = {"id": enqueued.id, "payload": enqueued}
        if (key := _key_of(task, args, kwargs)) is not None:
            job["id"] = key
        if task.run_after is not None:
            is_aware = timezone.is_aware(task.run_after)
            job["at"] = task.run_after if is_aware else timezone.make_aware(task.run_after)
        self._workers[task.queue_name].perform_async([job])
        task_enqueued.send(type(self), task_result=result)
        return result

    def _register(self, queue: str) -> type[Worker[Any]]:
        name = f"tasks.{queue}" if self.alias == "default" else f"tasks.{self.alias}.{queue}"
        app = get_app()
        known = app.workers.get(name)
        if known is not None and issubclass(known, TaskWorker):  # Django makes backends anew after override_settings
            return known
        members: dict[str, Any] = {"__doc__": f"Tasks of the queue {queue}.", "__module__": __name__}
        worker: type[Worker[Any]] = app.worker(queue_name=name, **self.options)(type("Tasks", (TaskWorker,), members))
        return worker


def _key_of(task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> str | int | None:
    """The key of a call. Raises InvalidTask if it has one that is none."""
    key = getattr(task.func, _KEY, None)
    if key is None:
        return None
    if callable(key):
        found = key(*args, **kwargs)
        if found is None:
            return None
    else:
        call = partial(task.func, None) if task.takes_context else task.func
        bound = inspect.signature(call).bind(*args, **kwargs)
        bound.apply_defaults()
        found = bound.arguments[key]
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise InvalidTask(f"{task.func.__name__}: its key must be a text or an integer, not {short(found)}")
    return found


def register_backends(tasks: Mapping[str, Any]) -> None:
    """Makes the backends that are ours, of the setting TASKS: a node must know their queues."""
    for alias, params in tasks.items():
        if issubclass(import_string(params["BACKEND"]), LowkiqBackend):
            task_backends[alias]
