"""
The embedded Redis as a slot like any other: how it is launched, and when it counts as ready.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from lowkiq_supervisor.processes.child import spawn
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.slot import Slot, State
from lowkiq_supervisor.restart_policy import RestartHistory, RestartMode, RestartPolicy

#: Seconds it may take to start: it reads back everything it holds.
BOOT_LIMIT = 120.0
#: Seconds between two looks at a starting server.
LOOK_INTERVAL = 0.02
#: Seconds to write what it has and end; it usually takes a few milliseconds.
GRACE = 10.0


def redis_slot(embedded: EmbeddedRedis, policy: RestartPolicy, close_foreign: Callable[[], None]) -> Slot:
    """The slot; whatever was asked for the nodes, it is always refilled, for they can do nothing without it."""
    return Slot(
        title="redis",
        history=RestartHistory(replace(policy, mode=RestartMode.ALWAYS, burst=False)),
        launch=lambda _: spawn(
            lambda _: embedded.become_server(),
            close_foreign=close_foreign,
            # When the supervisor is killed, nodes are simply gone; the server first writes what it has.
            death_signal=signal.SIGTERM,
        ),
        grace=GRACE,
    )


def has_become_ready(slot: Slot, embedded: EmbeddedRedis) -> bool:
    """Look whether a starting server answers now. It can't beat; so it is asked, until its boot limit."""
    if slot.child is None or slot.state is not State.STARTING:
        return False
    if embedded.answers():
        slot.kill_at = None
        return slot.says(State.READY)
    slot.kill_at = slot.child.started_at + BOOT_LIMIT
    return False
