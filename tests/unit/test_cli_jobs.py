"""Commands on jobs, as people and programs type them: find, failures, statistics, track, events, undo."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.past.incidents import read_incidents
from tests import warm
from tests.support import LOWKIQ, wait_until
from tests.unit.conftest import Run


def as_json(run: Run, *arguments: str) -> Any:
    ended = run(*arguments, "--json")
    assert ended.stderr == "" and ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_job_is_found_by_its_id_or_a_glob_over_queues(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "bad1"}])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    queue.perform_async([{"id": "bad1"}, {"id": "order-1"}, {"id": "order-2", "perform_in": 4e9}])
    found = as_json(lowkiq, "find", "bad1")
    assert sorted((row["state"], row["failed"], row["queue"]) for row in found) == [
        ("Morgue", None, "shop"), ("Waiting", 0, "shop"),
    ]  # fmt: skip
    assert {row["id"]: row["state"] for row in as_json(lowkiq, "find", "order-*")} == {
        "order-1": "Waiting", "order-2": "Scheduled",
    }  # fmt: skip
    told = lowkiq("find", "bad1").stdout
    assert "Morgue" in told and "no stock of \\x1b[31mbad1" in told and "Traceback" not in told
    for empty in ([], ["--json"]):
        none = lowkiq("find", "nobody", *empty)
        assert (none.returncode, none.stdout) == (1, "[]\n" if empty else "")
        assert none.stderr == ("lowkiq: no job 'nobody' in any queue: it is done, deleted, or was never pushed\n")
    assert "what runs is found by its exact id only" in lowkiq("find", "order-*").stdout
    none = lowkiq("find", "nobody-*")
    assert none.returncode == 1 and "no queued or dead job matches 'nobody-*': what runs is found" in none.stderr
    wrong = lowkiq("find", "a", "--limit", "0")
    assert wrong.returncode == 2 and "--limit" in wrong.stderr


def test_why_jobs_fail_is_told_by_kind_and_for_one_job(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": "good"}])
    assert lowkiq("failures", "shop").stdout == "no job of shop has failed, of those that are there\n"
    queue.perform_async([{"id": "bad1"}, {"id": "bad2"}])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    told = lowkiq("failures", "shop").stdout
    assert "Morgue of shop by error" in told and "Retries" not in told
    (job,) = as_json(lowkiq, "failures", "shop", "bad2").items()
    assert (job[0], job[1]["error"]) == ("morgue", "ValueError: no stock of \x1b[31mbad2")
    assert "jobs.py" in job[1]["traceback"]
    assert as_json(lowkiq, "failures", "shop", "good") == {}


def test_how_long_jobs_took_is_told_by_day(lowkiq: Run, queue: type[Worker]) -> None:
    assert lowkiq("statistics", "shop").returncode == 2, "nobody knows it yet"
    queue.perform_async([{"id": number} for number in range(20)])
    assert lowkiq("statistics", "shop").stdout == "no job of shop has run in that time\n"
    assert as_json(lowkiq, "statistics", "shop") == []
    before = datetime.datetime.now(datetime.UTC).date()
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    (day,) = as_json(lowkiq, "statistics", "shop", "--days", "7")
    assert day["wait"]["count"] == day["run"]["count"] == 20 and day["wait"]["p50"] <= day["wait"]["p99"]
    told = lowkiq("statistics", "shop").stdout
    assert "Times of shop" in told and str(before)[:8] in told and "waited" in told and "ran" in told
    wrong = lowkiq("statistics", "shop", "--days", "366")
    assert wrong.returncode == 2 and "365" in wrong.stderr


def test_ids_are_tracked_and_no_longer(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "a"}])
    assert lowkiq("track", "shop", "a", "b").stdout == "2 tracked\n"
    assert as_json(lowkiq, "track", "shop", "b", "c") == {"tracked": 1}
    queue.perform_async([{"id": "a"}])
    assert [one.kind for one in app.queries("shop", app.queues()["shop"]).history("a")] == ["pushed"]
    assert lowkiq("untrack", "shop", "a").stdout == "1 untracked\n"
    assert as_json(lowkiq, "untrack", "shop", "a", "b", "c") == {"untracked": 2}


def test_a_deletion_is_undone_once_and_by_whom_is_kept(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "bad1"}, {"id": "bad2"}])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    deleted = lowkiq("morgue", "delete", "shop", "bad1", "bad2").stdout
    name = deleted.split()[5]
    assert deleted == f"2 deleted; lowkiq undo shop {name} within 60 s\n"
    assert lowkiq("undo", "shop", name).stdout == "2 put back\n"
    again = lowkiq("undo", "shop", name)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == (
        f"lowkiq: no deletion {name} of shop can be undone: it was over 60 s ago, or is undone already\n"
    )
    assert json.loads(lowkiq("undo", "shop", name, "--json").stdout) == {"undone": 0}
    assert app.metrics()["shop"].morgue_length == 2
    found = read_incidents(app.caller, app.settings.namespace, queue="shop")
    assert [(one.kind, one.says) for one in found] == [
        ("undo", "Undo: 2 jobs of shop"), ("delete", "Delete: 2 jobs of shop"),
    ]  # fmt: skip
    assert all("@" in one.who for one in found)


def test_events_are_told_as_they_happen_until_ctrl_c(
    tmp_path: Path, environment: dict[str, str], queue: type[Worker], app: Lowkiq
) -> None:
    queue.perform_async([{"id": "before"}])

    def listen(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, *LOWKIQ, "events", *arguments]
        return warm.popen(
            command, cwd=tmp_path, env=environment | {"PYTHONUNBUFFERED": "1"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    with listen() as plain, listen("shop", "--id", "a", "--kind", "pushed", "--json") as chosen:
        channel = f"{app.settings.namespace}:bell:events:shop"
        wait_until(lambda: app.redis().pubsub_numsub(channel)[0][1] == 2)
        wait_until(lambda: app.redis().keys(f"{app.settings.namespace}:*:watch"))
        for id in ("b\x1b", "a"):
            queue.perform_async([{"id": id}])
        assert plain.stdout and chosen.stdout
        told = plain.stdout.readline().split()
        assert told[1:] == ["pushed", "shop", "b\\x1b"] and len(told[0]) == len("12:34:56.789")
        event = json.loads(chosen.stdout.readline())
        assert (event["kind"], event["queue"], event["id"]) == ("pushed", "shop", "a")
        for process in (plain, chosen):
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr and process.stderr.read() == ""


@pytest.mark.parametrize("command", ["track", "untrack", "failures", "statistics", "events", "undo"])
def test_a_queue_that_nobody_knows_is_named_with_those_that_there_are(
    lowkiq: Run, queue: type[Worker], command: str
) -> None:
    queue.perform_async([{"id": 1}])
    rest = {"track": ["1"], "untrack": ["1"], "undo": ["0" * 16]}.get(command, [])
    ended = lowkiq(command, "nobody", *rest)
    assert ended.returncode == 2
    assert ended.stderr == "lowkiq: no queue 'nobody' here; known are: shop\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["track", "shop", ""], "id must not be empty"),
        (["untrack", "shop", "x" * 600], "has 600 bytes, max_id_bytes is 512"),
        (["events", "shop", "--kind", "failled"], "unknown kind of event `failled`, did you mean `failed`?"),
        (["undo", "shop", "17"], "'17' is no deletion: take what it was answered with"),
        (["failures", "shop", "gone"], "job 'gone' of shop has no error"),
    ],
)
def test_what_can_not_be_is_named_with_the_way_out(
    lowkiq: Run, queue: type[Worker], arguments: list[str], message: str
) -> None:
    queue.perform_async([{"id": 1}])
    ended = lowkiq(*arguments)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert message in ended.stderr
