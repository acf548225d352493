"""Tenants of a fair queue in the API, and on its page."""

from __future__ import annotations

import pytest

from lowkiq.web.pages import jobs as page_of_jobs
from tests.queue.shard_driver import FUTURE
from tests.web.conftest import open_queue
from tests.web.reading import read


@pytest.fixture
def fair(app):
    @app.worker(queue_name="q", shards_count=2, fair_by=lambda _, payload: payload)
    def work(payloads_by_id): ...

    open_queue(app, shards_count=2)
    open_queue(app, "plain").push("x")
    for tenant, count in (("ann", 3), ("<b>bob</b>", 5)):
        work.perform_async({"id": f"{tenant}-{n}", "payload": tenant, "perform_in": FUTURE} for n in range(count))
    return work


def test_the_largest_backlogs_are_told(api, fair):
    assert api.get("queues/q/tenants") == {
        "queue": "q",
        "tenants": [{"tenant": "<b>bob</b>", "ids": 5}, {"tenant": "ann", "ids": 3}],
    }
    assert len(api.get("queues/q/tenants?limit=1")["tenants"]) == 1
    assert api.get("queues/plain/tenants")["tenants"] == []
    api.get("queues/ghost/tenants", 404)
    api.get("queues/q/tenants?limit=0", 400)


def test_the_page_of_a_queue_names_them(browser, fair, monkeypatch):
    assert "Largest backlogs <b>bob</b> 5 ann 3" in read(browser, "/queues/q?view=due").text
    assert "Largest backlogs" not in read(browser, "/queues/plain?view=due").text
    monkeypatch.setattr(page_of_jobs, "MOST_TAGGED_SHARDS", 1)
    assert "Largest backlogs" not in read(browser, "/queues/q?view=due").text
