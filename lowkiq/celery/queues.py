"""Queues: the worker of a queue that is one task's, or shared by several, whose calls of a key then keep one order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class TaskQueue:
    """
    The tasks of a queue, which its worker calls.

    Args:
        is_shared: their payloads name them; else there is one.
    """

    def __init__(self, app: Lowkiq, queue: str, options: Mapping[str, Any], *, is_shared: bool) -> None:
        self._is_shared = is_shared
        self._performs: dict[str, Perform] = {}

        def perform(_: Any, payloads: list[Any]) -> None:
            for payload in payloads:  # one, unless somebody else than a node calls this
                self._perform(payload)

        perform.__name__ = queue.rpartition(".")[2]
        #: Its worker.
        self.worker: type[Worker[Any]] = app.worker(queue_name=queue, **options, **OPTIONS)(perform)
        self.worker.task_queue = self  # type: ignore[attr-defined]

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

    def add(self, name: str, perform: Perform) -> None:
        """Lets a task have its payloads."""
        if name in self._performs:
            raise SettingsError(
                f"task {name} is in queue {self.worker.queue_name} already: give one of them another name="
            )
        self._performs[name] = perform

    def named(self, name: str, payload: dict[str, Any]) -> dict[str, Any]:
        """A payload of a task as it is pushed."""
        return payload | {TASK: name} if self._is_shared else payload

    def _perform(self, payload: Any) -> None:
        if not self._is_shared:
            (perform,) = self._performs.values()
            return perform(payload)
        name = payload.get(TASK) if isinstance(payload, dict) else None
        if name not in self._performs:
            raise TypeError(
                f"queue {self.worker.queue_name} has no task {short(name)}; it has {', '.join(self._performs)}: import "
                "the module that has it"
            )
        return self._performs[name]({key: value for key, value in payload.items() if key != TASK})
