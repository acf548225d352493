"""Cost of a job as shards, queues, payloads and nodes grow; exits 1 where a cost grows that should be flat."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.progress import Progress
from rich.table import Table

from benchmarks import plots
from benchmarks.contender import Contender, lowkiq
from benchmarks.rows import Row, console, shape, show
from benchmarks.scale import steps

#: More than beside the peers: highest by lowest makes the most of what the machine did meanwhile.
ROUNDS = 5
#: Cost at any size, by the least: what counts as flat.
FLAT = 1.5
#: Commands a second that an idle node with the most shards makes Redis run, those in scripts included.
MAX_IDLE = 10_000.0
#: Bytes of memory that a queued job needs here, its producer included: what doesn't fit is left out.
JOB_MEMORY = 600

SHARDS = (10, 100, 1_000, 10_000)
QUEUED = (10**4, 10**5, 10**6, 10**7)
PAYLOADS = (10**4, 10**5, 10**6)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
NODES = (1, 2, 4, 8)
#: The one scale with which the cost of a job has to grow.
SIZE = "bytes a payload"


class Scale(NamedTuple):
    """Something that grows."""

    name: str
    sizes: Sequence[int]
    cost: Callable[[Contender, int], float]
    #: The cost a job should not grow with it.
    flat: bool = False
    #: Measured once where it takes minutes.
    slow_from: int = sys.maxsize


def scales(most: int) -> list[Scale]:
    """All of them; nothing greater than `most`, if not memory allows less."""
    fit = min(most, int(psutil.virtual_memory().available / JOB_MEMORY))
    jobs = min(steps.TIMED, most)

    def upto(sizes: Sequence[int], limit: int = most) -> Sequence[int]:
        return [size for size in sizes if size <= limit] or sizes[:1]

    return [
        Scale("shards of a node", upto(SHARDS), partial(steps.by_shards, jobs=jobs), flat=True),
        Scale("queued jobs", upto(QUEUED, fit), steps.by_length, flat=True, slow_from=10**7),
        Scale("payloads of one id", upto(PAYLOADS), steps.by_payloads_of_an_id),
        Scale(SIZE, upto(SIZES), steps.by_size),
        Scale("nodes", upto(NODES), partial(steps.by_nodes, jobs=jobs)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, draws; 1 when a promise is broken."""
    parser = argparse.ArgumentParser("python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--most", type=int, default=10**7, help="leave out sizes above it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--images", type=Path, default=plots.IMAGES, help="directory for the plot")
    given = parser.parse_args(arguments)
    machine, all_scales = shape(), scales(given.most)
    costs, idle = measure(lowkiq(), all_scales, given.rounds)
    _draw(given.images, machine, all_scales, costs)
    if not given.json:
        _print(all_scales, costs)
    return show("Scale", _rows(all_scales, costs, idle), as_json=given.json)


Costs = dict[tuple[str, int], list[float]]
#: Shards → commands a second that an idle node sends, and that run.
Idle = dict[int, tuple[float, float]]


def measure(contender: Contender, all_scales: Sequence[Scale], rounds: int) -> tuple[Costs, Idle]:
    """Every size of everything, round after round; idle nodes once."""
    costs: Costs = {}
    shards = all_scales[0].sizes
    with Progress(transient=True) as progress:
        task = progress.add_task("", total=rounds * sum(len(scale.sizes) for scale in all_scales) + len(shards))
        for number in range(rounds):
            for scale in all_scales:
                for size in scale.sizes:
                    progress.update(task, description=f"{scale.name}: {size:,}")
                    if not number or size < scale.slow_from:
                        costs.setdefault((scale.name, size), []).append(scale.cost(contender, size))
                    progress.advance(task)
        idle = {}
        for size in shards:
            progress.update(task, description=f"idle node: {size:,} shards")
            idle[size] = steps.idle_commands(contender, size)
            progress.advance(task)
    return costs, idle


def _rows(all_scales: Sequence[Scale], costs: Costs, idle: Idle) -> list[Row]:
    rows = []
    for scale in all_scales:
        medians = [statistics.median(costs[scale.name, size]) for size in scale.sizes]
        growth = max(medians) / min(medians)
        label = f"cost a job, {scale.sizes[0]:,} to {scale.sizes[-1]:,} {scale.name}: highest by lowest"
        rows.append(Row(label, [growth], "{:.2f}×", most=FLAT if scale.flat else None))
    for shards, (sent, executed) in idle.items():
        promise = MAX_IDLE if shards == max(idle) else None
        rows.append(Row(f"idle node of {shards:,} shards: commands sent a second", [sent], "{:,.0f}"))
        rows.append(Row("  run, those in scripts included", [executed], "{:,.0f}", most=promise))
    return rows


def _print(all_scales: Sequence[Scale], costs: Costs) -> None:
    for scale in all_scales:
        table = Table(scale.name, *(f"{size:,}" for size in scale.sizes))
        cells = (f"{statistics.median(costs[scale.name, size]):,.1f}" for size in scale.sizes)
        table.add_row("µs a job", *cells)
        console().print(table)


def _draw(images: Path, machine: str, all_scales: Sequence[Scale], costs: Costs) -> None:
    panels = []
    for scale in all_scales:
        labels = [f"{size:,}" if size < 10_000 else f"{size:.0e}".replace("e+0", "e") for size in scale.sizes]
        medians = [statistics.median(costs[scale.name, size]) for size in scale.sizes]
        if scale.name == SIZE:
            rates = [size / cost for size, cost in zip(scale.sizes, medians, strict=True)]
            panels.append((f"MB a second by {scale.name}", labels, rates))
        else:
            panels.append((f"µs a job by {scale.name}", labels, medians))
    plots.lines(images / "bench-scale.png", "What a job costs as things grow", f"{machine}; medians", panels)


if __name__ == "__main__":
    sys.exit(main())
