"""Deaths of the fork server, of nodes and of supervisors: no helper outlives its node, and nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from lowkiq import Lowkiq
from tests.harness import Supervised, status
from tests.node.helpers.conftest import IsolatedNodes, all_gone, fork_server_of, helpers_of, processes_of
from tests.support import RedisServer, wait_until

APP = """
import os, subprocess, sys, time
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq()
CODE = "import os, sys, time; sys.argv[1:] and os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"


@app.worker(queue_name="jobs", shards_count=1, isolation="process")
def jobs(payloads_by_id):
    for id, payloads in payloads_by_id.items():
        with Path(f"{id}.starts").open("a") as starts:
            starts.write(f"{os.getpid()}\\n")
        if "wait" in payloads[0] and not Path("go").exists():
            child = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE)
            Path(f"{id}.child").write_text(child.stdout.readline().decode())
            held = bytearray(os.urandom(1)) * (200 << 20)
            time.sleep(600)
"""


def test_a_node_without_a_fork_server_retires_and_asks_for_a_successor(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    everything = processes_of(node)
    fork_server_of(node).kill()
    assert node.wait() == 75
    wait_until(lambda: all_gone(everything))
    assert "the fork server has died" in node.logged("stopped_by")[0]["error"]
    assert node.logged("retiring")
    assert nodes.held_leases() == []


def test_jobs_whose_helper_goes_with_the_fork_server_run_again_and_have_not_failed(
    isolated: Callable[..., IsolatedNodes],
) -> None:
    nodes = isolated(batch_size=10)
    nodes.push({"id": "a", "payload": {"gate": "on"}}, {"id": "b", "payload": {}})
    node = nodes.start().wait_ready()
    wait_until(lambda: nodes.is_at("on"))
    everything = processes_of(node)
    fork_server_of(node).kill()
    assert node.wait() == 75
    wait_until(lambda: all_gone(everything))
    jobs = nodes.worker.queries.fetch(["a", "b"])
    assert [(job.retry_count, job.error) for job in jobs] == [(-1, None), (-1, None)]
    assert nodes.crashes() == 2  # they may have done it, and the first death makes no difference
    nodes.open("on")
    nodes.start()
    wait_until(lambda: nodes.ended("a") and nodes.ended("b") and nodes.crashes() == 0)


def test_jobs_of_threads_end_before_a_node_without_a_fork_server_goes(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start(drain_timeout=0.1).wait_ready()
    threads = nodes.app.worker(queue_name="threads", shards_count=1)(lambda _: None)
    threads.perform_async([{"id": "t", "payload": {"gate": "thread"}}])
    wait_until(lambda: nodes.is_at("thread"))
    fork_server_of(node).kill()
    wait_until(lambda: node.logged("retiring"))
    assert node.is_running()
    nodes.open("thread")
    assert node.wait() == 75
    assert node.logged("draining") == []
    assert nodes.records("thread_end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_for_all_processes_of_a_service_lets_jobs_in_helpers_finish(
    isolated: Callable[..., IsolatedNodes], number: signal.Signals
) -> None:
    """As systemd and Heroku send it: to each process, not only to the first."""
    nodes = isolated()
    nodes.push({"id": "a", "payload": {"gate": "on"}})
    node = nodes.start().wait_ready()
    wait_until(lambda: nodes.is_at("on"))
    for process in reversed(processes_of(node)):
        process.send_signal(number)
    node.send(number)
    wait_until(lambda: node.logged("retiring") or node.logged("draining"))
    nodes.open("on")
    assert node.wait() == 0
    assert len(nodes.records("start")) == len(nodes.records("end")) == 1
    assert (nodes.metrics().processed, nodes.crashes()) == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_everything_goes_with_a_node_that_is_killed(isolated: Callable[..., IsolatedNodes], number: int) -> None:
    """Also without a supervisor, while a helper is busy, and another idle; and what jobs have started."""
    nodes = isolated(shards_count=2)
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"children": 1, "gate": "never"}}, {"id": "b", "payload": {"gate": "b"}})
    wait_until(lambda: nodes.is_at("never") and nodes.is_at("b"))
    nodes.open("b")
    wait_until(lambda: nodes.ended("b"))
    everything = [*processes_of(node), *nodes.children()]
    assert len(helpers_of(node)) == 2
    node.send(number)
    node.wait()
    wait_until(lambda: all_gone(everything))


class Supervision:
    """A supervisor with one node, whose job has a child of its own."""

    def __init__(self, directory: Path, url: str) -> None:
        (directory / "shop.py").write_text(APP)
        self.directory, self._url = directory, url
        self.supervisor = Supervised.main(directory, "-r", "shop", REDIS_URL=url, LOWKIQ_LEASE_TTL="60").ready(1)
        self.node = self.supervisor.pid("node 0/1")

    def starts(self) -> int:
        """How often the job has begun."""
        path = self.directory / "a.starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def push(self) -> psutil.Process:
        """Pushes the job, and waits for its child."""
        with closing(Lowkiq(redis_url=self._url)) as app:
            worker = app.worker(queue_name="jobs", shards_count=1)(lambda _: None)
            worker.perform_async([{"id": "a", "payload": "wait"}])
        path = self.directory / "a.child"
        return psutil.Process(int(wait_until(lambda: path.exists() and path.read_text())))


@pytest.mark.parametrize("dead", ["node", "node with a fork server that is stuck", "fork server"])
def test_a_supervisor_replaces_the_node_at_once_and_no_helper_of_the_old_one_is_left(
    tmp_path: Path, isolated: Callable[..., IsolatedNodes], own_redis_server: RedisServer, dead: str
) -> None:
    place = Supervision(tmp_path, own_redis_server.url)
    with place.supervisor as supervisor:
        child = place.push()
        (server,) = psutil.Process(place.node).children()
        everything = [server, *server.children(recursive=True)]
        assert child in everything
        (tmp_path / "go").touch()
        if "stuck" in dead:
            server.suspend()
        (server if dead == "fork server" else psutil.Process(place.node)).kill()
        wait_until(lambda: place.starts() == 2)
        assert all_gone(everything), "the job runs again beside what it has left"
        if dead == "fork server":
            (end,) = supervisor.until_logged("recycled")
            assert end["reason"] == "exit code 75"
            assert supervisor.events("died_will_restart") == []
        supervisor.end()


def test_a_killed_supervisor_takes_along_what_jobs_in_helpers_have_started(
    tmp_path: Path, own_redis_server: RedisServer
) -> None:
    place = Supervision(tmp_path, own_redis_server.url)
    with place.supervisor as supervisor:
        child = place.push()
        supervisor.send(signal.SIGKILL)
        supervisor.exit_code()
        assert supervisor.nothing_is_left()
        wait_until(lambda: all_gone([child]))


def test_memory_that_a_helper_holds_is_its_node_s(tmp_path: Path, own_redis_server: RedisServer) -> None:
    """What it shares with the fork server counts once: an idle helper adds next to nothing."""
    place = Supervision(tmp_path, own_redis_server.url)
    with place.supervisor:
        place.push()
        node = psutil.Process(place.node)
        held = wait_until(lambda: (rss := status(tmp_path)["nodes"][0]["rss"]) > 200 << 20 and rss)
        assert held < node.memory_info().rss + (260 << 20)
