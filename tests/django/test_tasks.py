"""Django's tasks, in projects of their own: a process has but one Django."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import django
import pytest

from tests.support import ROOT, SOURCES, lacks, python_with


def run(*words: str, path: str = "") -> str:
    """Runs a module of Python's; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *words], cwd=ROOT, timeout=200, check=False, text=True,
        env=os.environ | {"PYTHONPATH": f"{SOURCES}:{path}"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    """The source of the Django that runs here, which has its tests, as PyPI has it."""
    if django.VERSION < (6, 0):
        pytest.skip(f"Django {django.get_version()} has no tasks")
    words = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", f"django=={django.get_version()}"]
    done = subprocess.run(
        [*python_with("pip"), "-m", *words], cwd=tmp_path, timeout=200, check=False, capture_output=True, text=True
    )
    if done.returncode:
        lacks(f"no source of Django: {done.stderr}")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, [one for one in packed if "/tests/tasks/" in one.name], filter="data")
    return tmp_path / archive.name.removesuffix(".tar.gz")


def test_tasks_keep_what_django_promises() -> None:
    run("django", "test", "tests.django.contract", "--settings", "tests.django.project")


def test_djangos_own_tests_fail_where_the_page_says_so_alone(sdist: Path) -> None:
    runner = ("--settings", "tests.django.project", "--testrunner", "tests.django.of_django.Runner")
    run("django", "test", "tasks", *runner, path=str(sdist / "tests"))
