"""`lowkiq new`: a project that runs as it is made, and names that it can't have."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lowkiq import Lowkiq, testing
from lowkiq.cli.new import project
from lowkiq.errors import UsageError
from tests.unit.conftest import Run


@pytest.fixture
def bakery(lowkiq: Run, tmp_path: Path) -> Path:
    done = lowkiq("new", "my-bakery")
    assert (done.returncode, done.stdout) == (0, "my-bakery is made: README.md there says how to run it\n")
    return tmp_path / "my-bakery"


def test_its_test_passes(bakery: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=bakery, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_it_can_be_imported_and_its_worker_performs(bakery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(bakery)
    from my_bakery.jobs import app, ship  # type: ignore[import-not-found]

    assert isinstance(app, Lowkiq) and [*app.workers] == ["ship"]
    assert testing.perform(ship, 17, ["paid", "sent"]).done


def test_what_starts_it_names_what_is_there(bakery: Path) -> None:
    compose: dict[str, Any] = yaml.safe_load((bakery / "compose.yaml").read_text())
    assert "-r my_bakery.jobs " in compose["services"]["nodes"]["command"]
    assert {*compose["services"]["nodes"]["depends_on"]} <= {*compose["services"]}
    metadata = tomllib.loads((bakery / "pyproject.toml").read_text())
    assert metadata["project"]["name"] == "my-bakery"
    assert (bakery / metadata["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"][0]).is_dir()
    assert not any(word in path.read_text() for path in bakery.rglob("*.*") for word in ("NAME", "PACKAGE"))


def test_what_is_there_is_left_alone(lowkiq: Run, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/mine").touch()
    (tmp_path / "file").touch()
    for name in ("shop", "file"):
        done = lowkiq("new", name)
        assert (done.returncode, done.stderr) == (
            2, f"lowkiq: {name} is there already, and not empty: name another directory\n"
        )  # fmt: skip
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert lowkiq("new", "empty").returncode == 0 and (tmp_path / "empty/empty/jobs.py").exists()
    done = lowkiq("new", "file/shop")
    assert done.returncode == 1 and "lowkiq: can't make file/shop: " in done.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Shop", "take small letters"), ("1shop", "take small letters"), ("my shop", "take small letters"),
        ("class", "can't be the name of a package"), ("-shop", "take small letters"), ("shop.jobs", "take small"),
        ("json", "is a module that it would stand in for: take another name, such as my-json"),
        ("lowkiq", "such as my-lowkiq"), ("tests", "such as my-tests"), ("..", "name of a package"),
    ],
)  # fmt: skip
def test_a_name_that_it_can_t_have_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        project(Path("/tmp", name))
