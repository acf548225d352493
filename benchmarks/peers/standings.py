"""Figures of each contender; and all of them as tables, plots and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from benchmarks import plots
from benchmarks.contender import Contender
from benchmarks.rows import Row, console, ratios, show

#: A column: its head, the figure, how it is written.
Column = tuple[str, str, str]
THROUGHPUT: tuple[Column, ...] = (
    ("blank 1×5", "1×5", "{:,.0f}"),
    ("2×5", "2×5", "{:,.0f}"),
    ("4×5", "4×5", "{:,.0f}"),
    ("batch 100", "batch 100", "{:,.0f}"),
    ("hot ids", "hot", "{:,.0f}"),
    ("merged", "merged", "{:.1f}"),
    ("bulk push", "bulk", "{:,.0f}"),
    ("single push", "single", "{:,.0f}"),
    ("5 ms I/O", "io", "{:.0%}"),
    ("1 ms CPU ×2", "cpu", "{:.0%}"),
)
COSTS: tuple[Column, ...] = (
    ("idle p50", "idle p50", "{:.2f} ms"),
    ("p99", "idle p99", "{:.2f} ms"),
    ("half load p50", "half p50", "{:.1f} ms"),
    ("p99", "half p99", "{:.1f} ms"),
    ("mixed p50", "mixed p50", "{:.2f} ms"),
    ("p99", "mixed p99", "{:.2f} ms"),
    ("max", "mixed most", "{:.0f} ms"),
    ("Redis CPU", "redis", "{:.1f} µs"),
    ("commands", "commands", "{:.2f}"),
    ("alone: CPU", "lone redis", "{:.0f} µs"),
    ("commands", "lone commands", "{:.1f}"),
    ("queued", "bytes", "{:,.0f} B"),
    ("RSS", "rss", "{:,.0f} MB"),
)
#: Peers in Ruby or Node; all others are Python's.
NOT_PYTHON = ("Sidekiq", "BullMQ", "Lowkiq (Ruby)")
OURS, SIDEKIQ, ORIGINAL = "Lowkiq", "Sidekiq", "Lowkiq (Ruby)"
NOTE = (
    "jobs/s by processes × threads; whole batches in % of threads × 200/s and of both cores; mixed: 300/s of 1 ms, 1 % "
    "of them of 200 ms; Redis a job, pushed and done in bulk, and alone at 500/s"
)
#: A floor that has ours in it: measured in one process, since two find themselves on luckier and unluckier cores.
SINGLE_BY_BARE = "single enqueues by a bare LPUSH"

#: 120,000 a second are promised for a machine on which Sidekiq's bulk enqueue did 111,000.
BULK_BY_SIDEKIQ = 1.08


@dataclass
class Standing:
    """Figures of a contender so far: by name, one a round."""

    contender: Contender
    version: str = ""
    #: Why it could not run at all.
    missing: str = ""
    figures: dict[str, list[float]] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.contender.name

    def median(self, figure: str) -> float | None:
        """None where it has not been measured."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else None


def print_all(machine: str, standings: Sequence[Standing], floor: dict[str, list[float]]) -> int:
    """Prints everything; 1 when a promise is broken."""
    out = console()
    out.print(_table(f"Throughput on {machine}", THROUGHPUT, standings))
    out.print(_table("Latency and cost", COSTS, standings))
    out.print(NOTE, style="dim")
    for standing in standings:
        trouble = f"; {len(standing.troubles)} failed: {standing.troubles[-1]}" if standing.troubles else ""
        said = f"could not run: {standing.missing}" if standing.missing else f"{standing.contender.tuning}{trouble}"
        out.print(f"{standing.name} {standing.version}: {said}", highlight=False, soft_wrap=True)
    return show("Lowkiq by the others", promises(standings, floor))


def promises(standings: Sequence[Standing], floor: dict[str, list[float]]) -> list[Row]:
    """Rows of what Lowkiq promises beside the others, as far as they could run."""
    by_name = {standing.name: standing for standing in standings if "1×5" in standing.figures}
    ours = by_name.get(OURS)
    rows = [Row(f"the bare client: {name}", values) for name, values in floor.items() if name != SINGLE_BY_BARE]
    if ours is None:
        return rows
    blank = ours.figures["1×5"]
    python = [each for each in by_name.values() if each.name not in (*NOT_PYTHON, OURS)]
    sidekiq = by_name.get(SIDEKIQ)
    best = max(python, key=lambda each: each.median("1×5") or 0, default=None)
    for other, figure, what, form, least in (
        (best, "1×5", "blank jobs", "{:.1f}×", 40),
        (sidekiq, "1×5", "blank jobs", "{:.1f}×", 8),
        (by_name.get(ORIGINAL), "1×5", "blank jobs", "{:.1f}×", 40),
        (sidekiq, "bulk", "bulk enqueues", "{:.2f}×", BULK_BY_SIDEKIQ),
    ):
        values, theirs = ours.figures.get(figure, []), other.figures.get(figure, []) if other else []
        if other and theirs and len(theirs) == len(values):
            rows.append(Row(f"{what} by {other.name}'s", ratios(values, theirs), form, least=least))
    pipelined = floor["pipelined, three writes"]
    rows.append(Row("blank jobs by redis-py's pipelined EVALSHA", ratios(blank, pipelined), "{:.2f}×", least=1.6))
    return [*rows, Row(SINGLE_BY_BARE, floor[SINGLE_BY_BARE], "{:.2f}×", least=0.8)]


def as_json(machine: str, standings: Sequence[Standing], floor: dict[str, list[float]]) -> dict[str, object]:
    """Everything, for machines."""
    return {
        "machine": machine,
        "floors": floor,
        "contenders": [
            {
                "name": standing.name,
                "version": standing.version,
                "tuning": standing.contender.tuning,
                "missing": standing.missing,
                "troubles": standing.troubles,
                "rounds": standing.figures,
            }
            for standing in standings
        ],
    }


def draw(directory: Path, machine: str, standings: Sequence[Standing]) -> None:
    """The plots for docs/performance.md."""
    present = [standing for standing in standings if "1×5" in standing.figures]
    if not present:
        return

    def rows(*figures: str, descending: bool = False) -> list[plots.Bar]:
        shown = [each for each in present if each.median(figures[0])]
        shown.sort(key=lambda each: each.median(figures[0]) or 0, reverse=descending)
        return [(each.name, [each.median(figure) for figure in figures]) for each in shown]

    note = f"{machine}; medians; log scale"

    def plot(name: str, title: str, bars: list[plots.Bar], form: str = "{:,.0f}", *series: str) -> None:
        if bars:
            plots.bars(directory / f"bench-{name}.png", title, note, bars, form=form, series=series or ("",))

    blank = rows("1×5", descending=True)
    plot("throughput", "Blank jobs a second: one process, five threads (more is better)", blank)
    plot("enqueue", "Bulk enqueue, jobs a second (more is better)", rows("bulk", descending=True))
    latency = rows("idle p50", "idle p99")
    plot("latency", "Enqueue to start on an idle worker (less is better)", latency, "{:.2f} ms", "p50", "p99")
    plot("memory", "Redis memory a queued job (less is better)", rows("bytes"), "{:,.0f} B")
    plot("redis-cpu", "Redis CPU a job, enqueueing included (less is better)", rows("redis"), "{:.1f} µs")


def _table(title: str, columns: Sequence[Column], standings: Sequence[Standing]) -> Table:
    table = Table("", title=title)
    for head, _, _ in columns:
        table.add_column(head, justify="right")
    for standing in standings:
        medians = [(standing.median(figure), form) for _, figure, form in columns]
        cells = ["" if value is None else form.format(value) for value, form in medians]
        if standing.missing:
            cells = ["could not run", *[""] * (len(columns) - 1)]
        table.add_row(standing.name, *cells, style="bold green" if standing.name == OURS else "")
    return table
