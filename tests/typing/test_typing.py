"""What type checkers say of a user's application, of the documentation's examples, and of mistakes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.typing.examples import write_examples

#: What is an error is marked so; and what is one that no type checker can find.
MISTAKES = """
from typing import Any

import msgspec

import lowkiq.celery
from lowkiq import Exponential, Fixed, Lowkiq, Worker, current

app = Lowkiq()


class Change(msgspec.Struct):
    n: int


@app.worker(id=lambda change: change.n)
def sync(id: int, changes: list[Change]) -> None: ...


@lowkiq.celery.task(key="id", app=app)
def bill(id: int, state: str = "new") -> None: ...


class Contradicts(Worker[Change]):
    def perform(self, x: dict[str, list[int]]) -> None: ...  # error


@app.worker  # error
def three(a: int, b: list[int], c: int) -> None: ...


sync.push("x")  # error
sync.push(Change(1), 2)  # error
app.worker(shard_count=2)  # error
app.worker(isolation="fork")  # error
sync.perform_async(5)  # error
count: str = sync.push(Change(1)).new  # error


async def push() -> None:
    await sync.apush("x")  # error


Lowkiq(thread_per_node=3)  # error
Lowkiq(threads_per_node="3")  # error
Lowkiq("redis://localhost")  # error
sync.perform_async({"id": 1})  # error
sync.actions.set(concurency=3)  # error
sync.actions.set(concurrency="3")  # error
sync.actions.delete(17)  # error
current().then(sync, [{"id": 1, "payload": "x"}])  # error
current().then(sync, [{"di": 1}])  # error
current().then("sync", [{"id": 1}])  # error
app.push(sync, [{"id": 1, "payload": 5}])  # error
app.push(sync, [{"id": 1, "after": [17]}])  # error
app.push(sync, [{"id": 1, "delay": "5m"}])  # error
app.batch(on_done=(sync, {"id": 1, "payload": "x"}))  # error
app.batch(on_done=sync)  # error
sync(1, ["x"])  # error
sync(1)  # error
sync.job(1, "x")  # error
sync.job(1, Change(1), dealy=5)  # error
sync.job(1.5)  # error
bill.job("x")  # error
bill.job(17, "paid", 5)  # error
app.push(5, [{"id": 1}])  # error
app.push(sync, [{"id": 1, "at": "noon"}])  # error
sync.push(Change(1), delay="5m")  # error
sync.push(Change(1), in_seconds=5)  # error
Exponential(base="5")  # error
Exponential(30, power=5)  # error
Fixed(5, times=3)  # error
sync.morgue.revive(17)  # error
app.recurring.set(bill, 1.5, "1h")  # error
sync.perform_async([{"di": 1}])  # missed
sync.perform_async([{"id": 1, "payload": "x"}])  # missed
app.worker(queue_name="typo", id=lambda change: change.nn)(lambda payloads_by_id: None)  # missed
"""

MARKED = {number for number, line in enumerate(MISTAKES.splitlines(), 1) if "# error" in line}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's: a directory with the application, and the examples."""
    shutil.copy(Path(__file__).with_name("user_app.py"), tmp_path)
    write_examples(tmp_path)
    return tmp_path


def mypy(project: Path) -> set[tuple[str, int, str]]:
    """The errors that mypy finds: file, line, text."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", ROOT / ".mypy_cache", "."],
        cwd=project, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode in {0, 1}, run.stdout + run.stderr
    found = re.findall(r"^(.*?):(\d+): error: (.*)$", run.stdout, re.MULTILINE)
    return {(file, int(line), text) for file, line, text in found}


def pyright(project: Path) -> set[tuple[str, int, str]]:
    """The errors that pyright finds."""
    # A name may be imported for a block that follows.
    rules = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "reportUnusedImport": False}
    (project / "pyrightconfig.json").write_text(json.dumps(rules))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert run.returncode in {0, 1}, run.stdout + run.stderr
    return {
        (Path(row["file"]).name, row["range"]["start"]["line"] + 1, row["message"])
        for row in json.loads(run.stdout)["generalDiagnostics"]
        if row["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_user_s_application_and_the_examples_are_accepted(project: Path, check) -> None:
    assert check(project) == set()


@pytest.mark.parametrize("check", [mypy, pyright])
def test_mistakes_are_found(tmp_path: Path, check) -> None:
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    assert {line for _, line, _ in check(tmp_path)} == MARKED
