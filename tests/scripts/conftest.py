"""A shard of its own for each test of the scripts."""

from __future__ import annotations

import pytest

from lowkiq import Lowkiq
from tests.scripts.model.virtual_clock import VirtualClock
from tests.scripts.shard_driver import ShardDriver


@pytest.fixture
def shard(app: Lowkiq) -> ShardDriver:
    """The only shard of a queue."""
    return ShardDriver(app)


@pytest.fixture
def clock(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """The clock of scripts that are loaded from here on; it stands still."""
    return VirtualClock(app.redis(), f"{app.settings.namespace}:clock", monkeypatch)
