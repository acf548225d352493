"""Looks at the whole: stats as the original gives them, nodes, queues, history; and a dead Redis."""

from __future__ import annotations

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.beats.health import EVENT_LOOP, ThreadHealth
from lowkiq.admin.jobs.failures import note
from lowkiq.admin.past import history
from lowkiq.web import create_app
from tests.queue.shard_driver import FUTURE, PAST
from tests.support import wait_until
from tests.web.api.conftest import Api
from tests.web.node_health import tell_health


def test_stats_are_what_the_original_gives(api, work, shard):
    shard.push("a", perform_in=PAST)
    shard.push("dead", perform_in=FUTURE)
    work.actions.bury(["dead"])
    stats = api.get("stats")
    assert stats.keys() == {"total", "by_worker"}
    assert stats["total"].keys() == {"length", "morgue_length", "lag"}
    assert stats["by_worker"].keys() == {"Orders"}
    assert stats["by_worker"]["Orders"] == stats["total"]
    assert (stats["total"]["length"], stats["total"]["morgue_length"]) == (1, 1)
    assert stats["total"]["lag"] == pytest.approx(shard.now() - PAST, abs=60)


def test_stats_tell_how_old_they_are(browse, make_web, work, time):
    browser = browse(make_web())
    ages = []
    for seconds in (0.0, 0.7, 0.2, 0.2):
        time.now += seconds
        ages.append(float(browser.get("/api/v1/stats").headers["x-lowkiq-age"]))
    assert ages == [0.0, 0.7, 0.9, 0.0]


def test_stats_of_a_worker_whose_queue_redis_does_not_know_are_zeros(api, work):
    nothing = {"length": 0, "morgue_length": 0, "lag": 0.0}
    assert api.get("stats") == {"total": nothing, "by_worker": {"Orders": nothing}}


def test_stats_of_a_queue_without_a_worker_here_are_under_its_own_name(api, work, make_app):
    other = make_app()
    elsewhere = other.worker(queue_name="elsewhere")(lambda _: None)
    elsewhere.perform_async([{"id": "a", "perform_in": PAST}])
    stats = api.get("stats")
    assert stats["by_worker"]["elsewhere"]["length"] == 1
    assert stats["total"]["lag"] == stats["by_worker"]["elsewhere"]["lag"] > 0


def test_stats_of_classes_with_one_name_are_under_their_queues(app, api, work):
    app.worker(queue_name="more")(type("Orders", (Worker,), {}))
    app.worker(queue_name="Single")(type("more", (Worker,), {}))
    assert api.get("stats")["by_worker"].keys() == {"q", "more", "Single"}


def test_nodes_have_all_that_their_beats_tell_and_what_is_wrong(app, api, shard):
    thread = ThreadHealth(
        name="thread-1", worker="Orders", queue="q", shard=0, ids=["a"], jobs=1, seconds=2.5, progress=0.25,
        note="page 2", to_stop_seconds=1.5, pid=77,
    )  # fmt: skip
    task = ThreadHealth(name=EVENT_LOOP, queue="q", shard=0, ids=["t"], jobs=1)
    tell_health(app, threads=[thread], tasks=1, longest_tasks=[task], loop_lag=0.5)
    shard.push("a", perform_in=PAST)
    reply = api.get("nodes")
    assert reply["nodes"][0]["threads"] == [
        {
            "name": "thread-1", "worker": "Orders", "queue": "q", "shard": 0, "ids": ["a"], "jobs": 1, "seconds": 2.5,
            "progress": 0.25, "note": "page 2", "to_stop_seconds": 1.5, "pid": 77,
        }
    ]  # fmt: skip
    assert (reply["nodes"][0]["tasks"], reply["nodes"][0]["loop_lag"]) == (1, 0.5)
    assert [task["ids"] for task in reply["nodes"][0]["longest_tasks"]] == [["t"]]
    assert {"rss_history", "cpu_history", "beat_age", "last_exit"} <= reply["nodes"][0].keys()
    assert (reply["late"], reply["missing"], reply["doubled"]) == ([], [1], [])
    assert [(row["queue"], row["shard"]) for row in reply["unowned"]] == [("q", 0)]
    assert reply["is_well"] is False
    alerts = {alert["kind"]: alert for alert in reply["alerts"]}
    assert {"missing", "unowned"} <= alerts.keys()
    assert (alerts["unowned"]["severity"], alerts["unowned"]["subject"]) == ("bad", "q")
    assert alerts["unowned"]["says"] and alerts["unowned"]["do"]


def test_queues_are_a_row_each(api, work):
    work.perform_async([{"id": "a", "payload": 1}, {"id": "a", "payload": 2}])
    (row,) = api.get("queues")["queues"]
    assert (row["queue"], row["shards_count"], row["metrics"]["length"], row["merge_ratio"]) == ("q", 1, 1, 0.5)
    assert row["rates"].keys() == {"processed", "failed", "pushed", "merged"}


def test_a_queue_has_its_shards_and_its_errors_if_asked(api, failed):
    assert api.get("queues/q")["errors"] is None
    reply = api.get("queues/q?errors=1")
    assert [shard["length"] for shard in reply["shards"]] == [3]
    assert reply["errors"]["groups"][0] | {"example_id": ""} == {
        "text": "order # is late", "count": 2, "example_id": "", "first_seen": None, "last_seen": None, "total": None,
    }  # fmt: skip
    assert (reply["errors"]["sampled"], reply["errors"]["total"]) == (2, 2)


def test_failures_come_by_kind_with_when_they_were_seen(app, api, failed):
    note(app.caller, app.settings.namespace, "one", 1, {"q": {"order # is late": 40}})
    reply = api.get("queues/q/failures")
    (group,) = reply["groups"]
    assert (group["text"], group["count"], group["total"]) == ("order # is late", 2, 40)
    assert group["first_seen"] == group["last_seen"] > 1e9
    assert (reply["queue"], reply["view"], reply["sampled"], reply["total"]) == ("q", "retries", 2, 2)
    of_morgue = api.get("queues/q/failures?view=morgue")
    assert (of_morgue["view"], of_morgue["groups"], of_morgue["total"]) == ("morgue", [], 0)
    api.get("queues/q/failures?view=due", 400)
    api.get("queues/no/failures", 404)


def test_history_is_of_all_queues_or_of_one(app, api, work):
    work.perform_async([{"id": "a"}])
    history.record(app.caller, app.settings.namespace, app.metrics())
    reply = api.get("history?span=1h")
    assert (reply["queue"], reply["span"], reply["step"], reply["points"][0]["length"]) == (None, "1h", 30, 1)
    assert api.get("history?span=5m&queue=q")["points"][0]["pushed"] == 1


@pytest.mark.parametrize("path", ["queues/no", "queues/no/jobs", "queues/no/job?id=a", "history?queue=no"])
def test_an_unknown_queue_is_not_found_and_the_error_names_the_known_ones(api, work, path):
    assert "'no'" in (error := api.get(path, 404)["error"])
    assert "known are: q" in error


def test_an_unknown_path_or_method_is_refused_as_json(api, browse, make_web):
    api.get("nothing", 404)
    assert browse(make_web()).send("POST", "/api/v1/stats", {}).json().keys() == {"error"}


def test_a_dead_redis_is_an_error_in_json_and_the_api_recovers(own_redis_server, browse):
    app = Lowkiq(redis_url=own_redis_server.url)
    app.worker(queue_name="q")(lambda payloads_by_id: None)
    browser = browse(create_app(app, no_auth=True))
    api = Api(browser)
    assert api.get("stats")["total"]["length"] == 0
    own_redis_server.stop()
    paths = ["queues/q/jobs", "queues/q/job?id=a", "bulks", "bulks/a", "queues/q/jobs?view=in_flight"]
    for path in paths:
        assert "does not answer" in api.get(path, 503)["error"]
    wait_until(lambda: browser.get("/api/v1/stats").status_code == 503)
    assert "does not answer" in api.act({"action": "delete", "ids": ["a"]}, 503)["error"]
    assert browser.get("/metrics").status_code == 503
    own_redis_server.start()
    wait_until(lambda: browser.get("/api/v1/stats").status_code == 200)
    app.close()


def test_alerts_are_acknowledged_and_told_last(api, driver):
    driver.actions.pause("we count", who="ann")
    before = api.get("alerts")
    (key,) = [alert["key"] for alert in before["alerts"] if alert["kind"] == "paused"]
    body = {"keys": [key, "late queue:gone"], "seconds": 7_200, "note": "until noon"}
    assert api.post("alerts/acknowledge", body) == {"acknowledged": 1}
    wait_until(lambda: api.get("alerts")["alerts"][-1]["acknowledged"])
    last = api.get("alerts")["alerts"][-1]
    assert (last["key"], last["acknowledged"]["note"]) == (key, "until noon")
    assert api.post("alerts/acknowledge", {"keys": []}, 400)["error"]
