"""Command `owners`: which node has each shard, which is to have it, and why."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Column, Table

from lowkiq import Lowkiq
from lowkiq.admin.beats.health import read_health
from lowkiq.admin.beats.members import read_placements
from lowkiq.admin.beats.owners import owners_of
from lowkiq.admin.metrics import read_layouts, read_shards
from lowkiq.admin.words import printable
from lowkiq.cli.opening import Answer, answering
from lowkiq.cli.queues import OneQueue, shards_count
from lowkiq.queue.call import redis_time
from lowkiq.queue.shard import shards_of

OWNERS_EPILOG = """\b
Examples:
  lowkiq owners                                          the shards of all queues
  lowkiq owners OrderSync
  lowkiq owners OrderSync --json | jq -r '.[] | select(.why != "share") | .says'
  lowkiq incidents --kind moved                          what has moved, between whom and why
"""


@answering
def owners(app: Lowkiq, queue: OneQueue = None) -> Answer:
    """Which node has each shard, which is to have it, and why: by leases, and by what nodes say of themselves."""
    caller, namespace = app.caller, app.settings.namespace
    if queue is not None:
        shards_count(app, queue)  # there must be one
    layouts = {name: layout for name, layout in read_layouts(caller, namespace).items() if queue in {None, name}}
    shards = read_shards(caller, shards_of(namespace, layouts))
    nodes, placements = read_health(caller, namespace), read_placements(caller, namespace)
    found = owners_of(nodes, shards, placements, redis_time(caller))
    names = "queue", Column("shard", justify="right"), "owner", "goes to", "why"
    table = Table(*names, title="Owners")
    for row in found:
        target = str(row.target) if row.target and row.target != row.owner else ""
        texts = str(row.owner or "nobody"), target, row.says
        table.add_row(escape(printable(row.queue, None)), str(row.shard), *map(escape, texts))
    return Answer(found, table)
