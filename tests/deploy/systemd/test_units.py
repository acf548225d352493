"""The unit files, by systemd's own tools and by what the code says of itself."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from lowkiq.environment import ExitCode
from lowkiq.settings import Settings
from lowkiq_supervisor import systemd
from lowkiq_supervisor.options import (
    DEFAULT_BOOT_TIMEOUT,
    DEFAULT_DRAIN_TIMEOUT,
    DEFAULT_HANG_TIMEOUT,
    DEFAULT_SOAK,
    OPTIONS,
    Options,
)
from lowkiq_supervisor.policy import limits
from lowkiq_supervisor.processes.node import DRAIN_GRACE, EXPENDABLE
from tests.deploy.systemd.units import SYSTEMD, Unit, read_environment
from tests.deploy.tools import need, run
from tests.support import ROOT

UNITS = ["lowkiq.service", "lowkiq@.service"]
#: What systemd-analyze calls "OK" goes to 4.9; ours may not be worse than this. In tenths.
EXPOSURE = 20


@pytest.fixture(params=UNITS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def unit(name: str) -> Unit:
    return Unit.read(SYSTEMD / name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the units, the commands that they run, and nothing else."""
    for command in ("opt/lowkiq/bin/lowkiq-supervisor", "opt/shop/bin/lowkiq-supervisor", "bin/sh"):
        (tmp_path / command).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / command).touch(mode=0o755)
    system = tmp_path / "etc/systemd/system"
    system.mkdir(parents=True)
    for unit in UNITS:
        (system / unit).write_text((SYSTEMD / unit).read_text())
    for target in ("sysinit", "basic", "multi-user", "network-online", "shutdown"):
        (system / f"{target}.target").write_text("[Unit]\nDescription=There is always one\n")
    return tmp_path


def analyze(verb: str, *arguments: str | Path) -> str:
    need("systemd-analyze")
    return run(["systemd-analyze", "--no-pager", verb, *arguments]).stdout


@pytest.mark.parametrize("name", ["lowkiq.service", "lowkiq@shop.service"])
def test_systemd_analyze_finds_nothing_to_say(root: Path, name: str) -> None:
    assert analyze("verify", f"--root={root}", "--man=no", "--recursive-errors=yes", name) == ""


def test_systemd_analyze_finds_nothing_to_say_with_the_credentials(root: Path) -> None:
    drop_in = root / "etc/systemd/system/lowkiq.service.d/credentials.conf"
    drop_in.parent.mkdir()
    drop_in.write_text((SYSTEMD / "credentials.conf").read_text())
    assert analyze("verify", f"--root={root}", "--man=no", "--recursive-errors=yes", "lowkiq.service") == ""


def test_exposure_is_far_below_what_systemd_calls_ok(name: str) -> None:
    told = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", SYSTEMD / name)
    assert re.search(r"Overall exposure level .*: \d\.\d OK", told)


def test_the_template_differs_from_the_service_by_its_name_alone() -> None:
    service, template = (Unit.read(SYSTEMD / name).sections for name in UNITS)
    assert list(service) == list(template)
    for section in ("Service", "Install"):
        assert list(service[section]) == list(template[section])
        for setting, values in template[section].items():
            # /var/lib/lowkiq-shop, since /var/lib is shared; elsewhere the name alone will do.
            named = [value.replace("lowkiq-%i", "lowkiq").replace("%i", "lowkiq") for value in values]
            assert named == service[section][setting], setting


def test_only_the_exit_codes_that_a_new_start_cannot_mend_prevent_one(unit: Unit) -> None:
    assert unit.one("Restart") == "on-failure"
    assert {int(code) for code in unit.one("RestartPreventExitStatus").split()} == {ExitCode.USAGE, ExitCode.BOOT}
    document = (ROOT / "docs/operators.md").read_text()
    table = document.partition("## Exit codes of the supervisor")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| (\d+) \|.*\| ([a-z ]*) ?\|$", table, re.MULTILINE))
    final = {int(code) for code, then in told.items() if then.strip() == "not restarted"}
    assert final == {ExitCode.USAGE, ExitCode.BOOT}
    assert {int(code) for code in told} == set(ExitCode) - {ExitCode.RECYCLED}  # of nodes only


def test_a_crash_leaves_no_core_and_the_kernel_takes_the_supervisor_last(unit: Unit) -> None:
    assert unit.one("LimitCORE") == "0"
    assert unit.one("OOMPolicy") == "continue"
    assert int(unit.one("OOMScoreAdjust")) < 0 < int(unit.one("OOMScoreAdjust")) + EXPENDABLE, "a plain process is at 0"
    assert unit.environment()["MALLOC_ARENA_MAX"] == "2"


def test_stopping_may_take_as_long_as_the_drain_and_what_the_supervisor_needs_besides(unit: Unit) -> None:
    assert unit.seconds("TimeoutStopSec") >= DEFAULT_DRAIN_TIMEOUT + DRAIN_GRACE + 3 + systemd.STOP_SPARE
    assert unit.one("KillMode") == "mixed"
    assert "SendSIGKILL" not in unit.sections["Service"]


def test_starting_may_take_as_long_as_the_slowest_boot(unit: Unit) -> None:
    assert unit.seconds("TimeoutStartSec") > 2 * DEFAULT_BOOT_TIMEOUT + limits.DUMP_TIME, "--preload imports twice"


def test_the_watchdog_is_more_patient_than_the_cure_for_one_silent_node(unit: Unit) -> None:
    """The supervisor pings at half the time, and not at all while it waits for the dump of a silent node."""
    assert unit.seconds("WatchdogSec") / 2 + limits.DUMP_TIME < unit.seconds("WatchdogSec")
    assert unit.seconds("WatchdogSec") >= DEFAULT_HANG_TIMEOUT


def test_the_state_directory_is_the_one_that_systemd_keeps(unit: Unit) -> None:
    environment = unit.environment(S="/var/lib", i="shop")
    kept = unit.one("StateDirectory").replace("%i", "shop")
    assert environment["LOWKIQ_STATE_DIR"] == f"/var/lib/{kept}"
    options = Options.resolve(
        app="shop.jobs",
        environ=environment | {"RUNTIME_DIRECTORY": f"/run/{kept}", "STATE_DIRECTORY": f"/var/lib/{kept}"},
    )
    assert options.state_dir == Path(f"/var/lib/{kept}"), "not the runtime directory, which systemd empties"


def test_the_example_explains_every_variable_there_is_and_no_other() -> None:
    example = SYSTEMD / "lowkiq.env"
    explained = read_environment(example) | read_environment(example, commented=True)
    settings = {name for name, kind in get_type_hints(Settings).items() if kind in {int, float, str}}
    options = {name for name, option in OPTIONS.items() if option.parse}
    known = {f"LOWKIQ_{name.upper()}" for name in settings | options}
    of_the_unit = {"LOWKIQ_APP", "LOWKIQ_NODES", "LOWKIQ_OPTIONS"}
    of_the_web = {"LOWKIQ_WEB_TOKEN", "LOWKIQ_WEB_USER", "LOWKIQ_WEB_PASSWORD"}
    assert set(explained) == known | of_the_unit | of_the_web | {"REDIS_URL", "NODE_NUMBER", "NUMBER_OF_NODES"}


def test_the_example_shows_the_defaults() -> None:
    shown = read_environment(SYSTEMD / "lowkiq.env", commented=True)
    for field in dataclasses.fields(Settings):
        name = f"LOWKIQ_{field.name.upper()}"
        if name in shown and isinstance(field.default, int | float):
            assert float(shown[name]) == field.default, name
    supervisors = {"DRAIN": DEFAULT_DRAIN_TIMEOUT, "HANG": DEFAULT_HANG_TIMEOUT, "BOOT": DEFAULT_BOOT_TIMEOUT}
    for name, default in supervisors.items():
        assert float(shown[f"LOWKIQ_{name}_TIMEOUT"]) == default
    assert float(shown["LOWKIQ_SOAK"]) == DEFAULT_SOAK


def test_the_example_s_commented_values_are_accepted() -> None:
    example = SYSTEMD / "lowkiq.env"
    environment = read_environment(example) | read_environment(example, commented=True)
    options = Options.resolve(app=environment["LOWKIQ_APP"], nodes=environment["LOWKIQ_NODES"], environ=environment)
    assert (options.max_rss, options.max_age, options.number_of_nodes) == (512 << 20, 6 * 3600, 12)
