"""Commands on jobs: those of the morgue, and `cancel`."""

from __future__ import annotations

import json
from typing import Annotated, Final

import msgspec
import typer

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.jobs.actions import Actions
from lowkiq.admin.jobs.failures import named, read_groups
from lowkiq.admin.jobs.search import Match, Search
from lowkiq.admin.jobs.undo import KEPT_SECONDS
from lowkiq.admin.words import behind_newer, plural, printable, waited_for
from lowkiq.cli import tables
from lowkiq.cli.nodes import who
from lowkiq.cli.opening import AsJson, Require, fail, opened_app
from lowkiq.cli.queues import Queue, SomeIds, actions_on, done, shards_count, with_ids
from lowkiq.environment import ExitCode
from lowkiq.errors import short
from lowkiq.failure import group_of
from lowkiq.job import KEPT_BYTES

#: Views whose jobs have failed.
FAILED: Final = ("retries", "morgue")
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


def cancel(
    context: typer.Context,
    queue: Queue,
    ids: SomeIds,
    yes: Yes = False,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Cancels jobs: what is queued of them is deleted, what runs is asked to stop. It asks if others wait for them."""
    with opened_app(require or context.obj) as app:
        _ask_if_waited_for(actions_on(app, queue), ids, yes=yes)
        count = done(app, queue, "cancel", ids)
        typer.echo(json.dumps({"cancelled": count}) if as_json else f"{count} cancelled")


def failures(
    context: typer.Context,
    queue: Queue,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this job, with its traceback.")] = None,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Shows why jobs of a queue fail: retries and morgue by kind of error; or the last error of one job."""
    with opened_app(require or context.obj) as app:
        if id is not None:
            _show_failure(app, queue, id, as_json=as_json)
            return
        search = Search(app.caller, app.shards(queue, shards_count(app, queue)), app.settings.load_error)
        found = {view: read_groups(search, view) for view in FAILED}
        if as_json:
            rows = {view: (named(groups), sampled, total) for view, (groups, sampled, total) in found.items()}
            fields = ("groups", "sampled", "total")
            shown = {view: dict(zip(fields, row, strict=True)) for view, row in rows.items()}
            typer.echo(msgspec.json.encode(shown).decode())
            return
        for view, groups in found.items():
            if groups.groups:
                tables.show(tables.of_failures(queue, view, groups))
        if not any(groups.groups for groups in found.values()):
            typer.echo(f"no job of {queue} has failed, of those that are there")


def _show_failure(app: Lowkiq, queue: str, id: str, *, as_json: bool) -> None:
    """The last error of a job, among the queued and in the morgue, in full."""
    queries = app.queries(queue, shards_count(app, queue))
    places = {"retries": with_ids(queries.fetch, [id]), "morgue": with_ids(queries.morgue_fetch, [id])}
    found = {view: job for view, jobs in places.items() for job in jobs if job.error}
    if as_json:
        fields = ("error", "traceback", "retry_count")
        typer.echo(json.dumps({view: {name: getattr(job, name) for name in fields} for view, job in found.items()}))
        return
    for view, job in found.items():
        typer.echo(f"{view}:")
        for line in (job.traceback or job.error or "").splitlines():
            typer.echo(printable(line, None))
    if not found:
        raise SettingsError(f"job {short(id)} of {queue} has no error: it is done, in flight, or has not failed")


def undo(
    context: typer.Context,
    queue: Queue,
    name: Annotated[str, typer.Argument(metavar="DELETION", help="As the deletion told it.")],
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Undoes a deletion of a minute ago at most. Where an id was pushed again since, payloads merge."""
    with opened_app(require or context.obj) as app:
        try:
            count = actions_on(app, queue).undo(name, who=who())
        except ValueError as error:
            raise SettingsError(str(error)) from error
        if as_json:
            typer.echo(json.dumps({"undone": count}))
        elif count:
            typer.echo(f"{count} put back")
    if not count:
        late = f"no deletion {name} of {queue} can be undone: it was over {KEPT_SECONDS} s ago, or is undone already"
        fail(late, ExitCode.FAILED)


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
        jobs = app.queries(queue, shards_count(app, queue)).morgue_rev_range_by_updated_at(limit=limit)
        if as_json:
            typer.echo(json.dumps([tables.summary(job) for job in jobs]))
        else:
            tables.show(tables.of_morgue(queue, jobs))


@morgue.command("revive")
def morgue_revive(
    context: typer.Context,
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    pattern: Pattern = None,
    error: Error = None,
    tag: Tag = None,
    anyway: Annotated[
        bool, typer.Option("--out-of-order", help="Also those that run behind newer payloads of their ids then.")
    ] = False,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Returns jobs to the queue, as fresh ones that are due now, in this order."""
    with opened_app(require or context.obj) as app:
        actions = actions_on(app, queue)
        some = _chosen(app, queue, ids, pattern, error, tag, every=every)
        if some is None:
            late = 0 if anyway else actions.all_behind_newer()
            if late:
                fail(f"{plural(late, 'job')} would run behind newer payloads of their ids: {ANYWAY}", ExitCode.FAILED)
            count = actions.do_all("revive", who())
        else:
            named = [] if anyway else with_ids(actions.behind_newer, some)
            if named:
                fail(f"{behind_newer(named)}: {ANYWAY}", ExitCode.FAILED)
            count = done(app, queue, "revive", some)
        _tell("revived", count, as_json=as_json)


@morgue.command("delete")
def morgue_delete(
    context: typer.Context,
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    pattern: Pattern = None,
    error: Error = None,
    tag: Tag = None,
    yes: Yes = False,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Deletes jobs for good. It tells how many, and asks, unless you name each; and if others wait for them."""
    with opened_app(require or context.obj) as app:
        actions = actions_on(app, queue)
        some = _chosen(app, queue, ids, pattern, error, tag, every=every)
        if not (ids or yes):
            which = f"all {app.metrics()[queue].morgue_length} jobs" if some is None else f"the {len(some)} that match"
            typer.confirm(f"Delete {which} in the morgue of {queue}?", abort=True, err=as_json)
        _ask_if_waited_for(actions, some, yes=yes)
        if some is None:
            _tell("deleted", actions.do_all("delete", who(), "morgue"), as_json=as_json)
        else:
            _delete(app, queue, "morgue", some, as_json=as_json)


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


def _tell(done: str, count: int, queue: str = "", undo: str | None = None, *, as_json: bool) -> None:
    """Says what was done to how many jobs, and the way back."""
    if as_json:
        typer.echo(json.dumps({done: count} | ({"undo": undo} if undo else {})))
    else:
        way_back = f"; lowkiq undo {queue} {undo} within {KEPT_SECONDS} s" if undo else ""
        typer.echo(f"{count} {done}{way_back}")


@blocked.command("list")
def blocked_list(
    context: typer.Context,
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The first so many.")] = 50,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Shows the blocked jobs of a queue, those that have waited longest first, with their errors."""
    with opened_app(require or context.obj) as app:
        jobs = app.queries(queue, shards_count(app, queue)).blocked(limit)
        if as_json:
            typer.echo(json.dumps([tables.summary(job) for job in jobs]))
        else:
            tables.show(tables.of_morgue(queue, jobs, "Blocked jobs of"))


@blocked.command("retry")
def blocked_retry(
    context: typer.Context,
    queue: Queue,
    ids: Ids = None,
    every: AllBlocked = False,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Has jobs go on, as fresh ones that are due now, in this order."""
    with opened_app(require or context.obj) as app:
        every = _all_or(ids, every)
        count = actions_on(app, queue).do_all("retry", who()) if every else done(app, queue, "retry", ids)
        _tell("retried", count, as_json=as_json)


@blocked.command("skip")
def blocked_skip(
    context: typer.Context,
    queue: Queue,
    ids: SomeIds,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Deletes the oldest payload of jobs, and has them go on with the others."""
    with opened_app(require or context.obj) as app:
        _tell("skipped", done(app, queue, "skip", ids), as_json=as_json)


@blocked.command("delete")
def blocked_delete(
    context: typer.Context,
    queue: Queue,
    ids: SomeIds,
    yes: Yes = False,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Deletes jobs with all their payloads. It asks if others wait for them."""
    with opened_app(require or context.obj) as app:
        _ask_if_waited_for(actions_on(app, queue), ids, yes=yes)
        _delete(app, queue, "blocked", ids, as_json=as_json)


def _delete(app: Lowkiq, queue: str, view: str, ids: list[str], *, as_json: bool) -> None:
    deleted = with_ids(lambda some: actions_on(app, queue).do_or_keep("delete", some, view, who=who()), ids)
    _tell("deleted", deleted.moved, queue, deleted.undo, as_json=as_json)


def _ask_if_waited_for(actions: Actions, ids: list[str] | None, *, yes: bool) -> None:
    """Asks before an end on which others run that wait for it (`after`)."""
    found: list[str] = [] if yes else with_ids(actions.waited_for, ids or [])
    if found:
        typer.confirm(f"{waited_for(found)}. Go on?", abort=True, err=True)


def _all_or(ids: list[str] | None, every: bool) -> bool:
    if bool(ids) == every:
        raise SettingsError("say which: ids, or --all")
    return every
