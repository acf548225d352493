"""Nodes asked through Redis, under load: real processes and signals. Nothing is lost, and who asked is kept."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.beats.dumps import read_dump
from lowkiq.admin.beats.hands import HandName, HandRequest, ask, read_hand
from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.queue import keys
from tests.harness import Supervised
from tests.support import wait_until

APP = """
import time
from lowkiq import Lowkiq

app = Lowkiq(poll_interval=0.2)

@app.worker(batch_size=10, shards_count=6)
def note(payloads_by_id):
    secret = "a payload"
    app.redis().rpush("done", *payloads_by_id)
    time.sleep(0.002)
"""


class Site:
    """Two nodes, and who asks them."""

    def __init__(self, directory: Path, supervised: Supervised) -> None:
        self.supervised = supervised
        self.app = Lowkiq(redis_url=f"unix://{directory}/.lowkiq/redis/redis.sock")
        self.namespace = self.app.settings.namespace
        self.note: Any = self.app.worker(queue_name="note", shards_count=6)(lambda _: None)

    def node(self, number: int) -> NodeHealth:
        """The one that serves. Between a predecessor that leaves and its successor's first beat there is none."""

        def found() -> NodeHealth | None:
            nodes = self.app.nodes().nodes
            return next((node for node in nodes if node.node_number == number and not node.is_leaving), None)

        return wait_until(found, f"node {number}")

    def ask(self, node: str, action: HandName) -> HandRequest:
        return ask(self.app.caller, self.namespace, node, action, "a test")

    def answer(self, request: HandRequest) -> HandRequest:
        _, found = read_hand(self.app.caller, self.namespace, request.id)
        assert found
        return found

    def over(self, request: HandRequest) -> HandRequest:
        wait_until(lambda: self.answer(request).is_over, f"{request.action}: {self.answer(request)}")
        return self.answer(request)

    def kinds(self) -> list[str]:
        return [row.kind for row in read_incidents(self.app.caller, self.namespace)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    (directory / "shop.py").write_text(APP)
    with Supervised.main(directory, "--nodes", "2", "-r", "shop").ready(2) as supervised:
        site = Site(directory, supervised)
        wait_until(lambda: len(site.app.nodes().nodes) == 2, "two beats")
        yield site
        site.app.close()
        supervised.end()


def test_a_node_is_quieted_dumped_resumed_and_restarted_under_load_and_no_job_is_lost(site: Site) -> None:
    pushed: list[str] = []
    is_over = threading.Event()

    def push() -> None:
        while not is_over.wait(0.01):
            ids = [f"{len(pushed) + n}" for n in range(20)]
            site.note.perform_async({"id": id, "payload": id} for id in ids)
            pushed.extend(ids)

    load = threading.Thread(target=push)
    load.start()
    try:
        node = site.node(1)
        assert site.over(site.ask(node.node, "quiet")).state == "done"
        wait_until(lambda: site.node(1).state == "quiet", "its beat")
        assert site.over(site.ask(node.node, "quiet")).state == "done"  # it was already
        dumped = site.over(site.ask(node.node, "dump"))
        found = read_dump(site.app.caller, site.namespace, dumped.dump)
        assert found
        assert (found[0].node, found[0].who) == (node.node, "a test")
        assert node.node in found[1]
        assert "a payload" not in found[1]
        assert site.over(site.ask(node.node, "resume")).state == "done"
        wait_until(lambda: site.node(1).state == "ready", "its beat")
        restart = site.ask(node.node, "restart")
        again = site.ask(node.node, "restart")
        assert site.over(restart).state == "done"
        assert "replaced already" in site.over(again).says
        wait_until(lambda: site.node(1).pid != node.pid, "its successor")
    finally:
        is_over.set()
        load.join()
    wait_until(lambda: {id.decode() for id in site.app.redis().lrange("done", 0, -1)} >= set(pushed), "all jobs")
    assert site.supervised.events("asked_from_afar")
    for kind in ("started", "deploy", "quiet", "dump", "resume", "restart", "stopped"):
        wait_until(lambda kind=kind: kind in site.kinds(), kind)
    asked = [row for row in read_incidents(site.app.caller, site.namespace) if row.who == "a test"]
    assert [row.kind for row in asked] == ["restart", "restart", "resume", "dump", "quiet", "quiet"]
    assert len([kind for kind in site.kinds() if kind == "deploy"]) == 1  # not one a node


def test_a_death_is_noted_once_by_the_nodes_that_live(site: Site) -> None:
    node = site.node(0)
    os.kill(node.pid, signal.SIGKILL)
    wait_until(lambda: "death" in site.kinds(), "the incident")
    wait_until(lambda: site.node(0).pid != node.pid, "its successor")
    found = read_incidents(site.app.caller, site.namespace, kind="death")
    assert [row.node for row in found] == [node.node]
    assert "SIGKILL" in found[0].says
    assert found[0].host == node.host


def test_who_does_not_hear_is_told_of_and_an_old_request_or_junk_is_not_done(site: Site) -> None:
    node, redis = site.node(1), site.app.redis()
    gone = site.ask("nobody:1:abcd", "quiet")
    assert site.answer(gone).state == "gone"
    assert not gone.is_unheard(gone.asked_at + 1)
    assert gone.is_unheard(gone.asked_at + 20)
    waiting = keys.hands_of(site.namespace, node.node)
    old = site.ask("nobody:1:abcd", "quiet")
    text: Any = redis.get(keys.hand(site.namespace, old.id))
    text = text.replace(b"nobody:1:abcd", node.node.encode()).replace(b'"asked_at":1', b'"asked_at":')
    redis.set(keys.hand(site.namespace, old.id), text)
    redis.rpush(waiting, b"<b>", b"\xff", b"[" * 9_000, b'{"action":"stop"}', text)
    assert "ask again" in site.over(site.ask(node.node, "resume") and old).says
    redis.delete(waiting)
    redis.set(waiting, "x")
    wait_until(lambda: not redis.exists(waiting), "it heals")
    assert site.node(1).state == "ready"
    assert site.over(site.ask(node.node, "dump")).state == "done"


@pytest.mark.long
def test_a_node_that_is_killed_while_it_is_restarted_leaves_no_request_open(site: Site) -> None:
    node = site.node(1)
    os.kill(node.pid, signal.SIGSTOP)  # it neither hears nor dies by itself
    unheard = site.ask(node.node, "restart")
    os.kill(node.pid, signal.SIGCONT)
    wait_until(lambda: site.answer(unheard).state in {"heard", "doing"}, "it has heard", every=0.001)
    os.kill(node.pid, signal.SIGKILL)
    asked_of_the_dead = site.ask(node.node, "quiet")
    for request in (unheard, asked_of_the_dead):
        over = site.over(request)
        assert over.state == "gone", over
        assert over.says.startswith("the node is gone")
    wait_until(lambda: site.node(1).node != node.node, "its successor")
    assert site.over(site.ask(site.node(1).node, "dump")).state == "done"
