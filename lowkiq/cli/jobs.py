"""Commands on jobs: those of the morgue, and `cancel`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.table import Table

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.jobs.actions import Actions
from lowkiq.admin.jobs.failures import Groups, named, read_groups
from lowkiq.admin.jobs.search import Match, Search, View
from lowkiq.admin.jobs.undo import KEPT_SECONDS
from lowkiq.admin.words import behind_newer, plural, printable, waited_for
from lowkiq.cli import tables
from lowkiq.cli.opening import Answer, answering, fail, who
from lowkiq.cli.queues import Queue, SomeIds, actions_on, counted, done, queries_of, shards_count, with_ids
from lowkiq.environment import ExitCode
from lowkiq.errors import short
from lowkiq.failure import group_of
from lowkiq.job import KEPT_BYTES, Job

#: Views whose jobs have failed.
FAILED: Final[tuple[View, ...]] = ("retries", "morgue")
#: What to do about a job that would be revived behind a newer one of its id.
ANYWAY: Final = "nothing was done; --out-of-order revives them all the same"

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

blocked = typer.Typer(
    no_args_is_help=True, help="The jobs that failed too often, and hold up their ids.", rich_markup_mode=None
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...")]
All = Annotated[bool, typer.Option("--all", help="All of the queue's morgue.")]
Pattern = Annotated[str | None, typer.Option(help='Those whose id matches a glob, e.g. "order-*".')]
Error = Annotated[str | None, typer.Option(help="Those with this error, as `lowkiq failures` has it.")]
Tag = Annotated[str | None, typer.Option(help="Those with this tag.")]
AllBlocked = Annotated[bool, typer.Option("--all", help="All that are blocked.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@answering
def cancel(app: Lowkiq, queue: Queue, ids: SomeIds, yes: Yes = False) -> Answer:
    """Cancels jobs: what is queued of them is deleted, what runs is asked to stop. It asks if others wait for them."""
    _ask_if_waited_for(actions_on(app, queue), ids, yes=yes)
    return done(app, queue, "cancel", ids, "cancelled")


@answering
def failures(
    app: Lowkiq,
    queue: Queue,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this job, with its traceback.")] = None,
) -> Answer:
    """Shows why jobs of a queue fail: retries and morgue by kind of error; or the last error of one job."""
    if id is not None:
        return _failure(app, queue, id)
    search = Search(app.caller, app.shards(queue, shards_count(app, queue)), app.settings.load_error)
    found = {view: read_groups(search, view) for view in FAILED}
    rows = {
        view: {"groups": named(groups), "sampled": sampled, "total": total}
        for view, (groups, sampled, total) in found.items()
    }
    return Answer(rows, _failed(queue, found))


def _failed(queue: str, found: dict[View, Groups]) -> Iterator[str | Table]:
    for view, groups in found.items():
        if groups.groups:
            yield tables.of_failures(queue, view, groups)
    if not any(groups.groups for groups in found.values()):
        yield f"no job of {queue} has failed, of those that are there"


def _failure(app: Lowkiq, queue: str, id: str) -> Answer:
    """The last error of a job, among the queued and in the morgue, in full."""
    queries = queries_of(app, queue)
    places = {"retries": with_ids(queries.fetch, [id]), "morgue": with_ids(queries.morgue_fetch, [id])}
    found = {view: job for view, jobs in places.items() for job in jobs if job.error}
    fields = ("error", "traceback", "retry_count")
    rows = {view: {name: getattr(job, name) for name in fields} for view, job in found.items()}
    return Answer(rows, _errors(queue, id, found))


def _errors(queue: str, id: str, found: dict[str, Job]) -> Iterator[str]:
    for view, job in found.items():
        yield f"{view}:"
        yield from (printable(line, None) for line in (job.traceback or job.error or "").splitlines())
    if not found:
        raise SettingsError(f"job {short(id)} of {queue} has no error: it is done, in flight, or has not failed")


@answering
def undo(
    app: Lowkiq,
    queue: Queue,
    name: Annotated[str, typer.Argument(metavar="DELETION", help="As the deletion told it.")],
) -> Answer:
    """Undoes a deletion of a minute ago at most. Where an id was pushed again since, payloads merge."""
    count = with_ids(lambda _: actions_on(app, queue).undo(name, who=who()), ())
    late = f"no deletion {name} of {queue} can be undone: it was over {KEPT_SECONDS} s ago, or is undone already"
    if not count:
        typer.echo(f"lowkiq: {late}", err=True)
    return Answer({"undone": count}, f"{count} put back" if count else (), bool(count))


@morgue.command("list")
@answering
def morgue_list(
    app: Lowkiq,
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 50,
) -> Answer:
    """Shows the newest jobs of a queue's morgue, with their errors."""
    jobs = queries_of(app, queue).morgue_rev_range_by_updated_at(limit=limit)
    return Answer([tables.summary(job) for job in jobs], tables.of_morgue(queue, jobs))


@morgue.command("revive")
@answering
def morgue_revive(
    app: Lowkiq,
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    pattern: Pattern = None,
    error: Error = None,
    tag: Tag = None,
    anyway: Annotated[
        bool, typer.Option("--out-of-order", help="Also those that run behind newer payloads of their ids then.")
    ] = False,
) -> Answer:
    """Returns jobs to the queue, as fresh ones that are due now, in this order."""
    actions = actions_on(app, queue)
    some = _chosen(app, queue, ids, pattern, error, tag, every=every)
    if some is None:
        late = 0 if anyway else actions.all_behind_newer()
        if late:
            fail(f"{plural(late, 'job')} would run behind newer payloads of their ids: {ANYWAY}", ExitCode.FAILED)
        return counted("revived", actions.do_all("revive", who()))
    named = [] if anyway else with_ids(actions.behind_newer, some)
    if named:
        fail(f"{behind_newer(named)}: {ANYWAY}", ExitCode.FAILED)
    return done(app, queue, "revive", some, "revived")


@morgue.command("delete")
@answering
def morgue_delete(
    app: Lowkiq,
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    pattern: Pattern = None,
    error: Error = None,
    tag: Tag = None,
    yes: Yes = False,
    as_json: bool = False,
) -> Answer:
    """Deletes jobs for good. It tells how many, and asks, unless you name each; and if others wait for them."""
    actions = actions_on(app, queue)
    some = _chosen(app, queue, ids, pattern, error, tag, every=every)
    if not (ids or yes):
        which = f"all {app.metrics()[queue].morgue_length} jobs" if some is None else f"the {len(some)} that match"
        typer.confirm(f"Delete {which} in the morgue of {queue}?", abort=True, err=as_json)
    _ask_if_waited_for(actions, some, yes=yes)
    if some is None:
        return counted("deleted", actions.do_all("delete", who(), "morgue"))
    return _delete(app, queue, "morgue", some)


def _chosen(
    app: Lowkiq, queue: str, ids: list[str] | None, pattern: Pattern, error: Error, tag: Tag, *, every: bool
) -> list[str] | None:
    """The ids of the morgue that are meant: those that were named, or match; None: all."""
    match = Match("morgue", pattern, error and group_of(error), tag)
    if not match.is_all:
        if ids or every:
            raise SettingsError("say which: ids, --all, or what they match")
        search = Search(app.caller, app.shards(queue, shards_count(app, queue)), app.settings.load_error)
        return [id.decode("utf-8", KEPT_BYTES) for step in search.steps(match) for id, _ in step.found]
    return None if _all_or(ids, every) else ids


@blocked.command("list")
@answering
def blocked_list(
    app: Lowkiq,
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The first so many.")] = 50,
) -> Answer:
    """Shows the blocked jobs of a queue, those that have waited longest first, with their errors."""
    jobs = queries_of(app, queue).blocked(limit)
    return Answer([tables.summary(job) for job in jobs], tables.of_morgue(queue, jobs, "Blocked jobs of"))


@blocked.command("retry")
@answering
def blocked_retry(app: Lowkiq, queue: Queue, ids: Ids = None, every: AllBlocked = False) -> Answer:
    """Has jobs go on, as fresh ones that are due now, in this order."""
    if _all_or(ids, every):
        return counted("retried", actions_on(app, queue).do_all("retry", who()))
    return done(app, queue, "retry", ids, "retried")


@blocked.command("skip")
@answering
def blocked_skip(app: Lowkiq, queue: Queue, ids: SomeIds) -> Answer:
    """Deletes the oldest payload of jobs, and has them go on with the others."""
    return done(app, queue, "skip", ids, "skipped")


@blocked.command("delete")
@answering
def blocked_delete(app: Lowkiq, queue: Queue, ids: SomeIds, yes: Yes = False) -> Answer:
    """Deletes jobs with all their payloads. It asks if others wait for them."""
    _ask_if_waited_for(actions_on(app, queue), ids, yes=yes)
    return _delete(app, queue, "blocked", ids)


def _delete(app: Lowkiq, queue: str, view: str, ids: list[str]) -> Answer:
    """Says how many were deleted, and the way back."""
    deleted = with_ids(lambda some: actions_on(app, queue).do_or_keep("delete", some, view, who=who()), ids)
    moved, undo = deleted.moved, deleted.undo
    if not undo:
        return counted("deleted", moved)
    way_back = f"{moved} deleted; lowkiq undo {queue} {undo} within {KEPT_SECONDS} s"
    return Answer({"deleted": moved, "undo": undo}, way_back)


def _ask_if_waited_for(actions: Actions, ids: list[str] | None, *, yes: bool) -> None:
    """Asks before an end on which others run that wait for it (`after`)."""
    found: list[str] = [] if yes else with_ids(actions.waited_for, ids or [])
    if found:
        typer.confirm(f"{waited_for(found)}. Go on?", abort=True, err=True)


def _all_or(ids: list[str] | None, every: bool) -> bool:
    if bool(ids) == every:
        raise SettingsError("say which: ids, or --all")
    return every
