"""Makes the worker threads of a node: which shards each of them runs, and what wakes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lowkiq.handlers.performer import Performer
from lowkiq.node.partition import own_part, with_fosters
from lowkiq.node.schedulers import Lag
from lowkiq.node.shard_handler import ShardHandler
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue import keys
from lowkiq.queue.bell import ListBell

if TYPE_CHECKING:
    from lowkiq.app import Lowkiq
    from lowkiq.node.outage import Outage
    from lowkiq.queue.call import Caller


def make_worker_threads(
    app: Lowkiq,
    caller: Caller,
    node: str,
    node_number: int,
    number_of_nodes: int,
    fatal: Callable[[BaseException], None],
    outage: Outage,
) -> list[WorkerThread]:
    """None of them is started yet."""
    settings = app.settings
    build_scheduler = settings.build_scheduler or Lag
    threads: list[WorkerThread] = []
    for number, handlers in enumerate(_deal(app, node, node_number, number_of_nodes, fatal)):
        # On Cluster shards and the list may be on several servers: scripts can't ring it there.
        bell = ListBell(caller.line, keys.thread_bell(settings.namespace, node, number)) if caller.line else None
        for handler in handlers:
            handler.bell = bell.key if bell else ""
        threads.append(
            WorkerThread(number, handlers, build_scheduler(), caller, settings.poll_interval, fatal, outage, bell)
        )
    if not settings.build_splitter:  # one of the user's may keep shards apart on purpose
        for thread in threads:
            thread.others = [other for other in threads if other is not thread]
    return threads


def _deal(
    app: Lowkiq, node: str, node_number: int, number_of_nodes: int, fatal: Callable[[BaseException], None]
) -> list[Sequence[ShardHandler]]:
    """The shards that each thread may run: the node's part, and those that it can stand in for."""
    settings = app.settings
    handlers = [
        ShardHandler(shard, performer, node, settings)
        for worker in app.workers.values()
        for performer in [Performer(worker(), settings, fatal)]
        for shard in app.shards(worker.queue_name, worker.shards_count)
    ]
    groups = own_part(handlers, settings, node_number, number_of_nodes)
    # A splitter of the user's may keep shards away on purpose.
    return groups if settings.build_splitter else with_fosters(groups, handlers, settings.threads_per_node)
