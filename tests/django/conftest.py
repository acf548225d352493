"""Shops: on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.django.shop import Shop
from tests.postgres import postgres
from tests.support import RedisServer

__all__ = ["postgres"]


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> Shop:
    """A shop whose database has its tables, and nothing else."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    shop = Shop(tmp_path_factory.mktemp("template"), server, redis_url=redis_server.url)
    shop.did("migrate", "--verbosity", "0")
    redis_server.ask("FLUSHALL")
    return shop


@pytest.fixture
def make_shop(template: Shop, tmp_path: Path, redis_server: RedisServer) -> Callable[..., Shop]:
    """make_shop(**settings) → a shop whose database has its tables, and of whose predecessors Redis has nothing."""
    redis_server.ask("FLUSHALL")
    return lambda **settings: template.like_it(tmp_path, redis_url=redis_server.url, **settings)


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """A shop with no settings but Redis's."""
    return make_shop()
