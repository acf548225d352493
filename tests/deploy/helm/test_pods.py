"""The chart's pods, run here: they get ready, answer their probes, and drain; the web view is what others ask."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowkiq.environment import ExitCode
from tests.deploy.helm.chart import container, objects, one
from tests.deploy.helm.containers import Container
from tests.deploy.helm.installations import AUTOSCALED
from tests.support import RedisServer, free_port, wait_until

TOKEN = "correct-horse-battery"
APP = """
from lowkiq import Lowkiq

app = Lowkiq()


@app.worker(queue_name="orders", shards_count=4)
def sync(payloads_by_id): ...
"""

TWO_QUEUES = (
    APP
    + """

@app.worker(queue_name="mail", shards_count=4)
def send(payloads_by_id): ...
"""
)


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Short: a unix socket's path has 107 bytes.
    place = tmp_path_factory.mktemp("pod")
    (place / "shop").mkdir()
    (place / "shop/jobs.py").write_text(APP)
    return place


def nodes(directory: Path, url: str) -> Container:
    values = {"replicas": 2, "redis": {"namespace": directory.name}}
    manifest = container(one(objects(values), "StatefulSet"))
    # A pod that isn't the first: it needs both numbers.
    return Container(manifest, directory, NODE_NUMBER="1", LOWKIQ_REDIS_URL=url)


def test_a_pod_gets_ready_answers_its_probes_and_drains(directory: Path, redis_server: RedisServer) -> None:
    with nodes(directory, redis_server.url) as pod:
        wait_until(lambda: pod.passes("readiness"), every=0.2)
        assert pod.passes("startup") and pod.passes("liveness")
        told = json.loads(pod.run("lowkiq-supervisor", "status", "--json"))
        assert [node["node_number"] for node in told["nodes"]] == [2, 3]
        assert told["supervisor"]["number_of_nodes"] == 4
        assert told["redis"] is None, "no Redis of its own"
        assert "state_directory_open_to_others" not in pod.log.read_text()
        # A supervisor that is there and doesn't answer: only this is for Kubernetes to mend.
        pod.process.send_signal(signal.SIGSTOP)
        assert not pod.passes("liveness")
        pod.process.send_signal(signal.SIGCONT)
        wait_until(lambda: pod.passes("liveness"), every=0.2)
        assert pod.end() == ExitCode.DRAINED
        assert not pod.passes("liveness") and not pod.passes("startup")


def test_a_pod_whose_redis_is_away_isn_t_ready_but_lives(directory: Path) -> None:
    with nodes(directory, f"unix://{directory}/nobody.sock") as pod:
        wait_until(lambda: b"waiting_for_redis" in pod.log.read_bytes())
        assert pod.passes("startup") and pod.passes("liveness")
        assert not pod.passes("readiness")
        assert pod.end() == ExitCode.DRAINED


def test_a_pod_beyond_the_number_of_nodes_says_why_it_ends(directory: Path, redis_server: RedisServer) -> None:
    manifest = container(one(objects({"replicas": 1}), "StatefulSet"))
    with Container(manifest, directory, NODE_NUMBER="shop-lowkiq-1", LOWKIQ_REDIS_URL=redis_server.url) as pod:
        assert pod.process.wait(60) == ExitCode.USAGE
    assert "NUMBER_OF_NODES" in pod.log.read_text()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def found(port: int) -> list[dict[str, Any]]:
    return objects(AUTOSCALED, {"web": {"port": port, "token": TOKEN}, "serviceMonitor": {"enabled": True}})


@pytest.fixture
def web(found: list[dict[str, Any]], port: int, directory: Path, redis_server: RedisServer) -> Iterator[str]:
    """The address of a web view as the chart runs it."""
    manifest = container(one(found, "Deployment"))
    secrets = {"LOWKIQ_REDIS_URL": redis_server.url, "LOWKIQ_WEB_TOKEN": TOKEN}
    with Container(manifest, directory, **secrets) as pod:
        url = f"http://127.0.0.1:{port}"
        # Not the probe's path, which is a test's affair.
        wait_until(lambda: answers(url) or pod.process.poll() is not None, every=0.1)
        yield url


def answers(url: str) -> bool:
    try:
        get(url)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def get(url: str, token: str | None = None) -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
        return bytes(response.read())


def test_probes_prometheus_and_keda_find_at_the_web_view_what_they_ask_for(
    web: str, found: list[dict[str, Any]]
) -> None:
    made = container(one(found, "Deployment"))
    for probe in ("startup", "liveness", "readiness"):
        assert get(web + made[f"{probe}Probe"]["httpGet"]["path"]) == b"ok\n", "without credentials"
    (endpoint,) = one(found, "ServiceMonitor")["spec"]["endpoints"]
    (trigger,) = one(found, "ScaledObject")["spec"]["triggers"]
    stats = f"/{trigger['metadata']['url'].split('/', 3)[3]}"
    for path in (endpoint["path"], stats):
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            get(web + path)
        refused.value.close()
    assert b"lowkiq_nodes_missing" in get(web + endpoint["path"], TOKEN)
    value = json.loads(get(web + stats, TOKEN))
    for name in trigger["metadata"]["valueLocation"].split("."):
        value = value[name]
    assert isinstance(value, float | int)


def test_helm_s_test_pod_asks_the_web_view(web: str, found: list[dict[str, Any]]) -> None:
    (test,) = (each for each in one(found, "Pod")["spec"]["containers"] if each["name"] == "web")
    program, *words = test["command"]
    assert program == "python3"
    (url,) = test["args"]
    path = url.split("/", 3)[3]
    done = subprocess.run([sys.executable, *words, f"{web}/{path}"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "ok"
    assert subprocess.run([sys.executable, *words, f"{web}/metrics"], check=False, capture_output=True).returncode == 1


def test_groups_run_their_own_queues_and_none_of_their_nodes_is_doubled_or_missing(
    directory: Path, redis_server: RedisServer
) -> None:
    groups = {"orders": {"queues": ["orders"]}, "mail": {"queues": ["mail"], "threads": 2}}
    found = objects({"replicas": 1, "redis": {"namespace": directory.name}, "workers": groups})
    with contextlib.ExitStack() as running:
        pods = {}
        for name in groups:
            (directory / name / "shop").mkdir(parents=True)
            (directory / name / "shop/jobs.py").write_text(TWO_QUEUES)
            manifest = container(one(found, "StatefulSet", f"shop-lowkiq-{name}"))
            elsewhere = {"NODE_NUMBER": f"shop-lowkiq-{name}-0", "LOWKIQ_REDIS_URL": redis_server.url}
            pods[name] = running.enter_context(Container(manifest, directory / name, **elsewhere))
        for pod in pods.values():
            wait_until(lambda pod=pod: pod.passes("readiness"), every=0.2)
        nodes: dict[str, Any] = {}

        def told() -> list[Any]:
            nodes.update(json.loads(pods["mail"].run("lowkiq", "nodes", "-r", "shop.jobs", "--json")))
            return sorted((node["node_number"], sorted(node["owned"]), len(node["threads"])) for node in nodes["nodes"])

        expected = [(0, ["mail"], 2), (0, ["orders"], 5), (1, ["mail"], 2), (1, ["orders"], 5)]
        wait_until(lambda: told() == expected, every=0.5)
        assert not (nodes["missing"] or nodes["doubled"] or nodes["late"])
        assert [pod.end() for pod in pods.values()] == [ExitCode.DRAINED] * 2
