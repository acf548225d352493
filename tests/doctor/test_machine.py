"""What the doctor makes of this machine, of settings, and how it reports."""

from __future__ import annotations

import json
import resource
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from lowkiq import Lowkiq
from lowkiq.cli import tables
from lowkiq.doctor import command, examination, machine_checks
from lowkiq.doctor.subject import Check, Finding, Subject, Verdict, note, ok, problem, warning


def subject(environment: dict[str, str] | None = None, **settings: Any) -> Subject:
    return Subject(Lowkiq(**settings), environment or {}, has_app=True)


def embedded(directory: Path, **environment: str) -> Subject:
    """One whose jobs are in that directory."""
    url = f"unix://{directory}/redis/redis.sock"
    return subject({"LOWKIQ_STATE_DIR": str(directory)} | environment, redis_url=url)


def the_one(check: Check, who: Subject) -> Verdict:
    (verdict,) = check(who)
    assert (verdict.do is not None) == (verdict.level in {"warning", "problem"})
    return verdict


@pytest.mark.parametrize(
    ("path", "mode", "level", "told"),
    [
        ("", 0o700, "ok", "state directory"),
        ("a/b", 0o700, "ok", "made when a supervisor starts"),
        ("", 0o777, "warning", "chmod go-w {}"),
        ("file", 0o700, "warning", "LOWKIQ_STATE_DIR"),
        ("file/below", 0o700, "warning", "LOWKIQ_STATE_DIR"),
    ],
)
def test_a_state_directory(tmp_path: Path, path: str, mode: int, level: str, told: str) -> None:
    (tmp_path / "file").write_text("")
    tmp_path.chmod(mode)
    verdict = the_one(machine_checks.state_dir, subject({"LOWKIQ_STATE_DIR": str(tmp_path / path)}))
    assert verdict.level == level and told.format(tmp_path) in (verdict.do or verdict.says)


def test_a_state_directory_that_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    for path in (tmp_path, tmp_path / "below"):
        verdict = the_one(machine_checks.state_dir, subject({"LOWKIQ_STATE_DIR": str(path)}))
        assert verdict.level == "warning" and "no supervisor can start here" in verdict.says


def test_a_path_that_no_socket_can_have(tmp_path: Path) -> None:
    *_, verdict = machine_checks.state_dir(subject({"LOWKIQ_STATE_DIR": f"{tmp_path}/{'x' * 100}"}))
    assert verdict.level == "problem" and "too long for a unix socket" in verdict.says


def test_the_embedded_redis_in_what_systemd_empties(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/redis/redis.sock"
    verdict = the_one(machine_checks.embedded_redis, subject({"RUNTIME_DIRECTORY": f"{tmp_path}:/x"}, redis_url=url))
    assert verdict.level == "problem" and "systemd empties" in verdict.says and "LOWKIQ_STATE_DIR" in str(verdict.do)


def test_the_embedded_redis_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=str(tmp_path), fstype="tmpfs")]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts[:1])
    (tmp_path / "state").mkdir()
    assert list(machine_checks.embedded_redis(embedded(tmp_path / "state"))) == [], "on a disk it is fine"
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)
    verdict = the_one(machine_checks.embedded_redis, embedded(tmp_path / "state"))
    assert verdict.level == "problem" and "a tmpfs" in verdict.says


def test_a_redis_of_one_s_own_may_be_anywhere(tmp_path: Path) -> None:
    assert not list(machine_checks.embedded_redis(subject({"RUNTIME_DIRECTORY": str(tmp_path)}, redis_url="redis://h")))


@pytest.mark.parametrize(
    ("free", "is_embedded", "level"),
    [
        (5 << 30, True, "ok"),
        (500 << 20, True, "warning"),
        (50 << 20, True, "problem"),
        (500 << 20, False, "ok"),
        (50 << 20, False, "warning"),
    ],
)
def test_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_embedded: bool, level: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    who = embedded(tmp_path) if is_embedded else subject({"LOWKIQ_STATE_DIR": str(tmp_path)}, redis_url="redis://h")
    assert the_one(machine_checks.disk, who).level == level


@pytest.mark.parametrize(("soft", "level"), [(83, "warning"), (84, "ok"), (resource.RLIM_INFINITY, "ok")])
def test_open_files(monkeypatch: pytest.MonkeyPatch, soft: int, level: str) -> None:
    """Two connections for each of five threads, five others, five for pushing, and 64 more."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, 4096))
    assert the_one(machine_checks.open_files, subject()).level == level


def test_versions_are_told_and_a_missing_hiredis_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "redis-py" in the_one(machine_checks.software, subject()).says
    monkeypatch.setattr(redis.utils, "HIREDIS_AVAILABLE", False)
    *_, verdict = machine_checks.software(subject())
    assert verdict.level == "warning" and "pip install" in str(verdict.do)


def test_kubernetes_has_a_patience_of_its_own() -> None:
    assert not list(machine_checks.containers(subject()))
    verdict = the_one(machine_checks.containers, subject({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}))
    assert "terminationGracePeriodSeconds" in verdict.says


def test_a_drain_longer_than_the_supervisor_s() -> None:
    assert the_one(machine_checks.drain, subject(drain_timeout=60)).do.startswith("set LOWKIQ_DRAIN_TIMEOUT=60,")
    assert not list(machine_checks.drain(subject(drain_timeout=25)))
    assert not list(machine_checks.drain(subject({"LOWKIQ_DRAIN_TIMEOUT": "90"}, drain_timeout=60)))
    assert not list(machine_checks.drain(subject({"LOWKIQ_DRAIN_TIMEOUT": "2m"}, drain_timeout=60)))


def test_a_lease_shorter_than_the_wait_for_a_reply() -> None:
    assert the_one(machine_checks.lease, subject(lease_ttl=1)).level == "note"
    assert not list(machine_checks.lease(subject()))


@pytest.mark.parametrize(
    ("environment", "url", "source"),
    [
        ({"LOWKIQ_REDIS_URL": "redis://a"}, "redis://a", "LOWKIQ_REDIS_URL"),
        ({"REDIS_URL": "redis://a"}, "redis://a", "REDIS_URL"),
        ({"REDIS_URL": "redis://a"}, "redis://b", "the app"),
        ({}, "redis://localhost:6379/0", "the default"),
        ({}, "unix:///x/redis/redis.sock", "the state directory"),
    ],
)
def test_who_says_where_redis_is(environment: dict[str, str], url: str, source: str) -> None:
    assert subject(environment, redis_url=url).url_source == source


def test_a_node_is_counted_with_all_connections_that_it_may_open() -> None:
    """Two a thread, and five: node.py's pool. Its pushes have a pool of their own."""
    assert subject(threads_per_node=8, client_pool_size=3).connections_of_a_node == 2 * 8 + 5 + 3


def raising(error: Exception) -> Check:
    def check(subject: Subject) -> Any:
        yield note("so far")
        raise error

    return check


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Examines with these checks of Redis, and none of the machine; gives (check, level, says)."""

    def examine(within: float = 20.0, **checks: Check) -> list[tuple[str, str, str]]:
        monkeypatch.setattr(examination, "OF_REDIS", {name.replace("_", "."): check for name, check in checks.items()})
        monkeypatch.setattr(examination, "OF_MACHINE", {})
        return [(found.check, found.level, found.says) for found in examination.examine(subject(), within)]

    return examine


def test_a_check_that_fails_does_not_end_the_others(examine: Any) -> None:
    checks = {
        "first": raising(ValueError("odd")),
        "second": raising(NoPermissionError("no")),
        "third": raising(redis.ResponseError("unknown command 'info'")),  # a server is not blamed for what it isn't
        "fourth": lambda _: [ok("4")],
    }
    found = examine(**checks)
    assert [(check, level) for check, level, _ in found] == [
        ("first", "note"), ("first", "warning"), ("second", "note"), ("second", "note"), ("third", "note"),
        ("third", "note"), ("fourth", "ok"),
    ]  # fmt: skip
    assert found[1][2] == "could not be checked: ValueError: odd"


def test_without_redis_nothing_more_is_asked_of_it(examine: Any) -> None:
    found = examine(redis_answers=lambda _: [problem("away", "start it")], next=raising(AssertionError("asked")))
    assert found[0] == ("redis.answers", "problem", "away")
    assert found[1:] == [("redis.answers", "note", "not made: 1 checks that need Redis")]


@pytest.mark.parametrize("error", [redis.ConnectionError("closed"), redis.TimeoutError("waited")])
def test_a_redis_that_goes_away_meanwhile(examine: Any, error: Exception) -> None:
    there, asked = lambda _: [ok("there")], raising(AssertionError("asked"))
    found = examine(redis_answers=there, first=raising(error), second=asked)
    assert [(check, level) for check, level, _ in found] == [
        ("redis.answers", "ok"), ("first", "problem"), ("redis.answers", "note"),
    ]  # fmt: skip
    assert f"since the last check: {error}" in found[1][2]


def test_a_redis_that_answers_nothing_is_not_waited_for(examine: Any) -> None:
    go_on = threading.Event()

    def hang(subject: Subject) -> Any:
        go_on.wait(60)
        yield ok("at last")

    found = examine(within=0.05, redis_answers=lambda _: [ok("there")], slow=hang, after=hang)
    go_on.set()
    assert found[-1][:2] == ("redis.answers", "problem")
    assert "not checked: slow, after" in found[-1][2]


def test_every_check_has_a_documented_room() -> None:
    names = [*examination.OF_REDIS, *examination.OF_MACHINE]
    assert len(names) == len(set(names))
    assert {name.partition(".")[0] for name in names} == {"redis", "rights", "queues", "nodes", "settings", "machine"}
    assert next(iter(examination.OF_REDIS)) == examination.ANSWERS


FINDINGS = [Finding("a.b", *verdict) for verdict in (ok("o"), note("n"), problem("p", "mend"), warning("w", "think"))]


def test_the_gravest_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(command.table(FINDINGS))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["problem", "a.b", "p", "→", "mend"], ["warning", "a.b", "w", "→", "think"], ["note", "a.b", "n"],
        ["ok", "a.b", "o"],
    ]  # fmt: skip
    assert command.summary(FINDINGS) == "1 problem, 1 warning, 1 note, 1 ok"


def test_hostile_names_reach_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(command.table([Finding("a.b", *warning("\x1b[31m[red]x[/red]", "[b]y"))]))
    assert "\\x1b[31m[red]x[/red]" in (out := capsys.readouterr().out) and "[b]y" in out


def test_machines_get_the_same() -> None:
    told = json.loads(command.as_json(FINDINGS))
    assert told["counts"] == {"problem": 1, "warning": 1, "note": 1, "ok": 1}
    assert not told["is_well"]
    assert told["findings"][2] == {"check": "a.b", "level": "problem", "says": "p", "do": "mend"}
    assert command.is_well([found for found in FINDINGS if found.level != "problem"]), (
        "warnings are for people to weigh"
    )


def test_a_variable_that_is_nearly_one_is_told() -> None:
    found = the_one(machine_checks.variables, subject({"LOWKIQ_REDIS_UR": "redis://r", "LOWKIQ_DRAIN_TIMEOUT": "9"}))
    assert (found.says, found.do) == ("nothing reads LOWKIQ_REDIS_UR", "did you mean LOWKIQ_REDIS_URL?")
