"""Signals at any moment, and signals that nobody has asked for: none ends anything otherwise than by a drain."""

from __future__ import annotations

import os
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests import warm
from tests.harness import ENVIRONMENT, Supervised
from tests.support import LOWKIQ, SUPERVISOR, free_port, wait_until

#: Moments at which TERM comes, in each of these tests; the full proof is 200.
MOMENTS = int(os.environ.get("LOWKIQ_TEST_MOMENTS", "8"))
#: Signals whose default would end a process, of which none may.
DEADLY = [
    signal.SIGUSR1, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPIPE, signal.SIGXFSZ,
    signal.SIGPWR, signal.SIGRTMIN, signal.SIGRTMAX,
]  # fmt: skip

APP = """
import time
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker
def note(payloads_by_id):
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def test_no_other_signal_ends_the_supervisor_a_node_or_the_view(project: Path) -> None:
    port = free_port()
    with Supervised.main(project, "-r", "shop", "--web", f"127.0.0.1:{port}").ready(1) as supervisor:
        supervisor.until_logged("web_ready")
        pids = [supervisor.process.pid, supervisor.pid("node 0/1"), supervisor.pid(f"web 127.0.0.1:{port}")]
        for pid in pids:
            for signum in DEADLY:
                os.kill(pid, signum)
        for pid in pids[1:]:
            os.kill(pid, signal.SIGUSR2)
        os.kill(pids[2], signal.SIGHUP)
        supervisor.until_logged("log_goes_on")
        supervisor.send(signal.SIGUSR2)
        supervisor.until_logged("status")
        assert not supervisor.events("died_will_restart")
        assert all(psutil.Process(pid).is_running() for pid in pids)
        supervisor.end()


def test_no_signal_ends_a_node_that_is_importing_but_those_that_should(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import time, pathlib\npathlib.Path('importing').touch()\ntime.sleep(300)\n" + APP
    )
    words = [sys.executable, *LOWKIQ, "-r", "shop"]
    with subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT) as node:
        wait_until((tmp_path / "importing").exists)
        for signum in [*DEADLY, signal.SIGUSR2, signal.SIGXCPU]:
            node.send_signal(signum)
        node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 0


@pytest.mark.parametrize("who", ["supervisor", "node 0/1"])
def test_the_soft_limit_of_cpu_time_drains(tmp_path: Path, who: str) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with Supervised.main(tmp_path, "-r", "shop", "--restart", "on-failure").ready(1) as supervisor:
        pid = supervisor.process.pid if who == "supervisor" else supervisor.pid(who)
        used = psutil.Process(pid).cpu_times()
        limit = int(used.user + used.system) + 1
        resource.prlimit(pid, resource.RLIMIT_CPU, (limit, limit + 60))
        os.kill(pid, signal.SIGXCPU)
        supervisor.ends(0)
        if who == "supervisor":
            assert "CPU" in supervisor.events("draining")[0]["why"]
        else:
            assert supervisor.events("cpu_limit_reached")


#: The signals are held back, and nothing else is imported yet: says so by a file.
REACHED = (
    "import os, lowkiq.process.held_signals as held; hold = held.hold_back; "
    "held.hold_back = lambda: (hold(), open(f'reached-{os.getpid()}', 'w').close())"
)
COMMANDS = {"supervisor": ("lowkiq-supervisor", SUPERVISOR), "a node on its own": ("lowkiq", LOWKIQ)}


@pytest.mark.parametrize(("name", "words"), COMMANDS.values(), ids=COMMANDS.keys())
def test_term_at_any_moment_after_python_has_begun_exits_0(project: Path, name: str, words: tuple[str, str]) -> None:
    """The first moments belong to the kernel and to Python, before the entry point is reached."""
    code = f"import sys; sys.argv = [{name!r}, '-r', 'shop']; {REACHED}; {words[1]}"
    for moment in range(MOMENTS):
        with Supervised(project, ["-c", code], warm.COLD) as process:
            wait_until((project / f"reached-{process.process.pid}").exists, "the entry point", every=0.001)
            time.sleep(moment / MOMENTS * 0.4)  # not to wait for something: this is the moment
            process.end(signal.SIGTERM)


def test_signals_every_5_ms_until_the_end_leave_the_exit_code_alone(tmp_path: Path) -> None:
    storm = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP]
    for _ in range(max(3, MOMENTS // 4)):
        with Supervised.running("obedient", tmp_path, nodes=2) as supervisor:
            while supervisor.process.poll() is None:
                for signum in storm:
                    supervisor.send(signum)
                time.sleep(0.005)  # not to wait for something: this is the storm
            supervisor.ends(0)


def from_a_terminal(directory: Path, *wrapper: str) -> tuple[Supervised, int]:
    """A supervisor whose controlling terminal this is; the terminal ends when the descriptor is closed."""
    master, slave = pty.openpty()
    path = os.ttyname(slave)
    behave = f"import os, sys; os.setsid(); os.close(os.open({path!r}, os.O_RDWR)); os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", behave, *wrapper]
    supervisor = Supervised.doing("obedient", directory, nodes=1, wrapper=words)
    supervisor.ready(1)
    os.close(slave)
    return supervisor, master


def test_the_end_of_its_terminal_drains(tmp_path: Path) -> None:
    supervisor, master = from_a_terminal(tmp_path)
    with supervisor:
        os.close(master)
        supervisor.ends(0)
        assert supervisor.events("draining")[0]["why"] == "HUP: the terminal has ended"


def test_hup_from_elsewhere_rolls_also_with_a_terminal(tmp_path: Path) -> None:
    supervisor, master = from_a_terminal(tmp_path)
    with supervisor:
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        supervisor.end()
    os.close(master)


def test_after_nohup_the_end_of_the_terminal_changes_nothing(tmp_path: Path) -> None:
    supervisor, master = from_a_terminal(tmp_path, "/usr/bin/env", "--ignore-signal=HUP")
    with supervisor:
        os.close(master)
        supervisor.until_logged("terminal_ended")
        assert not supervisor.events("rolling_restart")
        supervisor.end()


BURSTS = """
import os, signal, sys
from lowkiq.process.faults import dump_on_faults
from lowkiq.process.signals import disarm
disarm()
dump_on_faults()
own = os.getpid()
for _ in range(200):
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX):
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        os.kill(own, number)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
"""


def test_a_burst_of_signals_overflows_no_stack() -> None:
    """Thirty at once: where faulthandler is on, Python has room for about four."""
    assert subprocess.run([sys.executable, "-c", BURSTS], env=ENVIRONMENT, check=False).returncode == 0
