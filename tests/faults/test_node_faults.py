"""Whatever dies, pauses or forgets: nothing is lost, nothing runs out of order, nothing is settled twice."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.job import shard_of
from tests.node.nodes import Nodes, overlaps
from tests.support import RedisServer, wait_until


def ran(nodes: Nodes, id: str) -> list[int]:
    """The numbers of the payloads of an id, in the order in which they started."""
    return [payload["n"] for row in nodes.records("start") for payload in row[2].get(id, [])]


def test_after_a_kill_another_node_takes_over_within_the_lease(nodes: Nodes) -> None:
    first = nodes.start(lease_ttl=1).wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go", "n": 1}})
    wait_until(lambda: nodes.started("a"))
    second = nodes.start(lease_ttl=1).wait_ready()
    first.kill()
    nodes.push({"id": "a", "payload": {"n": 2}})
    nodes.open("go")
    wait_until(nodes.is_done)
    assert [(row[1], [payload["n"] for payload in row[2]["a"]]) for row in nodes.records("end")] == [
        (second.pid, [1, 2])
    ]


def test_the_shards_of_a_node_known_to_be_dead_are_taken_at_once(nodes: Nodes) -> None:
    first = nodes.start(node={"name": "first"}, lease_ttl=3600).wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go"}})
    wait_until(lambda: nodes.started("a"))
    first.kill()
    nodes.open("go")
    nodes.start(node={"dead_nodes": ["first"]}, lease_ttl=3600).wait_ready()
    wait_until(nodes.is_done)


def test_a_node_that_lives_loses_nothing_to_one_that_thinks_another_dead(nodes: Nodes) -> None:
    first = nodes.start(node={"name": "first"}, lease_ttl=60).wait_ready()
    second = nodes.start(node={"dead_nodes": ["somebody else"]}, lease_ttl=60).wait_ready()
    nodes.push(*({"id": number, "payload": {}} for number in range(10)))
    wait_until(nodes.is_done)
    assert {row[1] for row in nodes.records("start")} == {first.pid} != {second.pid}


def test_a_job_that_kills_its_node_goes_to_the_morgue_at_max_crashes_and_harms_no_other(nodes: Nodes) -> None:
    """
    I7. The supervisor is played by the test: it starts another node in place of a dead one. After two deaths the job
    has a process of its own, which it kills twice.
    """
    shard = shard_of(b"killer", 3)
    neighbours = [id for id in map(str, range(200)) if shard_of(id.encode(), 3) == shard][:20]
    nodes.push({"id": "killer", "payload": {"kill": True}}, *({"id": id, "payload": {}} for id in neighbours))
    for number in range(2):
        node = nodes.start(node={"name": f"n{number}", "dead_nodes": [f"n{number - 1}"]})
        assert node.wait() == -signal.SIGKILL
    last = nodes.start(node={"dead_nodes": ["n1"]}).wait_ready()
    wait_until(nodes.is_done)
    assert last.is_running()
    (dead,) = nodes.worker.queries.morgue_fetch(["killer"])
    assert dead.error == "the node that ran this job died 3 times (max_crashes)"
    assert nodes.metrics().morgue_length == 1
    assert all(nodes.ended(id) for id in neighbours)


def test_kills_between_claim_and_settle_lose_nothing(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> None:
    with Nodes(tmp_path, redis_server, app.settings.namespace, batch_size=5) as nodes:
        nodes.push(*({"id": number, "payload": {"sleep": 0.01, "n": number}} for number in range(60)))
        for number in range(5):
            node = nodes.start(
                node={"name": f"n{number}", "dead_nodes": [f"n{number - 1}"]}, claim_window=10, max_crashes=100
            )
            before = len(nodes.records("start"))
            wait_until(lambda before=before: len(nodes.records("start")) > before)
            node.kill()
        nodes.start(node={"dead_nodes": ["n4"]}, max_crashes=100)
        wait_until(nodes.is_done)
        assert {id for row in nodes.records("end") for id in row[2]} == {str(number) for number in range(60)}
        assert nodes.metrics().processed == 60
        assert nodes.metrics().morgue_length == 0


def test_a_node_paused_past_its_lease_is_fenced_and_tells_its_job(nodes: Nodes) -> None:
    first = nodes.start(lease_ttl=1).wait_ready()
    second = nodes.start(lease_ttl=1).wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go", "until_lost": True, "n": 1}})
    wait_until(lambda: nodes.started("a"))
    first.send(signal.SIGSTOP)
    wait_until(lambda: len(nodes.records("start")) == 2)
    nodes.push({"id": "a", "payload": {"n": 2}})
    nodes.open("go")
    first.send(signal.SIGCONT)
    wait_until(lambda: [row[1] for row in nodes.records("lost")] == [first.pid])
    wait_until(lambda: [row[1] for row in nodes.records("end")] == [first.pid])
    assert nodes.metrics().processed == 0
    assert first.is_running()
    assert second.is_running()
    # The second one's job waits for a loss too: its node is paused in turn.
    second.send(signal.SIGSTOP)
    wait_until(lambda: len(nodes.records("start")) == 3)
    second.send(signal.SIGCONT)
    wait_until(lambda: len(nodes.records("lost")) == 2)
    first.send(signal.SIGTERM)
    second.send(signal.SIGTERM)
    epochs = [row[3] for row in nodes.records("start")]
    assert epochs == sorted(set(epochs))


def test_pauses_of_both_nodes_under_load_lose_nothing_and_settle_nothing_twice(nodes: Nodes) -> None:
    # Each pause is a death to the claim in hand; a job that has met too many is not what this is about.
    both = [nodes.start(lease_ttl=0.4, poll_interval=0.1, max_crashes=100).wait_ready() for _ in range(2)]
    pushed = 0
    for round in range(8):
        nodes.push(*({"id": f"{round}-{number}", "payload": {"sleep": 0.003, "n": 1}} for number in range(60)))
        pushed += 60
        before = len(nodes.records("start"))
        wait_until(lambda before=before: len(nodes.records("start")) >= before + 5)
        stopped = both[round % 2]
        stopped.send(signal.SIGSTOP)
        other = both[1 - round % 2]
        wait_until(lambda other=other: owners(nodes) == {other.pid})
        stopped.send(signal.SIGCONT)
    wait_until(nodes.is_done)
    assert all(node.is_running() for node in both)
    assert nodes.metrics().processed == pushed
    assert nodes.metrics().failed == nodes.metrics().morgue_length == 0
    assert {id for row in nodes.records("end") for id in row[2]} == {f"{r}-{n}" for r in range(8) for n in range(60)}


def owners(nodes: Nodes) -> set[int]:
    """The processes that own the shards, as their names say."""
    found = [nodes.app.redis().hget(f"{nodes.namespace}:{{jobs:{shard}}}:owner", "node") for shard in range(3)]
    return {int(str(name, "ascii").split(":")[1]) if name else 0 for name in found}  # type: ignore[arg-type]


def test_a_redis_that_is_killed_and_comes_back_loses_nothing(tmp_path: Path, own_redis_server: RedisServer) -> None:
    with Nodes(tmp_path, own_redis_server, "ns", max_retry_count=1_000) as nodes:
        node = nodes.start().wait_ready()
        for turn in range(3):
            nodes.push(*({"id": f"{turn}-{number}", "payload": {"sleep": 0.005}} for number in range(50)))
            wait_until(lambda turn=turn: any(nodes.ended(f"{turn}-{n}") for n in range(50)))
            own_redis_server.stop(signal.SIGKILL)
            wait_until(lambda: node.logged("redis_trouble"))  # it is told of once, until no thread meets it any more
            own_redis_server.start()
        wait_until(nodes.is_done)
        assert node.is_running()
        metrics = nodes.metrics()
        assert (metrics.processed, metrics.morgue_length, metrics.busy) == (150, 0, 0)
        assert {id for row in nodes.records("end") for id in row[2]} == {
            f"{r}-{n}" for r in range(3) for n in range(50)
        }
        assert overlaps(nodes.records("start", "end", "overlap")) == []


def test_scripts_that_redis_forgets_are_loaded_again(nodes: Nodes) -> None:
    nodes.start().wait_ready()
    for round in range(30):
        nodes.push(*({"id": id, "payload": {"n": round}, "score": round} for id in "abcdef"))
        nodes.app.redis().script_flush()
    wait_until(nodes.is_done)
    for id in "abcdef":
        assert ran(nodes, id) == list(range(30))
    assert nodes.metrics().processed == len(nodes.records("end"))


IDS = [f"id{number}" for number in range(12)]


@pytest.mark.parametrize("seed", [int(os.environ.get("LOWKIQ_FAULTS_SEED", "20261121"))])
def test_random_kills_of_nodes_under_load_lose_nothing_and_keep_the_order(nodes: Nodes, seed: int) -> None:
    """
    Twenty kills. Payloads are scored with rising numbers, so a payload that runs for the first time must be higher than
    all of its id that have run.
    """
    rng = random.Random(seed)
    settings: dict[str, Any] = {"lease_ttl": 1, "max_crashes": 1_000, "poll_interval": 0.2}
    alive = [nodes.start(node={"name": f"n0-{slot}"}, **settings).wait_ready() for slot in range(2)]
    names = ["n0-0", "n0-1"]
    dead: set[int] = set()
    number = 0
    for kill in range(1, 21):
        enough = nodes.recorded() + rng.randrange(1, 40)
        for _ in range(5):
            nodes.push(*({"id": id, "payload": {"n": number, "sleep": 0.002}, "score": number} for id in IDS))
            number += 1
        wait_until(lambda enough=enough: nodes.recorded() >= enough or nodes.is_done())
        slot = rng.randrange(2)
        alive[slot].kill()
        dead.add(alive[slot].pid)
        # A supervisor would know whom it has reaped; without one the lease must run out.
        reaped = [names[slot]] if rng.random() < 0.8 else []
        names[slot] = f"n{kill}-{slot}"
        alive[slot] = nodes.start(node={"name": names[slot], "dead_nodes": reaped}, **settings)
    wait_until(nodes.is_done)
    records = nodes.records("start", "end", "overlap")
    assert overlaps(records, dead) == []
    assert overlaps(records), "no kill has met a running job: this has tested nothing"
    for id in IDS:
        seen: set[int] = set()
        for payload in (payload["n"] for row in records if row[0] == "start" for payload in row[2].get(id, [])):
            assert payload in seen or payload > max(seen, default=-1), f"{id}: {payload} after {max(seen)}"
            seen.add(payload)
        finished = {payload["n"] for row in records if row[0] == "end" for payload in row[2].get(id, [])}
        assert finished == set(range(number))
    assert nodes.metrics().morgue_length == 0
    assert all(node.is_running() for node in alive)
