"""Commands on the flow of a queue: `pause` and `resume` for all of it, `hold` and `release` for ids; whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from lowkiq import Lowkiq
from lowkiq.admin.jobs.pausing import WAIT, restless
from lowkiq.admin.pauses import Hold, by_whom
from lowkiq.admin.words import age, printable
from lowkiq.cli.nodes import who
from lowkiq.cli.opening import Answer, answering
from lowkiq.cli.queues import Queue, SomeIds, actions_on, done, queries_of
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
