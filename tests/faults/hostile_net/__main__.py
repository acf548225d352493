"""Plays weather after weather for some minutes, and tells how long each user of Redis took to work again."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.faults.hostile_net.network import KINDS, WEATHERS
from tests.faults.hostile_net.trial import Trial
from tests.transport.kinds.load import Outcome

#: Seconds after which all must work again.
SOON: Final = 5.0
#: Seconds of fair weather after most of the bad, in which nothing may fail any more that has worked again.
REST: Final = SOON + 2.0


class Played(NamedTuple):
    weather: str
    seconds: float
    rest: float


class Verdict(NamedTuple):
    outcome: Outcome
    mixed: list[str]
    #: Errors that no bad network explains.
    surprises: list[str]
    untold: dict[str, list[int]]
    #: What is no longer there → how many of it.
    missing: dict[str, int]
    #: (weather, user) → the seconds until it worked again, each time.
    took: dict[tuple[str, str], list[float]]

    @property
    def wrong(self) -> dict[str, Any]:
        """What must not be."""
        found: dict[str, list[Any]] = {
            "lost": self.outcome.lost, "out of order": self.outcome.out_of_order, "overlaps": self.outcome.overlaps,
            "mixed": self.mixed, "surprises": self.surprises,
            **{f"{name} untold": ids for name, ids in self.untold.items()},
        }  # fmt: skip
        return {name: what[:5] for name, what in found.items() if what} | {
            name: count for name, count in self.missing.items() if count
        }

    def of(self, *, weather: str = "", user: str = "") -> list[float]:
        """Seconds until it worked again, from the shortest on."""
        return sorted(
            one
            for (in_weather, of_user), took in self.took.items()
            if weather in {"", in_weather} and user in {"", of_user}
            for one in took
        )


def run(kind: str, directory: Path, weathers: Iterable[Played], within: float) -> Verdict:
    """Plays one weather after the other, and waits after each until all work again, for so long at most."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    with Trial(kind, directory) as trial:
        for weather, seconds, rest in weathers:
            for name, took in trial.play(weather, seconds, rest, within).items():
                times[weather, name].append(took)
                if took > SOON:
                    errors = [error for marks in trial.marks[name] for error in marks.errors[-3:]]
                    print(f"{weather} for {seconds:.1f} s: {name} only after {took:.1f} s {errors}", flush=True)
        outcome, missing = trial.finish()
        return Verdict(outcome, trial.mixed, trial.surprises, missing, trial.missing(), times)


def drawn(minutes: float, rng: random.Random) -> Iterator[Played]:
    """Each weather in turn, in another order each round, for that long in all."""
    end = time.monotonic() + minutes * 60
    while True:
        for weather in rng.sample(list(WEATHERS), len(WEATHERS)):
            if time.monotonic() > end:
                return
            yield Played(weather, rng.uniform(0.3, 1) * WEATHERS[weather], rng.choice((0.0, REST, REST)))


def tell(verdict: Verdict) -> None:
    """Prints a table."""
    users = sorted({user for _, user in verdict.took})
    print("seconds to work again", "    p95    max", "".join(weather.rjust(len(weather) + 2) for weather in WEATHERS))
    for user in users:
        took = verdict.of(user=user)
        by_weather = [max(verdict.of(user=user, weather=weather), default=0.0) for weather in WEATHERS]
        cells = [f"{one:{len(weather) + 2}.1f}" for one, weather in zip(by_weather, WEATHERS, strict=True)]
        print(user.ljust(21), f"{took[int(len(took) * 0.95)]:7.1f}{took[-1]:7.1f}", "".join(cells))
    times = sum(len(took) for (_, user), took in verdict.took.items() if user == users[0])
    accepted, *_, repeated = verdict.outcome
    print(f"{times} weathers, {accepted} payloads accepted, {repeated} run again; wrong: {verdict.wrong}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--on", choices=KINDS, default="server")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    options = parser.parse_args()
    print(f"on {options.on}, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lowkiq-net-") as directory:
        verdict = run(options.on, Path(directory), drawn(options.minutes, random.Random(options.seed)), within=60)
    tell(verdict)
    return 1 if verdict.wrong or verdict.of()[-1] > SOON else 0


if __name__ == "__main__":
    sys.exit(main())
