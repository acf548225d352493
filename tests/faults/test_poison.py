"""Jobs that kill their node, among innocents: all of these run, and those end in the morgue."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lowkiq import Lowkiq
from lowkiq.job import NewJob, shard_of
from lowkiq.queue.shard import Shard
from lowkiq.testing.model.shard_rules import MOST_CROWDS
from tests.faults.poison import FROM_APART, KINDS, QUEUE, SHARDS, app_of
from tests.queue.shard_driver import ShardDriver
from tests.support import ROOT, RedisServer

INNOCENTS = 400
#: Poisonous jobs, and nodes. The others take long, and say little more than these.
QUICK, LONG = {(1, 1), (2, 1), (8, 4)}, {(3, 4), (5, 2), (8, 1)}
WORLDS = [
    pytest.param(
        k,
        nodes,
        marks=[] if (k, nodes) in QUICK else [pytest.mark.long] if (k, nodes) in LONG else [pytest.mark.rare],
    )
    for k in range(1, 9)
    for nodes in (1, 2, 4)
]


def jobs_with(k: int) -> list[NewJob]:
    """Innocents with `k` poisonous jobs among them, which kill in different ways."""
    jobs: list[NewJob] = [{"id": f"innocent-{number}", "payload": {"kind": "none"}} for number in range(INNOCENTS)]
    kinds = [kind for kind in KINDS if kind not in FROM_APART]
    for number in range(k):
        kind = kinds[number % len(kinds)]
        jobs.insert(INNOCENTS * number // k, {"id": f"poison-{number}", "payload": {"kind": kind}})
    return jobs


def run_all(server: RedisServer, app: Lowkiq, k: int, nodes: int, *, knows: bool) -> int:
    """Has nodes run them until the queue is dry. Returns how many nodes have died."""
    options = (server.url, app.settings.namespace)
    app_of(*options, knows=knows).workers[QUEUE].perform_async(jobs_with(k))
    command = [sys.executable, "-m", "tests.faults.poison", *options, str(nodes), "knows" if knows else "guesses"]
    return int(subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, timeout=100).stdout.split()[-1])


def found(app: Lowkiq, k: int) -> tuple[set[str], set[str]]:
    """Ids that ran to their end, and ids in the morgue."""
    ran = {id.decode() for id in app.redis().hkeys(f"{app.settings.namespace}:ran")}
    shards = [ShardDriver(app, QUEUE, index, SHARDS) for index in range(SHARDS)]
    return ran, {id for shard in shards for id in shard.morgue()}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("k", "nodes"), WORLDS)
def test_what_kills_is_buried_and_no_innocent_ever(redis_server: RedisServer, app: Lowkiq, k: int, nodes: int) -> None:
    deaths = run_all(redis_server, app, k, nodes, knows=True)
    innocents, poison = ({job["id"] for job in jobs_with(k) if str(job["id"]).startswith(name)} for name in "ip")
    assert found(app, k) == (innocents, poison)
    # Each kills two nodes at most, perhaps together with others of them; then a process of its own, twice.
    assert 2 <= deaths <= 2 * k


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("k", "nodes"), [(2, 1), pytest.param(8, 4, marks=pytest.mark.long)])
def test_nor_when_nobody_knows_what_ran(redis_server: RedisServer, app: Lowkiq, k: int, nodes: int) -> None:
    """Then all that was claimed is suspected."""
    run_all(redis_server, app, k, nodes, knows=False)
    innocents, poison = ({job["id"] for job in jobs_with(k) if str(job["id"]).startswith(name)} for name in "ip")
    assert found(app, k) == (innocents, poison)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", sorted(FROM_APART))
def test_what_kills_others_from_a_process_of_its_own_is_buried_at_last(
    redis_server: RedisServer, app: Lowkiq, kind: str
) -> None:
    """Its node, or what makes such processes: each such death is one beside others, of which there may be many."""
    options = (redis_server.url, app.settings.namespace)
    jobs: list[NewJob] = [{"id": f"innocent-{number}", "payload": {"kind": "none"}} for number in range(50)]
    app_of(*options, knows=True).workers[QUEUE].perform_async([*jobs, {"id": "poison", "payload": {"kind": kind}}])
    shard = Shard(app.settings.namespace, QUEUE, shard_of(b"poison", SHARDS), SHARDS)
    app.redis().hset(f"{shard.prefix}crashes", "poison", 1)
    app.redis().hset(f"{shard.prefix}crowds", "poison", MOST_CROWDS - 1)
    command = [sys.executable, "-m", "tests.faults.poison", *options, "1", "knows"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, timeout=100)
    assert found(app, 1) == ({str(job["id"]) for job in jobs}, {"poison"})
