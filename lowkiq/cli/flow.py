"""Commands on the flow of a queue: `pause` and `resume` for all of it, `hold` and `release` for ids; whose it is."""

from __future__ import annotations

import json
from typing import Annotated, Final

import msgspec
import typer

from lowkiq.admin.jobs.pausing import WAIT, restless
from lowkiq.admin.pauses import by_whom
from lowkiq.admin.words import age, printable
from lowkiq.cli.nodes import who
from lowkiq.cli.opening import AsJson, Require, opened_app
from lowkiq.cli.queues import Queue, SomeIds, actions_on, done, shards_count
from lowkiq.environment import ExitCode
from lowkiq.queue.call import redis_time

PAUSE_EPILOG: Final = """\b
Examples:
  lowkiq pause OrderSync "the shop counts its stock"
  lowkiq pause OrderSync --wait 60                       wait for silent nodes, too: until their leases have ended
  lowkiq resume OrderSync

\b
From then on nothing of the queue is claimed. Pushes go on, and jobs that run are finished; what nodes had claimed and
not started goes back. It exits with 0 once all nodes have confirmed that nothing more starts, and with 1 if some have
not within the time: the queue is paused all the same, and asking again waits again.
"""


def pause(
    context: typer.Context,
    queue: Queue,
    reason: Annotated[str, typer.Argument(metavar="[REASON]", help="For all who wonder.", show_default=False)] = "",
    wait: Annotated[float, typer.Option(min=0, max=3600, help="Seconds to wait for nodes.")] = WAIT,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Pauses a queue: nothing of it starts until it is resumed."""
    with opened_app(require or context.obj) as app:
        reply = actions_on(app, queue).pause(reason, who=who(), wait=wait)
    if as_json:
        typer.echo(msgspec.json.encode(reply).decode())
    elif reply.is_confirmed:
        typer.echo(f"{printable(queue, 200)} is paused: nothing of it starts until it is resumed")
    else:
        typer.echo(
            f"{printable(queue, 200)} is paused, but what {restless(reply.unconfirmed)} had claimed may still start"
        )
    if not reply.is_confirmed:
        raise typer.Exit(ExitCode.FAILED)


def hold(
    context: typer.Context,
    queue: Queue,
    ids: SomeIds,
    reason: Annotated[str, typer.Option("--reason", help="For all who wonder.")] = "",
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Keeps ids from being run until they are released. Pushes merge; a run of one is finished."""
    with opened_app(require or context.obj) as app:
        count = done(app, queue, "hold", ids, reason)
    typer.echo(json.dumps({"held": count}) if as_json else f"{count} held")


def release_ids(
    context: typer.Context, queue: Queue, ids: SomeIds, require: Require = None, as_json: AsJson = False
) -> None:
    """Has held ids run again. Those that wait for others go on waiting: see stop-waiting."""
    with opened_app(require or context.obj) as app:
        count = done(app, queue, "release", ids)
    typer.echo(json.dumps({"released": count}) if as_json else f"{count} released")


def stop_waiting(
    context: typer.Context, queue: Queue, ids: SomeIds, require: Require = None, as_json: AsJson = False
) -> None:
    """Has jobs that wait for others run without those."""
    with opened_app(require or context.obj) as app:
        count = done(app, queue, "stop_waiting", ids)
    typer.echo(json.dumps({"stop_waiting": count}) if as_json else f"{count} wait no more")


def held(context: typer.Context, queue: Queue, require: Require = None, as_json: AsJson = False) -> None:
    """Lists the ids of a queue that are held: since when, by whom and why."""
    with opened_app(require or context.obj) as app:
        holds = app.queries(queue, shards_count(app, queue)).held()
        if as_json:
            typer.echo(msgspec.json.encode(holds).decode())
            return
        now = redis_time(app.caller) if holds else 0.0
        for one in holds:
            typer.echo(f"{printable(one.id, 200)} for {age(now - one.since)}{by_whom(one)}")
        if not holds:
            typer.echo(f"no id of {printable(queue, 200)} is held")


def tenants(
    context: typer.Context,
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="So many at most.")] = 10,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Lists whose backlog is the largest, in a queue whose worker has fair_by."""
    with opened_app(require or context.obj) as app:
        found = app.queries(queue, shards_count(app, queue)).tenants(limit)
    if as_json:
        typer.echo(json.dumps([one._asdict() for one in found]))
        return
    for one in found:
        typer.echo(f"{printable(one.tenant, 200)} {one.ids:,}")
    if not found:
        typer.echo(f"nothing that is queued in {printable(queue, 200)} has a tenant")


def resume(context: typer.Context, queue: Queue, require: Require = None, as_json: AsJson = False) -> None:
    """Resumes a paused queue."""
    with opened_app(require or context.obj) as app:
        shards = actions_on(app, queue).resume(who=who())
    if as_json:
        typer.echo(json.dumps({"resumed": shards}))
    else:
        typer.echo(f"{printable(queue, 200)} {'is resumed' if shards else 'was not paused'}")
