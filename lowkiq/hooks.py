"""Middlewares: callables `(worker, batch, call)` around a push or a perform."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

#: Calls `call()` and may do anything around it. The batch is a list of Job on a server, and on a client what was passed
#: to perform_async.
Middleware = Callable[[Any, Any, Callable[[], Any]], Any]


def wrap(middlewares: Iterable[Middleware], worker: Any, batch: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call with its middlewares around it, the first one outermost."""
    for middleware in reversed(tuple(middlewares)):
        call = partial(middleware, worker, batch, call)
    return call
