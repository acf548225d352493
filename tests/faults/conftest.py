"""What fault tests share: a shard whose Redis has a clock that the test sets."""

from __future__ import annotations

import pytest

from tests.queue.model.virtual_clock import VirtualClock
from tests.queue.shard_driver import ShardDriver


@pytest.fixture
def clock(monkeypatch, make_app):
    app = make_app()
    return VirtualClock(app.redis(), f"{app.settings.namespace}-clock", monkeypatch)


@pytest.fixture
def shard(clock, make_app):
    """Of a client that has not loaded the scripts with the real clock."""
    clock.set(1_800_000_000 * 1_000_000)
    return ShardDriver(make_app())
