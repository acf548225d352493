"""
The command line of the pairs. Exit codes: 0 nothing was found but known faults, 1 something was, 2 usage, 130 and 143
ended by INT and TERM: what was found until then is told.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests import mutants
from tests.pairs import suite
from tests.pairs.capabilities import ALL
from tests.pairs.history import Pair


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    pairs = suite.pairs_of(options.pair)
    told = Console(stderr=True)
    told.print(f"{len(pairs)} pairs of {len(ALL)} capabilities: {', '.join(ALL)}", markup=False)
    if options.seed is not None:
        return _replay(pairs, options, told)
    seconds = options.minutes * 60 if options.minutes else float("inf")
    began, total = time.monotonic(), seconds if options.minutes else options.histories * len(pairs)
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=told) as progress:
        task = progress.add_task("", total=total)

        def watch(histories: int, found: int) -> None:
            done = time.monotonic() - began if options.minutes else histories
            progress.update(task, completed=done, description=f"{histories:,} histories, {found:,} found something")

        results: suite.Results = {}
        ended = 0
        try:
            suite.run(
                pairs, seconds=seconds, histories=options.histories, first=options.first, mutant=options.mutant,
                watch=watch, results=results,
            )  # fmt: skip
        except KeyboardInterrupt:
            ended = 130
        except SystemExit:
            ended = 143
    return _report(results, time.monotonic() - began, options, told) or ended


def _replay(pairs: list[Pair], options: argparse.Namespace, told: Console) -> int:
    """One history of each, and all that was done in it."""
    results = suite.run(pairs, histories=1, first=options.seed, mutant=options.mutant)
    return _report(results, 0.0, options, told)


def _report(results: suite.Results, seconds: float, options: argparse.Namespace, told: Console) -> int:
    failures = [failure for played in results.values() for failure in played.failures]
    if options.json:
        rows = [
            {
                "pair": pair,
                "histories": one.histories,
                "found": [str(each) for each in one.failures],
                "known": one.known,
            }
            for pair, one in results.items()
        ]
        print(json.dumps({"seconds": round(seconds, 1), "pairs": rows}))
    else:
        Console().print(table(results))
        print(line(results, seconds))
    for failure in failures[: suite.TOLD * 20]:
        told.print(str(failure), style="red", markup=False, highlight=False)
    return 1 if failures else 0


def table(results: suite.Results) -> Table:
    """By capability: with how many others it was played, in how many histories, and what that has found."""
    table = Table("capability", "pairs", "histories, fewest", "all", "found", "known faults met")
    for name in ALL:
        own = [played for pair, played in results.items() if name in pair]
        if own:
            counts = [played.histories for played in own]
            found, known = (
                sum(len(played.failures) for played in own),
                sum(sum(played.known.values()) for played in own),
            )
            table.add_row(name, str(len(own)), f"{min(counts):,}", f"{sum(counts):,}", f"{found:,}", f"{known:,}")
    return table


def line(results: suite.Results, seconds: float) -> str:
    """All of it in a line."""
    histories = sum(played.histories for played in results.values())
    kinds = Counter(failure.error.split(" ")[0] for played in results.values() for failure in played.failures)
    found = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "nothing"
    rate = f", {histories / seconds:,.0f} a second" if seconds else ""
    fewest = min((played.histories for played in results.values()), default=0)
    known = sum(sum(played.known.values()) for played in results.values())
    head = f"{len(results)} pairs, {histories:,} histories (at least {fewest:,} each){rate}"
    return f"{head}; found: {found}; known faults met: {known:,}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pairs", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0, help="how long")
    parser.add_argument("--histories", type=int, default=0, help="or how many histories of each pair (5)")
    parser.add_argument("--pair", type=_names, default=[], help="a pair, such as rate,death; or all pairs of one: rate")
    parser.add_argument("--seed", type=int, help="the history of that seed alone")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with (0)")
    parser.add_argument(
        "--mutant",
        metavar="NAME",
        choices=sorted(mutants.MUTANTS | mutants.OF_PLACES),
        default="",
        help="Lowkiq without one of its safeguards",
    )
    parser.add_argument("--json", action="store_true", help="figures for machines")
    options = parser.parse_args()
    if not options.minutes and not options.histories:
        options.histories = 5
    return options


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in ALL:
            raise argparse.ArgumentTypeError(f"no capability {name!r}: there are {', '.join(ALL)}")
    if len(names) > 2:
        raise argparse.ArgumentTypeError(f"{text}: a pair, or one capability")
    return names


if __name__ == "__main__":
    sys.exit(main())
