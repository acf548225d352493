"""
The systemd guide of docs/deployment.md, followed to the letter on a bare Debian that systemd has booted; and then what
the unit promises, by systemd itself.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowkiq_supervisor.processes.node import EXPENDABLE
from tests.deploy.debian import bare_root, chroot
from tests.deploy.systemd.machine import Machine
from tests.deploy.systemd.units import SYSTEMD
from tests.deploy.tools import JOBS, need, pushing, run, slow, wheel
from tests.support import ROOT, wait_until

pytestmark = [slow, pytest.mark.timeout(900)]

BIN = "/opt/lowkiq/bin"
STATE = "/var/lib/lowkiq"
OVERRIDE = "/etc/systemd/system/lowkiq.service.d/test.conf"


def commands(document: str, heading: str) -> list[str]:
    """The commands of the first console block under a heading, without their prompts and comments."""
    text = (ROOT / document).read_text()
    below = re.split(rf"^#+ {re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    block = re.search(r"```console\n(.*?)```", below, re.DOTALL)
    assert block, f"{document}: no console block under {heading}"
    lines = re.sub(r" *\\\n\s*", " ", block[1]).splitlines()
    return [re.sub(r"\s{2,}# .*", "", line[2:]) for line in lines if line.startswith(("# ", "$ "))]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Booted, and set up by the guide; its commands that need systemd run after the boot, the others before."""
    need("systemd-nspawn")
    directory = tmp_path_factory.mktemp("machine")
    root = directory / "root"
    run(["cp", "--archive", "--reflink=auto", bare_root(tmp_path_factory.getbasetemp()), root])
    checkout = root / "root/lowkiq"
    shutil.copytree(SYSTEMD, checkout / "systemd")
    (checkout / "shop").mkdir()
    (checkout / "shop/jobs.py").write_text(JOBS)
    shutil.copy(wheel(directory), checkout)
    with (root / "etc/pip.conf").open("a") as pip:
        pip.write("find-links = /root/lowkiq\n")
    guide = commands("docs/deployment.md", "systemd") + commands("docs/deployment.md", "Several applications")
    for command in (command for command in guide if not command.startswith("systemctl ")):
        chroot(root, command)
    with (root / "etc/lowkiq/shop.env").open("a") as variables:
        variables.write("REDIS_URL=redis://localhost:6379/0\n")
    try:
        with Machine(root) as booted:
            for command in (command for command in guide if command.startswith("systemctl ")):
                booted.run(command)
            yield booted
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def service(machine: Machine) -> Iterator[Machine]:
    """The machine with the service as the guide leaves it; what a test has changed is taken back."""
    machine.run("systemctl reset-failed lowkiq; systemctl start lowkiq")
    yield machine
    machine.run(f"rm -rf {Path(OVERRIDE).parent}; systemctl daemon-reload; systemctl reset-failed lowkiq; true")
    machine.run("systemctl stop lowkiq")


def override(machine: Machine, **settings: str) -> None:
    """A drop-in, and a start with it."""
    lines = "\n".join(["[Service]", *(f"{name}={value}" for name, value in settings.items())])
    machine.run(f"mkdir -p {Path(OVERRIDE).parent}; cat > {OVERRIDE} <<'END'\n{lines}\nEND")
    machine.run("systemctl daemon-reload; systemctl restart lowkiq", check=False)


def push(machine: Machine, id: str, *, url: str = "", **order: str) -> None:
    """Pushes as the user lowkiq, who finds the private Redis by the state directory."""
    user = f"runuser -u lowkiq -- env LOWKIQ_STATE_DIR={STATE} REDIS_URL={url}"
    machine.run(f'cd /srv/lowkiq; {user} {BIN}/python -c "{pushing(id, order)}"')


def redis(machine: Machine, command: str) -> str:
    return machine.run(f"redis-cli -s {STATE}/redis/redis.sock {command}").strip()


def outcome(machine: Machine, id: str) -> str:
    return str(wait_until(lambda: redis(machine, f"get ended:{id}"), every=0.1))


def main_pid(machine: Machine) -> int:
    return int(machine.show("lowkiq", "MainPID"))


def nodes(machine: Machine) -> set[int]:
    told = machine.run(f"{BIN}/lowkiq-supervisor status --json --state-dir {STATE}", check=False)
    return {node["pid"] for node in json.loads(told)["nodes"]} if told.startswith("{") else set()


def test_the_guide_ends_with_all_nodes_ready(service: Machine) -> None:
    assert service.show("lowkiq", "ActiveState") == "active"
    assert service.show("lowkiq", "StatusText") == "running: 4 of 4 nodes ready"
    assert service.succeeds("systemctl is-enabled lowkiq")
    assert service.run(f"stat -c '%U %a' {STATE} /etc/lowkiq/lowkiq.env").split() == ["lowkiq", "700", "root", "600"]
    warnings = service.run("journalctl --quiet --unit=lowkiq --unit=lowkiq@shop --priority=warning")
    assert warnings == "", "neither systemd nor the supervisor has anything to find fault with"


def test_status_answers_root_and_the_service_s_user_and_nobody_else(service: Machine) -> None:
    command = f"{BIN}/lowkiq-supervisor status --state-dir {STATE}"
    assert service.succeeds(command)
    assert service.succeeds(f"runuser -u lowkiq -- {command}")
    assert not service.succeeds(f"runuser -u nobody -- {command}")


def test_a_job_runs_as_the_service_s_user_and_can_write_to_nothing_but_its_own(service: Machine) -> None:
    places = {"own": f"{STATE}/file", "tmp": "/tmp/file", "code": "/srv/lowkiq/shop/file", "etc": "/etc/file"}
    for id, path in places.items():
        push(service, id, write=path)
    push(service, "home", list="/root")
    found = {id: outcome(service, id) for id in [*places, "home"]}
    refused = "Read-only file system"
    assert found == {"own": "done", "tmp": "done", "code": refused, "etc": refused, "home": "Permission denied"}
    assert service.run(f"stat -c '%U %a' {STATE}/file").split() == ["lowkiq", "600"]
    assert not service.succeeds("test -e /tmp/file"), "its /tmp is its own"


def test_reload_replaces_one_node_after_the_other_and_keeps_the_supervisor(service: Machine) -> None:
    supervisor, before = main_pid(service), nodes(service)
    service.run("systemctl reload lowkiq")
    wait_until(lambda: len(after := nodes(service)) == 4 and not after & before, every=0.1)
    wait_until(lambda: service.show("lowkiq", "ActiveState") == "active", every=0.1)
    assert main_pid(service) == supervisor
    assert service.show("lowkiq", "NRestarts") == "0"


def test_a_reload_may_take_longer_than_a_start(service: Machine) -> None:
    """Each node's successor is watched for a while: systemd gives a reload the time of a start."""
    override(service, WatchdogSec="4", Environment="LOWKIQ_SOAK=3")
    service.run(f"echo TimeoutStartSec=5 >> {OVERRIDE}; systemctl daemon-reload")
    before = nodes(service)
    service.run("systemctl reload lowkiq")
    wait_until(lambda: len(after := nodes(service)) == 4 and not after & before, every=0.2)
    wait_until(lambda: service.show("lowkiq", "ActiveState") == "active", every=0.1)
    assert "timed out" not in service.run("journalctl --quiet --unit=lowkiq")


def test_a_stop_waits_for_a_long_job_beyond_timeoutstopsec_since_the_drain_is_longer(service: Machine) -> None:
    override(service, TimeoutStopSec="2", Environment="LOWKIQ_DRAIN_TIMEOUT=60")
    push(service, "long", wait_for="go")
    wait_until(lambda: redis(service, "get began:long"), every=0.1)
    service.run("systemctl stop --no-block lowkiq")
    before = float(service.run("cut -d' ' -f1 /proc/uptime"))
    wait_until(lambda: float(service.run("cut -d' ' -f1 /proc/uptime")) > before + 4, every=0.2)
    assert service.show("lowkiq", "ActiveState") == "deactivating"
    redis(service, "set go 1")
    wait_until(lambda: service.show("lowkiq", "ActiveState") == "inactive", every=0.1)
    assert service.show("lowkiq", "Result") == "success"
    service.run("systemctl start lowkiq")
    assert redis(service, "get ended:long") == "done", "and the private Redis has kept it over the stop"
    redis(service, "del go")


def test_jobs_that_wait_in_the_private_redis_outlive_a_stop_and_a_start(service: Machine) -> None:
    service.run(f"{BIN}/lowkiq-supervisor quiet --state-dir {STATE}")
    push(service, "kept", write=f"{STATE}/kept")
    service.run("systemctl restart lowkiq")
    assert outcome(service, "kept") == "done"
    assert service.run("ls /run/lowkiq") == ""


def test_a_supervisor_that_dies_is_started_again_and_one_of_its_nodes_is_its_own_affair(service: Machine) -> None:
    override(service, RestartSec="100ms")
    supervisor, before = main_pid(service), nodes(service)
    service.run(f"kill -KILL {min(before)}")
    wait_until(lambda: len(after := nodes(service)) == 4 and min(before) not in after, every=0.1)
    assert main_pid(service) == supervisor
    service.run(f"kill -KILL {supervisor}")
    wait_until(lambda: main_pid(service) not in {0, supervisor}, every=0.1)
    wait_until(lambda: service.show("lowkiq", "ActiveState") == "active", every=0.1)
    assert service.show("lowkiq", "NRestarts") == "1"
    assert not nodes(service) & before


def test_the_kernel_would_take_a_node_before_anything_else_and_the_supervisor_last(service: Machine) -> None:
    supervisor, *others = (
        int(service.run(f"cat /proc/{pid}/oom_score_adj")) for pid in [main_pid(service), *sorted(nodes(service))]
    )
    assert int(service.show("lowkiq", "OOMScoreAdjust")) + EXPENDABLE > 0, "before a Redis on this machine, say"
    assert supervisor <= 0 < min(others), "in a container, systemd may not be able to lower the supervisor's"


def test_a_crash_leaves_no_core(service: Machine) -> None:
    assert re.search(r"^Max core file size +0 +0 ", service.run(f"cat /proc/{main_pid(service)}/limits"), re.MULTILINE)


def test_the_watchdog_replaces_a_supervisor_that_is_stuck(service: Machine) -> None:
    override(service, WatchdogSec="2", RestartSec="100ms")
    supervisor = main_pid(service)
    service.run(f"kill -STOP {supervisor}")
    wait_until(lambda: main_pid(service) not in {0, supervisor}, every=0.1)
    wait_until(lambda: service.show("lowkiq", "ActiveState") == "active", every=0.1)
    assert "Watchdog timeout" in service.run("journalctl --quiet --unit=lowkiq")


@pytest.mark.parametrize(
    ("variable", "code"), [("LOWKIQ_APP=no_such_module", "3"), ("LOWKIQ_NODES=many", "2")], ids=["boot", "usage"]
)
def test_what_a_new_start_cannot_mend_is_not_started_again(service: Machine, variable: str, code: str) -> None:
    service.run(f"echo {variable} > /etc/lowkiq/wrong.env")
    override(service, RestartSec="100ms", EnvironmentFile="/etc/lowkiq/wrong.env")
    wait_until(lambda: service.show("lowkiq", "ActiveState") == "failed", every=0.1)
    assert service.show("lowkiq", "ExecMainStatus") == code
    assert service.show("lowkiq", "NRestarts") == "0"


def test_credentials_reach_the_supervisor_and_the_main_process_is_it(service: Machine) -> None:
    service.run("printf redis://localhost:6379/1 > /etc/lowkiq/redis-url; echo eight-or-more > /etc/lowkiq/web-token")
    service.run(f"install -D -m 644 /root/lowkiq/systemd/credentials.conf {OVERRIDE}")
    service.run("systemctl daemon-reload; systemctl restart lowkiq")
    push(service, "told", url="redis://localhost:6379/1", variable="LOWKIQ_WEB_TOKEN")
    found = wait_until(lambda: service.run("redis-cli -n 1 get ended:told").strip(), every=0.1)
    assert found == "eight-or-more"
    assert service.run(f"readlink /proc/{main_pid(service)}/exe").startswith("/usr/bin/python3"), "the shell is gone"
    assert service.show("lowkiq", "StatusText") == "running: 4 of 4 nodes ready"


def test_an_instance_of_the_template_runs_beside_it_with_everything_of_its_own(service: Machine) -> None:
    assert service.show("lowkiq@shop", "StatusText") == "running: 4 of 4 nodes ready"
    assert service.succeeds("/opt/shop/bin/lowkiq-supervisor status --state-dir /var/lib/lowkiq-shop")
    assert not service.succeeds("test -e /var/lib/lowkiq-shop/redis"), "it was given the machine's Redis"
    assert service.run("redis-cli --scan --pattern 'lowkiq*' | head -1").startswith("lowkiq")
    service.run("systemctl stop lowkiq@shop")
    assert service.show("lowkiq@shop", "Result") == "success"
    assert service.show("lowkiq", "ActiveState") == "active"
    service.run("systemctl start lowkiq@shop")


def test_systemd_analyze_says_of_the_running_service_what_it_says_of_the_file(service: Machine) -> None:
    assert service.succeeds("systemd-analyze security --threshold=20 --no-pager lowkiq")
    assert service.run("systemd-analyze verify --man=no lowkiq.service lowkiq@shop.service") == ""
