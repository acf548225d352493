"""Nodes with isolated workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from lowkiq import Lowkiq
from tests.node.helpers.script import SCRIPT
from tests.node.nodes import NodeProcess, Nodes
from tests.support import RedisServer, wait_until


class IsolatedNodes(Nodes):
    """Nodes whose jobs run in processes of their own."""

    script = SCRIPT

    def errors(self, id: str = "a") -> list[str | None]:
        """The error that a queued or buried job has."""
        queries = self.worker.queries
        return [job.error for job in (*queries.fetch([id]), *queries.morgue_fetch([id]))]

    def until_failed(self, id: str = "a") -> str:
        """Waits until a job has failed; its error."""
        return str(wait_until(lambda: next(filter(None, self.errors(id)), None), f"{id} failed"))

    def until_done(self) -> None:
        wait_until(self.is_done, "all jobs done")

    def started_by(self, id: str = "a") -> int:
        """Waits until a job has started; its process."""
        return int(wait_until(lambda: [row[1] for row in self.records("start") if id in row[2]], f"{id} started")[-1])

    def children(self) -> list[psutil.Process]:
        """Waits for the processes that a job has started."""
        (row,) = wait_until(lambda: self.records("children"), "children")
        return [psutil.Process(pid) for pid in row[2]]


@pytest.fixture
def isolated(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> Iterator[Callable[..., IsolatedNodes]]:
    """Makes nodes whose worker has these options."""
    with ExitStack() as ends:
        make = partial(IsolatedNodes, tmp_path, redis_server, app.settings.namespace)
        yield lambda **options: ends.enter_context(make(**{"shards_count": 1} | options))


def fork_server_of(node: NodeProcess) -> psutil.Process:
    """A node's fork server: the only process that the node itself has started."""
    (found,) = psutil.Process(node.pid).children()
    return found


def processes_of(node: NodeProcess) -> list[psutil.Process]:
    """A node's fork server, helpers, and what their jobs have started."""
    server = fork_server_of(node)
    return [server, *server.children(recursive=True)]


def helpers_of(node: NodeProcess) -> list[psutil.Process]:
    """Helpers that live."""
    return [child for child in fork_server_of(node).children() if is_alive(child)]


def is_alive(process: psutil.Process) -> bool:
    """False for a zombie, too."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def all_gone(processes: Any) -> bool:
    """True once none of these is left."""
    return not any(map(is_alive, processes))
