"""Actions: on ids at once, on all that match in the background, and only by whom and as they may."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from lowkiq.admin.jobs import bulks
from lowkiq.admin.jobs.search import Match
from lowkiq.job import shard_of
from lowkiq.queue.shard import Exhausted
from lowkiq.web import create_app
from lowkiq.web.api.requests import MAX_IDS
from lowkiq.web.bulk_runner import BulkRunner, TooManyBulks
from tests.support import wait_until


def test_ids_are_acted_on_at_once(api, failed):
    assert api.act({"action": "perform_now", "ids": ["once", "gone"], "view": "retries"}) == {"moved": 1}
    assert api.act({"action": "bury", "ids": ["once"]}) == {"moved": 1}
    assert failed.morgue().keys() == {"once"}
    assert api.act({"action": "revive", "ids": ["once"]}) == {"moved": 1}
    assert api.act({"action": "delete", "ids": ["once", "fresh"], "view": "due"}) == {"moved": 2}
    assert failed.queued().keys() == {"twice"}


def test_jobs_are_cancelled_wherever_they_are(api, work, failed):
    lease = failed.lease("host:1:abc")
    work.perform_async([{"id": "running"}])
    lease.claim()
    assert api.act({"action": "cancel", "ids": ["running", "once", "gone"]}) == {"moved": 2}
    assert failed.queued().keys() == {"twice"}, "fresh runs"
    lease.fail("running")
    lease.fail("fresh")
    assert failed.queued().keys() == {"twice", "fresh"}, "what was cancelled does not come back"
    assert (
        "makes no sense in view morgue" in api.act({"action": "cancel", "ids": ["x"], "view": "morgue"}, 400)["error"]
    )


def test_a_job_that_would_be_revived_behind_newer_payloads_is_only_if_that_is_said(api, work, failed):
    lease = failed.lease("host:1:abc")
    work.perform_async([{"id": "a", "payload": number, "score": number} for number in (1, 2)])
    lease.claim()
    lease.exhaust("a")
    lease.claim_beside()
    error = api.act({"action": "revive", "ids": ["a"]}, 409)["error"]
    assert error.startswith("a would run behind newer payloads of its id, which run now or have gone on since it died")
    assert failed.morgue().keys() == {"a"}
    assert "goes with revive" in api.act({"action": "bury", "ids": ["a"], "out_of_order": True}, 400)["error"]
    assert api.act({"action": "revive", "ids": ["a"], "out_of_order": True}) == {"moved": 1}


def test_a_blocked_job_is_retried_skipped_or_deleted(api, work, failed):
    work.perform_async([{"id": id, "payload": number, "score": number} for id in "abc" for number in (1, 2)])
    lease = failed.lease("host:1:abc")
    lease.settle(exhausted=[Exhausted(job.id, "boom", "block") for job in lease.claim() if job.id in "abc"])
    rows = api.get("queues/q/jobs?view=blocked")["jobs"]
    assert [(row["id"], row["is_blocked"], row["due_in"], row["error"]) for row in rows] == [
        (id, True, None, "boom") for id in "abc"
    ]
    assert api.act({"action": "retry", "ids": ["a", "gone"]}) == {"moved": 1}
    assert api.act({"action": "skip", "ids": ["b"]}) == {"moved": 1}
    assert api.act({"action": "delete", "ids": ["c"], "view": "blocked"}) == {"moved": 1}
    assert failed.queued()["b"].payloads == {b"2": 2.0}
    assert api.get("queues/q/jobs?view=blocked")["jobs"] == []
    assert api.get("queues/q/job?id=a")["places"][0]["is_blocked"] is False


def test_a_thousand_ids_are_acted_on_and_not_one_more(api, work):
    ids = [f"id-{n}" for n in range(MAX_IDS + 1)]
    work.perform_async([{"id": id} for id in ids])
    error = api.act({"action": "delete", "ids": ids}, 400)["error"]
    assert "it must be a list of 1 to 1,000, each a text" in error
    assert api.act({"action": "delete", "ids": ids[:-1]}) == {"moved": MAX_IDS}


def test_all_that_match_are_acted_on_in_the_background(api, work, make_web, browse):
    work.perform_async([{"id": f"a-{n}"} for n in range(300)] + [{"id": "b"}])
    bulk = api.act({"action": "bury", "all": {"view": "due", "pattern": "a-*"}}, 202)
    assert (bulk["queue"], bulk["action"], bulk["total"], bulk["match"]["pattern"]) == ("q", "bury", 300, "a-*")
    done = wait_until(lambda: (now := api.get(f"bulks/{bulk['id']}"))["state"] == "done" and now)
    assert (done["seen"], done["moved"]) == (300, 300)
    assert [one["id"] for one in api.get("bulks")["bulks"]] == [bulk["id"]]


def test_a_bulk_is_where_the_reply_says(app, work, browse):
    browser = browse(Starlette(routes=[Mount("/jobs", create_app(app, no_auth=True))]))
    token = browser.get("/jobs/api/v1/token").json()["token"]
    body = {"action": "delete", "all": {"view": "due"}}
    reply = browser.send("POST", "/jobs/api/v1/queues/q/actions", {"x_lowkiq_token": token}, json=body)
    assert reply.headers["location"] == f"/jobs/api/v1/bulks/{reply.json()['id']}"
    assert browser.get(reply.headers["location"]).status_code == 200


def test_a_dry_run_only_says_how_many_match(api, failed):
    before = failed.dump()
    body = {"action": "delete", "all": {"view": "retries", "error": "order # is late"}, "dry_run": True}
    assert api.act(body) == {"matches": 2, "at_least": False}
    assert failed.dump() == before


def test_nothing_is_done_when_more_match_than_expected(api, failed):
    before = failed.dump()
    error = api.act({"action": "delete", "all": {"view": "due"}, "expected": 2}, 409)["error"]
    assert "3 jobs match, 2 were expected" in error
    assert failed.dump() == before
    assert api.act({"action": "delete", "all": {"view": "due"}, "expected": 3}, 202)["total"] == 3


def test_a_bulk_can_be_stopped_until_it_is_over(app, api, work):
    bulk = bulks.new_bulk(app.caller, app.settings.namespace, "q", "delete", Match("due"), 10)
    assert api.post(f"bulks/{bulk.id}/stop", status=202)["state"] == "stopping"
    assert bulks.is_to_stop(app.caller, app.settings.namespace, bulk.id)
    done = api.act({"action": "delete", "all": {"view": "due"}}, 202)
    wait_until(lambda: api.get(f"bulks/{done['id']}")["state"] == "done")
    assert "is done: there is nothing to stop" in api.post(f"bulks/{done['id']}/stop", status=409)["error"]


@pytest.mark.parametrize("id", ["no", "%00", "x" * 5_000])
def test_an_unknown_bulk_is_not_found(api, id):
    api.get(f"bulks/{id}", 404)
    api.post(f"bulks/{id}/stop", status=404)


@pytest.mark.parametrize(("action", "view"), [("revive", "due"), ("bury", "morgue"), ("perform_now", "morgue")])
def test_an_action_that_makes_no_sense_in_a_view_is_refused(api, work, action, view):
    for body in ({"action": action, "ids": ["a"], "view": view}, {"action": action, "all": {"view": view}}):
        assert f"action {action} makes no sense in view {view}; there it is " in api.act(body, 400)["error"]


def test_a_write_without_the_token_is_refused_and_with_bearer_needs_none(make_web, browse, work):
    browser = browse(make_web(token="a-token-of-the-tests"))
    bearer = {"authorization": "Bearer a-token-of-the-tests"}
    body = {"action": "delete", "ids": ["a"]}
    assert browser.send("POST", "/api/v1/queues/q/actions", bearer, json=body).json() == {"moved": 0}
    assert browser.send("POST", "/api/v1/queues/q/actions", {}, json=body).status_code in {401, 403}
    assert browse(make_web()).send("POST", "/api/v1/queues/q/actions", {}, json=body).status_code == 403


def test_a_read_only_view_writes_nothing(make_api, failed):
    assert "read-only" in make_api(read_only=True).act({"action": "delete", "ids": ["once"]}, 403)["error"]
    assert "once" in failed.queued()


def test_too_many_bulks_are_turned_away(api, work, monkeypatch):
    def full(*_):
        raise TooManyBulks("4 bulks run here already")

    monkeypatch.setattr(BulkRunner, "start", full)
    assert "4 bulks run" in api.act({"action": "delete", "all": {"view": "due"}}, 429)["error"]


def test_ids_go_to_their_own_shards(app, api):
    many = app.worker(queue_name="many", shards_count=7)(lambda _: None)
    ids = [f"id-{n}" for n in range(50)]
    many.perform_async([{"id": id} for id in ids])
    assert {api.get(f"queues/many/job?id={id}")["shard"] == shard_of(id.encode(), 7) for id in ids[:5]} == {True}
    assert api.post("queues/many/actions", {"action": "delete", "ids": ids}) == {"moved": 50}
