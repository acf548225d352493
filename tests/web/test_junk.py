"""
Whatever somebody has written into Redis breaks no page and no other queue: it is skipped, and named in an alert, in
which nothing of it becomes markup or a command to a terminal.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from lowkiq import clock
from lowkiq.queue import keys
from lowkiq.web import snapshot
from tests.junk import JUNK, as_kind, sampled, set_up
from tests.web.node_health import tell_health
from tests.web.security.test_hostile import INVISIBLE

VIEWS = ("due", "retries", "in_flight", "morgue")
PAGES = (
    "/", "/?span=1h", "/nodes", "/bulks", *(f"/queues/q?view={view}" for view in VIEWS), "/queues/q?span=30d",
    "/queues/q?pattern=*", "/queues/q?view=retries&error=boom", "/queues/q/job?id=1", "/queues/q/job?id=dead",
    "/queues/q?tag=eu", "/queues/q?view=morgue&tag=eu", "/search?q=zz", "/recurring",
)  # fmt: skip
API = (
    "stats", "nodes", "queues", "queues/q", "queues/q?errors=1",
    "queues/q/failures", "queues/q/failures?view=morgue",
    "history", "history?span=5m", "history?queue=q&span=5m", "recurring",
    "bulks", "token", "openapi.json", *(f"queues/q/jobs?view={view}" for view in VIEWS), "queues/q/jobs?pattern=*",
    "queues/q/job?id=1", "queues/q/job?id=dead", "queues/q/jobs?tag=eu", "tracked", "queues/q/statistics", "search?q=1",
)  # fmt: skip


@pytest.fixture
def shop(app):
    """The queue, with a live node."""
    tell_health(app, node="host:2:y", number_of_nodes=1)
    return set_up(app)


def ask_all(browser: Any, *, hides_queues: bool = False) -> dict[str, str]:
    """The answers of all pages and operations; none may fail."""
    answers = {}
    for path in (*PAGES, *(f"/api/v1/{path}" for path in API), "/metrics", "/readyz"):
        answer = browser.get(path)
        may_be_gone = "job?id=" in path or (hides_queues and "q" in path)  # which may be what can't be read
        assert answer.status_code in ({200, 404} if may_be_gone else {200}), (path, answer.text[:500])
        if not path.startswith("/api"):
            assert not INVISIBLE.search(answer.text), path
            assert "<b onload" not in answer.text, path
        answers[path] = answer.text
    return answers


def unreadable(browser: Any) -> list[dict[str, str]]:
    alerts = browser.get("/api/v1/nodes").json()["alerts"]
    return [alert for alert in alerts if alert["kind"] == "unreadable"]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """Each request sees Redis as it is."""
    monkeypatch.setattr(snapshot.Snapshots.__init__, "__defaults__", (0.0,))


@pytest.mark.parametrize("name", sampled(JUNK))
def test_junk_breaks_no_page_and_is_named(name, browser, shop, app):
    plant, named = JUNK[name]
    plant(shop, app.settings.namespace)
    started = clock.monotonic()
    ask_all(browser, hides_queues=name == "kind of queues")
    found = unreadable(browser)  # by now whatever was met anywhere is known
    assert clock.monotonic() - started < 60
    if named is None:
        assert not found
        return
    assert named in found[0]["says"]
    assert len(found) == 1
    assert all(" " <= char <= "~" for char in found[0]["says"] + found[0]["do"])
    assert "something under" in browser.get("/").text
    counted = re.search(r'^lowkiq_alerts\{severity="bad"\} (\S+)', browser.get("/metrics").text, re.MULTILINE)
    assert counted and float(counted[1]) >= 1


def test_once_it_is_removed_nothing_is_said_of_it(browser, shop, app):
    ns = app.settings.namespace
    shop.hset(keys.queues(ns), "x", "<b>")
    as_kind(shop, f"{ns}:{{q:0}}:due", "string")
    shop.rpush(f"{ns}:{{history}}::5m", "x")
    browser.get("/")
    assert len(unreadable(browser)) == 3
    shop.hdel(keys.queues(ns), "x")
    shop.delete(f"{ns}:{{q:0}}:due", f"{ns}:{{history}}::5m")
    browser.get("/")
    assert unreadable(browser) == []
