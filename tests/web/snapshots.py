"""Snapshots taken from tests without an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from lowkiq import Lowkiq
from lowkiq.web.snapshot import Snapshot, Snapshots


def get(snapshots: Snapshots) -> Snapshot:
    """A snapshot, on an event loop of its own."""
    return asyncio.run(get_in_time(snapshots))


async def get_in_time(snapshots: Snapshots) -> Snapshot:
    return await asyncio.wait_for(snapshots.get(), 60)


def gather(snapshots: Snapshots, count: int) -> list[Any]:
    """Snapshots asked for at once, or the errors."""

    async def ask() -> list[Any]:
        return await asyncio.gather(*(get_in_time(snapshots) for _ in range(count)), return_exceptions=True)

    return asyncio.run(ask())


def polls(app: Lowkiq) -> int:
    """How many there were: each asks Redis for its queues, live settings, and alerts that were noted."""
    return int(app.redis().info("commandstats").get("cmdstat_hscan", {"calls": 0})["calls"]) // 3
