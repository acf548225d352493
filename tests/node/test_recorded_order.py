"""With a concurrency of 1 ids of a shard run in the order in which they did when a shard had one claim."""

from __future__ import annotations

import itertools
import json
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from lowkiq import Lowkiq, PartialFailure, Worker, current, job
from tests.node.driven import burst

#: Shard → [id, its payloads] as they ran, written by this file's `run` with the last version that had one claim.
RECORDED = Path(__file__).with_name("recorded_order.json")
SHARDS, IDS, PUSHES = 4, 60, 400
shard_of = partial(job.shard_of, shards_count=SHARDS)


def run(app: Lowkiq) -> dict[str, list[Any]]:
    """Pushes that are due in another order than they come, jobs that fail once, and jobs that push others."""
    ran: dict[str, list[Any]] = {str(shard): [] for shard in range(SHARDS)}
    failed: set[str] = set()
    failures = itertools.count()

    @app.worker
    class Jobs(Worker):
        shards_count = SHARDS
        concurrency = 1

        def retry_in(self, retry_count: int) -> float:
            return 0.1 + next(failures) / 50  # in the order in which they fail

        def perform(self, payloads_by_id: dict[str, list[int]]) -> None:
            for id, payloads in payloads_by_id.items():
                ran[str(current().shard)].append([id, payloads])
                time.sleep(0.005 if int(id) % 3 == 0 else 0)  # others would pass by, if they might
                if int(id) % 7 == 0 and id not in failed:
                    failed.add(id)
                    raise PartialFailure({id: "once"})
                if int(id) % 11 == 1 and payloads[0] < PUSHES:
                    later = next(
                        n for n in itertools.count(PUSHES + payloads[0]) if shard_of(b"%d" % n) == shard_of(id.encode())
                    )
                    # It is due before what has failed, whenever that is settled.
                    Jobs.perform_async([{"id": later, "payload": PUSHES, "perform_in": 1.1e9 + later}])

    chance = random.Random(22)
    for number in range(PUSHES):
        due, score = 1e9 + chance.randrange(10**6), chance.randrange(10**6)
        Jobs.perform_async([{"id": chance.randrange(IDS), "payload": number, "score": score, "perform_in": due}])
    burst(app)
    return ran


def test_ids_of_a_shard_run_in_the_order_of_then(app: Lowkiq) -> None:
    assert run(app) == json.loads(RECORDED.read_text("utf-8"))
