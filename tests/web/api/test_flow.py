"""A queue is paused and resumed through the API."""

from __future__ import annotations

import pytest

from lowkiq import Rate
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.errors import Paused
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.shard import Exhausted
from tests.node.driven import burst


def test_a_queue_is_paused_and_resumed(api, failed):
    told = api.post("queues/q/pause", {"reason": "we count", "wait": 0})
    assert told["confirmed"] and told["unconfirmed"] == {} and told["since"] > 1e9
    lease = failed.lease()
    with pytest.raises(Paused):
        lease.claim()
    row = api.get("queues/q")
    assert {shard["pause"]["why"] for shard in row["shards"]} == {"we count"}
    assert row["metrics"]["paused"] == len(row["shards"])
    (alert,) = [one for one in api.get("alerts")["alerts"] if one["kind"] == "paused"]
    assert "we count" in alert["says"]
    assert api.post("queues/q/resume") == {"resumed": len(row["shards"])}
    assert api.post("queues/q/resume") == {"resumed": 0}
    assert lease.claim()


def test_who_has_not_confirmed_it_is_named(api, failed):
    failed.lease("host:1:abc")
    assert api.post("queues/q/pause", {"wait": 0})["unconfirmed"] == {"host:1:abc": [failed.shard.index]}


def test_who_did_so_is_kept(api, app, failed):
    api.post("queues/q/pause", {"reason": "we count"})
    (found,) = read_incidents(app.caller, app.settings.namespace, kind="pause")
    assert (found.queue, found.who) == ("q", "anyone at 127.0.0.1")


def test_unknown_queues_and_wrong_bodies_are_refused(api, failed):
    assert "no queue 'no'" in api.post("queues/no/pause", {}, 404)["error"]
    assert "no queue 'no'" in api.post("queues/no/resume", None, 404)["error"]
    assert "wait" in api.post("queues/q/pause", {"wait": 1_000}, 400)["error"]
    assert "reason" in api.post("queues/q/pause", {"reason": "x" * 501}, 400)["error"]


def test_ids_are_held_and_released(api, failed):
    assert api.act({"action": "hold", "ids": ["once", "new"], "reason": "a customer called"}) == {"moved": 2}
    (row,) = api.get("queues/q/jobs?view=held")["jobs"]
    assert row["id"] == "once"
    assert api.get("queues/q")["metrics"]["held"] == 2
    assert [told for _, told in failed.look().holds().values()] == [
        b'{"who":"anyone at 127.0.0.1","why":"a customer called"}'
    ] * 2
    assert api.act({"action": "release", "ids": ["once", "new", "gone"]}) == {"moved": 2}
    assert "makes no sense in view morgue" in api.act({"action": "hold", "ids": ["x"], "view": "morgue"}, 400)["error"]


def test_settings_are_set_shown_and_unset(api, app, failed):
    rows = api.post("queues/q/settings", {"set": {"concurrency": 7, "perform_timeout": None}})["settings"]
    assert rows["concurrency"]["value"] == 7 and rows["concurrency"]["code"] is None and rows["concurrency"]["is_set"]
    assert rows["concurrency"]["who"] == "anyone at 127.0.0.1"
    assert (rows["batch_size"]["value"], rows["batch_size"]["is_set"]) == (1, False)
    assert api.get("queues/q/settings")["settings"] == rows
    rows = api.post("queues/q/settings", {"unset": ["concurrency", "perform_timeout"]})["settings"]
    assert not any(row["is_set"] for row in rows.values())
    kinds = read_incidents(app.caller, app.settings.namespace, kind="settings changed")
    assert [one.says for one in kinds] == [
        "Settings of q: unset concurrency, perform_timeout",
        "Settings of q: set concurrency = 7, perform_timeout = none",
    ]


def test_settings_that_cannot_be_are_refused(api, failed):
    for body, says in (
        ({"set": {"batch_sise": 7}}, "did you mean `batch_size`?"),
        ({"set": {"batch_size": 0}}, "it must be an integer from 1 to 1,000"),
        ({"set": {"batch_size": "7"}}, "it must be an integer"),
        ({"set": {"log_level": "loud"}}, "it must be one of debug, info, warning, error"),
        ({"unset": ["concurency"]}, "did you mean `concurrency`?"),
        ({}, "nothing to set"),
    ):
        assert says in api.post("queues/q/settings", body, 400)["error"]
    api.get("queues/no/settings", 404)


def test_an_exact_id_is_found_in_the_states_that_it_is_in(api, failed):
    failed.push("new")
    api.post("queues/q/actions", {"action": "hold", "ids": ["new"]})

    def found(id: str) -> set[str]:
        views = ("due", "waiting", "scheduled", "retries", "blocked", "held", "morgue")
        return {view for view in views if api.get(f"queues/q/jobs?view={view}&pattern={id}")["jobs"]}

    assert found("new") == {"due", "waiting", "held"}
    assert found("fresh") == {"due", "waiting"}
    assert found("once") == {"due", "scheduled", "retries"}


def test_a_queue_tells_who_runs_it_and_who_waits(api, app, failed):
    assert api.get("queues/q")["limit"] is None
    for node in ("a", "b"):
        app.caller.run(QueuePlaces(app.settings.namespace, "q", node, 15).take(1, [f"{node} 1"]))
    assert api.get("queues/q")["limit"] == {"max_running": 1, "nodes": {"a": 1}, "waiting": ["b"]}


def test_a_blocked_id_is_held(api, work, failed):
    work.perform_async([{"id": "a"}])
    lease = failed.lease("host:1:abc")
    lease.settle(exhausted=[Exhausted(job.id, "boom", "block") for job in lease.claim() if job.id == "a"])
    assert api.act({"action": "hold", "ids": ["a"], "view": "blocked"}) == {"moved": 1}
    assert api.act({"action": "retry", "ids": ["a"]}) == {"moved": 1}
    assert [row["id"] for row in api.get("queues/q/jobs?view=held")["jobs"]] == ["a"]
    assert failed.queued()["a"].payloads and not api.get("queues/q/jobs?view=blocked")["jobs"]


def test_the_rate_and_what_waits_for_it_are_told(api, app, failed):
    worker = app.worker(queue_name="rated", shards_count=1, rate=Rate(1, per=3600))(lambda _: None)
    worker.perform_async([{"id": id} for id in "abc"])
    burst(app, queues=["rated"])
    told = api.get("queues/rated/settings")
    assert (told["settings"]["rate"]["code"], told["rated"]) == ("1/3600", 2)
    assert told["rated_until"] > 0
    rows = api.post("queues/rated/settings", {"set": {"rate": "5/60"}})["settings"]
    assert (rows["rate"]["value"], rows["rate"]["is_set"]) == ("5/60", True)
    assert "must be JOBS/SECONDS" in api.post("queues/rated/settings", {"set": {"rate": 5}}, 400)["error"]
    assert api.get("queues/q/settings")["rated"] == 0
