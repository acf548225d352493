"""Heartbeats for tests: a node's health of which only a part matters."""

from __future__ import annotations

from typing import Any

import msgspec

from lowkiq import Lowkiq
from lowkiq.admin.beats.health import NodeHealth, beat


def tell_health(app: Lowkiq, **fields: Any) -> None:
    """Beats as a node does, with these fields."""
    health = NodeHealth(
        node="host:1:abc", boot_id="b", host="host", pid=1, supervisor_pid=None, node_number=0, number_of_nodes=2,
        slot=None, state="ready", started_at=1.0, beat_at=2.0, version="1", owned={"q": [0]},
        waited_for={"": {"q": [1]}}, threads=[], processed=3, failed=4, rss=5_000, cpu_percent=6.5,
        redis_round_trip=0.001, restarts=7, last_exit=None,
    )  # fmt: skip
    beat(app.caller, app.settings.namespace, msgspec.structs.replace(health, **fields))
