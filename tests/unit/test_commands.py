"""What both commands have in common: help, version, modules, completion, and words on what is nearly right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowkiq import __version__
from tests import warm
from tests.support import LOWKIQ, SOURCES, SUPERVISOR

COMMANDS = {
    "lowkiq": LOWKIQ,
    "lowkiq-supervisor": SUPERVISOR,
    "python -m lowkiq": ("-m", "lowkiq"),
    "python -m lowkiq_supervisor": ("-m", "lowkiq_supervisor"),
}
APP = """
from lowkiq import Lowkiq
app = Lowkiq()
@app.worker
def work(payloads_by_id): ...
"""


@pytest.fixture(params=COMMANDS)
def command(request, tmp_path, app):
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        ours = {
            "PYTHONPATH": SOURCES, "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace,
            "COLUMNS": "200", "LOWKIQ_STATE_DIR": str(tmp_path / "state"),
        }  # fmt: skip
        words = [sys.executable, *COMMANDS[request.param], *arguments]
        return warm.run(words, env=os.environ | ours | environment, capture_output=True, cwd=tmp_path)

    return run


def test_help_is_short_or_long(command):
    short, long = command("-h"), command("--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert "--require" in short.stdout and "--version" in short.stdout


def test_the_version_is_printed_by_a_process_that_begins_with_nothing(command):
    done = command("--version", **warm.COLD)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_completes(command, shell):
    off = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = command("--show-completion", shell, **off)
    assert shown.returncode == 0, shown.stderr
    name = "lowkiq-supervisor" if "lowkiq-supervisor" in shown.stdout else "lowkiq"
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    assert variable in shown.stdout
    words = {"COMP_WORDS": f"{name} s", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": f"{name} s"}
    if shell == "fish":
        words["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    found = command(**words, **{variable: f"complete_{shell}"})
    assert ("status" if "supervisor" in name else "stats") in found.stdout, found.stderr


@pytest.mark.parametrize("named", ["jobs", "jobs:app", "./jobs.py", "{here}/jobs.py:app"])
@pytest.mark.parametrize("option", ["-r", "--app"])
def test_an_application_is_named_by_its_module_or_its_file(command, tmp_path: Path, option, named):
    (tmp_path / "jobs.py").write_text(APP)
    done = command(option, named.format(here=tmp_path), "--burst")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("named", "meant"), [("jobs.app", "jobs:app"), ("job", "jobs"), ("./job.py", "jobs.py")])
def test_what_may_be_meant_is_asked(command, tmp_path: Path, named, meant):
    (tmp_path / "jobs.py").write_text(APP)
    done = command("-r", named, "--burst")
    assert done.returncode in {2, 3} and f"did you mean {meant}?" in done.stderr


def test_a_variable_that_is_nearly_right_is_told_once(command, tmp_path: Path):
    (tmp_path / "jobs.py").write_text(APP)
    done = command("-r", "jobs", "--burst", LOWKIQ_REDIS_UR="redis://elsewhere")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line["event"] == "variable_unknown"]
    assert (line["level"], line["variable"], line["did_you_mean"]) == ("warning", "LOWKIQ_REDIS_UR", "LOWKIQ_REDIS_URL")
