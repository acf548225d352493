"""Commands on the flow of a queue, as people and programs type them."""

from __future__ import annotations

import json

from lowkiq import Lowkiq, Worker
from lowkiq.queue.places import QueuePlaces
from tests.unit.conftest import Run


def test_a_queue_is_paused_and_resumed(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "a"}])
    told = lowkiq("pause", "shop", "we count")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == "shop is paused: nothing of it starts until it is resumed\n"
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    assert app.metrics()["shop"].length == 1
    alerts = lowkiq("alerts")
    assert alerts.returncode == 1 and "we count" in alerts.stdout and "lowkiq resume shop" in alerts.stdout
    assert lowkiq("resume", "shop").stdout == "shop is resumed\n"
    assert lowkiq("resume", "shop").stdout == "shop was not paused\n"
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    assert app.metrics()["shop"].length == 0


def test_programs_get_json_and_an_exit_code(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "a"}])
    shards = app.shards("shop", queue.shards_count)
    app.caller.run(shards[0].acquire("host:1:abc", 60.0, 3))
    told = lowkiq("pause", "shop", "--wait", "0", "--json")
    assert (told.returncode, json.loads(told.stdout)["unconfirmed"]) == (1, {"host:1:abc": [0]})
    words = lowkiq("pause", "shop", "--wait", "0")
    assert words.returncode == 1 and "what 1 shard of host:1:abc had claimed may still start" in words.stdout
    assert json.loads(lowkiq("resume", "shop", "--json").stdout) == {"resumed": len(shards)}


def test_a_queue_that_nobody_knows_is_refused(lowkiq: Run, queue: type[Worker]) -> None:
    for command in ("pause", "resume"):
        wrong = lowkiq(command, "no")
        assert wrong.returncode == 2 and "no queue 'no'" in wrong.stderr


def test_ids_are_held_listed_and_released(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "a"}, {"id": "b"}])
    assert lowkiq("hold", "shop", "a", "c", "--reason", "a customer called").stdout == "2 held\n"
    assert json.loads(lowkiq("hold", "shop", "a", "--reason", "a customer called", "--json").stdout) == {"held": 0}
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    assert (app.metrics()["shop"].length, app.metrics()["shop"].held) == (1, 2)
    told = lowkiq("held", "shop").stdout.splitlines()
    assert {line[:6] for line in told} == {"a for ", "c for "}
    assert all(line.endswith(": a customer called") for line in told)
    assert {one["id"] for one in json.loads(lowkiq("held", "shop", "--json").stdout)} == {"a", "c"}
    assert lowkiq("release", "shop", "a", "c").stdout == "2 released\n"
    assert lowkiq("held", "shop").stdout == "no id of shop is held\n"
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    assert app.metrics()["shop"].length == 0


def test_a_job_that_waits_is_run_without_and_who_did_so_is_found_by_its_kind(
    lowkiq: Run, queue: type[Worker], app: Lowkiq
) -> None:
    queue.perform_async([{"id": "a"}])
    queue.perform_async([{"id": "b", "after": [("shop", "a")]}])
    assert lowkiq("stop-waiting", "shop", "b").returncode == 0
    found = json.loads(lowkiq("incidents", "--kind", "stop waiting", "--json").stdout)
    assert ["wait no more" in one["says"] for one in found] == [True]


def test_the_largest_backlogs_are_listed(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "plain"}])
    assert lowkiq("tenants", "shop").stdout == "nothing that is queued in shop has a tenant\n"
    queue.fair_by = staticmethod(lambda one, _: one[0])
    queue.perform_async([{"id": id} for id in ("a1", "a2", "b1")])
    assert lowkiq("tenants", "shop").stdout == "a 2\nb 1\n"
    assert json.loads(lowkiq("tenants", "shop", "--limit", "1", "--json").stdout) == [{"tenant": "a", "ids": 2}]


def test_settings_are_set_listed_and_unset(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "a"}])
    assert lowkiq("settings").stdout == "nothing is set: all is as the code says\n"
    told = lowkiq("set", "shop", "concurrency=10", "perform_timeout=none", "weight=8", "log_level=debug")
    assert (told.returncode, told.stdout, told.stderr) == (0, "4 set for shop\n", "")
    shown = json.loads(lowkiq("settings", "--json").stdout)["shop"]
    assert {name: row["value"] for name, row in shown.items()} == {
        "concurrency": 10, "perform_timeout": None, "weight": 8, "log_level": "debug",
    }  # fmt: skip
    assert "concurrency" in lowkiq("settings", "shop").stdout
    doctor = lowkiq("doctor", "-r", "jobs").stdout
    assert "queue shop has live settings: concurrency = 10 by" in doctor
    assert "queue shop has a weight of 8, and no node runs it" in doctor
    assert lowkiq("unset", "shop", "concurrency", "batch_size").stdout == "1 unset for shop\n"


def test_settings_that_cannot_be_are_refused(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": "a"}])
    for words, says in (
        (["concurency=10"], "unknown live setting `concurency`, did you mean `concurrency`?"),
        (["concurrency=0"], "it must be an integer from 1 to 1,000"),
        (["concurrency"], "sets nothing: say concurrency=VALUE"),
        (["who=me"], "unknown live setting `who`"),
    ):
        wrong = lowkiq("set", "shop", *words)
        assert wrong.returncode == 2 and says in wrong.stderr, wrong.stderr
    assert "did you mean `concurrency`" in lowkiq("unset", "shop", "concurency").stderr


def test_stats_tell_who_runs_a_queue_with_a_limit(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "a"}])
    assert "max_running" not in lowkiq("stats").stdout
    assert lowkiq("set", "shop", "max_running=3").returncode == 0
    app.caller.run(QueuePlaces(app.settings.namespace, "shop", "one", 15).take(3, ["one 1"]))
    assert "shop: 1 of 3 running (max_running): one 1\n" in lowkiq("stats").stdout
    told = json.loads(lowkiq("stats", "--json").stdout)["shop"]["limit"]
    assert told == {"max_running": 3, "nodes": {"one": 1}, "waiting": []}


def test_jobs_that_wait_for_their_rate_are_told_of(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": id} for id in "abc"])
    assert lowkiq("set", "shop", "rate=1/3600").stdout == "1 set for shop\n"
    assert "rate is 'often', it must be JOBS/SECONDS, such as 100/60" in lowkiq("set", "shop", "rate=often").stderr
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    assert "shop: 2 jobs wait for the rate, the last one for another 2 h" in lowkiq("stats").stdout
    told = json.loads(lowkiq("stats", "--json").stdout)["shop"]
    assert told["rated"] == 2 and told["lag"] == 0


def test_a_queue_gets_another_number_of_shards(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    assert lowkiq("reshard", "shop", "3").returncode == 2, "Redis knows no such queue yet"
    queue.perform_async([{"id": number} for number in range(20)])
    count = queue.shards_count
    assert lowkiq("reshard", "shop").stdout == f"shop has {count} shards, and was not resharded lately\n"
    assert lowkiq("reshard", "shop", "--json").stdout == "null\n"
    told = lowkiq("reshard", "shop", str(count + 2), "--no-wait")
    assert (told.returncode, told.stdout) == (0, f"shop: resharding {count} → {count + 2}: 0 %\n")
    assert f"shop: resharding {count} → {count + 2}" in lowkiq("stats").stdout
    refused = lowkiq("reshard", "shop", "100")
    assert refused.returncode == 1 and "wait until that is over" in refused.stderr
    assert lowkiq("reshard", "shop", "0").returncode == 2
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    found = json.loads(lowkiq("reshard", "shop", str(count + 2), "--json").stdout)
    assert found["is_over"] and found["shards"] == count + 2
    assert app.queues() == {"shop": count + 2}
    assert app.metrics()["shop"].length == 0 and app.metrics()["shop"].processed == 20


def test_a_queue_that_was_resharded_is_looked_at_where_its_jobs_are(
    lowkiq: Run, queue: type[Worker], app: Lowkiq
) -> None:
    queue.perform_async([{"id": number} for number in range(20)])
    count = queue.shards_count + 2
    lowkiq("reshard", "shop", str(count), "--no-wait")
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    queue.perform_async([{"id": "order-17"}])
    (found,) = json.loads(lowkiq("find", "order-17", "--json").stdout)
    assert (found["queue"], found["id"]) == ("shop", "order-17")
    assert lowkiq("find", "order-*").returncode == 0
    for words in (("owners",), ("owners", "shop")):
        rows = json.loads(lowkiq(*words, "--json").stdout)
        assert [row["shard"] for row in rows] == list(range(count))
        assert {row["why"] for row in rows} == {"nobody"}
