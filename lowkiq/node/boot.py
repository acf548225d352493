"""Boot: what a node does before it has threads, and how it calls its hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from redis.exceptions import RedisError

from lowkiq.environment import ExitCode
from lowkiq.errors import LowkiqError, SettingsError, needs_a_person
from lowkiq.handlers import clean
from lowkiq.hooks import Fatal
from lowkiq.log import get_logger
from lowkiq.node.helpers.fork_server import ForkServer
from lowkiq.node.hook_calls import call_hook
from lowkiq.node.runtime import Runtime
from lowkiq.process.patched import cure, patched_by
from lowkiq.process.unforkable import missing_in_forks
from lowkiq.queue.call import raise_first
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.settings import Settings
from lowkiq.shared_page import SharedPage
from lowkiq.transport.connect import check_server
from lowkiq.worker import Worker

logger = get_logger()

#: Names of a kind that a line of the log has.
MOST_NAMED: Final = 10
#: Seconds between tries to reach Redis.
RETRY: Final = 1.0


def make_fork_server(
    workers: Mapping[str, type[Worker]],
    settings: Settings,
    page: SharedPage,
    fatal: Fatal,
    close_foreign: Callable[[], None],
    source: str | None = None,
) -> ForkServer:
    """Forks what makes processes for isolated jobs, and for suspects: before there is anything to share."""
    isolated = [queue for queue, worker in workers.items() if worker.isolation == "process"]
    if isolated and (missing := missing_in_forks()):
        logger.warning(
            "import_forbids_forks", started=missing[:MOST_NAMED], queues=isolated[:MOST_NAMED],
            advice="jobs in processes of their own lack it, or hang: begin it in on_server_init, which they call too, "
            'or let them begin anew with isolation="spawn"',
        )  # fmt: skip
    spawned = [queue for queue, worker in workers.items() if worker.isolation == "spawn"]
    if spawned and source is None:
        raise SettingsError(f'{spawned[0]} has isolation="spawn", which needs a node started as `lowkiq -r MODULE` is')
    return ForkServer(workers, settings, page, fatal, close_foreign, source)


def refuse_greenlets() -> None:
    """Raises SettingsError where threads are no threads: they would wait for each other for ever, in silence."""
    if library := patched_by():
        raise SettingsError(f"{library} has patched threads in this process: {cure(library)}")


def open_queues(runtime: Runtime, wait: Callable[[float], bool]) -> bool:
    """Waits for Redis, checks it, and registers the queues. False: `wait` says that the node is to stop meanwhile."""
    while True:
        try:
            check_server(runtime.caller.client, volatile_eviction=runtime.settings.volatile_eviction)
            found = opened(runtime.caller, runtime.namespace, runtime.queues)
            break
        except RedisError as error:
            runtime.outage.met(error, "waiting_for_redis")
        if wait(RETRY):
            return False
    runtime.outage.over()
    refused = {queue: layout for queue, layout in found.items() if isinstance(layout, Exception)}
    for queue, layout in found.items():
        runtime.layouts[queue] = layout if isinstance(layout, Layout) else _own_layout(runtime, queue)
    if len(refused) == len(runtime.queues):
        raise_first(list(refused.values()))
    runtime.refusals.of_queues(refused)
    return True


def _own_layout(runtime: Runtime, queue: str) -> Layout:
    return Layout.first(runtime.queues[queue])


def call_on_server_init(runtime: Runtime) -> None:
    """Calls the user's hook; an async one on the loop that runs the jobs, to which what it makes belongs."""
    clean.call_init(runtime.settings.on_server_init, runtime.loop, runtime.variables)
    refuse_greenlets()


def refuse(error: Exception) -> int:
    """Tells of what keeps the node from its start, and returns the exit code."""
    if isinstance(error, LowkiqError):
        logger.error("boot_refused", error=str(error))
    else:
        logger.exception("boot_failed")
    return ExitCode.BOOT if needs_a_person(error) else ExitCode.INTERNAL


def say_last_words(settings: Settings, error: BaseException) -> None:
    """Calls the hook that is told of what ends the node."""
    call_hook("last_words", partial(settings.last_words, error) if settings.last_words else None)
