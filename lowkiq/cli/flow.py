"""
Commands on the flow of a queue: `pause`, `resume` and `reshard` for all of it, `hold` and `release` for ids; whose it
is; what happens to it, and its numbers.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin import resharding
from lowkiq.admin.alerts.redis import of_unreadable
from lowkiq.admin.jobs.pausing import WAIT, restless
from lowkiq.admin.limits import read_limits
from lowkiq.admin.past.history import read_earlier
from lowkiq.admin.past.statistics import KEPT_DAYS, read_statistics
from lowkiq.admin.pauses import Hold, by_whom
from lowkiq.admin.words import age, printable
from lowkiq.cli import tables
from lowkiq.cli.opening import Answer, answering, as_text, who
from lowkiq.cli.queues import OneQueue, Queue, SomeIds, actions_on, counted, done, queries_of, shards_count, with_ids
from lowkiq.codec import encodable
from lowkiq.queue.call import redis_time
from lowkiq.queue.rates import read_waiting

RESHARD_EPILOG: Final = """\b
Examples:
  lowkiq reshard OrderSync 48                            begin, and watch; what was begun goes on by itself
  lowkiq reshard OrderSync 48 --no-wait
  lowkiq reshard OrderSync                               how far it is, or how the last one went

\b
The nodes of the queue move its jobs, while they run on, and producers push. Each id waits while its shard is moved: of
all of them until the last is, unless the number is a multiple of the one before, or divides it. Begun again with the
same number it only watches; another number is refused until it is over.
"""
#: Seconds between looks.
LOOK: Final = 0.25


@answering
def reshard(
    app: Lowkiq,
    queue: Queue,
    shards: Annotated[int | None, typer.Argument(metavar="[SHARDS]", show_default=False)] = None,
    wait: Annotated[bool, typer.Option(help="Watch until it is over.")] = True,
    as_json: bool = False,
) -> Answer:
    """Gives a queue another number of shards while it is in use, or tells how far that is."""
    count = shards_count(app, queue)
    if shards is not None:
        found: resharding.Resharding | None = actions_on(app, queue).reshard(shards, who=who())
    else:
        found = resharding.read_progress(app.caller, app.settings.namespace, queue)
    if found is None:
        return Answer(None, f"{printable(queue, 200)} has {count:,} shards, and was not resharded lately")
    if wait and not found.is_over:
        found = _watch(app, queue, found, shows=not as_json and sys.stderr.isatty())
    return Answer(found, f"{printable(queue, 200)}: {found.says}")


def told_of(app: Lowkiq) -> list[str]:
    """A line for each queue that is being resharded."""
    found = resharding.read_moving(app.caller, app.settings.namespace)
    return [f"{printable(queue, 60)}: {one.says}" for queue, one in found.items()]


def _watch(app: Lowkiq, queue: str, found: resharding.Resharding, *, shows: bool) -> resharding.Resharding:
    """Looks until it is over."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn()
    with Progress(*columns, disable=not shows) as bar:
        task = bar.add_task(f"{printable(queue, 60)} {found.before} → {found.shards}", total=100)
        while not found.is_over:
            time.sleep(LOOK)
            now = resharding.read_progress(app.caller, app.settings.namespace, queue)
            if now is None:
                raise SettingsError(f"Redis knows no queue {queue} any more")
            found = now
            bar.update(task, completed=found.percent)
    return found


EVENTS_EPILOG = """\b
Examples:
  lowkiq events                                          all queues, until you press Ctrl-C
  lowkiq events OrderSync --kind failed --kind buried
  lowkiq events OrderSync --id 17 --json                 a line of JSON for each
"""


@answering
def track(app: Lowkiq, queue: Queue, ids: SomeIds) -> Answer:
    """Keeps what happens to jobs from now on; their pages show it, and the overview pins them."""
    return counted("tracked", with_ids(actions_on(app, queue).track, ids))


@answering
def untrack(app: Lowkiq, queue: Queue, ids: SomeIds) -> Answer:
    """Tracks jobs no longer, and forgets what was kept."""
    return counted("untracked", with_ids(actions_on(app, queue).untrack, ids))


@answering
def events(
    app: Lowkiq,
    queue: OneQueue = None,
    kinds: Annotated[list[str] | None, typer.Option("--kind", help="Only such events; may be given again.")] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Only of this id; may be given again.")] = None,
    as_json: bool = False,
) -> None:
    """Tells what happens to jobs, as it happens."""
    with app.events(queue, ids or None, kinds or None) as listening:
        for event in listening:
            at = datetime.datetime.fromtimestamp(event.at, datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
            words = (at, event.kind, event.queue, event.id, event.node, event.detail)
            line = "  ".join(printable(word, 200) for word in words if word)
            typer.echo(as_text(msgspec.structs.replace(event, id=encodable(event.id))) if as_json else line)


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


@answering
def pause(
    app: Lowkiq,
    queue: Queue,
    reason: Annotated[str, typer.Argument(metavar="[REASON]", help="For all who wonder.", show_default=False)] = "",
    wait: Annotated[float, typer.Option(min=0, max=3600, help="Seconds to wait for nodes.")] = WAIT,
) -> Answer:
    """Pauses a queue: nothing of it starts until it is resumed."""
    reply = actions_on(app, queue).pause(reason, who=who(), wait=wait)
    if reply.is_confirmed:
        says = "paused: nothing of it starts until it is resumed"
    else:
        says = f"paused, but what {restless(reply.unconfirmed)} had claimed may still start"
    return Answer(reply, f"{printable(queue, 200)} is {says}", reply.is_confirmed)


@answering
def resume(app: Lowkiq, queue: Queue) -> Answer:
    """Resumes a paused queue."""
    shards = actions_on(app, queue).resume(who=who())
    return Answer({"resumed": shards}, f"{printable(queue, 200)} {'is resumed' if shards else 'was not paused'}")


@answering
def hold(
    app: Lowkiq,
    queue: Queue,
    ids: SomeIds,
    reason: Annotated[str, typer.Option("--reason", help="For all who wonder.")] = "",
) -> Answer:
    """Keeps ids from being run until they are released. Pushes merge; a run of one is finished."""
    return done(app, queue, "hold", ids, "held", why=reason)


@answering
def release_ids(app: Lowkiq, queue: Queue, ids: SomeIds) -> Answer:
    """Has held ids run again. Those that wait for others go on waiting: see stop-waiting."""
    return done(app, queue, "release", ids, "released")


@answering
def stop_waiting(app: Lowkiq, queue: Queue, ids: SomeIds) -> Answer:
    """Has jobs that wait for others run without those."""
    return done(app, queue, "stop_waiting", ids, "wait no more", key="stop_waiting")


@answering
def held(app: Lowkiq, queue: Queue) -> Answer:
    """Lists the ids of a queue that are held: since when, by whom and why."""
    holds = queries_of(app, queue).held()
    return Answer(holds, _lines(app, queue, holds))


def _lines(app: Lowkiq, queue: str, holds: list[Hold]) -> Iterator[str]:
    now = redis_time(app.caller) if holds else 0.0
    for one in holds:
        yield f"{printable(one.id, 200)} for {age(now - one.since)}{by_whom(one)}"
    if not holds:
        yield f"no id of {printable(queue, 200)} is held"


@answering
def tenants(
    app: Lowkiq,
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="So many at most.")] = 10,
) -> Answer:
    """Lists whose backlog is the largest, in a queue whose worker has fair_by."""
    found = queries_of(app, queue).tenants(limit)
    lines = [f"{printable(one.tenant, 200)} {one.ids:,}" for one in found]
    none = f"nothing that is queued in {printable(queue, 200)} has a tenant"
    return Answer([one._asdict() for one in found], lines or none)


@answering
def stats(
    app: Lowkiq, wide: Annotated[bool, typer.Option("--wide", help="All numbers of each queue.")] = False
) -> Answer:
    """What each queue holds and does, in a line a queue; with --wide, all of its numbers."""
    metrics = app.metrics()
    now, namespace = redis_time(app.caller), app.settings.namespace
    limits = read_limits(app.caller, namespace, metrics)
    waiting = read_waiting(app.caller, namespace, list(metrics), now)
    more = {name: {"limit": limit} for name, limit in limits.items()}
    rated = {name: {"rated": row.jobs, "rated_until": row.until} for name, row in waiting.items()}
    rows = {
        name: msgspec.structs.asdict(row) | more.get(name, {}) | rated.get(name, {}) for name, row in metrics.items()
    }
    for alert in of_unreadable(app.caller.met.now()):
        typer.echo(f"{alert.kind}: {alert.text}", err=True)
    told = [f"{queue}: {limit.text}" for queue, limit in limits.items()]
    told += [*tables.of_waiting(waiting, now), *told_of(app)]
    if wide:
        return Answer(rows, [tables.of_queues(metrics), *told])
    earlier = read_earlier(app.caller, namespace, metrics)
    return Answer(rows, [*tables.plain(tables.in_short(metrics, earlier, now)), *told])


@answering
def statistics(
    app: Lowkiq,
    queue: Queue,
    days: Annotated[int, typer.Option(min=1, max=KEPT_DAYS, help="The last so many days, in UTC.")] = 1,
) -> Answer:
    """How long jobs of a queue waited and ran, by day."""
    app.statistics(queue)  # raises for one that nobody knows
    found = read_statistics(app.caller, app.settings.namespace, queue, days)
    return Answer(found, tables.of_statistics(queue, found) if found else f"no job of {queue} has run in that time")
