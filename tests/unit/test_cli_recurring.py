"""Commands on jobs that recur, as people and programs type them."""

from __future__ import annotations

import json

from lowkiq import Lowkiq, Worker
from lowkiq.job import shard_of
from tests.unit.conftest import Run


def test_one_is_set_listed_paused_run_and_removed(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    assert lowkiq("recurring", "list").stdout == "nothing recurs\n"
    told = lowkiq("recurring", "set", "shop", "eu", "1d", "--payload", '{"of": "eu"}', "-r", "jobs")
    assert (told.returncode, told.stderr) == (0, "") and told.stdout.startswith("shop eu is now every 1 d, next in ")
    again = lowkiq("recurring", "set", "shop", "eu", "0 6 * * 1-5", "--tz", "Europe/Berlin", "-r", "jobs")
    assert "(Europe/Berlin), next in " in again.stdout
    (row,) = json.loads(lowkiq("recurring", "list", "shop", "--json").stdout)
    assert (row["id"], row["rule"]["every"], json.loads(row["payload"])) == ("eu", "0 6 * * 1-5", {"of": "eu"})
    assert lowkiq("recurring", "pause", "shop", "eu", "it is summer").stdout == "shop eu is paused\n"
    same = lowkiq("recurring", "pause", "shop", "eu")
    assert (same.returncode, same.stdout) == (1, "shop eu: nothing to change\n")
    assert "paused" in lowkiq("recurring", "list").stdout
    assert lowkiq("recurring", "resume", "shop", "eu").stdout == "shop eu recurs again\n"
    assert lowkiq("recurring", "run-now", "shop", "eu", "-r", "jobs").returncode == 0
    assert [job.id for job in queue.queries.find("eu")] == ["eu"]
    assert lowkiq("recurring", "remove", "shop", "eu").stdout == "shop eu recurs no more\n"
    assert not [*app.recurring]


def test_of_many_the_first_are_listed_and_one_that_nobody_fires_is_not_due_in_0_s(
    lowkiq: Run, queue: type[Worker], app: Lowkiq
) -> None:
    for number in range(4):
        app.recurring.set(queue, f"id-{number}", 1_000_000.0, offset=float(number))
    (shard,) = [
        one for one in app.shards("shop", queue.shards_count) if one.index == shard_of(b"id-3", queue.shards_count)
    ]
    app.redis().zadd(f"{shard.prefix}recurs", {"id-3": (app.recurring.list()[0].next_at or 0.0) - 3_000_000})
    told = lowkiq("recurring", "list", "--limit", "2").stdout
    assert "id-3" in told and "id-0" in told and "id-1" not in told and "due " in told and " ago" in told
    assert "4 recur: raise --limit to see more" in told


def test_what_can_not_be_is_refused(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    for words, why in (
        (("set", "shop", "eu", "now and then"), "neither an interval"),
        (("set", "shop", "eu", "1h", "--payload", "{"), "--payload is no JSON"),
        (("run-now", "shop", "nobody"), "nothing recurs as 'nobody'"),
    ):
        wrong = lowkiq("recurring", *words, "-r", "jobs")
        assert wrong.returncode in {1, 2} and why in wrong.stderr, wrong.stderr
    assert "no queue 'no'" in lowkiq("recurring", "list", "no").stderr
    assert not [*app.recurring]
