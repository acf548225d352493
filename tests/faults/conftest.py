"""Nodes on the Redis of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lowkiq import Lowkiq
from tests.node.nodes import Nodes
from tests.support import RedisServer


@pytest.fixture
def nodes(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> Iterator[Nodes]:
    with Nodes(tmp_path, redis_server, app.settings.namespace) as nodes:
        yield nodes
