"""
Redis in trouble of every kind, under a node at work: the node lives, keeps what it has done, says once what is wrong,
and goes on when it is over; producers are told what to do.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from lowkiq import Lowkiq, PushFailed
from lowkiq.node.runtime import REMIND
from tests.node.nodes import Nodes
from tests.support import RedisServer, wait_until

PASSWORD = "old-secret-of-lowkiq"


class Stage:
    """A Redis that is to get into trouble, and a client of it with all rights, whose connection is spared."""

    def __init__(self, server: RedisServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.admin = server.client()

    def drop_connections(self) -> None:
        """All but the admin's, so that clients have to introduce themselves again."""
        self.admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with contextlib.suppress(redis.ResponseError):
            self.admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


Trouble = Callable[[Stage], contextlib.AbstractContextManager[None]]


def between(begin: Callable[[Stage], object], end: Callable[[Stage], object]) -> Trouble:
    @contextlib.contextmanager
    def trouble(stage: Stage) -> Iterator[None]:
        begin(stage)
        try:
            yield
        finally:
            end(stage)

    return trouble


def commands(begin: str, end: str, *, drop_connections: bool = False) -> Trouble:
    def start(stage: Stage) -> None:
        stage.admin.execute_command(*shlex.split(begin))
        if drop_connections:
            stage.drop_connections()

    return between(start, lambda stage: stage.admin.execute_command(*shlex.split(end)))


def block_snapshots(stage: Stage) -> None:
    """A snapshot can't be written: something is in its place."""
    (stage.directory / "dump.rdb").mkdir()
    stage.admin.config_set("save", "3600 1")
    snapshot(stage, "err")


def unblock_snapshots(stage: Stage) -> None:
    (stage.directory / "dump.rdb").rmdir()
    snapshot(stage, "ok")
    stage.admin.config_set("save", "")


def snapshot(stage: Stage, outcome: str) -> None:
    stage.admin.bgsave()
    wait_until(lambda: stage.admin.info("persistence")["rdb_last_bgsave_status"] == outcome)


@contextlib.contextmanager
def busy(stage: Stage) -> Iterator[None]:
    """Somebody's script has no end."""
    stage.admin.config_set("lua-time-limit", 50)
    with stage.server.client() as somebody:

        def run() -> None:
            with contextlib.suppress(redis.ResponseError):
                somebody.eval("while true do end", 0)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            wait_until(lambda: _kill_script(stage.admin), every=0.1)
            thread.join(60)


def _kill_script(admin: redis.Redis) -> bool:
    with contextlib.suppress(redis.ResponseError, redis.ConnectionError):
        return bool(admin.script_kill())
    return False


#: Name → the trouble, and what both a node and a producer are told.
TROUBLES: dict[str, tuple[Trouble, str]] = {
    "readonly": (commands("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"), "this Redis is a replica"),
    "misconf": (between(block_snapshots, unblock_snapshots), "can't write to its disk"),
    "noauth": (
        commands("CONFIG SET requirepass another", "CONFIG SET requirepass ''", drop_connections=True),
        "refuses the user or password",
    ),
    # The password is another one now.
    "wrongpass": (
        commands("ACL SETUSER app resetpass >rotated", f"ACL SETUSER app resetpass >{PASSWORD}", drop_connections=True),
        "refuses the user or password",
    ),
    "noperm": (commands("ACL SETUSER app -evalsha", "ACL SETUSER app +evalsha"), "may not do this"),
    "maxclients": (
        commands("CONFIG SET maxclients 1", "CONFIG SET maxclients 1000", drop_connections=True),
        "too many clients",
    ),
    "busy": (busy, "keeps Redis busy"),
    "refused": (between(lambda on: on.server.kill(), lambda on: on.server.start()), "see whether it runs"),
    "stopped": (between(lambda on: on.server.pause(), lambda on: on.server.resume()), "does not answer"),
}


@pytest.fixture
def stage(own_redis_server: RedisServer) -> Stage:
    stage = Stage(own_redis_server, own_redis_server.socket.parent)
    stage.admin.execute_command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    return stage


@pytest.fixture
def nodes(tmp_path: Path, stage: Stage) -> Iterator[Nodes]:
    with Nodes(tmp_path, stage.server, "ns", max_retry_count=1_000) as nodes:
        yield nodes


def url_of(name: str, server: RedisServer) -> str:
    url = f"{server.url}?socket_timeout=1"
    return f"{url}&username=app&password={PASSWORD}" if name in {"wrongpass", "noperm"} else url


@pytest.mark.parametrize("name", TROUBLES)
def test_a_node_outlives_it_and_loses_no_outcome(nodes: Nodes, stage: Stage, name: str) -> None:
    trouble, told = TROUBLES[name]
    url = url_of(name, stage.server)
    node = nodes.start(redis_url=url, lease_ttl=2, poll_interval=0.2).wait_ready()
    nodes.push(*({"id": f"before-{n}", "payload": {"sleep": 0.01}} for n in range(100)))
    wait_until(lambda: nodes.recorded() > 20)
    with trouble(stage), closing(Lowkiq(redis_url=url, namespace="ns")) as app:
        wait_until(lambda: any(told in (line["advice"] or "") for line in node.logged("redis_trouble")))
        producer = app.worker(queue_name="jobs", shards_count=3)(lambda _: None)
        began = time.monotonic()
        # Redis may hang up on one client too many before that has read why.
        expected = f"{told}|Broken pipe|reset by peer" if name == "maxclients" else told
        with pytest.raises(PushFailed, match=expected) as caught:
            producer.perform_async([{"id": "during", "payload": {}}])
        assert time.monotonic() - began < REMIND, "a producer waits for seconds, not for ever"
        assert PASSWORD not in str(caught.value)
        assert node.is_running()
    nodes.push({"id": "after", "payload": {}})
    wait_until(nodes.is_done)
    assert node.is_running()
    metrics = nodes.metrics()
    assert (metrics.length, metrics.busy, metrics.morgue_length) == (0, 0, 0)
    assert {id for row in nodes.records("end") for id in row[2]} >= {"after", *(f"before-{n}" for n in range(100))}
    wait_until(lambda: node.logged("redis_back"))
    assert PASSWORD not in node.output


def test_an_outage_is_told_of_once_and_not_at_every_try(nodes: Nodes, stage: Stage) -> None:
    """By five worker threads, lease keeper, doorbell and heartbeat together."""
    node = nodes.start(lease_ttl=1, poll_interval=0.1).wait_ready()
    nodes.push(*({"id": n, "payload": {"sleep": 0.01}} for n in range(300)))
    wait_until(lambda: nodes.recorded() > 20)
    stage.server.kill()
    wait_until(lambda: node.logged("redis_trouble"))
    before = node.output.count("\n")
    time.sleep(4)  # not to wait for something: this is for how long it may not chatter
    # What the jobs in hand had to say of their own use of Redis apart.
    told = [line for line in node.output.splitlines() if '"jobs_failed"' not in line]
    assert len(node.logged("redis_trouble")) <= 3, node.output
    assert len(told) <= before + 3
    stage.server.start()
    wait_until(nodes.is_done)
    wait_until(lambda: node.logged("redis_back"))


@pytest.mark.parametrize("name", ["noauth", "wrongpass", "readonly", "refused"])
def test_a_node_that_boots_waits_and_says_what_for(nodes: Nodes, stage: Stage, name: str) -> None:
    """It doesn't end: a password is rotated on both sides, and one of them is first."""
    trouble, told = TROUBLES[name]
    with trouble(stage):
        node = nodes.start(redis_url=url_of(name, stage.server))
        wait_until(lambda: node.logged("waiting_for_redis"))
        (line,) = node.logged("waiting_for_redis")
        assert told in line["advice"]
        assert node.is_running()
    node.wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(nodes.is_done)
    assert PASSWORD not in node.output


def test_while_redis_reads_its_data_both_wait(tmp_path: Path) -> None:
    """LOADING. Redis that reads slowly on purpose, as one of many gigabytes does."""
    directory = tmp_path / "redis"
    server = RedisServer(directory)
    server.start()
    with Nodes(tmp_path, server, "ns") as nodes:
        node = nodes.start().wait_ready()
        nodes.push({"id": "before", "payload": {}})
        wait_until(nodes.is_done)
        with server.client() as client:
            client.mset({f"other-{n}": n for n in range(3_000)})
            client.save()
        server.kill()
        slow = RedisServer(directory, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
        starting = threading.Thread(target=slow.start)
        starting.start()
        wait_until(lambda: any("reading its data" in (line["advice"] or "") for line in node.logged("redis_trouble")))
        starting.join(60)
        nodes.push({"id": "after", "payload": {}})
        wait_until(lambda: nodes.ended("after"))
        assert node.is_running()
        node.end()
        slow.stop()
