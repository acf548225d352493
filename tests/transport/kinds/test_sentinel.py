"""Sentinel: the primary is found, and found again when another has taken its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from lowkiq import Lowkiq, PushFailed
from lowkiq.queue.call import Caller
from lowkiq.settings import Settings
from lowkiq.transport.connect import client_for_node
from tests.support import free_port, wait_until
from tests.transport.kinds.load import Load
from tests.transport.kinds.member import Member
from tests.transport.kinds.sentinel import RedisSentinel

pytestmark = pytest.mark.long

SETTINGS = {"lease_ttl": 5}


@pytest.fixture(scope="module")
def sentinel() -> Iterator[RedisSentinel]:
    with RedisSentinel() as sentinel:
        yield sentinel


@pytest.fixture
def well(sentinel: RedisSentinel) -> RedisSentinel:
    for member in (*sentinel.servers, *sentinel.sentinels):
        if not member.is_running:
            sentinel.restart(member)
    wait_until(sentinel.is_well)
    return sentinel


def test_nothing_is_lost_or_out_of_order_when_the_primary_hands_over(well: RedisSentinel, tmp_path: Path) -> None:
    """The old one lives on for a while, and would take pushes: only their acknowledgement tells that they are lost."""
    with Load(tmp_path, well.url, namespace="handing", wait_replicas=2, wait_timeout=5, **SETTINGS) as load:
        well.fail_over()
        load.wait_for_progress()
        assert load.all_live()
        outcome = load.finish()
    assert outcome[1:3] == ([], [])


def test_with_acknowledged_replicas_nothing_is_lost_when_the_primary_dies(well: RedisSentinel, tmp_path: Path) -> None:
    """Of two replicas both must have it: Sentinel promotes either."""
    with Load(tmp_path, well.url, namespace="dying", wait_replicas=2, wait_timeout=5, **SETTINGS) as load:
        victim = well.kill_primary()
        well.primary()
        well.restart(victim)
        load.wait_for_progress()
        assert load.all_live()
        outcome = load.finish()
    assert outcome[1:3] == ([], [])


def test_some_sentinels_may_be_dead(well: RedisSentinel) -> None:
    for sentinel in well.sentinels[:2]:
        sentinel.kill()
    caller = Caller(client_for_node(Settings(redis_url=well.url), 1))
    assert caller.command("PING")
    caller.close()


def test_a_service_that_nobody_knows_is_an_error_of_the_connection(well: RedisSentinel) -> None:
    caller = Caller(client_for_node(Settings(redis_url=well.url.replace("lowkiq-test", "other")), 1))
    with pytest.raises(redis.ConnectionError, match="other"):
        caller.command("PING")


def test_a_database_and_credentials_are_those_of_the_servers(well: RedisSentinel) -> None:
    url = well.url.removesuffix("/0") + "/3"
    app = Lowkiq(redis_url=url)
    app.redis().set("where", "three")
    with well.primary().client(db=3) as client:
        assert client.get("where") == b"three"
    app.close()


def test_a_push_without_enough_replicas_is_not_accepted_and_says_so(tmp_path: Path) -> None:
    server = Member(tmp_path / "server", free_port())
    server.start()
    app = Lowkiq(redis_url=f"redis://127.0.0.1:{server.port}", wait_replicas=1, wait_timeout=0.05)
    worker = app.worker(queue_name="q")(lambda _: None)
    with pytest.raises(PushFailed, match=r"0 of 1 replicas had it within 0\.05 s.*push all of them again"):
        worker.perform_async([{"id": "a", "payload": 1}])
    app.close()
    replica = Member(tmp_path / "replica", free_port(), "--replicaof", "127.0.0.1", str(server.port))
    replica.start()
    wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up")
    app = Lowkiq(redis_url=f"redis://127.0.0.1:{server.port}", wait_replicas=1, wait_timeout=8)
    worker = app.worker(queue_name="q")(lambda _: None)
    assert worker.perform_async([{"id": "a", "payload": 1}]).merged == 1
    app.close()
    replica.kill()
    server.kill()


def test_a_client_leaves_a_server_that_has_become_a_replica(tmp_path: Path) -> None:
    """Without Sentinel it is a name that leads to another server; the old one keeps its connections."""
    server = Member(tmp_path / "server", free_port())
    server.start()
    caller = Caller(client_for_node(Settings(redis_url=f"redis://127.0.0.1:{server.port}"), 1))
    caller.command("SET", "a", 1)
    before = caller.command("CLIENT", "ID")
    server.ask("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(redis.exceptions.ReadOnlyError):
        caller.command("SET", "a", 2)
    assert caller.command("CLIENT", "ID") != before
    caller.close()
    server.kill()
