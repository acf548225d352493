"""Fixtures of tests of the JSON API: a client, and queues with jobs in them."""

from __future__ import annotations

import pytest

from lowkiq import Worker
from tests.queue.shard_driver import PAST, ShardDriver


class Api:
    """Asks the API as a script does that has read its token."""

    def __init__(self, browser):
        self._browser = browser

    def get(self, path, status=200):
        return self._checked(self._browser.get(f"/api/v1/{path}"), status)

    def post(self, path, body=None, status=200, **options):
        headers = {"x_lowkiq_token": self.get("token")["token"]} | options.pop("headers", {})
        content = options or {"json": body}
        return self._checked(self._browser.send("POST", f"/api/v1/{path}", headers, **content), status)

    def act(self, body, status=200, **options):
        return self.post("queues/q/actions", body, status, **options)

    @staticmethod
    def _checked(response, status):
        assert response.status_code == status, response.text
        assert response.headers["content-type"].startswith("application/json")
        assert response.headers["cache-control"] == "no-store"
        reply = response.json()
        if status >= 400:
            assert reply.keys() == {"error"}
            assert len(reply["error"]) < 600
        return reply


@pytest.fixture
def make_api(make_web, browse):
    def make(**options):
        api = Api(browse(make_web(**options)))
        api.get("token")  # with the first look, processes agree on a key: see Access
        return api

    return make


@pytest.fixture
def api(make_api):
    return make_api()


@pytest.fixture
def work(app):
    return app.worker(queue_name="q", shards_count=1)(type("Orders", (Worker,), {}))


@pytest.fixture
def shard(app, work):
    return ShardDriver(app)


@pytest.fixture
def failed(shard):
    """Three jobs, of which "once" has failed once and "twice" twice."""
    for id in ("fresh", "once", "twice"):
        shard.push(id, b"{}", perform_in=PAST)
    lease = shard.lease()
    lease.claim()
    lease.fail("once", error="order 7 is late")
    lease.fail("twice", retry_count=1, error="order 8 is late")
    lease.release("lease")
    return shard
