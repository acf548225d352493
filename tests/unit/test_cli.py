"""The `lowkiq` command, as people type it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.beats.health import EVENT_LOOP, ThreadHealth
from lowkiq.job import shard_of
from lowkiq.queue.shard import Exhausted
from tests import warm
from tests.queue.shard_driver import ShardDriver
from tests.support import LOWKIQ, RedisServer, wait_until
from tests.unit.conftest import Run
from tests.web.node_health import tell_health


def test_burst_runs_what_is_due_and_exits_0(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": number} for number in range(50)])
    queue.perform_async([{"id": "later", "perform_in": 4e9}])
    ended = lowkiq("-r", "jobs", "--burst")
    assert ended.returncode == 0, ended.stderr
    assert (app.metrics()["shop"].processed, app.metrics()["shop"].length) == (50, 1)


def test_a_node_has_queues_with_weights_and_refuses_those_that_can_not_be(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": number} for number in range(50)])
    assert lowkiq("-r", "jobs", "--queues", "shop=8", "--burst").returncode == 0
    refused = lowkiq("-r", "jobs", "--burst", LOWKIQ_QUEUES="shop=0")
    assert (refused.returncode, "LOWKIQ_QUEUES is 'shop=0': the weight of shop is '0'" in refused.stderr) == (2, True)


def test_logs_are_json_where_there_is_no_terminal_and_name_no_password(lowkiq: Run) -> None:
    ended = lowkiq("-r", "jobs", "--burst")
    events = [json.loads(line)["event"] for line in ended.stderr.splitlines()]
    assert events[0] == "ready" and events[-1] == "drained"


def test_term_drains_a_node_in_the_foreground(tmp_path: Path, environment: dict[str, str], app: Lowkiq) -> None:
    command = [sys.executable, *LOWKIQ, "-r", "jobs:app"]
    with warm.popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: app.nodes().nodes)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_stats_are_a_table_or_json(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": 1}, {"id": 1, "payload": "more"}])
    assert "shop" in lowkiq("stats").stdout
    told = json.loads(lowkiq("stats", "--json").stdout)["shop"]
    assert told["length"] == told["fresh"] == told["merged"] == 1 and told["pushed"] == 2
    assert set(told) == {
        "length", "due", "scheduled", "fresh", "retries", "waiting", "busy", "claims", "morgue_length", "lag",
        "processed", "failed", "pushed", "merged", "superseded", "paused", "restless",
        "held", "blocked", "blocked_since",
    }  # fmt: skip


def test_the_morgue_is_listed_revived_and_emptied(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": f"bad{number}"} for number in range(3)])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    listed = lowkiq("morgue", "list", "shop")
    assert "bad1" in listed.stdout and "no stock of \\x1b[31mbad1" in listed.stdout
    assert {job["id"] for job in json.loads(lowkiq("morgue", "list", "shop", "--json").stdout)} == {
        "bad0", "bad1", "bad2",
    }  # fmt: skip
    assert "Traceback" not in listed.stdout
    kinds = json.loads(lowkiq("failures", "shop", "--json").stdout)
    (kind,) = kinds["morgue"]["groups"]
    assert (kind["text"], kind["count"], kind["total"]) == ("ValueError: no stock of \x1b[#mbad#", 3, 3)
    assert kinds["retries"] == {"groups": [], "sampled": 0, "total": 0}
    assert "ValueError: no stock of \\x1b[#mbad#" in lowkiq("failures", "shop").stdout
    told = lowkiq("failures", "shop", "bad1").stdout
    assert re.search(r'^morgue:\nTraceback .*\n  File ".*jobs.py", line 11, in shop\n', told)
    assert told.endswith("ValueError: no stock of \\x1b[31mbad1\n")
    assert lowkiq("morgue", "revive", "shop", "bad0").stdout == "1 revived\n"
    assert (app.metrics()["shop"].length, app.metrics()["shop"].morgue_length) == (1, 2)
    assert lowkiq("morgue", "delete", "shop", "bad1").stdout.startswith("1 deleted; lowkiq undo shop ")
    assert lowkiq("morgue", "delete", "shop", "--all").returncode == 1, "without an answer nothing is deleted"
    assert app.metrics()["shop"].morgue_length == 1
    assert lowkiq("morgue", "delete", "shop", "--all", "--yes").stdout == "1 deleted\n"
    assert lowkiq("morgue", "revive", "shop", "--all").stdout == "0 revived\n"


def test_a_job_is_revived_behind_newer_payloads_only_if_that_is_said(
    lowkiq: Run, queue: type[Worker], app: Lowkiq
) -> None:
    shard = ShardDriver(app, "shop", shard_of(b"17", queue.shards_count), queue.shards_count)
    queue.perform_async([{"id": 17, "payload": number, "score": number} for number in (1, 2)])
    lease = shard.lease()
    lease.claim()
    lease.exhaust("17")
    lease.claim()
    for which in ("17", "--all"):
        refused = lowkiq("morgue", "revive", "shop", which)
        assert refused.returncode == 1 and "behind newer payloads" in refused.stderr
        assert "--out-of-order" in refused.stderr
    assert lowkiq("morgue", "revive", "shop", "17", "--out-of-order").stdout == "1 revived\n"


def test_blocked_jobs_are_listed_retried_skipped_and_deleted(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    shard = ShardDriver(app, "shop", shard_of(b"17", queue.shards_count), queue.shards_count)
    queue.perform_async([{"id": 17, "payload": number, "score": number} for number in (1, 2, 3)])
    lease = shard.lease()

    def block() -> None:
        lease.claim()
        lease.settle(exhausted=[Exhausted("17", "no stock", "block")])

    block()
    assert "no stock" in lowkiq("blocked", "list", "shop").stdout
    assert [job["id"] for job in json.loads(lowkiq("blocked", "list", "shop", "--json").stdout)] == ["17"]
    assert lowkiq("blocked", "retry", "shop", "--all").stdout == "1 retried\n"
    block()
    assert lowkiq("blocked", "retry", "shop", "17").stdout == "1 retried\n"
    block()
    assert lowkiq("blocked", "skip", "shop", "17").stdout == "1 skipped\n"
    block()
    assert shard.queued()["17"].payloads == {b"2": 2.0, b"3": 3.0}
    assert lowkiq("blocked", "delete", "shop", "17").stdout.startswith("1 deleted; lowkiq undo shop ")


def test_jobs_are_cancelled_by_their_ids(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": number} for number in range(4)])
    assert lowkiq("cancel", "shop", "0", "1", "gone").stdout == "2 cancelled\n"
    assert json.loads(lowkiq("cancel", "shop", "2", "--json").stdout) == {"cancelled": 1}
    assert lowkiq("cancel", "shop", "2").stdout == "0 cancelled\n"
    assert app.metrics()["shop"].length == 1
    told = lowkiq("cancel", "--help").stdout
    assert "lowkiq cancel OrderSync 17 42" in told and "current().cancelled" in told


def test_nodes_show_tasks_progress_and_what_was_asked_to_stop(lowkiq: Run, app: Lowkiq) -> None:
    task = ThreadHealth(
        name=EVENT_LOOP, worker="W", queue="mail", shard=3, ids=["[b]17\x1b"], jobs=2, seconds=61.0, progress=0.4,
        note="page 3 of 8", to_stop_seconds=42.0,
    )  # fmt: skip
    tell_health(app, number_of_nodes=1, tasks=120, longest_tasks=[task] * 30, loop_lag=2.5)
    ended = lowkiq("nodes", COLUMNS="200")
    assert ended.returncode == 1
    told = " ".join(ended.stdout.replace("│", " ").replace("┃", " ").split())
    assert "120 2.5 s" in told and "and 100 more" in told and "0 of 0" not in told
    assert re.search(r"its event loop mail 3 \[b\]17\\x1b and 1 more 1 min \d+ s 40 % page 3 of 8 42 s ago", told)
    assert "): The event loop of node 0 on host is blocked" in told
    assert ": [b]17\\x1b and 1 more of mail runs on" in told
    (node,) = json.loads(lowkiq("nodes", "--json").stdout)["nodes"]
    assert (node["tasks"], node["loop_lag"], node["longest_tasks"][0]["progress"]) == (120, 2.5, 0.4)


@pytest.mark.parametrize(
    ("arguments", "changes", "code", "message"),
    [
        (["-r", "nothing"], {}, 3, "no module 'nothing'"),
        (["-r", "jobs:shop"], {}, 3, "jobs.shop is not a Lowkiq application"),
        (["-r", "jobs", "--node-number", "2"], {}, 2, "node number 2 of 1 nodes"),
        (["-r", "jobs", "--node-number", "x"], {}, 2, "--node-number is 'x'"),
        (["-r", "jobs"], {"NODE_NUMBER": "pod"}, 2, "NODE_NUMBER is 'pod'"),
        (["-r", "jobs"], {"LOWKIQ_NUMBER_OF_NODES": "0"}, 2, "node number 0 of 0 nodes"),
        (["-r", "jobs"], {"LOWKIQ_THREADS_PER_NODE": "five"}, 2, "LOWKIQ_THREADS_PER_NODE must be an integer"),
        (["stats"], {"LOWKIQ_REDIS_URL": "redis://:hush@127.0.0.1:1/0"}, 1, "redis://:***@127.0.0.1:1/0"),
        (["stats"], {"LOWKIQ_REDIS_URL": "http://:hush@host"}, 2, "must begin with redis://"),
        (["morgue", "list", "nobody"], {}, 2, "no queue 'nobody' here"),
        (["morgue", "revive", "shop"], {}, 2, "say which: ids, or --all"),
        (["cancel", "nobody", "17"], {}, 2, "no queue 'nobody' here"),
        (["failures", "shop", "gone"], {}, 2, "job 'gone' of shop has no error"),
        (["cancel", "shop", ""], {}, 2, "id must not be empty"),
        (["morgue", "revive", "shop", "x" * 600], {}, 2, "has 600 bytes, max_id_bytes is 512"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    lowkiq: Run, queue: type[Worker], arguments: list[str], changes: dict[str, str], code: int, message: str
) -> None:
    queue.perform_async([{"id": 1}])
    ended = lowkiq(*arguments, **changes)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr and "Traceback" not in ended.stderr and "hush" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_pod_names_are_node_numbers(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": number} for number in range(50)])
    for pod in range(3):
        name = {"NODE_NUMBER": f"jobs-{pod}", "NUMBER_OF_NODES": "3", "LOWKIQ_LEASE_TTL": "0.5"}
        assert lowkiq("-r", "jobs", "--burst", **name).returncode == 0
    assert app.metrics()["shop"].processed == 50


def test_without_a_url_the_embedded_redis_of_the_directory_is_meant(lowkiq: Run, tmp_path: Path) -> None:
    (tmp_path / ".lowkiq" / "redis").mkdir(parents=True)
    ended = lowkiq("stats", LOWKIQ_REDIS_URL="")
    assert ended.returncode == 1 and f"unix://{tmp_path}/.lowkiq/redis/redis.sock" in ended.stderr
    assert "it runs while lowkiq-supervisor does" in ended.stderr


def test_help_has_examples(lowkiq: Run, redis_server: RedisServer) -> None:
    told = lowkiq("--help").stdout
    assert "lowkiq -r shop.jobs --burst" in told and "morgue revive" in told


@pytest.mark.parametrize("command", [["-r", "broken"], ["stats", "-r", "broken"], ["-r", "./broken.py", "--burst"]])
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def f(:\n", r"SyntaxError: invalid syntax \(broken.py, line 1\)"),
        (
            "import re\nimport nopackage_x\n",
            r"ModuleNotFoundError: No module named 'nopackage_x' \(.*broken.py, line 2\)",
        ),
        ("from re import nothing\n", r"ImportError: cannot import name 'nothing' .*\(.*broken.py, line 1\)"),
        ("from . import models\n", r"ImportError: attempted relative import .*; name it as a module of its package"),
    ],
)
def test_an_app_that_can_t_be_imported_is_one_line_and_the_exit_code_of_a_person_s_turn(
    lowkiq: Run, tmp_path: Path, command: list[str], code: str, says: str
) -> None:
    (tmp_path / "broken.py").write_text(code)
    ended = lowkiq(*command)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (3, 1), ended.stderr
    assert re.match(rf"lowkiq: can't import (./)?broken(.py)?: {says}", ended.stderr), ended.stderr


def test_where_nobody_has_named_a_redis_that_is_said(lowkiq: Run, tmp_path: Path) -> None:
    environment = {"LOWKIQ_REDIS_URL": "", "REDIS_URL": "", "LOWKIQ_STATE_DIR": str(tmp_path / "none")}
    if port_is_taken(6379):
        pytest.skip("a Redis runs at the usual place")
    ended = lowkiq("stats", **environment)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended.stderr
    assert "redis://localhost:6379/0" in ended.stderr and "REDIS_URL is not set here" in ended.stderr
    assert "REDIS_URL" not in lowkiq("stats", LOWKIQ_REDIS_URL="redis://127.0.0.1:1/0").stderr


def port_is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
