"""
How evenly nodes that nobody numbers share shards, and how many move as nodes come and go, without any process:
`python -m benchmarks.ownership`.

First nodes that all know the same. Then nodes of which each knows the others as they were up to three beats ago: every
beat each deals by what it knows, and a shard moves once the node that has it and another agree on who is to have it.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lowkiq.node.ownership.deal import deal

SHARDS = (10, 100, 1_000, 65_536)
NODES = (1, 4, 16, 100, 1_000)
THREADS = 5
#: Beats by which what a node knows of another may be old; beats that are looked at; and how often.
OLDEST, BEATS, RUNS = 3, 12, 20

Holders = list[str | None]


def main() -> int:
    """Measures, prints, and exits 1 if more moves than 1.5 times the least, or two nodes differ by over one shard."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    cases = [(shards, nodes) for shards in SHARDS for nodes in NODES if nodes <= shards]
    rows = [_agreeing(*case) for case in track(cases, "dealing", transient=True)]
    title = f"Nodes that know the same, on {os.cpu_count()} cores, Python {platform.python_version()}"
    joins, leaves = ("one joins: moves", "least"), ("one leaves: moves", "least")
    table = Table("shards", "nodes", *joins, *leaves, "most less fewest", "a deal", title=title)
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else value for value in row))
    console.print(table)
    differing = [_differing(shards, nodes) for shards, nodes in ((48, 4), (100, 10), (240, 24))]
    title = f"A third more join and a node leaves while views differ by up to {OLDEST} beats, {RUNS} times"
    beats = ("beats until even, median", "highest")
    table = Table("shards", "nodes", "moves, median", "highest", "least", *beats, title=title)
    for different in differing:
        table.add_row(*(f"{value:,}" for value in different))
    console.print(table)
    is_much = any(row[2] > 1.5 * row[3] or row[4] > 1.5 * row[5] or row[6] > 1 for row in rows)
    return int(is_much or any(row[3] > 1.5 * row[4] for row in differing))


def _agreeing(shards: int, count: int) -> tuple[int, int, int, int, int, int, int, str]:
    nodes = [f"node-{number}" for number in range(count)]
    before = _deal(shards, nodes, [None] * shards)
    started = time.perf_counter()
    joined = _deal(shards, [*nodes, "new"], before)
    seconds = time.perf_counter() - started
    left = _deal(shards, nodes[1:], before) if count > 1 else before
    sizes = [Counter(joined)[node] for node in (*nodes, "new")]
    share, had = shards // (count + 1), Counter(before)[nodes[0]] if count > 1 else 0
    return (shards, count, _moves(before, joined), max(share, Counter(joined)["new"]), _moves(before, left), had,
            max(sizes) - min(sizes), f"{seconds * 1e3:.1f} ms")  # fmt: skip


def _differing(shards: int, count: int) -> tuple[int, int, int, int, int, int, int]:
    luck, moves, beats = random.Random(7), list[int](), list[int]()
    least = 0
    for _ in range(RUNS):
        nodes = [f"node-{luck.random()}" for _ in range(count)]
        holders = _deal(shards, nodes, [None] * shards)
        living = [*nodes[1:], *(f"node-{luck.random()}" for _ in range(count // 3))]
        goal = _deal(shards, living, holders)
        least = max(least, _moves(holders, goal))
        moved, needed = _run(shards, nodes, living, holders, luck)
        moves.append(moved)
        beats.append(needed)
    return (
        shards,
        count,
        round(statistics.median(moves)),
        max(moves),
        least,
        round(statistics.median(beats)),
        max(beats),
    )


def _run(
    shards: int, before: Sequence[str], living: Sequence[str], holders: Holders, luck: random.Random
) -> tuple[int, int]:
    """Moves, and beats until all is even. What was its leaver's is nobody's from the first beat on."""
    past = [(list(before), holders)] * OLDEST
    holders = [holder if holder in living else None for holder in holders]
    moved = sum(holder is None for holder in holders)
    needed = 0
    for beat in range(BEATS):
        past.append((list(living), holders))
        dealt = {node: _deal(shards, *_view(node, past, holders, luck)) for node in living}
        now = list(holders)
        for shard, holder in enumerate(holders):
            wanting = [node for node in living if dealt[node][shard] == node and node != holder]
            if wanting and (holder is None or dealt[holder][shard] != holder):
                now[shard] = luck.choice(wanting)
                moved += holder is not None
        if now != holders:
            needed = beat + 1
        holders = now
    assert None not in holders
    sizes = [Counter(holders)[node] for node in living]
    assert max(sizes) - min(sizes) <= 1, sizes
    return moved, needed


def _view(
    node: str, past: Sequence[tuple[list[str], Holders]], holders: Holders, luck: random.Random
) -> tuple[list[str], Holders]:
    """Who is there, and who has what, as one node knows it: its own part exactly."""
    members, known = past[-luck.randint(1, OLDEST)]
    seen: Holders = [None if holder == node else holder for holder in known]
    return sorted({*members, node}), [node if now == node else then for now, then in zip(holders, seen, strict=True)]


def _deal(shards: int, nodes: Sequence[str], holders: Holders) -> Holders:
    return deal("queue", shards, dict.fromkeys(nodes, THREADS), holders)


def _moves(before: Holders, after: Holders) -> int:
    return sum(was != now for was, now in zip(before, after, strict=True))


if __name__ == "__main__":
    sys.exit(main())
