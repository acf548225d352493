"""A queue that a command names: it must be known. An id that can't be one is an error in the words of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import typer

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.jobs.queries import Queries
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.cli.opening import Answer, who
from lowkiq.errors import unknown_queue

T = TypeVar("T")

Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
OneQueue = Annotated[str | None, typer.Argument(metavar="[QUEUE]", show_default=False)]
Id = Annotated[str, typer.Argument(metavar="ID")]
SomeIds = Annotated[list[str], typer.Argument(metavar="ID...")]


def shards_count(app: Lowkiq, queue: str) -> int:
    """Shards of the queue."""
    queues = app.queues()
    if queue not in queues:
        raise unknown_queue(queue, queues)
    return queues[queue]


def actions_on(app: Lowkiq, queue: str) -> UndoableActions:
    return app.actions(queue, shards_count(app, queue))


def queries_of(app: Lowkiq, queue: str) -> Queries:
    return app.queries(queue, shards_count(app, queue))


def with_ids(act: Callable[[Iterable[str]], T], ids: Iterable[str] | None) -> T:
    """Calls it with these ids. Raises SettingsError where one can't be an id."""
    try:
        return act(ids or ())
    except ValueError as error:
        raise SettingsError(str(error)) from error


def done(
    app: Lowkiq, queue: str, action: str, ids: Iterable[str] | None, said: str, *, why: str = "", key: str = ""
) -> Answer:
    """Does something to jobs, and tells to how many. Raises SettingsError where one can't be an id."""
    count = with_ids(lambda some: actions_on(app, queue).do(action, some, who=who(), why=why), ids)
    return counted(said, count, key=key)


def counted(said: str, count: int, more: str = "", *, key: str = "") -> Answer:
    """Tells of how many that is."""
    return Answer({key or said: count}, f"{count} {said}{more}")
