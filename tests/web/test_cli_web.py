"""`lowkiq web`, as people type it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import httpx
import pytest

from tests import warm
from tests.harness import Supervised
from tests.support import LOWKIQ, ROOT

COMMAND = [sys.executable, *LOWKIQ]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path, app):
    (tmp_path / "jobs.py").write_text("from lowkiq import Lowkiq\n\napp = Lowkiq()\n")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LOWKIQ_", "REDIS_"))}
    return inherited | {
        "LOWKIQ_REDIS_URL": app.settings.redis_url,
        "LOWKIQ_NAMESPACE": app.settings.namespace,
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def lowkiq(tmp_path, environment):
    def run(*arguments, **changes):
        return warm.run([*COMMAND, *arguments], cwd=tmp_path, env=environment | changes, capture_output=True)

    return run


@pytest.mark.parametrize("require", [["-r", "jobs"], []])
def test_it_serves_until_term(tmp_path, environment, require):
    arguments = [*COMMAND[1:], "web", *require, "--bind", "127.0.0.1:0", "--read-only"]
    with Supervised(tmp_path, arguments, environment) as server:
        url = server.until_logged("web_ready")[0]["url"]
        token = server.until_logged("web_link")[0]["url"].partition("token=")[2]
        known = {"Authorization": f"Bearer {token}"}
        assert httpx.get(url, headers=known).status_code == 200
        assert "read-only" in httpx.post(f"{url}api/v1/queues/x/actions", headers=known).json()["error"]
        server.end()


@pytest.mark.parametrize(
    ("arguments", "changes", "words"),
    [
        (["-r", "nothing_of_this_name", "web"], {}, ["nothing_of_this_name"]),  # named before the command
        *(
            (["web", "--bind", f"{host}:8080"], {}, ["LOWKIQ_WEB_TOKEN", "--no-auth"])
            for host in ("", "0.0.0.0", "[::]")
        ),
        (["web", "--bind", "127.0.0.1:0"], {"LOWKIQ_WEB_TOKEN": "short"}, ["8 or more"]),
        (["web", "--bind", "127.0.0.1:0"], {"LOWKIQ_WEB_USER": "anna"}, ["a user but no password"]),
        (["web", "--bind", "127.0.0.1:0"], {"LOWKIQ_WEB_PASSWORD": "long-enough"}, ["a password but no user"]),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_way_out(lowkiq, arguments, changes, words):
    answer = lowkiq(*arguments, **changes)
    assert answer.returncode == (3 if "-r" in arguments else 2)
    assert [word for word in words if word not in answer.stderr] == []
    assert "Traceback" not in answer.stderr


def test_what_is_no_address_is_refused(lowkiq):
    answer = lowkiq("web", "--bind", "nowhere")
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "HOST:PORT" in answer.stderr


def test_a_taken_port_is_told_in_one_line(lowkiq):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = lowkiq("web", "--bind", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert "is taken" in answer.stderr


def test_credentials_are_no_options(lowkiq):
    """A command line shows in ps."""
    help_text = lowkiq("web", "--help").stdout
    assert "--token" not in help_text
    assert "--password" not in help_text
    assert "LOWKIQ_WEB_TOKEN" in help_text


def test_without_the_extra_it_says_what_to_install(lowkiq, tmp_path):
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('none', name='starlette')\n")
    answer = lowkiq("web", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert answer.returncode == 2
    assert "pip install 'lowkiq[web]'" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert lowkiq("--version", PYTHONPATH=f"{tmp_path}:{ROOT}").returncode == 0


def test_the_library_does_not_import_the_view():
    check = "import sys, lowkiq, lowkiq.cli; sys.exit(any(m in sys.modules for m in ('lowkiq.web', 'starlette')))"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0
