"""Alerts of queues that are being resharded, and stand still with it."""

from __future__ import annotations

from collections.abc import Iterator

from lowkiq.admin.alerts.alert import START_NODES, Alert
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.resharding import STILL
from lowkiq.admin.words import age, printable

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
