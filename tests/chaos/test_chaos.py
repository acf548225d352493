"""Chaos, in short: Lowkiq comes through it, and without its fence does not. `make chaos` runs it for longer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.chaos import __main__ as command
from tests.chaos import report
from tests.chaos.run import Outcome, run
from tests.chaos.world.servers import Standalone
from tests.support import ROOT, SOURCES, wait_until

pytestmark = pytest.mark.long

#: Only what makes nodes outlive their leases: with the load that meets it early in a lease, what a fence is for.
PAUSES = {"pause node": (1.0, 1.2, 2.2)}
#: What every end of a job meets.
FENCE = "no_fence_of_claims"
#: Runs of the mutant after which a checker that has found nothing is of no use: three in four find something.
TRIES = 8


def found(outcome: Outcome) -> str:
    figures = report.figures(outcome.verdict, outcome.faults, outcome.seconds, "standalone", 0)
    return "\n".join([report.line(figures), *report.violations(outcome.verdict)])


@pytest.mark.timeout(300)
@pytest.mark.rare  # .ci/run has two minutes of it
def test_half_a_minute_of_every_fault_loses_nothing_and_keeps_the_order(tmp_path: Path) -> None:
    seed = int(os.environ.get("LOWKIQ_FAULTS_SEED", "20261121"))
    outcome = run(tmp_path, Standalone(tmp_path), seconds=30, seed=seed)
    assert outcome.verdict.is_good, found(outcome)
    missing = {"kill node", "pause node", "kill redis", "flush scripts"} - set(outcome.faults)
    assert not missing, "these never came"


@pytest.mark.timeout(900)
def test_without_the_fence_chaos_finds_what_goes_wrong(tmp_path: Path) -> None:
    for seed in range(TRIES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        outcome = run(
            directory, Standalone(directory), seconds=15, seed=seed, load="pauses", mutant=FENCE, kinds=PAUSES
        )
        if outcome.verdict.lost or outcome.verdict.unexplained or outcome.verdict.overlaps:
            return
    pytest.fail(f"{TRIES} runs of a Lowkiq without its fence found nothing: {found(outcome)}")


@pytest.mark.timeout(300)
def test_the_same_load_with_the_fence_is_clean(tmp_path: Path) -> None:
    outcome = run(tmp_path, Standalone(tmp_path), seconds=15, seed=0, load="pauses", kinds=PAUSES)
    assert outcome.verdict.is_good, found(outcome)


@pytest.mark.parametrize("wrong", [["--minutes", "0"], ["--minutes", "x"], ["--on", "paper"], ["--mutant", "none"]])
def test_wrong_usage_exits_2_and_says_why(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit, match="2"):
        patch.setattr(sys, "argv", ["chaos", *wrong])
        command.main()
    assert wrong[0] in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ended_early_it_leaves_no_process(number: int, tmp_path: Path) -> None:
    chaos_run = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", "--minutes", "5"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": SOURCES, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    started: list[psutil.Process] = []

    def has_nodes() -> bool:
        process = psutil.Process(chaos_run.pid)
        started[:] = process.children(recursive=True)
        return len(started) > len(process.children())

    try:
        wait_until(has_nodes)
        chaos_run.send_signal(number)
        assert chaos_run.wait(60) in {128 + number, -number}
        assert psutil.wait_procs(started, 30)[1] == []
    finally:
        chaos_run.kill()
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
