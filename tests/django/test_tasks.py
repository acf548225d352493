"""Django's tasks, in projects of their own: a process has but one Django."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support import ROOT, SOURCES


def run(label: str, project: str, *paths: str) -> None:
    """Runs tests by Django's own runner, in a project whose settings these are."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", "test", label, "--settings", project],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join((SOURCES, *paths))}, timeout=200,
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_tasks_keep_what_django_promises() -> None:
    run("tests.django.contract", "tests.django.project")
