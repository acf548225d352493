"""Commands on jobs that recur: `recurring list`, `set`, `pause`, `resume`, `remove` and `run-now`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.pauses import by_whom
from lowkiq.admin.recurring import RecurringJob
from lowkiq.admin.words import age, printable
from lowkiq.cli.nodes import who
from lowkiq.cli.opening import AsJson, Require, opened_app
from lowkiq.cli.queues import Queue
from lowkiq.cli.tables import show
from lowkiq.codec import encodable
from lowkiq.environment import ExitCode
from lowkiq.queue.call import redis_time
from lowkiq.recurrence import BACKLOG

SET_EPILOG: Final = """\b
Examples:
  lowkiq recurring set OrderSync sweep 15m -r shop.jobs
  lowkiq recurring set Report eu "0 6 * * 1-5" --tz Europe/Berlin --payload '{"of": "eu"}' -r shop.jobs
  lowkiq recurring set Report hourly 1h --missed all --backlog 24 -r shop.jobs

\b
It takes the application, which knows how payloads are written. Fields of cron take the package's extra `cron`.
"""
EPILOG: Final = """\b
Examples:
  lowkiq recurring list                                  what fires next comes first
  lowkiq recurring pause Report eu "it is summer"
  lowkiq recurring run-now Report eu -r shop.jobs        once more, now
"""

recurring = typer.Typer(
    no_args_is_help=True, help="Jobs that recur.", rich_markup_mode=None, epilog=EPILOG
)  # fmt: skip

Id = Annotated[str, typer.Argument(metavar="ID")]


@recurring.command("list")
def list_(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="So many at most; JSON has all.")] = 200,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Lists the jobs that recur, of one queue or of all, those that fire next first, and those that are paused last."""
    with opened_app(require or context.obj) as app:
        found = app.recurring.list(queue)
        if as_json:
            typer.echo(msgspec.json.encode([_row(job) for job in found]).decode())
        elif found:
            more = [f"{len(found):,} recur: raise --limit to see more"] if len(found) > limit else []
            show(_table(found[:limit], redis_time(app.caller)), *more)
        else:
            typer.echo("nothing recurs")


@recurring.command("set", epilog=SET_EPILOG)
def set_(
    context: typer.Context,
    queue: Queue,
    id: Id,
    every: Annotated[str, typer.Argument(metavar="EVERY", help='Seconds, "15m", or the fields of cron.')],
    payload: Annotated[str | None, typer.Option(help="JSON; what it has stays without it.", show_default=False)] = None,
    offset: Annotated[float, typer.Option(help="Seconds by which an interval is shifted.")] = 0.0,
    tz: Annotated[str | None, typer.Option(help="Of the fields of cron: UTC by default.", show_default=False)] = None,
    missed: Annotated[str, typer.Option(help="What becomes of times that passed: merge, all or skip.")] = "merge",
    backlog: Annotated[int, typer.Option(help="How many are made up for with --missed all.")] = BACKLOG,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Has a job recur, or changes one that does."""
    with opened_app(require or context.obj) as app:
        options: dict[str, Any] = {"offset": offset, "tz": tz, "missed": missed, "backlog": backlog, "who": who()}
        app.recurring.set(queue, id, every, payload=_loaded(payload), **options)
        (job,) = (job for job in app.recurring.list(queue) if job.id == id)
        told = f"{_name(queue, id)} is now {job.rule.words}{_next(job, redis_time(app.caller))}"
        typer.echo(msgspec.json.encode(_row(job)).decode() if as_json else told)


@recurring.command()
def pause(
    context: typer.Context,
    queue: Queue,
    id: Id,
    reason: Annotated[str, typer.Argument(metavar="[REASON]", show_default=False)] = "",
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Has a job not recur until it is resumed."""
    act = partial(_act, context, require, queue, id, as_json=as_json)
    act(lambda app: app.recurring.pause(queue, id, reason, who=who()), "is paused")


@recurring.command()
def resume(context: typer.Context, queue: Queue, id: Id, require: Require = None, as_json: AsJson = False) -> None:
    """Has a paused one recur again, from its next time on."""
    act = partial(_act, context, require, queue, id, as_json=as_json)
    act(lambda app: app.recurring.resume(queue, id, who=who()), "recurs again")


@recurring.command()
def remove(context: typer.Context, queue: Queue, id: Id, require: Require = None, as_json: AsJson = False) -> None:
    """Has a job recur no more. One of the code stays away until the code says something else of it."""
    act = partial(_act, context, require, queue, id, as_json=as_json)
    act(lambda app: app.recurring.remove(queue, id, who=who()), "recurs no more")


@recurring.command()
def run_now(context: typer.Context, queue: Queue, id: Id, require: Require = None, as_json: AsJson = False) -> None:
    """Pushes a job that recurs once more, now. It takes the application."""
    with opened_app(require or context.obj) as app:
        app.recurring.run_now(queue, id, who=who())
    done = f"{_name(queue, id)} is due now; its times stay as they are"
    typer.echo(json.dumps({"done": True}) if as_json else done)


def _act(
    context: typer.Context,
    require: str | None,
    queue: str,
    id: str,
    act: Callable[[Lowkiq], bool],
    done: str,
    *,
    as_json: bool,
) -> None:
    with opened_app(require or context.obj) as app:
        is_done = act(app)
    told = f"{_name(queue, id)} {done}" if is_done else f"{_name(queue, id)}: nothing to change"
    typer.echo(json.dumps({"done": is_done}) if as_json else told)
    if not is_done:
        raise typer.Exit(ExitCode.FAILED)


def _loaded(payload: str | None) -> Any:
    if payload is None:
        return msgspec.UNSET
    try:
        return json.loads(payload)
    except ValueError as error:
        raise SettingsError(f"--payload is no JSON: {error}") from error


def _name(queue: str, id: str) -> str:
    return f"{printable(queue, 100)} {printable(id, 100)}"


def _next(job: RecurringJob, now: float) -> str:
    return ", paused" if job.next_at is None else f", next {_when(job.next_at - now)}"


def _when(ahead: float) -> str:
    """One that nobody fires is not due "in 0 s"."""
    return f"in {age(ahead)}" if ahead > 0 else f"due {age(-ahead)} ago"


def _row(job: RecurringJob) -> dict[str, Any]:
    """As a program reads it: payloads as text, as far as they are."""
    row: dict[str, Any] = msgspec.to_builtins(job, builtin_types=(bytes,))
    row["payload"] = job.payload.decode("utf-8", "backslashreplace")
    row["id"] = encodable(job.id)
    return row


def _table(found: Any, now: float) -> Table:
    table = Table("queue", "id", "recurs", "missed", "from", "last", "next")
    for job in found:
        if job.paused:
            following = f"paused {age(now - job.paused.since)} ago{by_whom(job.paused)}"
        else:
            following = "" if job.next_at is None else _when(job.next_at - now)
        last = "" if job.last_at is None else f"{age(max(now - job.last_at, 0.0))} ago"
        missed = f"{job.rule.missed} {job.rule.backlog}" if job.rule.missed == "all" else job.rule.missed
        words = (printable(job.queue, 60), printable(job.id, 60), job.rule.words, missed, job.origin, last, following)
        table.add_row(*map(escape, words))
    return table
