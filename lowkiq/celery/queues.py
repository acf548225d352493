"""Queues: the worker of a queue that is one task's, or shared by several, whose calls of a key then keep one order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from lowkiq.app import Lowkiq
from lowkiq.errors import Bury, SettingsError, short
from lowkiq.policies import MOST_RETRIES
from lowkiq.worker import Worker

#: Options of every such worker. A payload at a time, so that each call is retried, and buried, by itself; and nothing
#: is tried again but what asks for it, as in Celery.
OPTIONS: Final[Mapping[str, Any]] = {
    "max_payloads": 1, "max_retry_count": MOST_RETRIES, "retry": {Exception: Bury},
}  # fmt: skip
#: Key of a payload that names the task, in a queue that is shared. No parameter is called so.
TASK: Final = "__task__"

Perform = Callable[[Any], None]
Check = Callable[[Any], object]


class TaskQueue:
    """
    The tasks of a queue, which its worker calls.

    Args:
        is_shared: their payloads name them; else there is one.
    """

    def __init__(self, app: Lowkiq, queue: str, options: Mapping[str, Any], *, is_shared: bool) -> None:
        self._is_shared = is_shared
        self._tasks: dict[str, tuple[Perform, Check]] = {}
        #: What the first task in it is keyed by.
        self._key: Any = None

        def perform(_: Any, payloads: list[Any]) -> None:
            for payload in payloads:  # one, unless somebody else than a node calls this
                self._perform(payload)

        perform.__name__ = queue.rpartition(".")[2]
        #: Its worker.
        self.worker: type[Worker[Any]] = app.worker(queue_name=queue, **options, **OPTIONS)(perform)
        self.worker.task_queue = self  # type: ignore[attr-defined]
        dump = self.worker.codec.dump
        self.worker.codec = replace(self.worker.codec, dump=lambda payload: dump(self._checked(payload)))

    @classmethod
    def of(cls, app: Lowkiq, name: str, queue: str | None, options: Mapping[str, Any]) -> TaskQueue:
        """The queue of a task: one of its own, or the one so named, which is made if it is the first."""
        if queue is None:
            return cls(app, name, options, is_shared=False)
        known: TaskQueue | None = getattr(app.workers.get(queue), "task_queue", None)
        if known is None:
            return cls(app, queue, options, is_shared=True)
        if not known._is_shared:
            raise SettingsError(f"task {name}: queue {queue} is that of the task of this name: give both a queue=")
        if options:
            raise SettingsError(
                f"task {name}: {', '.join(sorted(options))} of queue {queue} are told by the first task in it: say "
                "them there"
            )
        return known

    def require_one_key(self, name: str, key: Any, *, is_said: bool) -> None:
        """
        Raises SettingsError for a task with another key than that of the first one here: they would wait for each
        other where their ids happen to be equal.
        """
        if not self._tasks:
            self._key = key
        elif key != self._key and not is_said:
            raise SettingsError(
                f"task {name} has key={short(key)}, and queue {self.worker.queue_name} has a task with "
                f"key={short(self._key)}: their calls of equal ids would run in one order, and wait for each other. "
                "Leave queue= out, or give it another; if these are ids of the same things, say shared_key=True"
            )

    def add(self, name: str, perform: Perform, check: Check) -> None:
        """
        Lets a task have its payloads.

        Args:
            check: raises TypeError for a payload that it can't be called with.
        """
        if name in self._tasks:
            raise SettingsError(
                f"task {name} is in queue {self.worker.queue_name} already: give one of them another name="
            )
        self._tasks[name] = perform, check

    def named(self, name: str, payload: dict[str, Any]) -> dict[str, Any]:
        """A payload of a task as it is pushed."""
        return payload | {TASK: name} if self._is_shared else payload

    def _checked(self, payload: Any) -> Any:
        """A payload that somebody has made by hand, or a task has. Raises TypeError for one that no task here takes."""
        (_, check), arguments = self._task_of(payload)
        check(arguments)
        return payload

    def _perform(self, payload: Any) -> None:
        (perform, _), arguments = self._task_of(payload)
        perform(arguments)

    def _task_of(self, payload: Any) -> tuple[tuple[Perform, Check], Any]:
        """The task that a payload is for, and its arguments. Where there is one task, its name may be missing."""
        if not self._is_shared or (len(self._tasks) == 1 and not (isinstance(payload, dict) and TASK in payload)):
            (task,) = self._tasks.values()
            return task, payload
        name = payload.get(TASK) if isinstance(payload, dict) else None
        if name is None:
            raise TypeError(
                f"queue {self.worker.queue_name} is shared by {', '.join(self._tasks)}: name one of them in the "
                f'payload, as {{"{TASK}": "{next(iter(self._tasks))}", …}}, beside its arguments, or make jobs by '
                "task.job(…)"
            )
        if name not in self._tasks:
            raise TypeError(
                f"queue {self.worker.queue_name} has no task {short(name)}; it has {', '.join(self._tasks)}: import "
                "the module that has it"
            )
        return self._tasks[name], {key: value for key, value in payload.items() if key != TASK}
