"""Fixtures of fault tests: nodes on the Redis of all tests, and a shard whose Redis has a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lowkiq import Lowkiq
from tests.node.nodes import Nodes
from tests.queue.model.virtual_clock import VirtualClock
from tests.queue.shard_driver import ShardDriver
from tests.support import RedisServer


@pytest.fixture
def nodes(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> Iterator[Nodes]:
    with Nodes(tmp_path, redis_server, app.settings.namespace) as nodes:
        yield nodes


@pytest.fixture
def clock(monkeypatch, make_app):
    app = make_app()
    return VirtualClock(app.redis(), f"{app.settings.namespace}-clock", monkeypatch)


@pytest.fixture
def shard(clock, make_app):
    """Shard of a client that has not loaded the scripts with the real clock."""
    clock.set(1_800_000_000 * 1_000_000)
    return ShardDriver(make_app())
