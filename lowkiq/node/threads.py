"""Threads: deals shards to nodes and to their worker threads, and tunes interpreter and kernel for these."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

from lowkiq.errors import SettingsError
from lowkiq.handlers.performer import Performer
from lowkiq.hooks import Scheduler
from lowkiq.node.claim_size import ClaimSize
from lowkiq.node.lease import Lease
from lowkiq.node.runtime import Runtime
from lowkiq.node.schedulers import Lag
from lowkiq.node.suspects.isolation import Isolation
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue import keys
from lowkiq.queue.bell import ListBell, LocalBell
from lowkiq.queue.shard import shards_of
from lowkiq.worker import Worker

T = TypeVar("T")


def make_threads(runtime: Runtime) -> list[WorkerThread]:
    """Makes the worker threads of a node. None of them is started yet."""
    settings, connections = runtime.settings, runtime.caller.connections
    leases = [lease for worker in runtime.workers.values() for lease in leases_of(runtime, worker)]
    own = groups = _own_part(leases, runtime)
    if not settings.build_splitter:  # one of the user's may keep shards away on purpose
        groups = with_fosters(own, leases, settings.threads_per_node)
    ours = {lease for group in own for lease in group}
    threads: list[WorkerThread] = []
    isolation = Isolation()
    for number, group in enumerate(groups):
        # On Cluster shards and the list may be on several servers: scripts can't ring it there.
        key = keys.thread_bell(runtime.namespace, runtime.node, number)
        bell = ListBell(connections, key) if connections else LocalBell()
        for lease in group:
            lease.bell, lease.is_foster = bell.key, lease not in ours
        scheduler: Scheduler[Lease] = settings.build_scheduler() if settings.build_scheduler else Lag()
        threads.append(WorkerThread(number, group, scheduler, runtime, bell, isolation))
    if not settings.build_splitter:  # likewise
        for thread in threads:
            thread.others = [other for other in threads if other is not thread]
    return threads


def leases_of(runtime: Runtime, worker: type[Worker]) -> list[Lease]:
    """Leases of all shards of a queue, none of them acquired."""
    performer = Performer(worker(), runtime.settings, runtime.fatal)
    claim_size = ClaimSize(runtime.settings.claim_window, worker.batch_size)
    shards = shards_of(runtime.namespace, {worker.queue_name: worker.shards_count})
    return [Lease(shard, performer, claim_size, runtime) for shard in shards]


def _own_part(leases: Sequence[Lease], runtime: Runtime) -> Sequence[Sequence[Lease]]:
    """The node's part, a group a thread, as the splitter has it. Raises SettingsError when that deals a shard twice."""
    settings, number, nodes = runtime.settings, runtime.node_number, runtime.number_of_nodes
    if settings.build_splitter:
        dealt = settings.build_splitter(number, nodes, settings.threads_per_node)(leases)
    else:
        dealt = split_by_node(leases, number, nodes, settings.threads_per_node)
    groups = [group for group in dealt if group]
    members = [lease for group in groups for lease in group]
    if len(set(members)) < len(members):
        raise SettingsError("the splitter gives a shard to two threads, or twice to one: each must come once")
    return groups


def with_fosters(groups: Sequence[Sequence[T]], shards: Sequence[T], threads: int) -> Sequence[Sequence[T]]:
    """Deals what is not the node's part to its threads as well, in case other nodes are away (housekeeping.py)."""
    ours = {shard for group in groups for shard in group}
    others = [shard for shard in shards if shard not in ours]
    if not others:
        return groups
    dealt: list[list[T]] = [list(group) for group in groups] + [[] for _ in range(threads - len(groups))]
    dealt.sort(key=len)  # threads with little of their own come first
    return [[*group, *others[number :: len(dealt)]] for number, group in enumerate(dealt)]


def split_by_node(shards: Sequence[T], number: int, nodes: int, threads: int) -> list[list[T]]:
    """The ByNode splitter: deals shards in turn to nodes, and those of node `number` to its threads."""
    ours = shards[number::nodes]
    return [list(group) for thread in range(threads) if (group := ours[thread::threads])]


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
