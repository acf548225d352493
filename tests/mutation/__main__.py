"""Plays the mutants of Python: each must be found by its tests, which `make test` runs without it."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from typing import IO, NamedTuple

import pytest
from _pytest.main import pytest_runtestloop

from tests.mutation.patching import Functions
from tests.mutation.table import ROOT, Mutant, read_all

#: Seconds that a test may take; and after which a process is killed that does not end.
LONGEST, KILLED_AFTER = 30, 100
OPTIONS = (
    f"-x -q --capture sys -p no:cacheprovider -p no:rerunfailures -p no:valkey --timeout {LONGEST} "
    "-W ignore::pytest.PytestUnknownMarkWarning -W ignore::pytest.PytestAssertRewriteWarning "
    "-o addopts=--import-mode=importlib"
)


class Result(NamedTuple):
    mutant: Mutant
    #: How its process has ended: 0 if all tests have passed, 1 if one has not, else something is wrong with it.
    code: int
    seconds: float
    #: The test that has failed, or what is wrong.
    told: str

    @property
    def is_good(self) -> bool:
        return self.code == bool(self.mutant.file)

    def __str__(self) -> str:
        words = {0: "NOT FOUND", 1: "found"} if self.mutant.file else {0: "passed", 1: "FAILED WITHOUT A MUTANT"}
        how = words.get(self.code, f"NOT PLAYED ({self.code})")
        return f"{self.seconds:5.1f} s  {how}: {self.mutant.room}: {self.mutant.says}  {self.told}"


class Play:
    """A plugin that plays mutants in place of pytest's loop: each in a fork, which runs its tests until one fails."""

    def __init__(self, mutants: Sequence[Mutant], abreast: int, minutes: float, verbose: bool) -> None:
        self._mutants, self._abreast, self._verbose = mutants, abreast, verbose
        self._until = time.monotonic() + minutes * 60
        self.results: list[Result] = []
        self._told: IO[str] = sys.stdout

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions = Functions()
        gc.collect()
        gc.freeze()
        for result in self._play(session, functions):
            self.results.append(result)
            if self._verbose or not result.is_good:
                print(result, file=sys.__stdout__, flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print(report.nodeid, file=self._told, flush=True)

    def _play(self, session: pytest.Session, functions: Functions) -> Iterator[Result]:
        left = list(reversed(self._mutants))
        running: dict[int, tuple[Mutant, float, IO[str]]] = {}
        while running or (left and time.monotonic() < self._until):
            while left and len(running) < self._abreast:
                mutant, output = left.pop(), tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (it is the process's)
                if not (pid := os.fork()):
                    os._exit(self._perform(session, functions, mutant, output))
                running[pid] = mutant, time.monotonic(), output
            for pid, (mutant, since, told) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                seconds = time.monotonic() - since
                if ended:
                    del running[pid]
                    with told:
                        told.seek(0)
                        yield Result(mutant, os.waitstatus_to_exitcode(status), seconds, told.read().strip())
                elif mutant.file and seconds > KILLED_AFTER:
                    os.killpg(pid, signal.SIGKILL)
            time.sleep(0.005)

    def _perform(self, session: pytest.Session, functions: Functions, mutant: Mutant, told: IO[str]) -> int:
        """Returns the exit code of the process, which is a fork."""
        try:
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            self._told = told
            if mutant.file:
                functions.patch(mutant)
            session.items = [item for test in mutant.tests for item in session.items if is_of(item, test)]
            assert session.items, "there are no such tests"
            with contextlib.suppress(session.Failed, session.Interrupted):
                pytest_runtestloop(session)
            session._setupstate.teardown_exact(None)
            return int(session.testsfailed > 0)
        except BaseException:  # noqa: BLE001 (a fork must not go on as its parent would)
            print(traceback.format_exc(), file=told, flush=True)
            return 4


def is_of(item: pytest.Item, test: str) -> bool:
    """Returns whether a test is one of those that are named so."""
    return item.nodeid == test or item.nodeid.startswith((f"{test}::", f"{test}["))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1e6, help="play some of them, others each day (all)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="those whose room, file or words have this")
    parser.add_argument("--abreast", type=int, default=os.cpu_count() or 1, help="so many at a time (all cores)")
    parser.add_argument("--verbose", action="store_true", help="say how each was found")
    options = parser.parse_args()
    mutants = [one for one in read_all() if re.search(options.only, f"{one.room} {one.file} {one.says}")]
    if options.minutes < 1e6:
        random.Random(date.today().toordinal()).shuffle(mutants)  # noqa: DTZ011
    began = time.monotonic()
    none = Mutant(
        "none", "its tests pass without any", "", "", "", tuple(dict.fromkeys(t for m in mutants for t in m.tests))
    )
    play = Play([none, *mutants], options.abreast, options.minutes, options.verbose)
    os.environ["CI"] = "true"  # what is random is the same in each process; and a tool that is missing fails its tests
    from hypothesis import Phase, settings

    quick = [Phase.explicit, Phase.generate]  # what has failed need not be made small
    settings.register_profile("mutants", settings.get_profile("ci"), phases=quick)
    settings.load_profile("mutants")
    tests = dict.fromkeys(test for one in mutants for test in one.tests)
    code = pytest.main([*OPTIONS.split(), *tests], [play])
    missed = [result for result in play.results if not result.is_good]
    rooms = ", ".join(f"{name} {count}" for name, count in Counter(one.mutant.room for one in play.results).items())
    found = f"{len(play.results) - len(missed)} of {len(play.results)} mutants found"
    print(f"{found} in {time.monotonic() - began:.0f} s: {rooms}")
    return int(bool(missed) or not play.results or code not in {0, 5})


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
