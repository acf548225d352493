"""Alerts of what follows and is not sent, of late recurring jobs, of long waits, and of reshards that stand still."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lowkiq.admin.alerts.alert import START_NODES, Alert, command_on
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.resharding import STILL
from lowkiq.admin.words import age, plural, printable

#: The next step where nodes of the queue are there.
END_WHAT_KEEPS_IT = "A job that runs keeps a shard: wait for it, or end it"


def of_reshards(now: Situation) -> Iterator[Alert]:
    """Alerts of queues of which nothing was moved for a minute: what has moved waits for the rest."""
    for queue, one in now.reshards.items():
        if one.stands_for < STILL:
            continue
        runs = any(node.runs(queue) and not node.is_late for node in now.nodes.nodes)
        says = (
            f"The reshard of {printable(queue, 60)} from {one.before} to {one.shards} shards is at {one.percent} %, "
            f"and has moved nothing for {age(one.stands_for)}"
        )
        do = END_WHAT_KEEPS_IT if runs else START_NODES
        yield Alert("reshard", "bad", queue, says, do, one.moved_at + STILL, f"/queues/{queue}", "lowkiq nodes")


#: Seconds by which a recurring job may be late, and for which what follows from a job may wait to be sent: nodes do
#: both at once, and another node has a dead one's shards by then.
OVERDUE: Final = 30.0
#: Seconds for which a job may wait for others.
WAITS_LONG: Final = 3_600.0


def of_following(now: Situation) -> Iterator[Alert]:
    """At most one of each kind a queue."""
    for queue in now.queues:
        yield from _unsent(now, queue)
        yield from _recurring(now, queue)
        yield from _dependent(now, queue)


def _unsent(now: Situation, queue: str) -> Iterator[Alert]:
    since = min((at for shard in now.shards_of(queue) if (at := shard.unsent_since) is not None), default=now.at)
    if now.at - since >= OVERDUE:
        waited = f"has waited for {age(now.at - since)} to be sent to its queue"
        says = f"What follows from jobs of {printable(queue, 60)} {waited}"
        do = "See `letters_wait` in its nodes' log: that queue is refused, or no node has the shard. Nothing is lost"
        yield Alert("unsent", "bad", queue, says, do, since + OVERDUE, f"/queues/{queue}", "lowkiq nodes")


def _recurring(now: Situation, queue: str) -> Iterator[Alert]:
    fires_at = min((at for shard in now.shards_of(queue) if (at := shard.fires_at) is not None), default=now.at)
    if now.at - fires_at >= OVERDUE:
        says = f"A recurring job of {printable(queue, 60)} was to fire {age(now.at - fires_at)} ago"
        do = "See that a node runs that queue, and `recurring_failed` in its log. It fires late, as its `missed` says"
        where = f"/recurring?queue={queue}"
        yield Alert("recurring", "bad", queue, says, do, fires_at + OVERDUE, where, "lowkiq recurring list")


def _dependent(now: Situation, queue: str) -> Iterator[Alert]:
    since = min((at for shard in now.shards_of(queue) if (at := shard.dependent_since) is not None), default=now.at)
    if now.at - since >= WAITS_LONG:
        jobs = sum(shard.dependent for shard in now.shards_of(queue))
        which = f"{plural(jobs, 'job')} of {printable(queue, 60)} {'waits' if jobs == 1 else 'wait'} for others"
        says = f"{which}, the first for {age(now.at - since)}"
        do = "See for what: what is in the morgue or blocked keeps them waiting, until it is revived or deleted"
        where, command = f"/queues/{queue}?view=held", command_on(queue, "lowkiq held")
        yield Alert("dependent", "warn", queue, says, do, since + WAITS_LONG, where, command)
