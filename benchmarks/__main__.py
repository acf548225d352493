"""Prints what Lowkiq does on this machine; exits 1 when it misses what it promises."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from rich.progress import Progress

from benchmarks import floors, sharded
from benchmarks.awaited import IN_FLIGHT, JOBS, awaited
from benchmarks.contender import Contender, lowkiq, server
from benchmarks.measures import MEASURES, Pace, probe
from benchmarks.measures import Figures as Found
from benchmarks.rows import Row, ratios, show

#: Rounds, each with every measurement once: they share the machine's moods, so ratios hold.
ROUNDS = 3
#: Seconds that a measurement aims at: what has more jobs in it is not more precise here.
SECONDS = 1.0

#: A measurement's name → its figures, one a round.
Figures = dict[str, list[float]]


def main(arguments: list[str] | None = None) -> int:
    """Runs the measurements in turn, and prints medians."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a measurement aims at")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    figures = measure(lowkiq(), given.rounds, given.seconds)
    return show("Lowkiq", rows(figures), as_json=given.json)


def measure(contender: Contender, rounds: int, seconds: float) -> Figures:
    """All figures, round after round."""
    pace = Pace(seconds)
    steps: list[Callable[[], Found]] = [
        partial(_floors, seconds),
        *(partial(take, contender, pace) for name, take in MEASURES.items() if name != "four processes"),
        *(partial(take, contender, pace) for take in (*sharded.MEASURES, awaited)),
    ]
    figures: Figures = {}
    with Progress(transient=True) as progress:
        task = progress.add_task("measuring", total=rounds * len(steps))
        probe(contender, pace)
        for _ in range(rounds):
            for step in steps:
                for name, value in step().items():
                    figures.setdefault(name, []).append(value or 0)
                progress.advance(task)
    return figures


def rows(figures: Figures) -> list[Row]:
    """The table: figures, and what is promised of them."""
    row, ratio = partial(_row, figures), partial(_ratio, figures)
    return [
        row("blank jobs/s: 5 threads, one node, batch_size 1, JSON", "1×5"),
        row("EVALSHA/s of the client alone, 100 deep, one write", "one write"),
        ratio("blank jobs by that", "1×5", "one write", 1.0),
        row("EVALSHA/s of the client alone, 100 deep, three writes", "three writes"),
        ratio("blank jobs by that", "1×5", "three writes", 1.6),
        row("EVALSHA/s of the client alone, a round trip each, three writes", "round trips"),
        row("blank jobs/s, two nodes", "2×5"),
        ratio("by one node", "2×5", "1×5", 1.2),
        row("blank jobs/s, batch_size 100", "batch 100"),
        row("hot ids: payloads/s where 1 % of the ids get 90 % of the pushes", "hot"),
        row("  payloads a perform", "merged", "{:.1f}"),
        row("bulk pushes/s", "bulk", least=120_000),
        row("single pushes/s", "single"),
        row("  one by a bare LPUSH of the client", "single by bare", "{:.2f}", least=0.8),
        row(f"awaited single pushes/s, {IN_FLIGHT} in flight", "awaited", least=50_000),
        row(f"longest pause of the loop: a list of {JOBS:,} jobs", "pause of list", "{:.1f} ms", most=5),
        row(f"  {JOBS:,} single pushes, gathered at once", "pause of singles", "{:.0f} ms"),
        row("  as many tasks that sleep, gathered at once", "pause of nothing", "{:.0f} ms"),
        row("push to start, idle node, p50", "idle p50", "{:.2f} ms", most=0.6),
        ratio("by the client's LPUSH to a blocked BLPOP", "idle p50", "rung", most=1.1),
        row("push to start, idle node, p99", "idle p99", "{:.2f} ms", most=1.5),
        row("pushes/s at half load", "half rate"),
        row("push to start, half load, p50", "half p50", "{:.1f} ms"),
        row("push to start, half load, p99", "half p99", "{:.1f} ms", most=60),
        row("a whole batch of jobs that wait 5 ms, of threads × 200/s", "io", "{:.1%}", least=0.97),
        row("jobs/s that wait 5 ms: async, concurrency 200, one shard", "tasks", least=10_000),
        row("a whole batch of jobs that burn 1 ms, two nodes, of both cores", "cpu", "{:.1%}", least=0.90),
        row("push to start, 300 jobs/s of 1 ms, 1 % of them of 200: p50", "mixed p50", "{:.2f} ms"),
        row("  p99", "mixed p99", "{:.2f} ms", most=5),
        row("  at most", "mixed most", "{:.1f} ms"),
        row("push to start beside an id that takes 10 s, in one shard: p50", "beside p50", "{:.2f} ms"),
        row("  p99", "beside p99", "{:.2f} ms", most=5),
        row("a job alone, at 500/s: Redis CPU", "lone redis", "{:.0f} µs", most=100),
        row("  commands, those inside scripts included", "lone commands", "{:.1f}"),
        *(row(f"bulk pushes/s to {shards:,} shards", f"bulk to {shards}") for shards in sharded.PUSHED_TO[:-1]),
        row(f"bulk pushes/s to {sharded.PUSHED_TO[-1]:,} shards", f"bulk to {sharded.PUSHED_TO[-1]}", least=100_000),
        row(f"an idle node of {sharded.IDLE_SHARDS:,} shards: Redis, of a core", "idle redis", "{:.1%}", most=0.01),
        row("  the node itself", "idle node", "{:.1%}"),
        row("  commands/s, those inside scripts included", "idle commands"),
        row("Redis memory a queued job of 10 + 10 bytes", "bytes", "{:.0f} B", most=190),
        row("Redis CPU a job, pushed and done", "redis", "{:.1f} µs"),
        row("Redis commands a job, those inside scripts included", "commands", "{:.2f}"),
        row("memory of a node", "rss", "{:.0f} MB"),
    ]


def _row(figures: Figures, label: str, name: str, form: str = "{:,.0f}", **promise: float) -> Row:
    return Row(label, figures[name], form, **promise)


def _ratio(
    figures: Figures, label: str, name: str, by: str, least: float | None = None, most: float | None = None
) -> Row:
    return Row(f"  {label}", ratios(figures[name], figures[by]), "{:.2f}", least, most)


def _floors(seconds: float) -> Found:
    figures: Found = {}
    for script in floors.SCRIPTS:
        with server() as url:
            figures[script] = floors.pipelined(url, script)
    with server() as url:
        return figures | {
            "round trips": floors.round_trips(url, seconds=seconds / 2),
            "single by bare": floors.single_by_bare(url, seconds / 2),
            "rung": floors.rung(url),
        }


if __name__ == "__main__":
    sys.exit(main())
