"""A node whose worker is async: its jobs run as tasks, beside each other, in order by id, and none is lost."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.node.nodes import Nodes, overlaps
from tests.support import RedisServer, wait_until


@pytest.fixture
def shard(make_nodes: Callable[..., Nodes]) -> Nodes:
    """One shard of an async worker."""
    return make_nodes(asynchronous=True, shards_count=1)


@pytest.fixture
def own_nodes(tmp_path, own_redis_server: RedisServer) -> Iterator[Nodes]:
    with Nodes(tmp_path, own_redis_server, "ns", asynchronous=True) as nodes:
        yield nodes


def jobs(count: int, **payload: object) -> list[dict[str, object]]:
    return [{"id": f"j{number:03}", "payload": payload} for number in range(count)]


def started(nodes: Nodes) -> list[str]:
    return [id for row in nodes.records("start") for id in row[2]]


def test_a_hundred_jobs_of_a_shard_run_at_once_and_the_next_as_soon_as_one_has_ended(shard: Nodes) -> None:
    shard.start().wait_ready()
    shard.push({"id": "first", "payload": {"gate": "one"}}, *jobs(120, gate="all"))
    wait_until(lambda: len(started(shard)) == 100)
    assert (shard.metrics().busy, shard.metrics().length) == (100, 21)
    shard.open("one")
    wait_until(lambda: len(started(shard)) == 101)
    shard.open("all")
    wait_until(shard.is_done)
    assert Counter(started(shard)) == Counter(["first", *(f"j{number:03}" for number in range(120))])


def test_concurrency_bounds_what_runs_at_once(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1, concurrency=2)
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "a"}}, {"id": "b", "payload": {"gate": "b"}}, *jobs(3))
    wait_until(lambda: nodes.is_at("a") and nodes.is_at("b"))
    assert sorted(started(nodes)) == ["a", "b"]
    nodes.open("b")
    wait_until(lambda: nodes.metrics().processed == 4)
    nodes.open("a")
    wait_until(nodes.is_done)
    assert overlaps(nodes.records("start", "end", "overlap")) == []


def test_what_is_pushed_to_an_id_that_runs_follows_its_run(shard: Nodes) -> None:
    shard.start().wait_ready()
    shard.push({"id": "a", "payload": {"gate": "go"}})
    wait_until(lambda: shard.is_at("go"))
    for number in range(3):
        shard.push({"id": "a", "payload": {"number": number}})
        shard.push({"id": f"other-{number}", "payload": {}})
    wait_until(lambda: shard.metrics().processed == 3)
    assert started(shard).count("a") == 1
    shard.open("go")
    wait_until(shard.is_done)
    batches = [row[2]["a"] for row in shard.records("start") if "a" in row[2]]
    assert batches == [[{"gate": "go"}], [{"number": 0}, {"number": 1}, {"number": 2}]]


def test_a_failed_job_is_tried_again_and_its_neighbours_are_not(shard: Nodes) -> None:
    shard.start().wait_ready()
    shard.push({"id": "bad", "payload": {"failures": 2}}, *jobs(20, sleep=0.01))
    wait_until(shard.is_done)
    counts = Counter(started(shard))
    assert (counts.pop("bad"), set(counts.values())) == (3, {1})


def test_what_cancels_itself_has_failed(shard: Nodes) -> None:
    shard.start().wait_ready()
    shard.push({"id": "a", "payload": {"own_cancel": 1}})
    wait_until(lambda: shard.metrics().failed)
    (job,) = shard.worker.queries.fetch(["a"])
    assert "CancelledError" in (job.error or "")


def test_a_payload_that_can_t_be_loaded_is_buried_and_stops_nobody(shard: Nodes) -> None:
    shard.start().wait_ready()
    shard.push_bytes(b"bad", b"undecodable")
    shard.push(*jobs(5))
    wait_until(shard.is_done)
    assert (shard.metrics().morgue_length, shard.metrics().processed) == (1, 5)


def test_what_takes_longer_than_perform_timeout_is_cancelled_and_has_failed(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1, perform_timeout=0.2, retry_in=60)
    nodes.start().wait_ready()
    nodes.push({"id": "slow", "payload": {"sleep": 30}}, *jobs(5, sleep=0.01))
    wait_until(lambda: nodes.metrics().failed)
    (job,) = nodes.worker.queries.fetch(["slow"])
    assert job.error == "PerformTimeout: took longer than 0.2 s"
    assert nodes.records("cancelled")
    wait_until(lambda: nodes.metrics().processed == 5)


# ── the end of the node ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_drain_lets_jobs_end_and_returns_those_that_do_not(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=5, concurrency=500)
    node = nodes.start(drain_timeout=3).wait_ready()
    quick = [{"id": f"q{number:03}", "payload": {"gate": "soon"}} for number in range(250)]
    nodes.push(*quick, *jobs(250, sleep=300))
    wait_until(lambda: nodes.metrics().busy == 500 and len(started(nodes)) == 500)
    node.send(signal.SIGTERM)
    wait_until(lambda: node.logged("draining"))
    nodes.open("soon")
    assert node.wait() == 0
    metrics = nodes.metrics()
    assert (metrics.processed, metrics.length, metrics.busy, metrics.failed) == (250, 250, 0, 0)
    assert {job.retry_count for job in nodes.worker.queries.fetch([f"j{n:03}" for n in range(250)])} == {-1}
    assert (nodes.crashes(), nodes.held_leases(), node.logged("abandoned")) == (0, [], [])


def test_a_job_that_will_not_be_cancelled_is_abandoned_and_restored(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1)
    node = nodes.start(drain_timeout=0.1, lease_ttl=1).wait_ready()
    nodes.push({"id": "a", "payload": {"stubborn": 1}}, {"id": "b", "payload": {"sleep": 300}})
    wait_until(lambda: len(started(nodes)) == 2)
    node.send(signal.SIGTERM)
    assert node.wait() == 5
    assert (nodes.metrics().busy, nodes.metrics().length, nodes.crashes()) == (1, 1, 0)


def test_a_base_exception_ends_the_node_and_keeps_the_job(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1, retry_in=60)
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"exit": 7}})
    assert node.wait() == 1
    (job,) = nodes.worker.queries.fetch(["a"])
    assert (job.retry_count, job.error) == (0, "SystemExit: 7")


def test_the_jobs_of_a_killed_node_run_again_and_the_one_that_kills_is_buried(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1)
    nodes.push({"id": "killer", "payload": {"kill": 1}}, *jobs(10, sleep=0.05))
    for _ in range(6):
        node = nodes.start(lease_ttl=1, max_crashes=2)
        wait_until(lambda node=node: not node.is_running() or nodes.is_done(), every=0.05)
        if node.is_running():
            break
    assert nodes.is_done()
    assert [job.id for job in nodes.worker.queries.morgue_fetch(["killer"])] == ["killer"]
    assert {id for row in nodes.records("end") for id in row[2]} == {f"j{number:03}" for number in range(10)}


def test_a_node_that_was_paused_past_its_lease_changes_nothing(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1)
    first = nodes.start(lease_ttl=1).wait_ready()
    nodes.push(*jobs(20, gate="go"))
    wait_until(lambda: len(started(nodes)) == 20)
    first.send(signal.SIGSTOP)
    nodes.start(lease_ttl=1)
    wait_until(lambda: len(started(nodes)) > 20)  # one by one, as they are suspects
    nodes.open("go")
    wait_until(nodes.is_done)
    first.send(signal.SIGCONT)
    wait_until(lambda: first.logged("lease_lost"))
    wait_until(lambda: len([1 for row in nodes.records("end")]) == 40)
    assert (nodes.metrics().processed, nodes.metrics().length) == (20, 0)


def test_what_ends_while_redis_is_away_is_settled_when_it_is_back(
    own_nodes: Nodes, own_redis_server: RedisServer
) -> None:
    own_nodes.start().wait_ready()
    own_nodes.push(*jobs(20, sleep=0.5))
    wait_until(lambda: len(started(own_nodes)) == 20)
    own_redis_server.stop()
    own_redis_server.start()
    wait_until(own_nodes.is_done)


# ── what people are told ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_beat_and_a_dump_tell_of_the_tasks(shard: Nodes, tmp_path) -> None:
    node = shard.start(state_dir=tmp_path).wait_ready()
    shard.push({"id": "a", "payload": {"gate": "go"}}, {"id": "b", "payload": {"gate": "go"}})
    wait_until(lambda: len(started(shard)) == 2)
    wait_until(lambda: any(health.tasks == 2 for health in shard.app.nodes().nodes))
    (health,) = shard.app.nodes().nodes
    assert sorted(task.ids for task in health.longest_tasks) == [["a"], ["b"]]
    assert health.threads == []
    node.send(signal.SIGTTIN)
    wait_until(lambda: node.logged("thread_dump"))
    (dump,) = [path.read_text() for path in tmp_path.glob("dumps/*.txt")]
    assert "  2 tasks" in dump.splitlines()[0] and "threads" not in dump.splitlines()[0]
    assert "Jobs of queue jobs, shard 0" in dump
    assert "['a']" in dump
    assert "act_async" in dump
    shard.open("go")


def test_a_blocked_event_loop_is_told_with_what_blocks_it(shard: Nodes) -> None:
    node = shard.start().wait_ready()
    shard.push({"id": "a", "payload": {"until_lost": 1}})  # which sleeps without an await
    wait_until(lambda: node.logged("event_loop_blocked"))
    assert any("act" in line for line in node.logged("event_loop_blocked")[0]["frames"])
    assert any(health.loop_lag > 1 for health in shard.app.nodes().nodes)
