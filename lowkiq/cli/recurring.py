"""Commands on jobs that recur: `recurring list`, `set`, `pause`, `resume`, `remove` and `run-now`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.pauses import by_whom
from lowkiq.admin.recurring import RecurringJob
from lowkiq.admin.words import age, printable
from lowkiq.cli.opening import Answer, answering, who
from lowkiq.cli.queues import Id, OneQueue, Queue
from lowkiq.codec import encodable
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


@recurring.command("list")
@answering
def list_(
    app: Lowkiq,
    queue: OneQueue = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="So many at most; JSON has all.")] = 200,
) -> Answer:
    """Lists the jobs that recur, of one queue or of all, those that fire next first, and those that are paused last."""
    found = app.recurring.list(queue)
    more = [f"{len(found):,} recur: raise --limit to see more"] if len(found) > limit else []
    rows = [_row(job) for job in found]
    return Answer(rows, [_table(found[:limit], redis_time(app.caller)), *more] if found else "nothing recurs")


@recurring.command("set", epilog=SET_EPILOG)
@answering
def set_(
    app: Lowkiq,
    queue: Queue,
    id: Id,
    every: Annotated[str, typer.Argument(metavar="EVERY", help='Seconds, "15m", or the fields of cron.')],
    payload: Annotated[str | None, typer.Option(help="JSON; what it has stays without it.", show_default=False)] = None,
    offset: Annotated[float, typer.Option(help="Seconds by which an interval is shifted.")] = 0.0,
    tz: Annotated[str | None, typer.Option(help="Of the fields of cron: UTC by default.", show_default=False)] = None,
    missed: Annotated[str, typer.Option(help="What becomes of times that passed: merge, all or skip.")] = "merge",
    backlog: Annotated[int, typer.Option(help="How many are made up for with --missed all.")] = BACKLOG,
) -> Answer:
    """Has a job recur, or changes one that does."""
    options: dict[str, Any] = {"offset": offset, "tz": tz, "missed": missed, "backlog": backlog, "who": who()}
    app.recurring.set(queue, id, every, payload=_loaded(payload), **options)
    (job,) = (job for job in app.recurring.list(queue) if job.id == id)
    return Answer(_row(job), f"{_name(queue, id)} is now {job.rule.words}{_next(job, redis_time(app.caller))}")


@recurring.command()
@answering
def pause(
    app: Lowkiq,
    queue: Queue,
    id: Id,
    reason: Annotated[str, typer.Argument(metavar="[REASON]", show_default=False)] = "",
) -> Answer:
    """Has a job not recur until it is resumed."""
    return _done(queue, id, "is paused", app.recurring.pause(queue, id, reason, who=who()))


@recurring.command()
@answering
def resume(app: Lowkiq, queue: Queue, id: Id) -> Answer:
    """Has a paused one recur again, from its next time on."""
    return _done(queue, id, "recurs again", app.recurring.resume(queue, id, who=who()))


@recurring.command()
@answering
def remove(app: Lowkiq, queue: Queue, id: Id) -> Answer:
    """Has a job recur no more. One of the code stays away until the code says something else of it."""
    return _done(queue, id, "recurs no more", app.recurring.remove(queue, id, who=who()))


@recurring.command()
@answering
def run_now(app: Lowkiq, queue: Queue, id: Id) -> Answer:
    """Pushes a job that recurs once more, now. It takes the application."""
    app.recurring.run_now(queue, id, who=who())
    return _done(queue, id, "is due now; its times stay as they are", True)


def _done(queue: str, id: str, what: str, is_done: bool) -> Answer:
    told = f" {what}" if is_done else ": nothing to change"
    return Answer({"done": is_done}, f"{_name(queue, id)}{told}", is_done)


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
