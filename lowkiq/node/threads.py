"""Threads: deals shards to nodes, and to pools of their worker threads; tunes interpreter and kernel for these."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

from lowkiq.errors import SettingsError
from lowkiq.handlers.performer import Performer
from lowkiq.hooks import Scheduler
from lowkiq.node.helpers.fork_server import ForkServer
from lowkiq.node.helpers.helper_performer import HelperPerformer
from lowkiq.node.job_thread import JobThread
from lowkiq.node.leases.claim_size import ClaimSize
from lowkiq.node.leases.gate import Gate
from lowkiq.node.leases.lease import Lease
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.node.schedulers import OWN, Lag, Watched
from lowkiq.node.suspects.trials import SuspectPerformer, Trials
from lowkiq.node.tasks.feeder import Feeder
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue import keys
from lowkiq.queue.bell import ListBell, LocalBell
from lowkiq.queue.shard import shards_of
from lowkiq.registration import made
from lowkiq.worker import Worker

T = TypeVar("T")


def make_threads(runtime: Runtime, fork_server: ForkServer | None = None) -> list[JobThread]:
    """Makes the worker threads of a node, in pools, and the feeder of its event loop. None of them is started yet."""
    settings = runtime.settings
    leases = [lease for worker in runtime.workers.values() for lease in leases_of(runtime, worker, fork_server)]
    if settings.build_splitter:  # one of the user's may keep shards apart, and away, on purpose
        split = settings.build_splitter(runtime.node_number, runtime.number_of_nodes, settings.threads_per_node)
        groups = _groups(split(leases))
        own, sizes = {lease for group in groups for lease in group}, [1] * len(groups)
    else:
        groups, sizes = [leases], [settings.threads_per_node]
        # Of one that is elastic none is its own before it knows of the others (elastic.py).
        own = set() if runtime.is_elastic else own_part(runtime, leases)
    threads: list[JobThread] = []
    trials = Trials(runtime.page)
    # What is not the node's part it runs as well, in case other nodes are away (housekeeping.py).
    for lease in (lease for group in groups for lease in group):
        lease.is_foster = lease not in own
    for number, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        if leases := [lease for lease in group if not lease.performer.is_async]:
            pool = _make_pool(runtime, number, leases)
            pool.weigh(runtime.weights)
            threads += [WorkerThread(len(threads) + at, pool, runtime, trials) for at in range(size)]
    if leases := [lease for group in groups for lease in group if lease.performer.is_async]:
        threads.append(Feeder(_make_pool(runtime, len(groups), leases), runtime, trials))
    return threads


def _make_pool(runtime: Runtime, number: int, leases: Sequence[Lease]) -> Pool:
    # On Cluster shards and the list may be on several servers: scripts can't ring it there.
    connections = runtime.caller.connections
    key = keys.pool_bell(runtime.namespace, runtime.node, number)
    bell = ListBell(connections, key) if connections else LocalBell()
    for lease in leases:
        lease.bell = bell.key
    build = runtime.settings.build_scheduler
    failed = partial(runtime.mishaps.met, "scheduler_failed", advice="shards are taken by lag until the node restarts")
    scheduler: Scheduler[Lease] = build() if build else Lag()
    if type(scheduler) not in OWN:
        scheduler = Watched(scheduler, failed)
    return Pool(leases, scheduler, bell, runtime)


def leases_of(runtime: Runtime, worker: type[Worker], fork_server: ForkServer | None = None) -> list[Lease]:
    """Leases of all shards of a queue, none of them acquired. The fork server is for isolated jobs, and suspects."""
    performer: Performer = (
        HelperPerformer(worker, runtime, fork_server)
        if fork_server and worker.isolation != "thread"
        else Performer(made(worker), runtime.settings, runtime.fatal, runtime.loop, runtime.ledger)
    )
    suspects = SuspectPerformer(performer, runtime, fork_server) if fork_server and performer.is_in_node else performer
    claim_size = ClaimSize(runtime.settings.claim_window, worker.batch_size)
    queue = worker.queue_name
    shards = shards_of(runtime.namespace, {queue: runtime.layouts.get(queue, worker.shards_count)})
    gate = Gate(performer, runtime)
    return [Lease(shard, performer, claim_size, runtime, gate, suspects) for shard in shards]


def _groups(dealt: Sequence[Sequence[Lease]]) -> list[Sequence[Lease]]:
    """The groups of a user's splitter, a thread each. Raises SettingsError when that deals a shard twice."""
    groups = [group for group in dealt if group]
    members = [lease for group in groups for lease in group]
    if len(set(members)) < len(members):
        raise SettingsError("the splitter gives a shard to two threads, or twice to one: each must come once")
    return groups


def own_part(runtime: Runtime, leases: Sequence[Lease]) -> set[Lease]:
    """The part of a node that has a number; of shards that are being moved another one, as if there were no others."""
    old = {lease for lease in leases if not lease.is_current}
    parts = ([lease for lease in leases if lease not in old], [lease for lease in leases if lease in old])
    number, nodes = runtime.node_number, runtime.number_of_nodes
    return {lease for part in parts for lease in part_of_node(part, number, nodes)}


def part_of_node(shards: Sequence[T], number: int, nodes: int) -> Sequence[T]:
    """The ByNode splitter: deals shards in turn to nodes."""
    return shards[number::nodes]


@contextlib.contextmanager
def tuned() -> Iterator[None]:
    """
    Tunes the process for threads started within it, once everything that lives as long as the node has been made.

    The garbage collector leaves alone what is made: for claimed jobs it would scan everything again and again, modules
    included, which took a third of the time of blank ones. And threads that wake up preempt no others, be it Redis: a
    busy node is a quarter faster for it, and an idle one no slower (sched(7), SCHED_BATCH).
    """
    gc.collect()
    gc.freeze()
    # A policy that somebody has chosen stays.
    may_batch = sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER
    try:
        if may_batch:
            _schedule("SCHED_BATCH")
        yield
    finally:
        if may_batch:
            _schedule("SCHED_OTHER")
        gc.unfreeze()


def _schedule(policy: str) -> None:
    with contextlib.suppress(OSError):  # it needs no privilege, but a container may refuse it
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
