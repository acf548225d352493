"""Whole trees of processes that die of a job, each at one stroke: nobody knows which of their jobs has done it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lowkiq import Lowkiq
from lowkiq.job import NewJob
from tests.faults.poison import QUEUE
from tests.faults.test_poison import found
from tests.faults.trees import app_of
from tests.support import ROOT, RedisServer

INNOCENTS = 100
#: Poisonous jobs, nodes of a pod, pods. The first is for every day.
QUICK, LONG = {(1, 2, 1)}, {(3, 2, 2), (8, 1, 1), (2, 4, 3)}
WORLDS = [
    pytest.param(*world, marks=[] if world in QUICK else [pytest.mark.long] if world in LONG else [pytest.mark.rare])
    for world in sorted({*QUICK, *LONG, *((k, nodes, pods) for k in (1, 4, 8) for nodes in (1, 4) for pods in (1, 3))})
]


def jobs_with(k: int) -> list[NewJob]:
    """Innocents, of which two take long, with `k` that kill their pods among them; some kill their process only."""
    jobs: list[NewJob] = [{"id": f"innocent-{number}", "payload": {"kind": "none"}} for number in range(INNOCENTS)]
    jobs += [{"id": f"innocent-long-{number}", "payload": {"kind": "long 3"}} for number in range(2)]
    for number in range(k):
        kind = "kill" if number % 3 == 2 else "tree"
        jobs.insert(INNOCENTS * number // k, {"id": f"poison-{number}", "payload": {"kind": kind}})
    return jobs


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("k", "nodes", "pods"), WORLDS)
def test_what_kills_pods_is_buried_and_no_innocent_ever(
    redis_server: RedisServer, app: Lowkiq, k: int, nodes: int, pods: int
) -> None:
    options = (redis_server.url, app.settings.namespace)
    app_of(*options).workers[QUEUE].perform_async(jobs_with(k))
    command = [sys.executable, "-m", "tests.faults.trees", *options, str(nodes), str(pods)]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, timeout=1_700, env=os.environ)
    innocents, poison = ({str(job["id"]) for job in jobs_with(k) if str(job["id"]).startswith(name)} for name in "ip")
    assert found(app, k) == (innocents, poison)
    # Two among others, one in a process of its own, two alone, and some in a company that it could not avoid.
    assert int(done.stdout.split()[-1]) <= 12 * k
