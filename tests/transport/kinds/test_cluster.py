"""Redis Cluster: everything works when shards are on several servers, while these fail and while slots move."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.cluster import NodesManager

from lowkiq import Lowkiq, Rate
from lowkiq.admin.metrics import read_lengths
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, redis_time
from lowkiq.queue.rates import read_waiting
from lowkiq.queue.shard import peek, shards_of
from lowkiq.settings import Settings
from lowkiq.transport.connect import client_for_node
from tests.node.driven import burst
from tests.support import wait_until
from tests.transport.kinds.cluster import RedisCluster
from tests.transport.kinds.load import PUSHED_AT_ONCE, Load

pytestmark = pytest.mark.long

#: Of nodes and producers here: leases short enough to see one taken over.
SETTINGS = {"lease_ttl": 5}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def well(cluster: RedisCluster) -> RedisCluster:
    """The same, with all its members."""
    for member in cluster.members:
        if not member.is_running:
            cluster.restart(member)
    wait_until(cluster.is_well)
    return cluster


@pytest.fixture
def app(well: RedisCluster, request: pytest.FixtureRequest) -> Iterator[Lowkiq]:
    app = Lowkiq(redis_url=well.url, namespace=f"t{abs(hash(request.node.name))}")
    yield app
    app.close()


@pytest.fixture
def node(app: Lowkiq) -> Iterator[Caller]:
    """As a node sends its calls: nothing is repeated."""
    caller = Caller(client_for_node(app.settings, 10))
    yield caller
    caller.close()


def prefix_of(load: Load, shard: int) -> str:
    return keys.shard(load.app.settings.namespace, "jobs", shard)


# ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(
    not hasattr(NodesManager, "move_slot"), reason="docs/redis.md: this redis-py cuts connections in use"
)
def test_nothing_is_lost_or_out_of_order_while_slots_move(well: RedisCluster, tmp_path: Path) -> None:
    with Load(tmp_path, well.url, namespace="moving", **SETTINGS) as load:
        for shard in range(12):
            half_way = threading.Event()
            mover = threading.Thread(
                target=well.move_slot, args=(well.slot_of(prefix_of(load, shard)),), kwargs={"pause": half_way}
            )
            refused = len(load.refused)
            mover.start()
            if shard % 4 == 0:  # keep it open until a push for it was given up
                wait_until(lambda refused=refused: len(load.refused) > refused)
            half_way.set()
            mover.join(60)
        load.wait_for_progress()
        assert load.all_live()
        outcome = load.finish()
    assert outcome.accepted > 500
    assert outcome[1:4] == ([], [], [])
    # What a push that was given up had got in already, and that ran before it was pushed again.
    assert outcome.repeated <= len(load.refused) * PUSHED_AT_ONCE


def test_nothing_is_lost_or_out_of_order_when_primaries_hand_over(well: RedisCluster, tmp_path: Path) -> None:
    with Load(tmp_path, well.url, namespace="handing", **SETTINGS) as load:
        for primary in well.primaries():
            well.fail_over(primary)
            load.wait_for_progress()
        assert load.all_live()
        outcome = load.finish()
    assert outcome[1:4] == ([], [], [])


def test_with_acknowledged_replicas_nothing_is_lost_when_a_primary_dies(well: RedisCluster, tmp_path: Path) -> None:
    settings = SETTINGS | {"wait_replicas": 1, "wait_timeout": 5}
    with Load(tmp_path, well.url, namespace="dying", **settings) as load:
        for shard in (0, 1):
            key = prefix_of(load, shard)
            victim = well.kill_primary(key)
            wait_until(lambda key=key, victim=victim: well.primary_of(key) is not victim)
            well.restart(victim)  # as a replica: without one, no push is acknowledged
            load.wait_for_progress(400)
            wait_until(well.is_well)
        assert load.all_live()
        outcome = load.finish()
    assert outcome[1:3] == ([], [])


def test_a_queue_is_paused_ids_are_held_and_settings_are_followed(well: RedisCluster, tmp_path: Path) -> None:
    with Load(tmp_path, well.url, namespace="paused", **SETTINGS) as load:
        load.worker.actions.set(batch_size=5, who="ann")
        assert load.worker.actions.pause("stock-taking", who="ann", wait=30).is_confirmed
        wait_until(lambda: not load.app.metrics()["jobs"].busy)
        ran = load.ran()
        accepted = len(load.accepted)
        wait_until(lambda: len(load.accepted) > accepted)
        assert load.ran() == ran
        ids = [str(number) for number in range(40)]
        assert load.worker.actions.hold(ids, who="ann") == 40
        assert load.worker.actions.resume(who="ann") == 12
        load.wait_for_progress()
        assert {hold.id for hold in load.worker.queries.held()} == set(ids)
        assert load.worker.actions.release(ids, who="ann") == 40
        outcome = load.finish()
        assert "settings_changed" in "".join(path.read_text() for path in tmp_path.glob("node-*.log"))
    assert outcome[1:4] == ([], [], [])


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_script_is_refused_while_its_slot_moves_and_changes_neither_half(app: Lowkiq, well: RedisCluster) -> None:
    """Or it would see a shard of which some keys have come and some have not."""
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    worker.perform_async([{"id": "a", "payload": 1}])
    (shard,) = app.shards("q", 1)
    slot, source = well.slot_of(shard.prefix), well.primary_of(shard.prefix)
    keys_before = source.ask("CLUSTER", "COUNTKEYSINSLOT", slot)
    half_way, seen = threading.Event(), []
    mover = threading.Thread(target=well.move_slot, args=(slot,), kwargs={"pause": half_way})
    mover.start()
    node = Caller(client_for_node(app.settings, 1))
    try:
        wait_until(lambda: source.ask("CLUSTER", "COUNTKEYSINSLOT", slot) < keys_before)
        for call in (shard.acquire("n", 10, 3), peek([shard])):
            seen += node.run_all([call])
    finally:
        half_way.set()
        mover.join(60)
    assert [type(error) for error in seen] == [redis.exceptions.TryAgainError] * 2
    assert well.primary_of(shard.prefix) is not source
    assert app.metrics()["q"].length == 1
    assert node.run(shard.acquire("n", 10, 3)).restored == 0
    node.close()


def test_calls_for_a_server_that_is_away_fail_alone(app: Lowkiq, well: RedisCluster) -> None:
    shards = shards_of(app.settings.namespace, {"q": 12})
    node = Caller(client_for_node(app.settings, 3))
    assert not any(isinstance(told, Exception) for told in node.run_all([peek([shard]) for shard in shards]))
    well.kill_primary(shards[0].prefix)
    told = node.run_all([peek([shard]) for shard in shards])
    assert isinstance(told[0], redis.ConnectionError)
    assert [None] in told
    # The new primary has never seen the scripts.
    wait_until(lambda: node.run_all([peek([shard]) for shard in shards]) == [[None]] * 12)
    node.close()


def test_what_one_server_has_done_is_not_repeated_when_another_has_lost_its_scripts(
    app: Lowkiq, well: RedisCluster
) -> None:
    caller = Caller(client_for_node(app.settings, 3))
    shards = shards_of(app.settings.namespace, {"q": 12})
    caller.run_all([shard.acquire("n", 60, 3) for shard in shards])
    with well.primary_of(shards[0].prefix).client() as server:
        server.script_flush()
    others = [member.client() for member in well.primaries() if member is not well.primary_of(shards[0].prefix)]
    calls = [client.info("commandstats")["cmdstat_evalsha"]["calls"] for client in others]
    assert not any(isinstance(told, Exception) for told in caller.run_all([peek([shard]) for shard in shards]))
    sent = sum(client.info("commandstats")["cmdstat_evalsha"]["calls"] for client in others) - sum(calls)
    assert sent == sum(well.primary_of(s.prefix) is not well.primary_of(shards[0].prefix) for s in shards)
    for client in others:
        client.close()
    caller.close()


def test_a_batch_costs_one_round_trip_to_each_server(app: Lowkiq, well: RedisCluster, monkeypatch) -> None:
    from lowkiq.transport import cluster as module
    from lowkiq.transport.cluster_pipeline import ServerPipeline

    sent = []

    def count(server, commands, *more, **options):
        sent.append(len(commands))
        return ServerPipeline(server, commands, *more, **options)

    monkeypatch.setattr(module, "ServerPipeline", count)
    caller = Caller(client_for_node(app.settings, 3))
    caller.run_all([peek([shard]) for shard in shards_of(app.settings.namespace, {"q": 12})])
    sent.clear()
    caller.run_all([peek([shard]) for shard in shards_of(app.settings.namespace, {"q": 12})])
    assert len(sent) == 3
    assert sum(sent) == 12
    caller.close()


def test_a_cluster_that_is_away_is_an_error_of_redis(tmp_path: Path) -> None:
    caller = Caller(client_for_node(Settings(redis_url="redis+cluster://127.0.0.1:1,127.0.0.1:2"), 1))
    with pytest.raises(redis.ConnectionError):
        caller.command("TIME")
    with pytest.raises(redis.RedisError):
        read_lengths(caller, shards_of("x", {"q": 2}), "due")


def test_more_threads_than_connections_wait_and_then_are_told(app: Lowkiq, well: RedisCluster) -> None:
    caller = Caller(client_for_node(Settings(redis_url=well.url, pool_timeout=0.05), 1))
    caller.command("TIME")
    with caller.client._places, pytest.raises(redis.ConnectionError, match="no connection was free"):
        caller.command("TIME")
    assert caller.command("TIME")
    caller.close()


def test_a_rate_is_kept_in_a_slot_of_its_own(app: Lowkiq) -> None:
    started: list[str] = []
    rate = Rate(2, per=3600, by=lambda one, _: one[0])

    @app.worker(queue_name="rated", shards_count=5, rate=rate)
    def worker(id: str, payloads: list[str]) -> None:
        started.append(id)

    worker.perform_async([{"id": f"{key}{number}"} for key in "abc" for number in range(5)])
    burst(app)
    assert sorted(id[0] for id in started) == [*"aabbcc"]
    waiting = read_waiting(app.caller, app.settings.namespace, ["rated"], redis_time(app.caller))
    assert waiting["rated"].jobs == 9


def test_events_go_on_after_a_failover_and_tell_of_a_gap(well: RedisCluster, app: Lowkiq) -> None:
    """Who listens asks nothing else of the cluster: nobody but itself learns who answers now."""
    worker = app.worker(queue_name="jobs", shards_count=3)(lambda _: None)
    with app.events() as events:
        assert events._subscription
        port = events._subscription._pubsub.connection.port
        dead = next(member for member in well.members if member.port == port)
        dead.kill()
        wait_until(lambda: (event := events.next(1)) and event.kind == "gap")
        other = Lowkiq(redis_url=well.url, namespace=app.settings.namespace)
        wait_until(well.is_well)
        other.worker(queue_name=worker.queue_name, shards_count=3)(lambda _: None).perform_async([{"id": 1}])
        other.close()
        wait_until(lambda: (event := events.next(1)) and event.kind == "pushed")
