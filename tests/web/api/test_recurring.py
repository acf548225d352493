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


def test_one_is_set_and_changed_and_its_payload_stays(api, app, worker):
    mornings = {"id": "eu", "every": "0 6 * * 1-5", "tz": "Europe/Berlin", "payload": {"of": "eu"}}
    assert api.post("queues/q/recurring/set", mornings) == {"changed": True}
    assert api.post("queues/q/recurring/set", mornings) == {"changed": False}
    changed = {"id": "eu", "every": 300, "offset": 60, "missed": "all", "backlog": 7}
    assert api.post("queues/q/recurring/set", changed) == {"changed": True}
    (job,) = app.recurring
    rule = job.rule
    assert (rule.every, rule.offset, rule.missed, rule.backlog, rule.tz) == (300.0, 60.0, "all", 7, "UTC")
    assert worker.codec.load(job.payload) == {"of": "eu"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"every": "now and then"}, "'now and then', which is neither an interval"),
        ({"every": 0}, "it must be from 0.1"),
        ({"every": "1," * 1_000 + "1 * * * *"}, "every has 2,009 characters"),
        ({"every": 300, "tz": "UTC"}, "leave tz out"),
        ({"every": 1e308}, "it must be from 0.1"),
        ({"every": "0 6 * * *", "tz": "../../../etc/passwd"}, "which is no time zone here"),
        ({"every": 300, "id": ""}, "id"),
        ({"every": "0 6 * * *", "tz": "Europe/Berlim"}, "did you mean Europe/Berlin"),
        ({"every": 300, "offset": 900}, "offset is 900"),
        ({"every": 300, "missed": "all", "payload": [1]}, "the payload must be a mapping"),
        ({"every": 300, "backlog": 0}, "backlog"),
    ],
)
def test_a_rule_that_can_not_be_is_refused(api, app, worker, wrong, told):
    assert told in api.post("queues/q/recurring/set", {"id": "eu"} | wrong, 400)["error"]
    assert not [*app.recurring]


def test_what_can_not_be_is_refused(api, app, worker):
    assert "nothing recurs as 'no'" in api.post("queues/q/recurring", {"id": "no", "action": "run_now"}, 400)["error"]
    assert "action" in api.post("queues/q/recurring", {"id": "no", "action": "explode"}, 400)["error"]
    assert "no queue 'no'" in api.post("queues/no/recurring", {"id": "no", "action": "pause"}, 404)["error"]
    assert "no queue 'no'" in api.post("queues/no/recurring/set", {"id": "no", "every": 300}, 404)["error"]
    assert "no queue 'no'" in api.get("recurring?queue=no", 404)["error"]
    app.workers.clear()
    assert "start it with -r" in api.post("queues/q/recurring", {"id": "eu", "action": "run_now"}, 400)["error"]
    assert "start it with -r" in api.post("queues/q/recurring/set", {"id": "eu", "every": 300}, 400)["error"]
