"""A shard of its own for each test of the scripts."""

from __future__ import annotations

import pytest

from lowkiq import Lowkiq
from tests.scripts.shard_driver import ShardDriver


@pytest.fixture
def shard(app: Lowkiq) -> ShardDriver:
    """The only shard of a queue."""
    return ShardDriver(app)
