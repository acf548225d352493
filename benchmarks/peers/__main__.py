"""Lowkiq beside its peers, in one run: every measurement of everyone in turn, round after round; medians."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import floors, plots
from benchmarks.contender import Contender, ContenderFailed, server
from benchmarks.measures import MEASURES, Figures, Pace, probe
from benchmarks.peers.catalogue import contenders
from benchmarks.peers.standings import SINGLE_BY_BARE, Standing, as_json, draw, print_all, promises
from benchmarks.rows import exit_code, shape

ROUNDS = 3
#: Seconds that a measurement aims at: three rounds of all take less than 25 minutes.
SECONDS = 2.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures who can run here, and says who can't; exits 1 when Lowkiq misses what it promises."""
    parser = argparse.ArgumentParser("python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--only", default="", help="names, separated by commas; Lowkiq always takes part")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a measurement aims at")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument("--images", type=Path, default=plots.IMAGES, help="directory for the plots")
    given = parser.parse_args(arguments)
    machine = shape()
    field, floor = run(chosen(given.only), given.rounds, given.seconds)
    draw(given.images, machine, field)
    if given.json:
        print(json.dumps(as_json(machine, field, floor), indent=2))
        return exit_code(promises(field, floor))
    return print_all(machine, field, floor)


def chosen(only: str) -> list[Contender]:
    """
    Those whose names begin with one of the words, and Lowkiq.

    Raises:
        SystemExit: a word fits nobody.
    """
    everyone = contenders()
    words = [word.strip().lower() for word in only.split(",") if word.strip()]
    for word in words:
        if not any(each.name.lower().startswith(word) for each in everyone):
            raise SystemExit(f"nobody is named {word}; there are {', '.join(each.name for each in everyone)}")
    return [
        each
        for place, each in enumerate(everyone)
        if not words or not place or any(each.name.lower().startswith(word) for word in words)
    ]


def run(field: Sequence[Contender], rounds: int, seconds: float) -> tuple[list[Standing], dict[str, list[float]]]:
    """Everyone's figures, and those of the bare client."""
    standings = [Standing(contender) for contender in field]
    floor: dict[str, list[float]] = {}
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("who is here", total=len(field) * (1 + rounds * len(MEASURES)))
        paces = {each.contender.name: Pace(seconds) for each in standings}
        for standing in standings:
            progress.update(task, description=f"{standing.name}: first look")
            _attempt(standing, partial(_first_look, standing, paces[standing.name]))
            progress.advance(task)
        for _ in range(rounds):
            for name, value in _floors(seconds).items():
                floor.setdefault(name, []).append(value)
            for what, measure in MEASURES.items():
                for standing in standings:
                    progress.update(task, description=f"{standing.name}: {what}")
                    if not standing.missing:
                        _attempt(standing, partial(_take, standing, measure, paces[standing.name]))
                    progress.advance(task)
    return standings, floor


def _first_look(standing: Standing, pace: Pace) -> None:
    try:
        standing.version = standing.contender.version()
        probe(standing.contender, pace)
    except Exception as error:  # noqa: BLE001 (whatever it is, the others go on)
        standing.missing = f"{error}" or type(error).__name__


def _take(standing: Standing, measure: Callable[[Contender, Pace], Figures], pace: Pace) -> None:
    for name, value in measure(standing.contender, pace).items():
        if value is not None:
            standing.figures.setdefault(name, []).append(value)


def _attempt(standing: Standing, step: Callable[[], None]) -> None:
    """A contender that fails loses that measurement, and its table says so."""
    try:
        step()
    except (ContenderFailed, OSError, TimeoutError) as error:
        standing.troubles.append(str(error))
        time.sleep(0.1)


def _floors(seconds: float) -> dict[str, float]:
    with server(tcp=True) as url:
        return {
            "pipelined, three writes": floors.pipelined(url, "three writes"),
            "round trip each, three writes": floors.round_trips(url, seconds=seconds / 2),
            "round trip each, 5 threads": floors.round_trips(url, 5, seconds / 2),
            SINGLE_BY_BARE: floors.single_by_bare(url, seconds / 2),
        }


if __name__ == "__main__":
    sys.exit(main())
