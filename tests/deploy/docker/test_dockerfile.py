"""The Dockerfile, the example on top of it and the locks, as they are written; that they work is another file's."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from lowkiq_supervisor.options import DEFAULT_BOOT_TIMEOUT, DEFAULT_DRAIN_TIMEOUT
from tests.deploy.tools import run, slow
from tests.support import ROOT, lacks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ["requirements.lock", "requirements-build.lock"]
#: Platforms that the wheels of a lock are for, and the oldest C library (Debian 10's).
PLATFORMS = ["x86_64-manylinux_2_28", "aarch64-manylinux_2_28"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
#: Beside the interpreter, since make calls it by its path.
BIN = Path(sys.executable).parent


@pytest.fixture
def instructions() -> list[str]:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    return [line for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines() if line]


@pytest.mark.parametrize("path", ["Dockerfile", "examples/Dockerfile.app"])
def test_hadolint_finds_nothing_to_say(path: str) -> None:
    done = run([_tool("hadolint"), "--failure-threshold=style", "--no-color", ROOT / path])
    assert done.stdout == ""


def test_every_stage_begins_with_the_base_of_the_build_argument(instructions: list[str]) -> None:
    bases = [line.split()[1] for line in instructions if line.startswith("FROM ")]
    assert bases == ["${PYTHON_IMAGE}"] * 3
    assert instructions[0].startswith("ARG PYTHON_IMAGE=python:3."), "tagged, not latest"


def test_what_is_installed_has_a_hash_or_comes_from_the_build(instructions: list[str]) -> None:
    installs = [line for line in instructions if re.search(r'"(install|wheel)"', line) and '"pip"' in line]
    assert len(installs) == 4
    for line in installs:
        assert ("--require-hashes" in line and "--only-binary=:all:" in line) or "--no-index" in line, line


def test_the_environment_has_nothing_that_installs_and_the_base_s_own_is_taken_out(instructions: list[str]) -> None:
    _, environment, final = "\n".join(instructions).split("FROM ${PYTHON_IMAGE}")[1:]
    assert "venv --without-pip /opt/lowkiq" in environment
    for line in environment.splitlines():
        if '"pip"' in line:
            assert "--python=/opt/lowkiq/bin/python" in line and '"--no-compile"' in line
    for name in ("pip", "setuptools", "wheel"):
        assert f'"$library"/site-packages/{name}*' in final


def test_byte_code_goes_by_no_date_and_is_the_same_in_each_build(instructions: list[str]) -> None:
    made = [line for line in instructions if "compileall" in line]
    assert len(made) == 2, "of the environment, and of the base's standard library"
    for line in made:
        assert "--invalidation-mode unchecked-hash" in line and "PYTHONHASHSEED=0" in line
        assert not re.search(r" -j| --workers", line), "several processes write constants in another order"
    assert "PYTHONDONTWRITEBYTECODE=1" in made[1], "what compileall imports itself would get byte code with a date"
    assert re.search(r"^ENV .*PYTHONDONTWRITEBYTECODE=1", "\n".join(instructions), re.MULTILINE)


def test_a_build_is_given_what_the_dockerfile_copies_and_nothing_else(instructions: list[str]) -> None:
    copies = [line.split()[1:-1] for line in instructions if line.startswith("COPY ") and "--from" not in line]
    ignored, *rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == {source for sources in copies for source in sources}
    assert {rule for rule in rules if not rule.startswith("!")} == {"**/__pycache__", "**/.*"}


def test_the_health_check_is_as_patient_as_the_slowest_boot(instructions: list[str]) -> None:
    (check,) = [line for line in instructions if line.startswith("HEALTHCHECK ")]
    assert float(re.findall(r"--start-period=(\d+)s", check)[0]) > DEFAULT_BOOT_TIMEOUT
    assert "lowkiq-supervisor ping --ready || exit 1" in check


def test_the_example_gives_a_stop_longer_than_the_drain() -> None:
    told = re.findall(r"--stop-timeout[ =](\d+)", (ROOT / "examples/Dockerfile.app").read_text())
    told += re.findall(r"--stop-timeout[ =](\d+)|stop_grace_period: (\d+)s", (ROOT / "docs/deployment.md").read_text())
    seconds = [float("".join(each)) for each in told]
    assert len(seconds) >= 2
    assert min(seconds) >= DEFAULT_DRAIN_TIMEOUT + 10


@pytest.mark.parametrize("name", LOCKS)
def test_everything_locked_has_hashes_and_no_index_is_named(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.DOTALL | re.MULTILINE)
    assert len(entries) > 3
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"^-|://|index", text, re.MULTILINE)


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_has_what_the_project_asks_for(name: str) -> None:
    """It doesn't after pyproject.toml has changed: `make lock`."""
    project = PROJECT["project"]
    run_time = project["dependencies"] + project["optional-dependencies"]["web"]
    wanted = run_time if name == "requirements.lock" else PROJECT["build-system"]["requires"]
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ROOT / name).read_text(), re.MULTILINE))
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(Version(locked[requirement.name])), requirement


@slow
@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_lock_has_wheels_for(name: str, python: str, platform: str, tmp_path: Path) -> None:
    wheels = ["--no-config", "--require-hashes", "--only-binary=:all:", "--dry-run", f"--target={tmp_path}"]
    run([_tool("uv"), "pip", "install", *wheels, f"--python-platform={platform}", f"--python-version={python}",
         "--requirement", ROOT / name], timeout=120)  # fmt: skip


def _tool(name: str) -> Path:
    found = BIN / name
    if not os.access(found, os.X_OK):
        lacks(f"no {name}: make test installs it")
    return found
