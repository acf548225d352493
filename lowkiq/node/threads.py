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
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue import keys
from lowkiq.queue.bell import ListBell, LocalBell
from lowkiq.queue.shard import shards_of
from lowkiq.worker import Worker

T = TypeVar("T")


def make_threads(runtime: Runtime) -> list[WorkerThread]:
    """Makes the worker threads of a node. None of them is started yet."""
    settings, connections = runtime.settings, runtime.caller.connections
    leases = [lease for worker in runtime.workers.values() for lease in _leases_of(worker, runtime)]
    own = groups = _own_part(leases, runtime)
    if not settings.build_splitter:  # one of the user's may keep shards away on purpose
        groups = with_fosters(own, leases, settings.threads_per_node)
    ours = {lease for group in own for lease in group}
    threads: list[WorkerThread] = []
    for number, group in enumerate(groups):
        # On Cluster shards and the list may be on several servers: scripts can't ring it there.
        key = keys.thread_bell(runtime.namespace, runtime.node, number)
        bell = ListBell(connections, key) if connections else LocalBell()
        for lease in group:
            lease.deal(bell.key, is_foster=lease not in ours)
        scheduler: Scheduler[Lease] = settings.build_scheduler() if settings.build_scheduler else Lag()
        threads.append(WorkerThread(number, group, scheduler, runtime, bell))
    if not settings.build_splitter:  # likewise
        for thread in threads:
            thread.others = [other for other in threads if other is not thread]
    return threads


def _leases_of(worker: type[Worker], runtime: Runtime) -> list[Lease]:
    performer = Performer(worker(), runtime.settings, runtime.fatal)
    claim_size = ClaimSize(runtime.settings.claim_window, worker.batch_size)
    shards = shards_of(runtime.namespace, {worker.queue_name: worker.shards_count})
    return [Lease(shard, performer, claim_size, runtime) for shard in shards]


def _own_part(leases: Sequence[Lease], runtime: Runtime) -> Sequence[Sequence[Lease]]:
    """The node's part, a group a thread, as the splitter has it. Raises SettingsError when that deals a shard twice."""
    settings, number, nodes = runtime.settings, runtime.node_number, runtime.number_of_nodes
    if settings.build_splitter:
        splitter = settings.build_splitter(number, nodes, settings.threads_per_node)
    else:
        splitter = ByNode(nodes, number, settings.threads_per_node)
    groups = [group for group in splitter(leases) if group]
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


class Default:
    """Splits all shards over the threads of one node: shard i goes to thread i modulo their number."""

    def __init__(self, threads_per_node: int) -> None:
        self._threads_per_node = threads_per_node

    def __call__(self, shards: Sequence[T]) -> list[list[T]]:
        groups = [list(shards[thread :: self._threads_per_node]) for thread in range(self._threads_per_node)]
        return [group for group in groups if group]


class ByNode:
    """Splits the shards of node `node_number` of `number_of_nodes` over its threads."""

    def __init__(self, number_of_nodes: int, node_number: int, threads_per_node: int) -> None:
        self._number_of_nodes = number_of_nodes
        self._node_number = node_number
        self._over_threads = Default(threads_per_node)

    def __call__(self, shards: Sequence[T]) -> list[list[T]]:
        return self._over_threads(shards[self._node_number :: self._number_of_nodes])


@contextlib.contextmanager
def tuned() -> Iterator[None]:
    """Tunes the process for threads started within it, once everything that lives as long as the node has been made."""
    with _frozen(), _batch():
        yield


@contextlib.contextmanager
def _frozen() -> Iterator[None]:
    """
    Hides from the garbage collector all objects made so far. Claimed jobs make it scan everything again and again,
    modules included, which took a third of the time of blank ones.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _batch() -> Iterator[None]:
    """
    Keeps threads that wake up from preempting others: worker threads, and Redis beside them. That makes a busy node a
    quarter faster, and costs an idle one nothing (sched(7), SCHED_BATCH). It needs no privilege, and a policy that
    somebody has chosen stays.
    """
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    with contextlib.suppress(OSError):  # a container may refuse it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
