"""Hooks: middlewares, schedulers and splitters, which users may put into an application."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: A middleware `(worker, batch, call)` calls `call()` and may do anything around it, be that a push or a perform. The
#: batch is a list of Job on a server, and on a client what was passed to perform_async.
Middleware = Callable[[Any, Any, Callable[[], Any]], Any]

#: Called with what stops a node, from any thread: a BaseException that is not an Exception.
Fatal = Callable[[BaseException], None]

#: All shards of an application → the groups that this node's threads own.
Splitter = Callable[[Sequence[Any]], Sequence[Sequence[Any]]]


class Scheduler(Protocol[T]):
    """Picks the next shard of a thread, to which it belongs alone. Times are monotonic seconds."""

    def note(self, shard: T, due_at: float | None, /) -> None:
        """The shard's oldest job is due then; None: nothing is queued, or the shard is not ours."""

    def pick(self, now: float, /) -> T | None:
        """A shard with a due job, which is then forgotten until it is noted again."""

    def next_due_at(self) -> float | None:
        """The time at which the next job of any shard is due."""


def is_async(hook: Callable[..., Any]) -> bool:
    """Returns whether it is an async function, or an object whose call is one."""
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)


def wrap(middlewares: Iterable[Middleware], worker: Any, batch: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call with its middlewares around it, the first one outermost."""
    for middleware in reversed(tuple(middlewares)):
        call = partial(middleware, worker, batch, call)
    return call
