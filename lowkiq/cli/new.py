"""The `new` command: a project that runs, with an application, a worker, its test, and Compose for development."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from lowkiq.cli.opening import clear_errors, fail
from lowkiq.environment import ExitCode
from lowkiq.errors import UsageError, short

#: A name of a project, whose package has _ for -.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")

#: Path of a file → what is in it. NAME stands for the project's, PACKAGE for that of its package.
_FILES: Final = {
    "README.md": """\
# NAME

```console
$ python3 -m venv .venv && . .venv/bin/activate
$ pip install -e '.[dev]'
$ pytest                                                            # needs no Redis
$ lowkiq-supervisor -r PACKAGE.jobs --reload --web 127.0.0.1:8080      # nodes, the web view, and a private Redis
$ python -c 'from PACKAGE.jobs import ship; print(ship.perform_async([ship.job(17, "paid"), ship.job(17, "sent")]))'
```

Or `docker compose up`: a Redis, two nodes that follow the code, and the web view at http://127.0.0.1:8080/.
""",
    "pyproject.toml": """\
[project]
name = "NAME"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["lowkiq[web]"]

[project.optional-dependencies]
dev = ["lowkiq[embedded]", "pytest"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["PACKAGE"]

[tool.pytest.ini_options]
pythonpath = ["."]
""",
    "compose.yaml": """\
# For development: nodes follow the code in this directory.
services:
  redis:
    image: redis:8
    command: redis-server --appendonly yes --maxmemory-policy noeviction
    volumes: ["redis:/data"]
  nodes:
    image: python:3.13
    working_dir: /app
    volumes: [".:/app"]
    command: >-
      sh -c "pip install -e . && exec lowkiq-supervisor --nodes 2 -r PACKAGE.jobs --reload
      --web 0.0.0.0:8080 --web-no-auth"
    environment:
      REDIS_URL: redis://redis:6379/0
      LOWKIQ_STATE_DIR: /tmp/lowkiq
    ports: ["127.0.0.1:8080:8080"] # only this machine reaches it, so it asks for no credentials
    stop_grace_period: 40s # longer than drain_timeout
    depends_on: [redis]
volumes:
  redis:
""",
    ".gitignore": ".lowkiq/\n.venv/\n__pycache__/\n",
    "PACKAGE/__init__.py": "",
    "PACKAGE/app.py": '''\
"""The application, with its settings. What differs by machine is in the environment: REDIS_URL, LOWKIQ_<SETTING>."""

from lowkiq import Lowkiq

app = Lowkiq(
    threads_per_node=5,
    drain_timeout=25,  # seconds for running jobs to finish when a node is stopped
)
''',
    "PACKAGE/jobs.py": '''\
"""The workers: `lowkiq-supervisor -r PACKAGE.jobs` runs their jobs."""

from lowkiq import Exponential

from PACKAGE.app import app

__all__ = ["app", "ship"]


@app.worker(retry=Exponential(base=5, at_most=3600))
def ship(order_id: int, states: list[str]) -> None:
    """Ships an order. It gets what was pushed since its last run, in order, and no two runs of an order overlap."""
    print(f"order {order_id}: {', '.join(states)}", flush=True)
''',
    "tests/test_jobs.py": '''\
"""Tests of the jobs, without a Redis."""

import pytest
from lowkiq import testing

from PACKAGE.jobs import app, ship


def test_an_order_is_shipped_once_with_its_changes_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    with testing.fake(app) as jobs:
        ship.perform_async([ship.job(17, "paid"), ship.job(17, "sent")])
        jobs.assert_pushed(ship, id=17, times=2)
        jobs.drain()
    assert capsys.readouterr().out == "order 17: paid, sent\\n"
''',
}


def new(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where it is made; its last part is the name.")
    ],
) -> None:
    """Makes a project that runs: an application, a worker, its test, and Compose for development."""
    with clear_errors():
        files = project(directory)
        try:
            if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
                raise UsageError(f"{directory} is there already, and not empty: name another directory")
            for path, text in files.items():
                (directory / path).parent.mkdir(parents=True, exist_ok=True)
                (directory / path).write_text(text, "utf-8")
        except OSError as error:
            fail(f"can't make {directory}: {error}", ExitCode.FAILED)
    typer.echo(f"{directory} is made: README.md there says how to run it")


def project(directory: Path) -> dict[str, str]:
    """The files of a project in that directory. Raises UsageError for a name that it can't have."""
    name = directory.absolute().name
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(package):
        raise UsageError(f"{short(name)} can't be the name of a package: take small letters, digits and -, as in shop")
    if package in {*sys.stdlib_module_names, "lowkiq", "tests"}:
        raise UsageError(f"{short(name)} is a module that it would stand in for: take another name, such as my-{name}")
    return {
        path.replace("PACKAGE", package): text.replace("PACKAGE", package).replace("NAME", name)
        for path, text in _FILES.items()
    }
