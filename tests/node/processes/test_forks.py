"""A process that a job forks, and that comes back to our code, ends there: nothing runs or is settled twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from lowkiq import Lowkiq
from tests.support import ROOT, RedisServer

SCRIPT = """
import asyncio, json, os, sys
from lowkiq import Lowkiq, LowkiqError, Worker, current
from lowkiq.node.node import Node

place, how, isolation = sys.argv[1:]
records = os.environ["LOWKIQ_NAMESPACE"] + ":records"


def record(*what):
    app.redis().rpush(records, json.dumps(what))


def fork(id, here):
    if id != "forks" or here != place:
        return
    pid = os.fork()
    if pid == 0:
        if how == "raise":
            raise ValueError("in the child")
        if how == "exit":
            sys.exit(3)
        return
    record("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def middleware(worker, batch, call):
    result = call()
    for job in batch:
        fork(job.id, "middleware")
    return result


async def async_middleware(worker, batch, call):
    result = await call()
    for job in batch:
        fork(job.id, "async_middleware")
    return result


middlewares = [middleware] if place == "middleware" else [async_middleware] if place == "async_middleware" else []
app = Lowkiq(
    threads_per_node=1, server_middlewares=middlewares, on_server_init=lambda: fork("forks", "on_server_init")
)


@app.worker(queue_name="q", shards_count=1, batch_size=2, isolation=isolation, max_retry_count=1)
class Threads(Worker):
    def perform(self, payloads_by_id):
        for id in payloads_by_id:
            record(id, os.getpid())
            fork(id, "perform")
            if id == "forks" and place in {"retry_in", "retries_exhausted"}:
                raise ValueError

    def retry_in(self, retry_count):
        fork("forks", "retry_in")
        return 0

    def retries_exhausted(self, batch):
        fork("forks", "retries_exhausted")


@app.worker(queue_name="a", shards_count=1)
async def tasks(id, payloads):
    record(id, os.getpid())
    fork(id, "task")
    if place == "to_thread":
        await asyncio.to_thread(fork, id, "to_thread")
    if place == "task":
        await asyncio.sleep(0)


worker = tasks if place in {"task", "to_thread"} else Threads
worker.perform_async([{"id": "before"}, {"id": "forks"}, {"id": "after"}])
worker.perform_async([{"id": f"other-{n}"} for n in range(20)])
node = os.getpid()
Node(app, burst=True).run()
record("ended", os.getpid() == node)
"""

PLACES = [
    ("perform", "thread"), ("perform", "process"), ("middleware", "thread"), ("middleware", "process"),
    ("async_middleware", "thread"), ("retry_in", "thread"), ("retry_in", "process"), ("retries_exhausted", "thread"),
    ("on_server_init", "thread"), ("task", "thread"), ("to_thread", "thread"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "isolation", "how"),
    [
        *((*place, "return") for place in PLACES),
        *((*PLACES[at], how) for at in (0, 1, 4, -2) for how in ("raise", "exit")),
    ],
)
def test_a_child_that_comes_back_ends(
    redis_server: RedisServer, app: Lowkiq, place: str, isolation: str, how: str
) -> None:
    namespace = app.settings.namespace
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOWKIQ_", "COV_"))}
    environment |= {"LOWKIQ_REDIS_URL": redis_server.url, "LOWKIQ_NAMESPACE": namespace, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, place, how, isolation]
    ended = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=120, start_new_session=True
    )
    found = [json.loads(row) for row in app.redis().lrange(f"{namespace}:records", 0, -1)]  # type: ignore[union-attr]
    children = [row[1] for row in found if row[0] == "child"]
    assert set(children) == {{"return": 0, "raise": 1, "exit": 3}[how]}, ended.stdout + ended.stderr
    assert [row[1] for row in found if row[0] == "ended"] == [True]
    runs = Counter(row[0] for row in found if row[0] not in {"child", "ended"})
    repeated = place in {"retry_in", "retries_exhausted"}  # they fail there, and are tried once more
    assert set(runs) == {"before", "forks", "after", *(f"other-{n}" for n in range(20))}
    assert runs["other-7"] == runs["other-19"] == 1
    assert runs["forks"] == 1 + repeated
    assert len({row[1] for row in found if row[0] not in {"child", "ended"}}) == 1
    told = [line for line in ended.stdout.splitlines() if "forked_child_ended" in line]
    assert told
    assert place in {"on_server_init", "to_thread"} or all("forks" in line.partition("ids=")[2] for line in told)
