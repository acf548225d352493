"""A worker to push to, and the connections that loops open."""

from __future__ import annotations

import pytest

from lowkiq.transport.nonblocking import NonBlocking
from tests.queue.awaited.pushes import work


@pytest.fixture
def worker(app):
    return app.worker(queue_name="q", shards_count=3)(work)


@pytest.fixture
def connected(monkeypatch):
    """Connections that loops have opened for their pushes."""
    opened = []
    open_one = NonBlocking.open

    async def spy(connection, seconds):
        await open_one(connection, seconds)
        opened.append(connection)

    monkeypatch.setattr(NonBlocking, "open", spy)
    return opened
