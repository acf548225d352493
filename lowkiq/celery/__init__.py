"""
Celery's tasks on Lowkiq, for a gradual move: `@lowkiq.celery.task(key="order_id")` in place of `@shared_task`.

A task is called as before, by `.delay(…)` and `.apply_async(…)`. Its calls of one key run one at a time and in order,
without a lock. What Lowkiq does not promise is refused by its name, with the way out. Celery itself is not imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Concatenate, Final, Literal, ParamSpec, Protocol, TypeVar, overload

from lowkiq.app import Lowkiq
from lowkiq.celery.calls import Calls, Key, Rules
from lowkiq.celery.queues import TaskQueue
from lowkiq.celery.refusals import MaxRetriesExceededError, NotSupported, worker_options
from lowkiq.celery.tasks import Bound, Request, Sent, Task
from lowkiq.errors import AppNotFound, SettingsError, short
from lowkiq.importing import only_app
from lowkiq.options import OF_WORKERS
from lowkiq.types.annotations import plain_function

__all__ = ["Bound", "MaxRetriesExceededError", "NotSupported", "Request", "Sent", "Task", "task"]

P = ParamSpec("P")
R = TypeVar("R")
_RULES: Final = tuple(one.name for one in fields(Rules))


class OfBound(Protocol):
    """`task(bind=True, …)`: the first argument of the function is the task."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...


class OfPlain(Protocol):
    """`task(…)`."""

    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(*, key: Key, bind: Literal[True], app: Lowkiq | None = ..., merge: bool = ..., **options: Any) -> OfBound: ...
@overload
def task(
    *, key: Key, bind: Literal[False] = ..., app: Lowkiq | None = ..., merge: bool = ..., **options: Any
) -> OfPlain: ...
def task(
    *bare: Any,
    key: Key | None = None,
    bind: bool = False,
    app: Lowkiq | None = None,
    merge: bool = True,
    **options: Any,
) -> Any:
    """
    Makes a function a task that runs on Lowkiq.

    Args:
        key: the argument that is the job's id, or a function of all arguments, by their names, that gives it.
        bind: the first argument of the function is the task, with `request` and `retry`.
        app: the application; without it, the only one among the names of the module that the function is in.
        merge: calls with equal arguments that wait at the same time are one. False: each call counts.
        options: `name` (as Celery has it: module.function), `queue` (one that several tasks share, whose calls of a key
            are then in one order; without it a task has a queue of its own, by its name), `shared_key` (True: keys of
            other names than those of the queue's other tasks are ids of the same), how it is retried, as in Celery
            (max_retries, default_retry_delay, autoretry_for, dont_autoretry_for, retry_kwargs, retry_backoff,
            retry_backoff_max, retry_jitter), and those of a worker of Lowkiq (shards_count, concurrency, max_running,
            perform_timeout, isolation, rate, throttle, debounce, fair_by, keep,
            equal).

    Raises:
        SettingsError: it can't be a task so. It says what may be.
        AppNotFound: there is no application, or several.
    """
    if bare or key is None:
        raise SettingsError(
            'a task needs its key, the argument that is the job\'s id: @lowkiq.celery.task(key="order_id"). Where no '
            "two calls concern each other, give each an id of its own: key=lambda *_, **__: uuid.uuid4().hex"
        )
    known = key
    return lambda function: _task(function, known, app, dict(options), is_bound=bind, merge=merge)


def _task(
    function: Any, key: Key, app: Lowkiq | None, options: dict[str, Any], *, is_bound: bool, merge: bool
) -> Task[Any, Any]:
    if not inspect.isfunction(function):
        raise SettingsError(f"{short(function)} is no function: put @lowkiq.celery.task(key=…) right above a `def`")
    name = options.pop("name", None) or f"{function.__module__}.{function.__name__}"
    queue, is_shared_key = options.pop("queue", None), options.pop("shared_key", False)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise SettingsError(f"task {name} must be a plain function: write `async def` ones as a worker, @app.worker")
    if not isinstance(key, str) and not callable(key):
        raise SettingsError(
            f"task {name}: key is {short(key)}, it must be the name of an argument, or a function of them"
        )
    chosen = app or _found_app(name, function)
    rules = Rules(**{rule: options.pop(rule) for rule in _RULES if rule in options})
    own = worker_options(name, options, OF_WORKERS.keys())
    calls = Calls(name, function, key, skipped=int(is_bound), merge=merge)
    of_queue = TaskQueue.of(chosen, name, queue, own)
    of_queue.require_one_key(name, key, is_said=is_shared_key)
    return Task(function, name, of_queue, calls, rules, is_bound=is_bound)


def _found_app(name: str, function: Any) -> Lowkiq:
    """The only application that the function's module has by now; under decorators, which may be other modules'."""
    plain = plain_function(function)
    try:
        return only_app(plain.__module__, plain.__globals__)
    except AppNotFound as error:
        raise AppNotFound(f"task {name}: {error}; or say app=") from None
