"""
Prints how few runs many pushes of few ids take, and how much memory, where they are debounced, throttled or only the
last payload is kept: one list of all ids after the other, as fast as one producer pushes, to one node. Exits 1 when an
id ran more than once a window, when its last payload did not run, or when memory grows with what was pushed, though one
payload an id is kept.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import redis

from benchmarks.supervised import supervised
from lowkiq import Debounce, Lowkiq, Worker
from lowkiq.admin.metrics import read_shards
from tests.support import running_redis, wait_until

QUEUE, SHARDS = "fewer", 5
#: Seconds of a window: the longest debounce, and the throttle; and those after which a pause in the pushes ends one.
WINDOW, WAIT = 5.0, 2.0
#: What is measured: its name, and options of the worker.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "neither": {},
    "debounce": {"debounce": Debounce(WAIT, at_most=WINDOW)},
    'debounce, keep="last"': {"debounce": Debounce(WAIT, at_most=WINDOW), "keep": "last"},
    'throttle, keep="last"': {"throttle": WINDOW, "keep": "last"},
}
#: Lists of all ids between two looks at the memory, and bytes by which it may grow after the first tenth:
#: buffers of Redis, a byte a push.
LOOK, FLAT = 20, 1_000_000

APP = f"""
from collections import Counter
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="{QUEUE}", shards_count={SHARDS}, batch_size=1000)
def work(payloads_by_id):
    pipe = app.redis().pipeline(transaction=False)
    for id, payloads in payloads_by_id.items():
        pipe.hincrby("runs", id)
        pipe.hincrby("payloads", id, len(payloads))
        pipe.hset("last", id, payloads[-1]["n"])
    pipe.execute()
"""


class Measured(NamedTuple):
    """What became of the pushes."""

    seconds: float
    #: Runs of the id that ran least, and of the one that ran most; and of how many windows.
    fewest: int
    most: int
    windows: int
    #: Payloads that runs were handed over; and those that keep has dropped.
    handed: int
    superseded: int
    #: Bytes of Redis, at most: in the first tenth, and in all.
    first: int
    peak: int
    is_last: bool


def main(arguments: list[str] | None = None) -> int:
    """One measurement for each kind."""
    parser = argparse.ArgumentParser("python -m benchmarks.fewer", description=__doc__)
    parser.add_argument("--pushes", type=int, default=1_000_000)
    parser.add_argument("--ids", type=int, default=1_000)
    given = parser.parse_args(arguments)
    is_good = True
    for kind, options in KINDS.items():
        found = measure(given.pushes // given.ids, given.ids, options)
        in_windows = f" of at most {found.windows}" if options else ""
        print(
            f"{kind}: {found.seconds:.1f} s, {given.pushes / found.seconds:,.0f} pushes/s; "
            f"runs an id {found.fewest} to {found.most}{in_windows}; "
            f"{found.handed:,} payloads handed over, {found.superseded:,} superseded; "
            f"{found.first / 1e6:.2f} MB in the first tenth, {found.peak / 1e6:.2f} MB at most",
            flush=True,
        )
        is_flat = "keep" not in options or found.peak <= found.first + FLAT
        is_whole = found.handed + found.superseded == given.pushes // given.ids * given.ids
        is_good = is_good and is_flat and is_whole and found.is_last and (not options or found.most <= found.windows)
    return 0 if is_good else 1


def measure(lists: int, ids: int, options: Mapping[str, Any]) -> Measured:
    """Pushes so many lists of all ids, and waits until all is done."""
    with running_redis() as server, supervised(APP, server.url):
        app = Lowkiq(redis_url=server.url)
        worker = app.worker(queue_name=QUEUE, shards_count=SHARDS, **options)(_work)
        wait_until(lambda: all(row.owner for row in read_shards(app.caller, app.shards(QUEUE, SHARDS))))
        base = _used(app.redis())
        began = time.perf_counter()
        used, pauses, last = [], 0, began
        for number in range(lists):
            worker.perform_async([{"id": id, "payload": {"n": number, "x": "x" * 64}} for id in range(ids)])
            last, before = time.perf_counter(), last
            pauses += last - before > WAIT
            if number % LOOK == 0:
                used.append(_used(app.redis()) - base)
        seconds = time.perf_counter() - began
        wait_until(lambda: _is_done(app, worker), within=60)
        windows = math.floor((time.perf_counter() - began) / WINDOW) + 1 + pauses
        return _measured(app, seconds, lists, used, windows)


def _measured(app: Lowkiq, seconds: float, lists: int, used: list[int], windows: int) -> Measured:
    client = app.redis()
    runs, payloads, last = ([int(n) for n in client.hvals(key)] for key in ("runs", "payloads", "last"))
    return Measured(
        seconds=seconds,
        fewest=min(runs),
        most=max(runs),
        windows=windows,
        handed=sum(payloads),
        superseded=app.metrics()[QUEUE].superseded,
        first=max(used[: len(used) // 10 or 1]),
        peak=max(used),
        is_last=set(last) == {lists - 1},
    )


def _used(client: redis.Redis) -> int:
    told: Any = client.info("memory")
    return int(told["used_memory_dataset"])


def _is_done(app: Lowkiq, worker: type[Worker[Any]]) -> bool:
    metrics = app.metrics()[worker.queue_name]
    return metrics.length + metrics.busy == 0


def _work(_: dict[str, list[Any]]) -> None: ...


if __name__ == "__main__":
    sys.exit(main())
