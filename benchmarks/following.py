"""
Prints what it costs that jobs recur and follow: how late they fire beside 100,000 that recur, and what those cost an
idle node; how long it takes until 100,000 jobs are let go that wait for one, and the longest scripts meanwhile; and
what `then` adds to jobs. Exits 1 when it misses what is promised.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import psutil

from benchmarks.supervised import supervised
from benchmarks.tally import Latency
from lowkiq import Lowkiq
from lowkiq.job import shard_of
from lowkiq.queue import scripts
from lowkiq.queue.call import chunked
from lowkiq.queue.recurring import Entry, recur
from lowkiq.recurrence import make_rule
from tests.support import running_redis, wait_until

SHARDS: Final = 5
#: Recurring jobs that fire once a second, at times that are spread over it.
QUICK: Final = 200
#: Seconds that are watched.
SECONDS: Final = 20.0
#: What is promised: shares of a core, milliseconds.
IDLE, LATE, SCRIPT = 0.01, 50.0, 5.0
#: Scripts that take what follows from shard to shard.
LETTING_GO: Final = ("relay", "receive")
#: Jobs of the comparison with and without `then`, and those whose way is timed one by one.
JOBS, ALONE = 20_000, 300

APP = f"""
import time
from lowkiq import Lowkiq, current

app = Lowkiq()

@app.worker(queue_name="recurring", shards_count={SHARDS}, batch_size=100)
def recurring(payloads_by_id):
    now = time.time()
    pipe = app.redis().pipeline(transaction=False)
    for job in current().jobs:
        if job.id.startswith("quick"):
            pipe.rpush("late", *(now - score for score in job.scores))
    pipe.execute()

@app.worker(queue_name="blank", shards_count={SHARDS})
def blank(id, payloads):
    pass

@app.worker(queue_name="next", shards_count={SHARDS})
def next_(id, payloads):
    if payloads[0]:
        app.redis().rpush("took", time.time() - payloads[0])

@app.worker(queue_name="first", shards_count={SHARDS})
def first(id, payloads):
    current().then(next_, [{{"id": id, "payload": payloads[0]}}])
"""


class Row(NamedTuple):
    what: str
    figure: str
    #: None: nothing is promised.
    is_kept: bool | None = None


def main(arguments: list[str] | None = None) -> int:
    """All of it, one after the other."""
    parser = argparse.ArgumentParser("python -m benchmarks.following", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000, help="that recur, and that wait")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for which it is watched")
    given = parser.parse_args(arguments)
    is_good = True
    for row in (*recurring(given.entries, given.seconds), *dependents(given.entries), *follows()):
        told = {None: "", True: "  kept", False: "  MISSED"}[row.is_kept]
        print(f"{row.what}: {row.figure}{told}", flush=True)
        is_good = is_good and row.is_kept is not False
    return 0 if is_good else 1


# ── what recurs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def recurring(entries: int, seconds: float) -> Iterator[Row]:
    """Costs of an idle node, without and with entries that are far from due; then how late others fire beside them."""
    with running_redis() as server, supervised(APP, server.url) as node:
        app = _app(server.url)
        wait_until(lambda: _is_owned(app, "recurring"))
        none = _used(app, node, seconds)
        _set(app, [f"slow-{n}" for n in range(entries)], "1d", far=True)
        time.sleep(2)
        many = _used(app, node, seconds)
        cost = many - none
        yield Row("an idle node and Redis, of a core", f"{none:.2%}, with {entries:,} entries {many:.2%}", cost < IDLE)
    with running_redis() as server, supervised(APP, server.url) as node:
        app = _app(server.url)
        _set(app, [f"slow-{n}" for n in range(entries)], "1h", far=False)
        _set(app, [f"quick-{n}" for n in range(QUICK)], 1.0, far=False)
        wait_until(lambda: _is_owned(app, "recurring"))
        time.sleep(3)
        app.redis().delete("late")
        time.sleep(seconds)
        late = Latency.of(waits := _seconds(app, "late"))
        told = f"{len(waits):,} runs, p50 {late.p50:.1f}, p99 {late.p99:.1f}, longest {late.most:.1f} ms"
        yield Row(f"late beside {entries:,} hourly ones, {QUICK} a second", told, late.p99 <= LATE)


def _set(app: Lowkiq, ids: Sequence[str], every: str | float, *, far: bool) -> None:
    """Sets entries whose times are spread over their interval; `far`: none is due for an hour."""
    seconds = make_rule(every).every
    assert isinstance(seconds, float)
    worker, now = app.workers["recurring"], time.time()
    worker.perform_async([{"id": "warm"}])
    shards, calls = app.shards("recurring", SHARDS), []
    for number, id in enumerate(ids):
        rule = make_rule(every, offset=seconds * number / len(ids))
        calls.append(
            recur(
                shards[shard_of(id.encode(), SHARDS)],
                id.encode(),
                b"",
                Entry(rule, b'""').text,
                rule.after(now + 3_600 * far),
            )
        )
    for some in chunked(calls, 1_000):
        app.caller.run_all(some)


# ── what waits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def dependents(count: int) -> Iterator[Row]:
    """Jobs that wait for one id, from its being due until all have run."""
    with running_redis() as server:
        app = _app(server.url)
        first, blank = app.workers["next"], app.workers["blank"]
        first.perform_async([{"id": "one", "payload": 0}])
        began = time.perf_counter()
        for some in chunked(range(count), 1_000):
            blank.perform_async([{"id": n, "after": [(first, "one")]} for n in some])
        yield Row(
            f"pushes of {count:,} jobs that wait for one", f"{count / (time.perf_counter() - began):,.0f} a second"
        )
        app.redis().config_set("slowlog-log-slower-than", 1_000)
        app.redis().config_set("slowlog-max-len", 10_000)
        app.redis().slowlog_reset()
        began = time.perf_counter()
        with supervised(APP, server.url):
            wait_until(lambda: _left(app) == 0, within=600, every=0.05)
            took = time.perf_counter() - began
        longest = _longest(app)
        yield Row("all of them let go and run, with the node's start", f"{took:.1f} s, {count / took:,.0f} a second")
        told = ", ".join(f"{name} {longest[name]:.1f} ms" for name in sorted(longest))
        yield Row("the longest scripts", told, all(longest.get(name, 0.0) <= SCRIPT for name in LETTING_GO))


def _longest(app: Lowkiq) -> dict[str, float]:
    """Milliseconds of the longest run of each script, as far as that was over one."""
    names = {script.sha: name for flags in (True, False) for name, script in scripts.load(flags=flags).items()}
    found: dict[str, float] = {}
    for row in app.redis().slowlog_get(10_000):
        words = bytes(row["command"]).split(b" ", 2)
        if words[0] == b"EVALSHA" and words[1] in names:
            name = names[words[1]]
            found[name] = max(found.get(name, 0.0), row["duration"] / 1_000)
    return found


# ── what follows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def follows() -> Iterator[Row]:
    """Jobs whose `then` pushes another one, beside as many pairs without; and the way of one alone."""
    rates = {"first": [0.0], "blank": [0.0]}
    with running_redis() as server, supervised(APP, server.url):
        app = _app(server.url)
        wait_until(lambda: _is_owned(app, "next"))
        for _ in range(3):
            for queue, rounds in (("blank", 2), ("first", 1)):
                app.workers[queue].actions.pause(wait=5)
                for of in range(rounds):
                    app.workers[queue].perform_async([{"id": f"{of}-{n}", "payload": 0} for n in range(JOBS)])
                app.workers[queue].actions.resume()
                began = time.perf_counter()
                wait_until(lambda: _left(app) == 0, within=300, every=0.005)
                rates[queue].append(2 * JOBS / (time.perf_counter() - began))
        then, without = (statistics.median(rates[queue][1:]) for queue in ("first", "blank"))
        yield Row("jobs a second, each second one by then", f"{then:,.0f}, pushed at once {without:,.0f}")
        app.redis().delete("took")
        for n in range(ALONE):
            app.workers["first"].perform_async([{"id": n, "payload": time.time()}])
            time.sleep(0.01)
        wait_until(lambda: _left(app) == 0)
        took = Latency.of(_seconds(app, "took"))
        yield Row("from push to the start of what follows", f"p50 {took.p50:.1f}, p99 {took.p99:.1f} ms")


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _app(url: str) -> Lowkiq:
    app = Lowkiq(redis_url=url)
    for queue in ("recurring", "blank", "next", "first"):
        app.worker(queue_name=queue, shards_count=SHARDS)(lambda _: None)
    return app


def _is_owned(app: Lowkiq, queue: str) -> bool:
    return all(app.redis().exists(f"{shard.prefix}owner") for shard in app.shards(queue, SHARDS))


def _used(app: Lowkiq, node: psutil.Process, seconds: float) -> float:
    """The share of a core that the supervisor's processes and Redis take."""

    def used() -> float:
        processes = [node, *node.children(recursive=True)]
        told: Any = app.redis().info("cpu")
        own = sum(sum(process.cpu_times()[:2]) for process in processes)
        return own + float(told["used_cpu_user"]) + float(told["used_cpu_sys"])

    began, before = time.perf_counter(), used()
    time.sleep(seconds)
    return (used() - before) / (time.perf_counter() - began)


def _left(app: Lowkiq) -> int:
    return sum(queue.length + queue.busy for queue in app.metrics().values()) + sum(
        int(app.redis().zcard(f"{shard.prefix}outbox")) for queue in app.workers for shard in app.shards(queue, SHARDS)
    )


def _seconds(app: Lowkiq, key: str) -> list[float]:
    found: Any = app.redis().lrange(key, 0, -1)
    return [float(one) for one in found]


if __name__ == "__main__":
    sys.exit(main())
