"""Groups of nodes: each runs some of the queues only, and counts its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lowkiq import Lowkiq, SettingsError
from lowkiq.node.node import Node
from tests.harness import Supervised, command, status
from tests.node.nodes import Nodes
from tests.support import RedisServer, wait_until

APP = """
from lowkiq import Lowkiq

app = Lowkiq(threads_per_node=2)

@app.worker(queue_name="mail", shards_count=2)
def mail(payloads_by_id):
    pass

@app.worker(queue_name="video", shards_count=6)
def video(payloads_by_id):
    pass
"""


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes(others=3)


def test_two_groups_share_a_namespace_and_neither_runs_or_misses_the_others_queues(nodes: Nodes) -> None:
    others = nodes.app.worker(queue_name="others", shards_count=3)(lambda _: None)
    first = nodes.start(node={"queues": ["jobs"]}).wait_ready()
    others.perform_async([{"id": str(number)} for number in range(10)])
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    assert nodes.app.metrics()["others"].length == 10
    second = nodes.start(node={"queues": ["others"]}).wait_ready()
    wait_until(lambda: nodes.app.metrics()["others"].processed == 10)
    wait_until(lambda: nodes.app.nodes().is_well)
    assert [node.queues for node in nodes.app.nodes().nodes] == [["jobs"], ["others"]]
    assert not first.logged("standing_by") and not second.logged("standing_by")
    assert not any("others" in node.owned for node in nodes.app.nodes().nodes if node.pid == first.pid)


def test_a_burst_ends_with_its_own_queues(nodes: Nodes) -> None:
    nodes.app.worker(queue_name="others", shards_count=3)(lambda _: None).perform_async([{"id": "left"}])
    nodes.push({"id": "a", "payload": {}})
    assert nodes.start(node={"queues": ["jobs"], "burst": True}).wait() == 0
    assert (nodes.ended("a"), nodes.app.metrics()["others"].length) == (True, 1)


def test_an_unknown_queue_is_refused_with_the_nearest(app: Lowkiq) -> None:
    app.worker(queue_name="mail")(lambda _: None)
    with pytest.raises(SettingsError, match="unknown queue `mial`, did you mean `mail`"):
        Node(app, queues=["mial"])
    with pytest.raises(SettingsError, match="unknown queue `x`, known are: mail"):
        Node(app, queues=["x"])


def test_threads_are_as_they_are_told_whatever_the_application_says(app: Lowkiq) -> None:
    app.worker(queue_name="mail")(lambda _: None)
    assert Node(app, threads=3)._settings.threads_per_node == 3
    with pytest.raises(SettingsError, match="threads_per_node is 1001"):
        Node(app, threads=1001)


def test_a_supervisor_passes_both_on_and_shows_the_queues(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    environment = {"REDIS_URL": redis_server.url, "LOWKIQ_NAMESPACE": app.settings.namespace, "LOWKIQ_THREADS": "3"}
    with Supervised.main(tmp_path, "-r", "shop", "--queues", "video", **environment).ready(1) as supervisor:
        wait_until(lambda: app.nodes().nodes)
        (node,) = app.nodes().nodes
        assert (node.queues, len(node.threads)) == (["video"], 3)
        assert status(tmp_path)["supervisor"]["queues"] == ["video"]
        assert "queues video" in command(tmp_path, "status").stdout
        supervisor.end()


@pytest.mark.parametrize(
    ("option", "refusal"),
    [
        (("--queues", " , "), "--queues is ' , ': name queues, separated by commas"),
        (("--queues", "critical=8,default="), "the weight of default is '', it must be an integer from 1 to 1,000"),
        (("--threads", "0"), "--threads is '0': a node has from 1 to 1,000 threads"),
    ],
)
def test_what_can_not_be_meant_is_refused(tmp_path: Path, option: tuple[str, str], refusal: str) -> None:
    ended = command(tmp_path, "-r", "shop", *option)
    assert (ended.returncode, refusal in ended.stderr) == (2, True), ended.stderr
