"""What the command line shows people: tables, and what is wrong in words."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lowkiq import clock
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.nodes import Nodes
from lowkiq.job import Job

#: Unowned shards that are named one by one.
MANY = 20


def show(table: Table) -> None:
    """Prints it. Piped, a table has no terminal to fit: its rows stay whole."""
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def of_queues(metrics: Mapping[str, QueueMetrics]) -> Table:
    """A row a queue."""
    names = [field.name for field in msgspec.structs.fields(QueueMetrics)]
    table = Table("queue", *(Column(name, justify="right") for name in names), title="Queues")
    for queue, row in metrics.items():
        values = msgspec.structs.asdict(row)
        table.add_row(queue, *(f"{value:,.1f} s" if key == "lag" else f"{value:,}" for key, value in values.items()))
    return table


def of_morgue(queue: str, jobs: Sequence[Job]) -> Table:
    """A row a job."""
    table = Table("id", "payloads", "since", "error", title=f"Morgue of {queue}")
    for job in jobs:
        row = summary(job)
        table.add_row(escape(printable(job.id)), str(row["payloads"]), row["since"], escape(printable(row["error"])))
    return table


def summary(job: Job) -> dict[str, Any]:
    """A job of the morgue in a line, without its payloads."""
    since = datetime.datetime.fromtimestamp(job.perform_in, datetime.UTC).isoformat(timespec="seconds")
    return {"id": job.id, "payloads": job.payload_count, "since": since, "error": job.error or ""}


def of_nodes(found: Nodes) -> Table:
    numbers = (
        "number",
        "pid",
        "up",
        "beat",
        "busy",
        "shards",
        "waits for",
        "processed",
        "failed",
        "RSS",
        "CPU",
        "Redis",
    )
    table = Table("node", "state", *(Column(name, justify="right") for name in numbers), title="Nodes")
    now = clock.real()
    for node in found.nodes:
        busy = sum(thread.queue is not None for thread in node.threads)
        table.add_row(
            escape(printable(node.host)),
            "late" if node.is_late else escape(printable(node.state)),
            f"{node.node_number} of {node.number_of_nodes}",
            str(node.pid),
            str(datetime.timedelta(seconds=int(now - node.started_at))),
            f"{node.beat_age:.0f} s",
            f"{busy} of {len(node.threads)}",
            str(sum(map(len, node.owned.values()))),
            str(sum(len(shards) for queues in node.waited_for.values() for shards in queues.values())),
            f"{node.processed:,}",
            f"{node.failed:,}",
            f"{node.rss / 2**20:,.0f} MiB",
            f"{node.cpu_percent:.0f} %",
            f"{node.redis_round_trip * 1000:.1f} ms" if node.redis_round_trip is not None else "",
        )
    return table


def troubles(found: Nodes) -> Iterator[str]:
    """What is wrong, a line each."""
    if not found.nodes:
        yield "no node has been heard of for half a minute"
    for name in found.late:
        yield f"late: {printable(name)} has not been heard of for a while; its shards move on when its lease ends"
    for name in found.unreadable:
        yield f"unreadable: the beat of {printable(name)}: is it of another Lowkiq, or not Lowkiq's at all?"
    if found.missing:
        yield f"missing: node numbers {', '.join(map(str, found.missing))}; others stand in for them"
    if found.doubled:
        yield f"doubled: node numbers {', '.join(map(str, found.doubled))}; all but one stand by. Check NODE_NUMBER"
    for shard in found.unowned[:MANY]:
        lag = -(shard.due_in or 0)
        yield f"unowned: shard {shard.shard} of queue {shard.queue} has jobs due and no node ({lag:.0f} s late)"
    if len(found.unowned) > MANY:
        yield f"unowned: {len(found.unowned) - MANY} more"


def printable(text: str) -> str:
    """Ids and errors are hostile: no control characters reach the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
