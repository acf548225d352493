"""Tables that the command line shows people."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lowkiq import clock
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.nodes import Nodes
from lowkiq.admin.words import age, printable, seconds
from lowkiq.job import Job

#: Batches that `nodes` lists, those that have run for longest.
MOST_RUNNING: Final = 20


def show(table: Table, *lines: str) -> None:
    """Prints it, and lines below it. Piped, a table has no terminal to fit: its rows stay whole."""
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for line in lines:
        typer.echo(line)


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
    for row in map(summary, jobs):
        id, error = (escape(printable(row[key], None)) for key in ("id", "error"))
        table.add_row(id, str(row["payloads"]), row["since"], error)
    return table


def summary(job: Job) -> dict[str, Any]:
    """A job of the morgue in a line, without its payloads."""
    try:
        since = datetime.datetime.fromtimestamp(job.perform_in, datetime.UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # anybody may have written it
        since = f"{job.perform_in:g}"
    return {"id": job.id, "payloads": job.payload_count, "since": since, "error": job.error or ""}


def of_nodes(found: Nodes) -> Table:
    """A row a node."""
    names = ["number", "pid", "up", "beat", "busy", "tasks", "loop lag", "shards", "waits for", "processed", "failed"]
    names += ["RSS", "CPU", "Redis"]
    table = Table("node", "state", *(Column(name, justify="right") for name in names), title="Nodes")
    now = clock.real()
    for node in found.nodes:
        busy = sum(thread.queue is not None for thread in node.threads)
        table.add_row(
            escape(printable(node.host, None)),
            "late" if node.is_late else escape(printable(node.state, None)),
            f"{node.node_number} of {node.number_of_nodes}",
            str(node.pid),
            str(datetime.timedelta(seconds=int(now - node.started_at))),
            f"{node.beat_age:.0f} s",
            f"{busy} of {len(node.threads)}" if node.threads else "",
            f"{node.tasks:,}" if node.tasks is not None else "",
            f"{node.loop_lag:.1f} s" if node.tasks is not None else "",
            str(sum(map(len, node.owned.values()))),
            str(sum(len(shards) for queues in node.waited_for.values() for shards in queues.values())),
            f"{node.processed:,}",
            f"{node.failed:,}",
            f"{node.rss / 2**20:,.0f} MiB",
            f"{node.cpu_percent:.0f} %",
            f"{node.redis_round_trip * 1000:.1f} ms" if node.redis_round_trip is not None else "",
        )
    return table


def of_running(found: Nodes) -> Table | None:
    """A row a batch that runs, the longest first; None if none does."""
    batches = sorted((batch for node in found.nodes for batch in node.batches), key=lambda batch: -batch.seconds)
    unnamed = sum(max((node.tasks or 0) - len(node.longest_tasks), 0) for node in found.nodes)
    left = len(batches[MOST_RUNNING:]) + unnamed
    table = Table(
        "node", "where", "queue", Column("shard", justify="right"), "job", Column("for", justify="right"), "progress",
        "asked to stop", title="Running", caption=f"and {left:,} more" if left else None,
    )  # fmt: skip
    for running in batches[:MOST_RUNNING]:
        thread = running.thread
        progress = "" if thread.progress is None else f"{thread.progress:.0%} {printable(thread.note, 60)}".rstrip()
        texts = running.place, printable(thread.queue or "", 60), str(thread.shard), running.jobs
        table.add_row(
            str(running.node.node_number),
            *map(escape, texts),
            seconds(running.seconds),
            escape(progress),
            f"{age(thread.to_stop_seconds)} ago" if thread.to_stop_seconds is not None else "",
        )
    return table if batches else None
