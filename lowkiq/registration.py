"""Registration: makes a class or a function the worker of a queue, or says why it can be none."""

from __future__ import annotations

import datetime
import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar, get_origin, overload

from lowkiq.errors import SettingsError, short, unknown_option
from lowkiq.fewer import Fewer
from lowkiq.options import OF_WORKERS
from lowkiq.settings import Settings
from lowkiq.types.annotations import Types, bare, of_base, shown
from lowkiq.types.codec import make_codec
from lowkiq.types.shape import Shape, gives_error, read_function, read_methods, require_makeable
from lowkiq.types.variables import K, P
from lowkiq.worker import Worker

W = TypeVar("W", bound=type[Worker[Any]])

#: Short words that a worker may have attributes like: they are no misspelt options.
_COMMON: Final = ("id", "score")
#: Options as other job processors call them → what is meant here.
_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("queue", "queue_as", "task_queue"), "did you mean `queue_name`?"),
    **dict.fromkeys(("max_retries", "retries", "retry_limit"), "did you mean `max_retry_count`?"),
    **dict.fromkeys(("max_attempts", "max_tries"), "did you mean `max_retry_count`, which is one less?"),
    **dict.fromkeys(
        ("timeout", "time_limit", "soft_time_limit", "hard_time_limit", "job_timeout", "execution_timeout"),
        "did you mean `perform_timeout`?",
    ),
    **dict.fromkeys(
        ("autoretry_for", "backoff", "default_retry_delay", "min_backoff", "max_backoff", "retry_backoff",
         "retry_backoff_max", "retry_delay", "retry_jitter", "retry_kwargs", "retry_policy"),
        "did you mean `retry`?",
    ),
    **dict.fromkeys(("rate_limit", "rate_limits"), "did you mean `rate`?"),
    **dict.fromkeys(("max_concurrency", "max_concurrent", "concurrency_limit", "global_concurrency", "max_instances"),
                    "did you mean `max_running`?"),
    **dict.fromkeys(("threads", "workers"), "did you mean `concurrency`?"),
    **dict.fromkeys(("countdown", "eta", "schedule_in"), 'a push says when: {"id": 17, "delay": 60}'),
    **dict.fromkeys(("unique", "unique_for", "unique_until", "unique_by"),
                    "an id is queued once and runs once at a time, whatever is pushed: leave it out"),
    **dict.fromkeys(("acks_late", "reject_on_worker_lost", "task_acks_late"),
                    "a job whose node dies runs again in any case: leave it out"),
    **dict.fromkeys(("ignore_result", "store_results", "result_ttl", "keep_result"),
                    "results are not kept: leave it out"),
    "priority": "threads are shared out among queues by `lowkiq-supervisor --queues NAME=8,…`",
}  # fmt: skip
#: The kinds of values that options have elsewhere: an attribute that is a queue.Queue, a method or a property is none.
_PLAIN: Final = (bool, int, float, str, tuple, list, dict, datetime.timedelta, type(None))


class Registration(Protocol):
    """`@app.worker(…)`: what it makes of a class, of a function of a batch, and of one of an id and its payloads."""

    @overload
    def __call__(self, target: W, /) -> W: ...
    @overload
    def __call__(self, target: Callable[[dict[K, list[P]]], Any], /) -> type[Worker[P]]: ...
    @overload
    def __call__(self, target: Callable[[K, list[P]], Any], /) -> type[Worker[P]]: ...


class FunctionWorker(type):
    """
    The class of workers that are made of functions. Called with arguments, or if the function takes none, such a worker
    is the function: it runs here and now. Without them an instance is made, as of any class.
    """

    #: The function.
    __wrapped__: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        function: Any = vars(cls)["__wrapped__"].__func__ if "__wrapped__" in vars(cls) else None
        if function and (args or kwargs or not inspect.signature(function).parameters):
            return function(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    @property
    def __signature__(cls) -> inspect.Signature:  # Python 3.13.0 looks behind no class for one
        return inspect.signature(cls.__wrapped__)


def made(worker: type[Worker[P]]) -> Worker[P]:
    """An instance of a worker, as a node needs one, also of one that is made of a function."""
    return type.__call__(worker) if isinstance(worker, FunctionWorker) else worker()


def prepare(target: Any, options: Mapping[str, Any], settings: Settings) -> type[Worker[Any]]:
    """
    The worker that a class or function is, with its options, its shape and its codec.

    Raises:
        SettingsError: it can't be one, or an option can't be used. It says what may be.
    """
    worker = function_worker(target) if _is_function(target) else target
    if not isinstance(worker, type) or not issubclass(worker, Worker):
        raise SettingsError(f"{short(target)} is no worker: it must be a subclass of lowkiq.Worker, or a function")
    for name, value in options.items():
        setattr(worker, name, staticmethod(value) if inspect.isfunction(value) else value)
    worker.queue_name = worker.queue_name or worker.__name__
    label = f"worker {worker.__name__}"
    _check_options(label, worker)
    worker.fewer = Fewer(worker.debounce, worker.throttle, worker.keep, worker.equal or settings.equal)
    worker.shape, types = read_methods(label, worker, Worker)
    _check_shape(label, worker, worker.shape)
    if not isinstance(worker, FunctionWorker):
        require_makeable(label, worker)
    worker.shape = replace(worker.shape, gives_error=gives_error(f"{label}: retry_in", worker, Worker))
    types = types._replace(payload=_payload_type(label, worker, types))
    worker.codec = make_codec(label, types, settings.load_payload, settings.dump_payload)
    return worker


def function_worker(function: Callable[..., Any]) -> type[Worker[Any]]:
    """A worker class around a function: its `perform`, or its `perform_one`. Raises SettingsError if it can be none."""
    named = function.func if isinstance(function, functools.partial) else function
    name = getattr(named, "__name__", type(named).__name__)
    shape, _ = read_function(f"worker {name}", function)
    members = {
        "perform_one" if shape.is_one else "perform": staticmethod(function),
        "__doc__": named.__doc__,
        "__module__": getattr(named, "__module__", __name__),
        "__wrapped__": staticmethod(function),
    }
    worker: Any = FunctionWorker(name, (Worker,), members)
    made_of: type[Worker[Any]] = worker
    return made_of


def _is_function(target: Any) -> bool:
    is_type = isinstance(target, type) or get_origin(target) is not None
    return callable(target) and not is_type and not inspect.isbuiltin(target)


def _payload_type(label: str, worker: type[Worker[Any]], types: Types) -> Any:
    """The type that payloads have after the class, Worker[T], or after the annotations of its method."""
    declared = bare(of_base(worker, Worker))
    if Any not in {declared, types.payload} and declared != types.payload:
        raise SettingsError(f"{label} is a Worker[{shown(declared)}], but performs payloads of {shown(types.payload)}")
    return types.payload if declared is Any else declared


def _check_options(label: str, worker: type[Worker[Any]]) -> None:
    """Raises SettingsError for an option that can't be used, or an attribute that seems to be meant as one."""
    known = [name for name in OF_WORKERS if name not in _COMMON]
    for name, value in _own_attributes(worker).items():
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if name in _ELSEWHERE and isinstance(value, _PLAIN):
            raise SettingsError(
                f"{label}: unknown option `{name}`, {_ELSEWHERE[name]} (An attribute of your own needs another name, "
                f"such as `_{name}`)"
            )
        if close:
            raise SettingsError(f"{label}: unknown option `{name}`, did you mean `{close[0]}`?")
    for name, option in OF_WORKERS.items():
        option(f"{label}: {name}", getattr(worker, name))
    if worker.retry and not isinstance(worker.retry, Mapping) and worker.retry_in is not Worker.retry_in:
        raise SettingsError(f"{label} has both retry and retry_in: keep one, or have retry map classes of exceptions")


def _own_attributes(worker: type[Worker[Any]]) -> dict[str, Any]:
    """What a class and its bases have beside what a Worker has, as far as it is public."""
    bases = [cls for cls in reversed(worker.__mro__) if cls not in Worker.__mro__]
    found = {name: value for cls in bases for name, value in vars(cls).items()}
    return {name: value for name, value in found.items() if not name.startswith("_") and not hasattr(Worker, name)}


def unknown_worker_option(name: str) -> SettingsError:
    """The error for a name that is no option of a worker, with what it is called here, if other processors have it."""
    if name in _ELSEWHERE:
        return SettingsError(f"unknown option of a worker `{name}`, {_ELSEWHERE[name]}")
    return unknown_option("option of a worker", name, OF_WORKERS)


def _check_shape(label: str, worker: type[Worker[Any]], shape: Shape) -> None:
    if shape.is_one and worker.batch_size > 1:
        raise SettingsError(
            f"{label}: batch_size is {worker.batch_size}, but it takes an id at a time: leave it out, or take "
            "(payloads_by_id)"
        )
