"""Nodes for the tests of this directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lowkiq import Lowkiq, clock
from tests.node.nodes import Nodes
from tests.support import RedisServer


@pytest.fixture
def make_nodes(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> Iterator[Callable[..., Nodes]]:
    """Nodes of the test's namespace, whose worker has these options."""
    with ExitStack() as ends:
        yield lambda **options: ends.enter_context(Nodes(tmp_path, redis_server, app.settings.namespace, **options))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the node, which stands still unless the test moves it."""
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes()


@pytest.fixture
def one_shard(make_nodes: Callable[..., Nodes]) -> Nodes:
    """Everything in one shard, and there one job at a time."""
    return make_nodes(shards_count=1, concurrency=1)


@pytest.fixture
def own_nodes(tmp_path: Path, own_redis_server: RedisServer) -> Iterator[Nodes]:
    """On a Redis that the test may stop."""
    with Nodes(tmp_path, own_redis_server, "ns") as nodes:
        yield nodes
