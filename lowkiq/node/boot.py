"""Boot: what a node does before it has threads, and how it calls its hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import structlog
from redis.exceptions import RedisError

from lowkiq.hooks import Fatal
from lowkiq.node.helpers.fork_server import ForkServer
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import raise_first
from lowkiq.queue.push import register
from lowkiq.settings import Settings
from lowkiq.shared_page import SharedPage
from lowkiq.transport.connect import check_server
from lowkiq.worker import Worker

logger = structlog.get_logger("lowkiq")

#: Seconds between tries to reach Redis.
RETRY: Final = 1.0


def make_fork_server(
    workers: Mapping[str, type[Worker]],
    settings: Settings,
    page: SharedPage,
    fatal: Fatal,
    close_foreign: Callable[[], None],
) -> ForkServer | None:
    """Forks what makes processes for jobs, if any worker has isolation="process": before there is anything to share."""
    isolated = {queue: worker for queue, worker in workers.items() if worker.isolation == "process"}
    return ForkServer(isolated, settings, page, fatal, close_foreign) if isolated else None


def open_queues(runtime: Runtime, wait: Callable[[float], bool]) -> bool:
    """Waits for Redis, checks it, and registers the queues. False: `wait` says that the node is to stop meanwhile."""
    while True:
        try:
            check_server(runtime.caller.client)
            refused = register(runtime.caller, runtime.namespace, runtime.queues, raises_layout=True)
            break
        except RedisError as error:
            runtime.outage.met(error, "waiting_for_redis")
        if wait(RETRY):
            return False
    runtime.outage.over()
    if len(refused) == len(runtime.queues):
        raise_first(list(refused.values()))
    runtime.refusals.of_queues(refused)
    return True


def call_on_server_init(runtime: Runtime) -> None:
    """Calls the user's hook; an async one on the loop that runs the jobs, to which what it makes belongs."""
    if hook := runtime.settings.on_server_init:
        runtime.loop.finish(hook())


def call_hook(name: str, hook: Callable[[], object] | None) -> None:
    """Calls a hook of the user's, which may fail: that changes nothing for the node."""
    if hook:
        try:
            hook()
        except Exception:
            logger.exception(f"{name}_failed")
