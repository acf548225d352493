"""Sessions that pages show, as printed: the tutorial, in an environment with nothing but the wheel, and others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from lowkiq import Lowkiq
from tests.deploy import tools
from tests.package.test_wheel import clean_environment
from tests.support import ROOT

#: Seconds that a command may take; pip is the slowest.
PATIENCE = 300


class Step(NamedTuple):
    """A block: a file to save, or commands with what they print."""

    language: str
    text: str
    in_background: bool


def steps(page: str) -> list[Step]:
    found = re.findall(r"(<!-- in the background -->\n\n)?```(\w+)\n(.*?)```", page, re.DOTALL)
    return [Step(language, text, bool(mark)) for mark, language, text in found]


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Commands of a block, each with the lines that it prints."""
    return [(lines[0], lines[1:]) for part in text.split("$ ")[1:] for lines in [part.splitlines()]]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_runs_as_printed(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not (os.environ.get("LOWKIQ_WHEEL") or os.environ.get("CI")):
        pytest.skip("LOWKIQ_WHEEL names no wheel: `make wheel`, or `.ci/run` for all of it")
    wheel = tools.wheel(tmp_path_factory.mktemp("dist"))
    environment = clean_environment() | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # What `activate` does, for the shells that follow; and no Lowkiq but that of the wheel.
    environment["PATH"] = f"{tmp_path / '.venv/bin'}:{environment['PATH']}"
    background: list[subprocess.Popen[bytes]] = []
    try:
        for step in steps((ROOT / "docs/tutorial.md").read_text("utf-8")):
            if step.language == "python":
                name = re.match(r"# (\w+\.py)\n", step.text)
                assert name, step.text
                (tmp_path / name[1]).write_text(step.text)
            elif step.in_background:
                script = "; ".join(command for command, _ in commands(step.text)).replace("; lowkiq", "; exec lowkiq")
                with (tmp_path / "log").open("w") as log:
                    background.append(
                        subprocess.Popen(["bash", "-c", script], cwd=tmp_path, env=environment, stdout=log, stderr=log)
                    )
            else:
                for command, printed in commands(step.text):
                    if command.startswith("pip install"):  # what an index would have
                        run(f"pip install -q {wheel.resolve()}", [], tmp_path, environment)
                    run(command, printed, tmp_path, environment)
        (supervisor,) = background
        assert supervisor.wait(PATIENCE) == 0
    finally:
        for process in background:
            process.terminate()
            process.wait(PATIENCE)
        shutil.rmtree(tmp_path / ".venv", ignore_errors=True)


def run(command: str, printed: list[str], directory: Path, environment: dict[str, str]) -> None:
    """Runs a command of the first terminal, which prints these lines; … stands for anything."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=directory, env=environment, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    for line in printed:
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert re.search(f"^{pattern}$", done.stdout, re.MULTILINE), f"{command}: {line}\n{done.stdout}"


def test_what_a_failure_tells(tmp_path: Path, app: Lowkiq) -> None:
    section = (ROOT / "docs/retries.md").read_text("utf-8").partition("Save this as `failing.py`")[2]
    module, session = steps(section)[:2]
    (tmp_path / "failing.py").write_text(module.text)
    environment = os.environ | {
        "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    for command, printed in commands(session.text):
        run(command, [line.replace("/home/you", str(tmp_path)) for line in printed], tmp_path, environment)
