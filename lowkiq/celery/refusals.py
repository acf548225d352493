"""Refusals: what Celery has and Lowkiq does not promise, by name, each with the way out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any, Final

from lowkiq.errors import LowkiqError, SettingsError, unknown_option


class NotSupported(LowkiqError, AttributeError):
    """Something of Celery's that a task on Lowkiq does not have. Nothing was written."""


class MaxRetriesExceededError(LowkiqError):
    """A task that asked for one more retry has had its last one: its call goes to the morgue."""


_CANVAS: Final = (
    "a call as a value is `task.job(…)`: one that follows is `lowkiq.current().then(task, [task.job(…)])`, and one "
    "at the end of a group `with app.batch(on_done=(task, task.job(…))) as batch:`"
)
_RESULT: Final = "results are not kept: let the task write what it finds to your database"
_QUEUE: Final = (
    "a task has one queue, by queue= in its decorator: share threads by `lowkiq-supervisor --queues NAME=8,…`"
)
_NEEDLESS: Final = "leave it out: it has nothing to change here"
_STATE: Final = "a job's state is in `task.worker.queries.fetch([id])`, in `lowkiq find` and in the web view"

#: Attributes of a task.
OF_TASKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s", "si", "signature", "subtask", "chain", "group", "chord", "map", "starmap"), _CANVAS),
    **dict.fromkeys(("chunks", "replace", "add_to_chord", "send_event"), _CANVAS),
    "apply": "call it instead: `task(…)` runs it here and returns what it returns",
    "update_state": "say `lowkiq.current().progress(0.4, …)`: people see it in the web view",
    "AsyncResult": _STATE,
    "backend": _RESULT,
    "rate_limit": "say rate=lowkiq.Rate(100, per=60) in the decorator: it is kept over all nodes",
}  # fmt: skip

#: Attributes of what `delay` returns.
OF_RESULTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("get", "wait", "result", "info", "collect", "then", "join", "children", "parent"), _RESULT),
    "forget": _RESULT,
    **dict.fromkeys(("status", "state", "ready", "successful", "failed", "traceback", "retries"), _STATE),
    "revoke": "say `task.worker.actions.cancel([id])`: it deletes what is queued of that id and stops its run",
}  # fmt: skip

#: Options of `apply_async`, and of `self.retry`.
OF_CALLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("queue", "routing_key", "exchange", "router"), _QUEUE),
    **dict.fromkeys(("link", "link_error", "group_id", "chord", "root_id", "parent_id", "add_to_parent"), _CANVAS),
    **dict.fromkeys(("serializer", "compression"), "payloads are JSON: see the settings dump_payload and load_payload"),
    **dict.fromkeys(("connection", "producer", "publisher"), "connections are the application's: see its redis_url"),
    **dict.fromkeys(("retry", "retry_policy"), "a push is repeated for push_timeout seconds: see that setting"),
    "priority": f"jobs of a queue start as they are due; {_QUEUE}",
    "expires": 'push the time as an argument, and `raise lowkiq.Discard("too late")` in the task',
    "task_id": "the id of a job is what `key` says of its arguments",
    "headers": "push it as an argument, or as tags by `task.worker.perform_async`",
    "shadow": "a job is told by its id and its queue",
    "ignore_result": _RESULT,
    "time_limit": 'say perform_timeout=30, isolation="process" in the decorator: it is killed then',
    "soft_time_limit": "say perform_timeout=30 in the decorator, and look at `lowkiq.current().cancelled` in the task",
}

#: Options of the decorator.
OF_TASK_OPTIONS: Final[Mapping[str, str]] = {
    **OF_CALLS,
    "rate_limit": OF_TASKS["rate_limit"],
    "base": "classes of tasks have no place here: use middlewares, or a lowkiq.Worker with retries_exhausted",
    "max_retry_count": "a task says max_retries",
    "retry": "a task says autoretry_for, max_retries and default_retry_delay",
    "when_exhausted": 'to have an id wait for you, write a worker: `@app.worker(when_exhausted="block")`',
    "max_payloads": "a task is called with one payload at a time",
    "batch_size": "a task is called with one payload at a time",
    "queue_name": "say name=",
    **dict.fromkeys(("id", "score"), "the id of a job is what `key` says of its arguments, and they run as they came"),
    **dict.fromkeys(("after_return", "on_failure", "on_success", "on_retry"), "use server_middlewares of the app"),
    **dict.fromkeys(("throws", "track_started", "trail", "typing", "abstract"), _NEEDLESS),
    "store_errors_even_if_ignored": _NEEDLESS,
}  # fmt: skip

#: Options of the decorator that say what is so anyway: the only value that they may have.
GRANTED: Final[Mapping[str, bool]] = {
    "ignore_result": True, "acks_late": True, "reject_on_worker_lost": True, "acks_on_failure_or_timeout": True,
}  # fmt: skip


def attribute(owner: str, name: str, refused: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that is not there."""
    if name in refused:
        return NotSupported(f"{owner} has no `{name}`: {refused[name]}")
    return AttributeError(f"{owner} has no attribute {name!r}")


def refuse_call_options(owner: str, options: Collection[str]) -> None:
    """Raises NotSupported for the first option of a call that can't be promised."""
    for name in options:
        if name in OF_CALLS:
            raise NotSupported(f"{owner}: `{name}` can't be promised: {OF_CALLS[name]}")
        raise NotSupported(f"{owner}: unknown option `{name}`; there are args, kwargs, countdown and eta")


def worker_options(owner: str, options: Mapping[str, Any], known: Set[str]) -> dict[str, Any]:
    """The options of a decorator that its worker takes. Raises SettingsError for the others."""
    taken = {}
    for name, value in options.items():
        if name in GRANTED:
            if value is not GRANTED[name]:
                raise SettingsError(
                    f"{owner}: {name} is {value!r}, it can only be {GRANTED[name]}: a job whose node dies runs again, "
                    "and results are not kept"
                )
        elif name in OF_TASK_OPTIONS:
            raise SettingsError(f"{owner}: `{name}` can't be promised: {OF_TASK_OPTIONS[name]}")
        elif name in known:
            taken[name] = value
        else:
            raise unknown_option(f"option of task {owner}", name, known - OF_TASK_OPTIONS.keys())
    return taken
