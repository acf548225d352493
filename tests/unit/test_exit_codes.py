"""One mistake, one line and one exit code, whichever of the two commands is told of the application."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from lowkiq import SettingsError
from lowkiq.cli.opening import loaded
from lowkiq.environment import ExitCode, code_of_import
from lowkiq.errors import AppNotFound, PushFailed, UsageError
from lowkiq.importing import load_app
from lowkiq.node.runtime import chosen_workers
from lowkiq.settings import build
from lowkiq_supervisor.processes.check import refusal_of

APP = "from lowkiq import Lowkiq\napp = Lowkiq()\n"
WORKER = "@app.worker\ndef orders(id: int, payloads: list) -> None: ...\n"

#: What the package's app.py has, what is asked for, variables, the exit code, and what the line says.
MISTAKES = {
    "syntax": ("def f(:\n", "{shop}.app", {}, 3, "can't import {shop}.app: SyntaxError: .*app.py, line 1"),
    "import": ("import no_such_x\n", "{shop}.app", {}, 3, r"No module named 'no_such_x' \(.*app.py, line 1\)"),
    "several lines": ("raise SystemError('a\\nb')\n", "{shop}.app", {}, 1, r"SystemError: a b \(.*app.py, line 1\)"),
    "exit": ("import sys\nsys.exit(3)\n", "{shop}.app", {}, 3, r"{shop}.app ends the process: sys.exit\(3\)"),
    "module": (APP, "{shop}.ap", {}, 3, r"no module '{shop}.ap' here .*did you mean {shop}.app\?"),
    "attribute": (APP, "{shop}.app:ap", {}, 3, r"has no such name; did you mean {shop}.app:app\?"),
    "setting in the code": (APP + "Lowkiq(theads=1)\n", "{shop}.app", {}, 3, "unknown option `theads`"),
    "URL in the code": (APP + "Lowkiq(redis_url='redis://h/x')", "{shop}.app", {}, 3, "must be a number, not 'x'"),
    "variable": (APP, "{shop}.app", {"LOWKIQ_LEASE_TTL": "0.1"}, 2, "LOWKIQ_LEASE_TTL: lease_ttl is 0.1, it"),
    "URL": (APP, "{shop}.app", {"REDIS_URL": "redis://h/x"}, 2, "REDIS_URL: can't use the Redis URL 'redis://h/x'"),
}


@pytest.mark.parametrize(("code", "spec", "variables", "exit_code", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_one_exit_code_of_both_commands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
    spec: str,
    variables: dict[str, str],
    exit_code: int,
    says: str,
) -> None:
    shop = re.sub(r"\W", "_", tmp_path.name)  # a module is imported once
    (tmp_path / shop).mkdir()
    (tmp_path / shop / "app.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOWKIQ_REDIS_URL", raising=False)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    app, line = spec.format(shop=shop), says.replace("{shop}", shop)
    found, told = refusal_of(lambda: load_app(app), app)
    assert (found, told == "") == ((ExitCode.DRAINED, True) if exit_code == 1 else (exit_code, False))
    assert exit_code == 1 or re.search(line, told), told
    with pytest.raises(typer.Exit) as ended:
        loaded(app)
    by_lowkiq = capsys.readouterr().err
    assert (ended.value.exit_code, len(by_lowkiq.splitlines())) == (exit_code, 1), by_lowkiq
    assert re.search(line, by_lowkiq), by_lowkiq


def test_an_application_without_workers_or_queue_is_told_of_before_a_node_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in (("wares", APP), ("jobs", "from wares import app\n\n\n" + WORKER)):
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    found, told = refusal_of(lambda: chosen_workers(load_app("wares"), None), "wares")
    assert found is ExitCode.BOOT
    assert told == "the application has no workers: register one with @app.worker; did you mean -r jobs?"
    load_app("wares").worker(queue_name="orders")(lambda payloads_by_id: None)
    found, told = refusal_of(lambda: chosen_workers(load_app("wares"), ["order"]), "wares")
    assert (found, told) == (ExitCode.USAGE, "unknown queue `order`, did you mean `orders`?")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), ExitCode.USAGE),
        (SettingsError("x"), ExitCode.BOOT),
        (AppNotFound("x"), ExitCode.BOOT),
        (SystemExit(0), ExitCode.BOOT),
        (ImportError("x"), ExitCode.BOOT),
        (PushFailed("Redis is away"), ExitCode.INTERNAL),
        (ConnectionError("x"), ExitCode.INTERNAL),
    ],
)
def test_what_may_heal_is_left_to_service_managers(error: BaseException, code: ExitCode) -> None:
    assert code_of_import(error) == code


def test_a_variable_that_a_keyword_wins_over_is_not_looked_at() -> None:
    wrong = {"REDIS_URL": "redis://h/x", "LOWKIQ_LEASE_TTL": "soon"}
    assert build({"redis_url": "redis://h/1", "lease_ttl": 5.0}, wrong).redis_url == "redis://h/1"
    with pytest.raises(UsageError, match="LOWKIQ_LEASE_TTL must be a number, not 'soon'"):
        build({}, wrong | {"REDIS_URL": ""})
