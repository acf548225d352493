"""
What the web view costs with a million queued jobs, a thousand shards and fifty nodes: `python -m benchmarks.web`.

Each page is asked for ten times, whole, a second apart; and ten times as an open dashboard renews it, every fifth time
more thoroughly (live.js). Then a hundred dashboards look at once. What an idle second costs Redis is taken off.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import httpx
import redis
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.contender import server
from lowkiq import Lowkiq, Worker
from lowkiq.admin.beats.health import NodeHealth, ThreadHealth, beat
from lowkiq.admin.past import history
from lowkiq.queue.shard import Shard
from lowkiq.web import create_app

#: One queue of most shards, and ten of ten, as installations are that have grown.
BIG, SMALL_QUEUES, SMALL = 900, 10, 10
JOBS_A_SHARD, FAILED_A_SHARD, DEAD_A_SHARD = 1_000, 5, 5
NODES, THREADS = 50, 5
DASHBOARDS = 100
#: How an open dashboard asks, second after second.
PACES = ["tick", "tick", "tick", "tick", "slow"] * 2
#: What is promised: milliseconds to answer, and of Redis a refresh.
MAX_ANSWER, MAX_REDIS = 300.0, 5.0

PAGES = {
    "overview": "/",
    "overview, 30 days": "/?span=30d",
    "nodes": "/nodes",
    "queue of 900 shards, by due time": "/queues/big",
    "its retries": "/queues/big?view=retries",
    "its jobs in flight": "/queues/big?view=in_flight",
    "its morgue": "/queues/big?view=morgue",
    "a search in it": "/queues/big?pattern=*77777*",
    "a job": "/queues/big/job?id=job-77",
    "/api/v1/stats": "/api/v1/stats",
    "/metrics": "/metrics",
}


class Cost(NamedTuple):
    """Cost of a page."""

    name: str
    #: Milliseconds of each answer, whole or renewed.
    answers: list[float]
    #: Milliseconds of Redis: for the whole page, and each time that it is renewed.
    whole: float | None
    renewal: float | None


def main() -> int:
    """Measures, prints, and exits 1 when it misses what it promises."""
    with server() as url:
        app = Lowkiq(redis_url=url)
        _fill(app)
        client = redis.Redis.from_url(url)
        costs = asyncio.run(_measure(app, client))
        shape = f"{os.cpu_count()} cores, Python {platform.python_version()}, Redis {client.info()['redis_version']}"
    table = Table(
        "what", "answer, median", "highest", "Redis, whole", "Redis, renewed", title=f"The web view on {shape}"
    )
    for cost in costs:
        times = (f"{statistics.median(cost.answers):.0f} ms", f"{max(cost.answers):.0f} ms")
        table.add_row(cost.name, *times, *(f"{ms:.1f} ms" if ms is not None else "" for ms in cost[2:]))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return int(any(max(cost.answers) > MAX_ANSWER or (cost.renewal or 0) > MAX_REDIS for cost in costs))


async def _measure(app: Lowkiq, client: redis.Redis) -> list[Cost]:
    transport = httpx.ASGITransport(create_app(app, no_auth=True), client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
        _beat_all(app)
        await _get(browser, "/")  # the first poll looks at every shard
        _, idle = await _ask(browser, client, [], PACES)
        costs = []
        for name, path in PAGES.items():
            _beat_all(app)
            times, whole = await _ask(browser, client, [path], [None] * len(PACES))
            cost = Cost(name, times, whole - idle, None)
            if not path.startswith(("/api", "/metrics")):
                _beat_all(app)
                more, renewal = await _ask(browser, client, [path], PACES)
                cost = Cost(name, times + more, whole - idle, renewal - idle)
            costs.append(cost)
        _beat_all(app)
        times, renewal = await _ask(browser, client, ["/"] * DASHBOARDS, PACES)
        costs.append(Cost(f"{DASHBOARDS} dashboards at once", times, None, renewal - idle))
    return costs


async def _ask(
    browser: httpx.AsyncClient, client: redis.Redis, paths: list[str], paces: Sequence[str | None]
) -> tuple[list[float], float]:
    """Times of the answers, and milliseconds of Redis for all paths together each second."""
    times: list[float] = []
    before = _redis_seconds(client)
    for pace in paces:
        await asyncio.sleep(1.05)  # a snapshot is new enough for a second
        times += await asyncio.gather(*(_get(browser, path, pace) for path in paths))
    return times, (_redis_seconds(client) - before) / len(paces) * 1e3


async def _get(browser: httpx.AsyncClient, path: str, pace: str | None = None) -> float:
    started = time.perf_counter()
    answer = await browser.get(path, headers={"X-Lowkiq-Live": pace} if pace else {})
    answer.raise_for_status()
    return (time.perf_counter() - started) * 1e3


def _redis_seconds(client: redis.Redis) -> float:
    cpu: Any = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def _fill(app: Lowkiq) -> None:
    queues = {"big": BIG} | {f"small-{number}": SMALL for number in range(SMALL_QUEUES)}
    for queue, shards in track(queues.items(), "filling", transient=True):
        worker: type[Worker] = app.worker(type(queue, (Worker,), {"queue_name": queue, "shards_count": shards}))
        for some in range(shards):
            worker.perform_async(
                {"id": f"job-{some * JOBS_A_SHARD + number}", "payload": {"number": number}}
                for number in range(JOBS_A_SHARD)
            )
        for shard in app.shards(queue, shards):
            _fail_some(app, shard, worker)
    _fill_history(app)


def _beat_all(app: Lowkiq) -> None:
    for number in range(NODES):
        beat(app.caller, app.settings.namespace, _node(app, number))


def _fail_some(app: Lowkiq, shard: Shard, worker: type[Worker]) -> None:
    """Some jobs fail, and some go to the morgue, as a node would have it."""
    client = app.redis()
    ids: Any = client.zrange(f"{shard.prefix}due", 0, FAILED_A_SHARD + DEAD_A_SHARD - 1)
    failed, dead = ids[:FAILED_A_SHARD], ids[FAILED_A_SHARD:]
    client.zadd(f"{shard.prefix}retries", dict.fromkeys(failed, 3))
    client.hset(
        f"{shard.prefix}errors", mapping=dict.fromkeys(failed, f"TimeoutError: no answer within {shard.index} s")
    )
    worker.actions.bury(id.decode() for id in dead)


def _fill_history(app: Lowkiq) -> None:
    """Fills every span of every queue."""
    client = app.redis()
    now = time.time()
    for queue in (history.TOTAL, *app.workers):
        for name, span in history.SPANS.items():
            key = f"{app.settings.namespace}:{{history}}:{queue}:{name}"
            steps = range(span.seconds // span.step)
            client.delete(key)
            client.rpush(
                key, *(f"{now - span.seconds + n * span.step:.0f} {n} 5 9 7 1.5 {n * 9} {n} {n * 9} {n}" for n in steps)
            )


def _node(app: Lowkiq, number: int) -> NodeHealth:
    owned = {queue: list(range(number, worker.shards_count, NODES)) for queue, worker in app.workers.items()}
    return NodeHealth(
        node=f"jobs-{number}:7:0123456789ab",
        boot_id="b",
        host=f"jobs-{number}",
        pid=7,
        supervisor_pid=1,
        node_number=number,
        number_of_nodes=NODES,
        slot=0,
        state="ready",
        started_at=time.time() - 86_400,
        beat_at=time.time(),
        version="0",
        owned={queue: shards for queue, shards in owned.items() if shards},
        waited_for={},
        threads=list(_threads()),
        processed=1_000_000,
        failed=10,
        rss=64 << 20,
        cpu_percent=50.0,
        redis_round_trip=0.0004,
        restarts=1,
        last_exit="exit code 75",
        rss_history=[64 << 20] * 60,
        cpu_history=[50.0] * 60,
    )


def _threads() -> Iterator[ThreadHealth]:
    for thread in range(THREADS):
        yield ThreadHealth(
            name=f"lowkiq-{thread}", worker="big", queue="big", shard=thread, ids=["job-1"], jobs=1, seconds=2.0
        )


if __name__ == "__main__":
    sys.exit(main())
