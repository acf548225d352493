"""Tables that the command line shows people."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from lowkiq import clock
from lowkiq.admin.alerts.acknowledging import by_whom
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.beats.nodes import Nodes
from lowkiq.admin.jobs.failures import Groups
from lowkiq.admin.jobs.finder import FoundJob
from lowkiq.admin.metrics import QueueMetrics, total
from lowkiq.admin.past.history import Point
from lowkiq.admin.past.statistics import Statistics
from lowkiq.admin.why.reasons import Reason
from lowkiq.admin.words import age, date_of, printable, seconds, short_seconds
from lowkiq.codec import encodable
from lowkiq.failure import main_line
from lowkiq.job import Job
from lowkiq.queue.call import Caller, redis_time
from lowkiq.queue.rates import Waiting

#: Characters up to which a value is not broken over lines, and those between two columns.
MOST_WHOLE, PADDING = 24, 3
#: Batches that `nodes` lists, those that have run for longest.
MOST_RUNNING: Final = 20


def show(table: Table, *lines: str) -> None:
    """Prints it, and lines below it. Without a terminal it is plain columns, a line a row, for grep and awk."""
    if sys.stdout.isatty():
        console = Console()
        console.print(fitted(table, console))
        table_lines: list[str] = []
    else:
        table_lines = [str(table.title), *plain(table)] if table.title else plain(table)
        table_lines += [str(table.caption)] if table.caption else []
    for line in (*table_lines, *lines):
        typer.echo(line)


def plain(table: Table) -> list[str]:
    """The header, if it has one, and the rows, with two spaces or more between columns."""
    first = 0 if table.show_header else 1
    texts = [[" ".join(text.split()) for text in _texts(column)[first:]] for column in table.columns]
    widths = [max(map(len, some), default=0) for some in texts]
    sides = [str.rjust if column.justify == "right" else str.ljust for column in table.columns]
    return ["  ".join(side(text, width) for side, text, width in zip(sides, row, widths, strict=True)).rstrip()
            for row in zip(*texts, strict=True)]  # fmt: skip


def fitted(table: Table, console: Console) -> Table:
    """The table, or where that is too wide, a row for each of its values: nothing is cut, and no short text broken."""
    for column in table.columns:
        column.overflow = "fold"
    measured = [Measurement.get(console, console.options, Text("\n".join(_texts(column)))) for column in table.columns]
    needed = sum(max(least, min(most, MOST_WHOLE)) + PADDING for least, most in measured) + 1
    if needed <= console.width:
        return table
    sides = Column(no_wrap=True), Column(overflow="fold")
    turned = Table(*sides, title=table.title, caption=table.caption, show_header=False, show_lines=False)
    for number in range(table.row_count):
        for column in table.columns:
            turned.add_row(column.header, list(column.cells)[number], end_section=column is table.columns[-1])
    return turned


def _texts(column: Column) -> list[str]:
    """What is in a column, as it is shown."""
    return [Text.from_markup(str(cell)).plain for cell in (column.header, *column.cells)]


def of_alerts(alerts: Sequence[Alert], caller: Caller) -> Iterator[str]:
    """A line an alert, with how bad it is and since when it lasts, and one of what to do."""
    now = redis_time(caller) if alerts else 0.0
    for alert in alerts:
        lasts = f" (for {age(now - alert.since)})" if alert.since is not None else ""
        seen = f" (seen{by_whom(alert)})" if alert.acknowledged else ""
        yield f"[{alert.severity}] {alert.kind}{lasts}: {alert.text}{seen}"
        if alert.command:
            yield f"  → {alert.command}"


def in_short(metrics: Mapping[str, QueueMetrics], earlier: Mapping[str, Point], now: float) -> Table:
    """A row a queue with what matters most, and one of all together, for 80 columns."""
    names = ("waiting", "running", "retrying", "dead", "lag", "done/s")
    table = Table("queue", *(Column(name, justify="right") for name in names))
    speeds = {queue: _speed(row, earlier.get(queue), now) for queue, row in metrics.items()}
    rows = [(escape(printable(queue, 60)), row, speeds[queue]) for queue, row in metrics.items()]
    for queue, row, speed in [*rows, ("all", total(metrics.values()), sum(speeds.values()))]:
        counts = (row.due, row.busy, row.retries, row.morgue_length)
        table.add_row(queue, *(f"{count:,}" for count in counts), age(row.lag), f"{speed:,.1f}")
    return table


def _speed(row: QueueMetrics, before: Point | None, now: float) -> float:
    """Jobs done a second, since a point of its history."""
    return max(row.processed - before.processed, 0) / max(now - before.at, 1.0) if before else 0.0


def of_queues(metrics: Mapping[str, QueueMetrics]) -> Table:
    """A row a queue, with all its numbers."""
    names = [field.name for field in msgspec.structs.fields(QueueMetrics) if field.name != "blocked_since"]
    if not any(row.superseded for row in metrics.values()):
        names.remove("superseded")
    table = Table("queue", *(Column(name, justify="right") for name in names), title="Queues")
    for queue, row in metrics.items():
        values = {name: getattr(row, name) for name in names}
        table.add_row(queue, *(f"{value:,.1f} s" if key == "lag" else f"{value:,}" for key, value in values.items()))
    return table


def of_waiting(waiting: Mapping[str, Waiting], now: float) -> list[str]:
    """A line for each queue of which jobs wait for their rate."""
    return [
        f"{queue}: {row.jobs:,} {'job waits' if row.jobs == 1 else 'jobs wait'} for the rate, the last one for "
        f"another {age(row.until - now)}"
        for queue, row in waiting.items()
    ]


def of_statistics(queue: str, days: Sequence[Statistics]) -> Table:
    """Two rows a day: how long jobs waited, and ran."""
    names = ("jobs", "mean", "deviation", "p50", "p95", "p99")
    table = Table("day", "", *(Column(name, justify="right") for name in names), title=f"Times of {escape(queue)}")
    for day in days:
        for name, row in (("waited", day.wait), ("ran", day.run)):
            lengths = (row.mean, row.stddev, row.p50, row.p95, row.p99)
            texts = ("" if length is None else short_seconds(length) for length in lengths)
            table.add_row(str(day.day), name, f"{row.count:,}", *texts)
    return table


def of_morgue(queue: str, jobs: Sequence[Job], title: str = "Morgue of") -> Table:
    table = Table("id", "payloads", "since", "error", title=f"{title} {queue}")
    for row in map(summary, jobs):
        id, error = (escape(printable(row[key], None)) for key in ("id", "error"))
        table.add_row(id, str(row["payloads"]), row["since"], error)
    return table


def summary(job: Job) -> dict[str, Any]:
    """A job of the morgue, or a blocked one, in a line, without its payloads."""
    return {
        "id": job.id,
        "payloads": job.payload_count,
        "since": _moment(job.perform_in),
        "error": main_line(job.error),
    }


def _moment(at: float) -> str:
    date = date_of(at)
    return date.isoformat(timespec="seconds") if date else f"{at:g}"


def of_failures(queue: str, view: str, found: Groups) -> Table:
    """A row a group of errors. Counts of a sample say so."""
    jobs = f"jobs in a sample of {found.sampled:,} of {found.total:,}" if found.sampled < found.total else "jobs"
    title = f"{'Morgue' if view == 'morgue' else 'Retries'} of {queue} by error"
    table = Table(
        "error", Column(jobs, justify="right"), Column("failures", justify="right"), "first seen", "last seen",
        "example", title=title,
    )  # fmt: skip
    for group in found.groups:
        total = "" if group.total is None else f"{group.total:,}"
        seen = ("" if at is None else _moment(at) for at in (group.first_seen, group.last_seen))
        error, example = (escape(printable(text, None)) for text in (group.text or "(no error kept)", group.example_id))
        table.add_row(error, f"{group.count:,}", total, *seen, example)
    return table


def of_found(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row a place of a job."""
    names = ("id", "queue", "state", "failed", "payloads", "why")
    table = Table(*names[:3], Column("failed", justify="right"), *names[4:], "error", title="Found")
    for row in rows:
        texts = (escape(printable(str("" if row[name] is None else row[name]), None)) for name in names)
        table.add_row(*texts, escape(printable(main_line(row["error"]), None)))
    return table


def found(one: FoundJob, reason: Reason) -> dict[str, Any]:
    """A place of a job, without its payloads."""
    job = one.job
    id = encodable(job.id)  # JSON has no way to name bytes that are no UTF-8
    return {
        "id": id, "queue": one.queue, "state": reason.state, "at": job.at,
        "failed": None if job.where == "morgue" else job.retry_count + 1,
        "payloads": job.payload_count, "why": reason.says, "code": reason.code, "error": job.error or "",
    }  # fmt: skip


def of_nodes(found: Nodes) -> Table:
    """A row a node."""
    names = ["number", "pid", "up", "beat", "busy", "tasks", "loop lag", "shards", "waits for", "processed", "failed"]
    has_weights = any(node.weights for node in found.nodes)
    names += ["RSS", "CPU", "Redis", *(["weights"] if has_weights else [])]
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
            *([_weights(node.weights)] if has_weights else []),
        )
    return table


def _weights(weights: Mapping[str, int]) -> str:
    """As they are given to --queues."""
    return escape(",".join(f"{printable(queue, 60)}={weight}" for queue, weight in weights.items()))


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
        share = "" if thread.progress is None else f"{100 * thread.progress:.0f} %"
        progress = f"{share} {printable(thread.note, 60)}".strip()
        texts = running.place, printable(thread.queue or "", 60), str(thread.shard), running.jobs
        table.add_row(
            str(running.node.node_number),
            *map(escape, texts),
            seconds(running.seconds),
            escape(progress),
            f"{age(thread.to_stop_seconds)} ago" if thread.to_stop_seconds is not None else "",
        )
    return table if batches else None
