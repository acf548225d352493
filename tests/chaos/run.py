"""A run: a world, its faults for some time, healing, and the verdict."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from lowkiq import Lowkiq, Worker
from lowkiq.admin.probes import BURIED_FOR_CRASHES
from lowkiq.queue.call import pairs
from tests.chaos import history
from tests.chaos.checker import Verdict, check
from tests.chaos.injector import Injector, Prober
from tests.chaos.journal import now
from tests.chaos.pauser import Pauser
from tests.chaos.plan import FAULTS, plan
from tests.chaos.world.recurrence import Recurrence
from tests.chaos.world.replicated import Servers
from tests.chaos.world.world import World

#: Seconds between looks of the run at what is due.
TICK = 0.02
#: Seconds that the healed world gets to run dry.
DRAIN_WITHIN = 150.0
#: The machine's load above which nobody says how long it may take.
BUSY = 8.0

#: Told of the seconds that have passed and the faults that were done.
Watch = Callable[[float, Counter[str]], None]


class Outcome(NamedTuple):
    verdict: Verdict
    faults: Counter[str]
    seconds: float


def run(
    directory: Path,
    servers: Servers,
    *,
    seconds: float,
    seed: int,
    load: str = "mixed",
    mutant: str | None = None,
    kinds: Mapping[str, tuple[float, float, float]] = FAULTS,
    watch: Watch = lambda _seconds, _faults: None,
) -> Outcome:
    """One run; its history stays in the directory."""
    possible = {kind: kinds[kind] for kind in kinds if kind in servers.faults}
    with World(directory, servers, seed, load, mutant) as world:
        injector, prober = Injector(world, plan(seed, possible), directory), Prober(world, directory)
        # What people do keeps nodes from outliving their leases, which is all that the other load is for.
        pauser = Pauser(world, seed, directory) if load == "mixed" else None
        recurrence = Recurrence(world.app, directory) if load == "mixed" else None
        prober.start()
        if recurrence:
            recurrence.begin()
        if pauser:
            pauser.start()
        began = now()
        while now() - began < seconds:
            injector.step()
            watch(now() - began, injector.counts)
            time.sleep(TICK)
        injector.heal()
        if pauser:
            pauser.stop()
            injector.counts["reshard"] = pauser.reshards
        world.stop_producers()
        if recurrence:
            recurrence.end(DRAIN_WITHIN)
        others_at_work, dry_after = os.getloadavg()[0] > BUSY, world.drain(DRAIN_WITHIN)
        world.stop_supervisors()
        prober.stop()
        note_what_is_left(world.app, directory, 0.0 if others_at_work else dry_after)
    return Outcome(check(history.read(directory), may_lose=servers.may_lose), injector.counts, seconds)


def note_what_is_left(app: Lowkiq, directory: Path, dry_after: float) -> None:
    left: dict[str, list[tuple[str, str, int]]] = {"queued": [], "morgue": [], "killers": []}
    tags = list[str]()
    for queue, worker in app.workers.items():
        tags += miscounted(app, queue, worker)
        for where, jobs in (("queued", worker.queries.find("*")), ("morgue", worker.queries.morgue_find("*"))):
            for job in jobs:
                # That of what recurs is the time for which it is (jobs.py).
                times = [payload.get("due", at) for payload, at in zip(job.payloads, job.scores, strict=True)]
                numbers = [payload.get("n", round(at * 1_000)) for payload, at in zip(job.payloads, times, strict=True)]
                found = [(queue, job.id, number) for number in numbers]
                left[where] += found
                if where == "morgue" and (job.error or "").endswith(BURIED_FOR_CRASHES):
                    left["killers"] += found
    (directory / "left.json").write_text(json.dumps(left | {"tags": tags, "dry_after": dry_after}))


def miscounted(app: Lowkiq, queue: str, worker: type[Worker]) -> list[str]:
    """Tags that are counted otherwise than jobs have them; nothing may be in hand."""
    found = itertools.chain(worker.queries.find("*"), worker.queries.morgue_find("*"))
    true = Counter(tag for tag, _ in {(tag, job.id) for job in found for tag in job.tags})
    shards = app.shards(queue, worker.shards_count)
    pages = app.caller.read([("ZRANGE", f"{shard.prefix}tag_counts", 0, -1, "WITHSCORES") for shard in shards], [])
    kept: Counter[str] = Counter()
    for page in pages:
        kept.update({tag.decode(): round(float(count)) for tag, count in pairs(page)})
    told = {row.tag: row.ids for row in worker.queries.top(100)}
    return [] if kept == told == true else [f"{queue} counts {dict(kept)}, tells {told}, has {dict(true)}"]
