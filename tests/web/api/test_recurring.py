"""Recurring jobs through the API."""

from __future__ import annotations

import pytest


@pytest.fixture
def worker(app):
    worker = app.worker(queue_name="q", shards_count=3)(lambda _: None)
    app.push(worker, [{"id": "1"}])
    return worker


def test_they_are_listed_and_changed(api, app, worker):
    assert api.get("recurring") == {"jobs": [], "count": 0}
    app.recurring.set(worker, "eu", 300, payload={"of": "eu"})
    app.recurring.set(worker, "us", 600)
    found = api.get("recurring?queue=q")
    assert found["count"] == 2 and {job["id"] for job in found["jobs"]} == {"eu", "us"}
    (job,) = [job for job in found["jobs"] if job["id"] == "eu"]
    assert (job["queue"], job["words"], job["rule"]["every"], job["origin"]) == ("q", "every 5 m", 300.0, "api")
    assert job["next_at"] > 0 and job["last_at"] is None and job["paused"] is None and "payload" not in job
    assert api.post("queues/q/recurring", {"id": "eu", "action": "pause", "reason": "why not"}) == {"changed": True}
    assert api.post("queues/q/recurring", {"id": "eu", "action": "pause"}) == {"changed": False}
    (last,) = api.get("recurring")["jobs"][1:]
    assert (last["id"], last["next_at"], last["paused"]["why"]) == ("eu", None, "why not")
    assert api.post("queues/q/recurring", {"id": "eu", "action": "run_now"}) == {"changed": True}
    assert [job.id for job in worker.queries.find("eu")] == ["eu"]
    assert api.post("queues/q/recurring", {"id": "eu", "action": "remove"}) == {"changed": True}
    assert api.get("recurring")["count"] == 1


def test_what_can_not_be_is_refused(api, app, worker):
    assert "nothing recurs as 'no'" in api.post("queues/q/recurring", {"id": "no", "action": "run_now"}, 400)["error"]
    assert "action" in api.post("queues/q/recurring", {"id": "no", "action": "explode"}, 400)["error"]
    assert "no queue 'no'" in api.post("queues/no/recurring", {"id": "no", "action": "pause"}, 404)["error"]
    assert "no queue 'no'" in api.get("recurring?queue=no", 404)["error"]
    app.workers.clear()
    assert "start it with -r" in api.post("queues/q/recurring", {"id": "eu", "action": "run_now"}, 400)["error"]
