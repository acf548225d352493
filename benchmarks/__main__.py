"""Prints what Lowkiq does on this machine; exits 1 when it misses what it promises."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import measures, server
from lowkiq import Lowkiq

T = TypeVar("T")

#: Rounds, each with every measurement once: they share the machine's moods, so ratios hold.
ROUNDS = 3

#: What is promised: blank jobs as fast as bare calls, milliseconds to start an idle node's job, bytes a queued job.
MIN_RATIO, MAX_LATENCY, MAX_BYTES = 1.0, 1.5, 220


def main() -> int:
    """Runs the measurements in turn and prints medians."""
    floors: dict[str, list[float]] = {script: [] for script in measures.FLOOR_SCRIPTS}
    blanks, pushes, latencies, sizes = [], [], [], []
    with Progress(transient=True) as progress:
        task = progress.add_task("measuring", total=ROUNDS * (len(floors) + 3))

        def measured(measure: Callable[[str], T]) -> T:
            with server.server() as url:
                result = measure(url)
            progress.advance(task)
            return result

        for _ in range(ROUNDS):
            for script, rates in floors.items():
                rates.append(measured(partial(measures.floor_rate, script=script)))
            push, blank = measured(lambda url: (measures.push_rate(url), measures.blank_rate(url)))
            pushes.append(push)
            blanks.append(blank)
            latencies.append(measured(measures.idle_latency))
            sizes.append(measured(measures.queued_bytes))

    ratios = {
        script: statistics.median(blank / rate for blank, rate in zip(blanks, rates, strict=True))
        for script, rates in floors.items()
    }
    p50 = statistics.median(latency.p50 for latency in latencies)
    size = statistics.median(sizes)
    table = Table("what", "median", "promised", title=f"Lowkiq on {_shape()}")
    table.add_row("blank jobs/s: 5 threads, one node, batch_size 1, JSON", f"{statistics.median(blanks):,.0f}", "")
    for script, rates in floors.items():
        table.add_row(f"EVALSHA/s of the client alone, 100 deep, {script}", f"{statistics.median(rates):,.0f}", "")
        table.add_row("  blank jobs by that", f"{ratios[script]:.2f}", f"≥ {MIN_RATIO}")
    table.add_row("bulk pushes/s", f"{statistics.median(pushes):,.0f}", "")
    table.add_row("push to start, idle node, p50", f"{p50:.2f} ms", f"≤ {MAX_LATENCY} ms")
    table.add_row("push to start, idle node, p99", f"{statistics.median(row.p99 for row in latencies):.2f} ms", "")
    table.add_row("Redis memory a queued job", f"{size:.0f} B", f"≤ {MAX_BYTES} B")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0 if min(ratios.values()) >= MIN_RATIO and p50 <= MAX_LATENCY and size <= MAX_BYTES else 1


def _shape() -> str:
    with server.server() as url:
        version = Lowkiq(redis_url=url).redis().info("server")["redis_version"]
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, Redis {version}"


if __name__ == "__main__":
    sys.exit(main())
