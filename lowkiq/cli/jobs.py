"""Commands on jobs: those of the morgue, and `cancel`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.actions import Actions
from lowkiq.cli import tables
from lowkiq.cli.opening import AsJson, Require, opened_app

CANCEL_EPILOG = """\b
Examples:
  lowkiq cancel OrderSync 17 42
  lowkiq cancel OrderSync 17 --json                      {"cancelled": 1}

\b
What is queued of the jobs is deleted. Of what runs, async jobs get CancelledError, and processes are killed; a job on a
thread ends when it asks current().cancelled (lowkiq nodes shows those that run on). A job that is done by then is done;
any other does not come back. It tells how many were queued or ran. The morgue is not touched.
"""

morgue = typer.Typer(no_args_is_help=True, help="The jobs that failed too often.", rich_markup_mode=None)

Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...")]
All = Annotated[bool, typer.Option("--all", help="All of the queue's morgue.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def cancel(
    context: typer.Context,
    queue: Queue,
    ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Cancels jobs: deletes what is queued of them, and asks those that run to stop."""
    with opened_app(require or context.obj) as app:
        count = _act(_actions(app, queue).cancel, ids)
        typer.echo(json.dumps({"cancelled": count}) if as_json else f"{count} cancelled")


@morgue.command("list")
def morgue_list(
    context: typer.Context,
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 50,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Shows the newest jobs of a queue's morgue, with their errors."""
    with opened_app(require or context.obj) as app:
        jobs = app.queries(queue, _shards(app, queue)).morgue_rev_range_by_updated_at(limit=limit)
        if as_json:
            typer.echo(json.dumps([tables.summary(job) for job in jobs]))
        else:
            tables.show(tables.of_morgue(queue, jobs))


@morgue.command("revive")
def morgue_revive(
    context: typer.Context, queue: Queue, ids: Ids = None, every: All = False, require: Require = None
) -> None:
    """Returns jobs to the queue, as fresh ones that are due now."""
    with opened_app(require or context.obj) as app:
        actions = _actions(app, queue)
        count = actions.morgue_queue_up_all_jobs() if _all_or(ids, every) else _act(actions.morgue_queue_up, ids)
        typer.echo(f"{count} revived")


@morgue.command("delete")
def morgue_delete(
    context: typer.Context, queue: Queue, ids: Ids = None, every: All = False, yes: Yes = False, require: Require = None
) -> None:
    """Deletes jobs for good. With --all it tells how many, and asks."""
    with opened_app(require or context.obj) as app:
        actions = _actions(app, queue)
        if _all_or(ids, every) and not yes:
            count = app.metrics()[queue].morgue_length
            typer.confirm(f"Delete all {count} jobs in the morgue of {queue}?", abort=True)
        count = actions.morgue_delete_all_jobs() if every else _act(actions.morgue_delete, ids)
        typer.echo(f"{count} deleted")


def _actions(app: Lowkiq, queue: str) -> Actions:
    return app.actions(queue, _shards(app, queue))


def _act(act: Callable[[Iterable[str]], int], ids: list[str] | None) -> int:
    try:
        return act(ids or ())
    except ValueError as error:  # there can't be such an id
        raise SettingsError(str(error)) from error


def _shards(app: Lowkiq, queue: str) -> int:
    queues = app.queues()
    if queue not in queues:
        raise SettingsError(f"no queue {queue!r} here; known are: {', '.join(queues) or 'none'}")
    return queues[queue]


def _all_or(ids: list[str] | None, every: bool) -> bool:
    if bool(ids) == every:
        raise SettingsError("say which: ids, or --all")
    return every
