"""Parts of a node that tests drive by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowkiq import Lowkiq, clock
from lowkiq.node.leases.lease import Lease
from lowkiq.node.node import Node
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.node.schedulers import Lag
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue.bell import LocalBell
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


def pool_of(runtime: Runtime, *leases: Lease) -> Pool:
    """Its shards have jobs due, one after the other."""
    pool = Pool(leases, Lag(), LocalBell(), runtime)
    for at, lease in enumerate(leases):
        pool.wake(lease, float(at))
    return pool


def thread_of(runtime: Runtime, *leases: Lease) -> WorkerThread:
    """One that is alone in its pool, and not started."""
    return WorkerThread(0, pool_of(runtime, *leases), runtime)


class Failover:
    """Redis's state at a moment, which a failover brings back; connections are lost with it."""

    def __init__(self, app: Lowkiq) -> None:
        self._client: Any = app.redis()
        self._keys = {key: self._client.dump(key) for key in self._client.keys("*")}

    def happen(self) -> None:
        for key in self._client.keys("*"):
            self._client.delete(key)
        for key, dump in self._keys.items():
            self._client.restore(key, 0, dump)
        self._client.client_kill_filter(_type="normal", skipme=True)
