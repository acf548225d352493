"""A bell, and a shard that rings it."""

from __future__ import annotations

import pytest

from tests.queue.bells import bell_of


@pytest.fixture
def bell(app):
    bell = bell_of(app, f"{app.settings.namespace}:bell:n:0")
    yield bell
    bell.close()


@pytest.fixture
def rung(shard, bell):
    """A shard whose owner is idle, and hears of it by that bell."""
    shard.caller.run(shard.shard.acquire("n", 60, 3, bell=bell.key))
    shard.become_known()
    return shard


@pytest.fixture
def own_app(own_redis_server, make_app):
    """An application whose Redis the test may spoil or end."""
    return make_app(redis_url=own_redis_server.url)


@pytest.fixture
def own_bell(own_app):
    """A bell of that Redis."""
    bell = bell_of(own_app)
    yield bell
    bell.close()
