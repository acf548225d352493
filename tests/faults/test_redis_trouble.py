"""
Redis in trouble of every kind, under a node at work: the node lives, keeps what it has done, says once what is wrong,
and goes on when it is over; producers are told what to do.
"""

from __future__ import annotations

import contextlib
import signal
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

    @property
    def version(self) -> int:
        return int(self.admin.info("server")["redis_version"].split(".")[0])


@contextlib.contextmanager
def readonly(stage: Stage) -> Iterator[None]:
    stage.admin.replicaof("127.0.0.1", 1)
    try:
        yield
    finally:
        stage.admin.replicaof("NO", "ONE")


@contextlib.contextmanager
def misconf(stage: Stage) -> Iterator[None]:
    """A snapshot can't be written: something is in its place."""
    (stage.directory / "dump.rdb").mkdir()
    stage.admin.config_set("save", "3600 1")
    stage.admin.bgsave()
    wait_until(lambda: stage.admin.info("persistence")["rdb_last_bgsave_status"] == "err")
    try:
        yield
    finally:
        (stage.directory / "dump.rdb").rmdir()
        stage.admin.bgsave()
        wait_until(lambda: stage.admin.info("persistence")["rdb_last_bgsave_status"] == "ok")
        stage.admin.config_set("save", "")


@contextlib.contextmanager
def noauth(stage: Stage) -> Iterator[None]:
    stage.admin.config_set("requirepass", "another")
    stage.drop_connections()
    try:
        yield
    finally:
        stage.admin.config_set("requirepass", "")


@contextlib.contextmanager
def wrongpass(stage: Stage) -> Iterator[None]:
    """The password is another one now."""
    stage.admin.execute_command("ACL", "SETUSER", "app", "resetpass", ">rotated")
    stage.drop_connections()
    try:
        yield
    finally:
        stage.admin.execute_command("ACL", "SETUSER", "app", "resetpass", f">{PASSWORD}")


@contextlib.contextmanager
def noperm(stage: Stage) -> Iterator[None]:
    stage.admin.execute_command("ACL", "SETUSER", "app", "-evalsha")
    try:
        yield
    finally:
        stage.admin.execute_command("ACL", "SETUSER", "app", "+evalsha")


@contextlib.contextmanager
def maxclients(stage: Stage) -> Iterator[None]:
    stage.admin.config_set("maxclients", 1)
    stage.drop_connections()
    try:
        yield
    finally:
        stage.admin.config_set("maxclients", 1_000)


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
            thread.join(10)


def _kill_script(admin: redis.Redis) -> bool:
    with contextlib.suppress(redis.ResponseError, redis.ConnectionError):
        return bool(admin.script_kill())
    return False


@contextlib.contextmanager
def refused(stage: Stage) -> Iterator[None]:
    stage.server.stop(signal.SIGKILL)
    try:
        yield
    finally:
        stage.server.start()


@contextlib.contextmanager
def stopped(stage: Stage) -> Iterator[None]:
    """It hears, and does not answer."""
    assert stage.server.process
    stage.server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        stage.server.process.send_signal(signal.SIGCONT)


Trouble = Callable[[Stage], contextlib.AbstractContextManager[None]]

#: Trouble → what both a node and a producer are told.
TROUBLES: dict[Trouble, str] = {
    readonly: "this Redis is a replica",
    misconf: "can't write to its disk",
    noauth: "refuses the user or password",
    wrongpass: "refuses the user or password",
    noperm: "may not do this",
    maxclients: "too many clients",
    busy: "keeps Redis busy",
    refused: "see whether it runs",
    stopped: "does not answer",
}


@pytest.fixture
def stage(own_redis_server: RedisServer) -> Stage:
    stage = Stage(own_redis_server, own_redis_server.socket.parent)
    stage.admin.execute_command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    return stage


@pytest.fixture
def nodes(tmp_path: Path, stage: Stage, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    with Nodes(tmp_path, stage.server, "ns", max_retry_count=1_000) as nodes:
        yield nodes


def url_of(trouble: object, server: RedisServer) -> str:
    url = f"{server.url}?socket_timeout=1"
    return f"{url}&username=app&password={PASSWORD}" if trouble in {wrongpass, noperm} else url


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_a_node_outlives_it_and_loses_no_outcome(nodes: Nodes, stage: Stage, trouble: Trouble) -> None:
    told = TROUBLES[trouble]
    url = url_of(trouble, stage.server)
    node = nodes.start(redis_url=url, lease_ttl=2, poll_interval=0.2).wait_ready()
    nodes.push(*({"id": f"before-{n}", "payload": {"sleep": 0.01}} for n in range(100)))
    wait_until(lambda: nodes.recorded() > 20)
    with trouble(stage), closing(Lowkiq(redis_url=url, namespace="ns")) as app:
        wait_until(lambda: any(told in (line["advice"] or "") for line in node.logged("redis_trouble")))
        producer = app.worker(queue_name="jobs", shards_count=3)(lambda _: None)
        began = time.monotonic()
        # Redis may hang up on one client too many before that has read why.
        expected = f"{told}|Broken pipe|reset by peer" if trouble is maxclients else told
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
    stage.server.stop(signal.SIGKILL)
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


# ── boot ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("trouble", [noauth, wrongpass, readonly, refused], ids=lambda trouble: trouble.__name__)
def test_a_node_that_boots_waits_and_says_what_for(nodes: Nodes, stage: Stage, trouble: Trouble) -> None:
    """It doesn't end: a password is rotated on both sides, and one of them is first."""
    with trouble(stage):
        node = nodes.start(redis_url=url_of(trouble, stage.server))
        wait_until(lambda: node.logged("waiting_for_redis"))
        (line,) = node.logged("waiting_for_redis")
        assert TROUBLES[trouble] in line["advice"]
        assert node.is_running()
    node.wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(nodes.is_done)
    assert PASSWORD not in node.output


def test_while_redis_reads_its_data_both_wait(tmp_path: Path) -> None:
    """LOADING. Redis that reads slowly on purpose, as one of many gigabytes does."""
    directory = tmp_path / "redis"
    directory.mkdir()
    server = RedisServer(directory)
    server.start()
    with Nodes(tmp_path, server, "ns") as nodes:
        node = nodes.start().wait_ready()
        nodes.push({"id": "before", "payload": {}})
        wait_until(nodes.is_done)
        with server.client() as client:
            client.mset({f"other-{n}": n for n in range(3_000)})
            client.save()
        server.stop(signal.SIGKILL)
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
