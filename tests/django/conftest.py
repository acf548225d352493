"""Shops: on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.django.shop import Shop
from tests.postgres import postgres
from tests.support import RedisServer

__all__ = ["postgres"]


@pytest.fixture(params=["sqlite", "postgresql"])
def make_shop(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer) -> Callable[..., Shop]:
    """make_shop(**settings) → a shop whose database has its tables."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None

    def make(**settings: Any) -> Shop:
        shop = Shop(tmp_path, server, redis_url=redis_server.url, **settings)
        shop.did("migrate", "--verbosity", "0")
        redis_server.ask("FLUSHALL")
        return shop

    return make


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """A shop with no settings but Redis's."""
    return make_shop()
