"""Suite: plays all pairs in turn, for some time or so many histories of each, in two processes with a Redis each."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.pairs.capabilities import ALL
from tests.pairs.history import Failure, Pair, play, shorten
from tests.pairs.known import known
from tests.pairs.rig import Rig
from tests.support import running_redis

PROCESSES = 2
#: Failures of a pair that are made short, and told.
TOLD = 2


@dataclass
class Played:
    """What the histories of a pair have found."""

    histories: int = 0
    failures: list[Failure] = field(default_factory=list)
    #: Histories that have met known faults, by what these are.
    known: dict[str, int] = field(default_factory=dict)


Results = dict[Pair, Played]


def pairs_of(names: Iterable[str] = ()) -> list[Pair]:
    """All pairs; or that one; or all of one capability."""
    names = sorted(names)
    if len(names) > 1:
        return [tuple(names)]
    pairs: list[Pair] = list(itertools.combinations(ALL, 2))
    return [pair for pair in pairs if not names or names[0] in pair]


def play_pairs(
    pairs: Sequence[Pair], seeds: Iterable[int], rig: Rig, until: float = float("inf")
) -> Iterator[tuple[Pair, Failure | None]]:
    """Every pair with the first seed, then with the next, and so on, until that time is up."""
    for seed in seeds:
        for pair in pairs:
            if time.monotonic() >= until:
                return
            yield pair, play(rig, pair, seed)


def _note(results: Results, pair: Pair, failure: Failure | None) -> bool:
    """Adds the outcome of a history. Says whether it is a failure that nobody knows."""
    played = results.setdefault(pair, Played())
    played.histories += 1
    if failure is None:
        return False
    if fault := known(pair, failure.error):
        played.known[fault.why] = played.known.get(fault.why, 0) + 1
        return False
    played.failures.append(failure)
    return True


def run(
    pairs: Sequence[Pair],
    *,
    seconds: float = float("inf"),
    histories: int = 0,
    first: int = 0,
    mutant: str = "",
    watch: Callable[[int, int], None] = lambda histories, found: None,
    results: Results | None = None,
) -> Results:
    """
    Plays pairs in turn until the time is up, or each has that many histories, whichever is first.

    Args:
        watch: is told of histories and failures so far.
        results: is filled with each history, so that who ends this early has what was found until then.
    """
    results = {} if results is None else results
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    until = time.monotonic() + seconds
    processes = [
        context.Process(target=_work, args=(told, pairs[part::PROCESSES], until, first, histories, mutant))
        for part in range(PROCESSES)
        if pairs[part::PROCESSES]
    ]
    for process in processes:
        process.start()
    count = found = 0
    try:
        for _ in processes:
            while (said := told.get()) is not None:
                if isinstance(said, str):
                    raise RuntimeError(said)
                count, found = count + 1, found + _note(results, *said)
                watch(count, found)
    finally:
        for process in processes:
            process.terminate()
            process.join(60)
    return results


def _work(told: Any, pairs: Sequence[Pair], until: float, first: int, histories: int, mutant: str) -> None:
    """A process: it says how each history went; the first failures of a pair are made short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all: who started this ends it
    seeds = range(first, first + histories) if histories else itertools.count(first)
    shortened: Counter[Pair] = Counter()
    try:
        with running_redis() as server, pytest.MonkeyPatch.context() as patches:
            rig = Rig(server.url, patches, mutant)
            for pair, failure in play_pairs(pairs, seeds, rig, until):
                is_new = failure is not None and not known(pair, failure.error) and shortened[pair] < TOLD
                shortened[pair] += is_new
                told.put((pair, shorten(rig, failure) if failure and is_new else failure))
            rig.close()
    except Exception as error:  # noqa: BLE001 (whoever waits for it is told)
        told.put(f"{type(error).__name__}: {error}")
    told.put(None)
