"""Parts of a node that tests drive by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowkiq import Lowkiq, clock
from lowkiq.node.lease import Lease
from lowkiq.node.node import Node
from lowkiq.node.runtime import Runtime
from lowkiq.node.schedulers import Lag
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue.shard import Owned


def burst(app: Lowkiq, **options: Any) -> None:
    assert Node(app, burst=True, **options).run() == 0


def no_fatal(error: BaseException) -> None:
    raise error


def runtime_of(
    app: Lowkiq, node: str = "one", *dead: str, fatal: Callable[[BaseException], None] = no_fatal, **parts: Any
) -> Runtime:
    """A node of all the application's workers, over the application's connections unless it is given others."""
    known: dict[str, Any] = {"caller": app.caller, "workers": app.workers} | parts
    return Runtime(node=node, settings=app.settings, fatal=fatal, known_dead=dead, **known)


def acquire(lease: Lease, until: float | None = None) -> Lease:
    asked_at = clock.monotonic() if until is None else until
    owned = lease.runtime.caller.run(lease.acquire_call(lease.runtime.dead_nodes()))
    assert isinstance(owned, Owned)
    lease.acquired(owned, asked_at)
    return lease


def thread_of(runtime: Runtime, *leases: Lease, number: int = 0) -> WorkerThread:
    """It is not started. Its shards have jobs due, one after the other."""
    thread = WorkerThread(number, leases, Lag(), runtime)
    for at, lease in enumerate(leases):
        thread.wake(lease, float(at))
    return thread
