"""
Prints what becomes of rates: with real nodes, how full the fullest window was and how much of the rate was used while
jobs waited; and with a backlog of one tenant, how often each of its jobs was put back, and how long the job of another
tenant waited that came behind all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from lowkiq import Lowkiq, Rate, Worker
from lowkiq.admin.events import Events
from tests.support import LOWKIQ, SOURCES, running_redis, wait_until

#: Jobs of a push, and seconds after which a node must be there.
AT_ONCE, READY = 10_000, 60.0
#: Seconds without an event after which no job is put back any more.
QUIET = 3.0

APP = """
import json, os, time
from lowkiq import Lowkiq, Rate

app = Lowkiq()
given = json.loads(os.environ["RATES"])
journal = open(given["journal"], "a", buffering=1)
more = {"fair_by": lambda id, _: id.partition(":")[0]} if given["is_fair"] else {}


def note(id):
    journal.write(f"{time.monotonic()} {id}\\n")


rate = Rate(given["limit"], per=given["per"], by=(lambda id, _: id.partition(":")[0]) if given["by"] else None)
if given["kind"] == "task":

    @app.worker(queue_name="jobs", shards_count=given["shards"], rate=rate, **more)
    async def jobs(payloads_by_id):
        for id in payloads_by_id:
            note(id)

else:

    @app.worker(queue_name="jobs", shards_count=given["shards"], rate=rate, **more)
    def jobs(payloads_by_id):
        for id in payloads_by_id:
            note(id)
"""


class Used(NamedTuple):
    """Figures of a run."""

    starts: int
    #: Starts of the fullest window of `per`, and what it may have.
    fullest: int
    most: float
    #: Share of the rate.
    share: float


class Backlog(NamedTuple):
    """Figures of a backlog of one tenant, and of another tenant's job behind it."""

    ids: int
    #: How often a job was put back, at most, and in all; and seconds until none was left that had never been claimed.
    most_back: int
    back: int
    seconds: float
    #: Seconds that the other one's job waited that was pushed behind the backlog, and behind what has its time by then.
    waited: float
    waited_later: float


def main(arguments: list[str] | None = None) -> int:
    """Both, or one of them."""
    parser = argparse.ArgumentParser("python -m benchmarks.rates", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["use", "backlog", "both"], default="both")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--per", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="for which jobs wait")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--kind", choices=["thread", "task"], default="thread")
    parser.add_argument("--ids", type=int, default=100_000, help="of the backlog")
    parser.add_argument("--fair", action="store_true", help="the queue is fair by the keys of its rate (fair_by)")
    given = parser.parse_args(arguments)
    rate = Rate(given.limit, given.per)
    if given.what != "backlog":
        used = use_of(rate, given.seconds, given.nodes, given.kind, is_fair=given.fair)
        print(
            f"{given.limit}/{given.per:g} s, {given.nodes} nodes, {given.kind}s: {used.starts:,} starts; the fullest "
            f"window has {used.fullest:,} of {used.most:,.1f}; {used.share:.2%} used while jobs waited",
            flush=True,
        )
    if given.what != "use":
        found = backlog_of(given.ids, given.nodes, given.kind, is_fair=given.fair)
        print(
            f"backlog of {found.ids:,} ids: none was put back more than {found.most_back} times, {found.back:,} in "
            f"all, within {found.seconds:.1f} s; another tenant's job waited {found.waited:.3f} s behind it, and "
            f"{found.waited_later * 1000:.1f} ms once all had their times",
            flush=True,
        )
    return 0


def use_of(rate: Rate, seconds: float, nodes: int, kind: str, *, is_fair: bool) -> Used:
    """A backlog that lasts for so long, without faults."""
    count = rate.limit + int(rate.limit / rate.per * seconds)
    given = {"limit": rate.limit, "per": rate.per, "by": False, "kind": kind, "shards": 5, "is_fair": is_fair}
    with running(given, nodes) as (worker, journal):
        push(worker, (str(number) for number in range(count)))
        wait_until(lambda: len(starts_of(journal)) >= count, within=seconds * 2 + READY, every=0.2)
        return used_of([at for at, _ in starts_of(journal)], rate)


def used_of(times: Sequence[float], rate: Rate) -> Used:
    """What these starts have used. The first window may be had at once, so the rate counts from its end on."""
    times = sorted(times)
    fullest = max(number + 1 - bisect_left(times, at - rate.per, hi=number + 1) for number, at in enumerate(times))
    # A start that is exactly `per` before another is in no window with it.
    paced = times[rate.limit :]
    share = (len(paced)) / ((paced[-1] - times[0] - rate.per) / rate.per * rate.limit + 1) if paced else 0.0
    return Used(len(times), fullest, rate.limit * 1.01, share)


def backlog_of(ids: int, nodes: int, kind: str, *, is_fair: bool) -> Backlog:
    """A limited tenant pushes so many ids, another one a job; 100 of each may start in a minute."""
    given = {"limit": 100, "per": 60.0, "by": True, "kind": kind, "shards": 5, "is_fair": is_fair}
    with running(given, nodes) as (worker, journal), _events(worker) as events:
        begun_at = time.monotonic()
        push(worker, (f"big:{number}" for number in range(ids)))
        waited = waited_by(worker, journal, "small:1")
        back: Counter[str] = Counter()
        while event := events.next(QUIET):
            back[event.id] += 1
        seconds = time.monotonic() - begun_at - QUIET
        later = waited_by(worker, journal, "small:2")
        return Backlog(ids, max(back.values()), sum(back.values()), seconds, waited, later)


def _events(worker: type[Worker]) -> Events:
    app = worker.registered_app()
    assert isinstance(app, Lowkiq)
    return app.events("jobs", kinds=["limited"])


def waited_by(worker: type[Worker], journal: Path, id: str) -> float:
    """Seconds until a job has started that is pushed now."""
    begun_at = time.monotonic()
    worker.perform_async([{"id": id}])
    started = wait_until(lambda: [at for at, other in starts_of(journal) if other == id], within=600, every=0.001)
    return float(started[0]) - begun_at


def push(worker: type[Worker], ids: Iterator[str]) -> None:
    """Pushes these ids."""
    jobs = [{"id": id} for id in ids]
    for first in range(0, len(jobs), AT_ONCE):
        worker.perform_async(jobs[first : first + AT_ONCE])


def starts_of(journal: Path) -> list[tuple[float, str]]:
    """Starts by the clock that all processes of a machine share."""
    lines = journal.read_text("utf-8").splitlines(keepends=True) if journal.exists() else []
    words = (line.split() for line in lines if line.endswith("\n"))
    return [(float(at), id) for at, id in words]


def _tenant(id: str, _: object) -> str:
    return id.partition(":")[0]


@contextmanager
def running(given: dict[str, Any], nodes: int) -> Iterator[tuple[type[Worker], Path]]:
    """The worker of these nodes, and the journal of its starts."""
    with running_redis() as server, tempfile.TemporaryDirectory(prefix="lowkiq-rates-") as place:
        (Path(place) / "rates_app.py").write_text(APP, "utf-8")
        journal = Path(place) / "journal"
        environment = os.environ | {
            "REDIS_URL": server.url,
            "PYTHONPATH": os.pathsep.join([place, SOURCES]),
            "NUMBER_OF_NODES": str(nodes),
            "RATES": json.dumps(given | {"journal": str(journal)}),
        }
        command = [sys.executable, *LOWKIQ, "-r", "rates_app"]
        app = Lowkiq(redis_url=server.url)
        fair_by = _tenant if given["is_fair"] else None
        worker = app.worker(queue_name="jobs", shards_count=given["shards"], fair_by=fair_by)(lambda _: None)
        with (Path(place) / "log").open("wb") as log:
            started = [
                subprocess.Popen(command, cwd=place, env=environment | {"NODE_NUMBER": str(number)}, stderr=log)
                for number in range(nodes)
            ]
        try:
            wait_until(lambda: len(app.nodes().nodes) == nodes, within=READY)
            yield worker, journal
        finally:
            for process in started:
                process.send_signal(signal.SIGQUIT)
            for process in started:
                process.wait(30)
            app.close()


if __name__ == "__main__":
    sys.exit(main())
