"""A queue that a command names: it must be known. An id that can't be one is an error in the words of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import typer

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.cli.nodes import who
from lowkiq.errors import unknown_queue

T = TypeVar("T")

Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
SomeIds = Annotated[list[str], typer.Argument(metavar="ID...")]


def shards_count(app: Lowkiq, queue: str) -> int:
    """Shards of the queue."""
    queues = app.queues()
    if queue not in queues:
        raise unknown_queue(queue, queues)
    return queues[queue]


def actions_on(app: Lowkiq, queue: str) -> UndoableActions:
    return app.actions(queue, shards_count(app, queue))


def with_ids(act: Callable[[Iterable[str]], T], ids: Iterable[str] | None) -> T:
    """Calls it with these ids. Raises SettingsError where one can't be an id."""
    try:
        return act(ids or ())
    except ValueError as error:
        raise SettingsError(str(error)) from error


def done(app: Lowkiq, queue: str, action: str, ids: Iterable[str] | None, why: str = "") -> int:
    """Does something to jobs. Returns to how many; raises SettingsError where one can't be an id."""
    return with_ids(lambda some: actions_on(app, queue).do(action, some, who=who(), why=why), ids)
