"""The command line of chaos. Exit codes: 0 all held, 1 something did not, 2 usage, 143 ended by TERM."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests import mutants
from tests.chaos import report
from tests.chaos.run import run
from tests.chaos.world.replicated import Cluster, Sentinel, Servers
from tests.chaos.world.servers import Standalone

KINDS: dict[str, Callable[[Path], Servers]] = {"standalone": Standalone, "sentinel": Sentinel, "cluster": Cluster}


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # what runs is ended, as after an INT
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    told = Console(stderr=True)
    seconds = options.minutes * 60
    told.print(f"chaos for {seconds:g} s on {options.on}, seed {options.seed}; history in {directory}")
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=told) as progress:
        task = progress.add_task("", total=seconds)

        def watch(passed: float, faults: Counter[str]) -> None:
            progress.update(task, completed=passed, description=f"{faults.total():,} faults")

        servers = KINDS[options.on](directory)
        outcome = run(directory, servers, seconds=seconds, seed=options.seed, mutant=options.mutant, watch=watch)
    figures = report.figures(outcome.verdict, outcome.faults, outcome.seconds, options.on, options.seed)
    if options.json:
        print(json.dumps(figures))
    else:
        Console().print(report.table(figures))
        Console().print(report.met(figures))
        print(report.line(figures))
    for violation in report.violations(outcome.verdict):
        told.print(violation, style="red", markup=False)
    if outcome.verdict.is_good and not options.keep:
        shutil.rmtree(directory)
    else:
        told.print(f"the history is in {directory}")
    return 0 if outcome.verdict.is_good else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=_minutes, default=2.0, help="how long (2)")
    seed = random.SystemRandom().randrange(1, 1_000_000)  # one that can be typed
    parser.add_argument("--seed", type=int, default=seed, help="the same seed gives the same faults")
    parser.add_argument("--on", choices=sorted(KINDS), default="standalone", help="the kind of Redis (standalone)")
    parser.add_argument(
        "--mutant", choices=sorted(mutants.MUTANTS), metavar="NAME", help="Lowkiq without one of its safeguards"
    )
    parser.add_argument("--json", action="store_true", help="figures for machines")
    parser.add_argument("--keep", action="store_true", help="keep the history of a good run too")
    return parser.parse_args()


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes <= 10_000:
        raise argparse.ArgumentTypeError(f"{text}: minutes from just above 0 to 10,000")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
