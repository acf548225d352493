"""Commands on the jobs of a queue and on one of them: jobs, job, push, perform, and the morgue by what it holds."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from lowkiq import Lowkiq, Worker
from lowkiq.cli.commands import COMMANDS, whole
from tests.support import ROOT
from tests.unit.conftest import Run
from tests.unit.test_cli_jobs import as_json


def commands(of: Any, path: str = "") -> dict[str, Any]:
    """All commands by their words."""
    if not hasattr(of, "commands"):
        return {path: of}
    return {name: one for word, sub in of.commands.items() for name, one in commands(sub, f"{path} {word}").items()}


def test_each_command_has_an_example_and_gives_json_but_those_that_serve() -> None:
    found = commands(whole())
    assert len(found) > 40
    for name, command in found.items():
        told = f"{command.epilog or ''}"
        assert f"lowkiq{name}" in told or f"lowkiq -r shop.jobs{name}" in told, name
        options = [text for parameter in command.params for text in parameter.opts]
        assert name in {" web", " new"} or "--json" in options, name


def test_the_list_of_commands_says_of_each_how_its_help_begins() -> None:
    assert {name: text for name, (_, text) in COMMANDS.items()} == {
        name: command.get_short_help_str(1_000) for name, command in whole().commands.items()
    }


def test_help_imports_no_command_and_a_command_no_other() -> None:
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from lowkiq.cli import main; main()"
    for words, own, other in ("-h", "cli.commands", "cli.opening"), ("job -h", "cli.one_job", "cli.flow"):
        command = [sys.executable, "-c", code, *words.split()]
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()
        assert f"lowkiq.{own}" in told and f"lowkiq.{other}" not in told, words


def test_jobs_of_a_queue_are_listed_by_state_error_and_tag(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": "bad1"}, {"id": "bad2", "tags": ["eu"]}])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    queue.perform_async([{"id": "a"}, {"id": "b", "perform_in": 4e9}])
    listed = {
        options: sorted(row["id"] for row in as_json(lowkiq, "jobs", "shop", *options))
        for options in [
            (), ("--state", "waiting"), ("--state", "scheduled"), ("--state", "running"), ("--state", "retrying"),
            ("--state", "dead", "--error", "ValueError: no stock of \x1b[31mbad1"),
            ("--state", "morgue", "--tag", "eu"),
            ("--pattern", "b*"), ("--limit", "1"),
        ]
    }  # fmt: skip
    assert list(listed.values()) == [["a", "b"], ["a"], ["b"], [], [], ["bad1", "bad2"], ["bad2"], ["b"], ["a"]]
    plain = lowkiq("jobs", "shop").stdout.splitlines()
    assert plain[1].split()[:4] == ["id", "queue", "state", "failed"] and plain[2].startswith("a ")
    assert "│" not in "".join(plain)
    assert lowkiq("jobs", "shop", "--state", "held").stdout == "no held job of shop\n"
    wrong = lowkiq("jobs", "shop", "--state", "ded")
    assert wrong.returncode == 2 and "did you mean `dead`" in wrong.stderr


def test_a_job_tells_its_story(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": "bad1", "payload": {"total": 5}, "tags": ["eu"]}])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    told = lowkiq("job", "shop", "bad1").stdout
    assert "Morgue: In the morgue since" in told and '{"total":5}' in told and "tags eu" in told
    assert "ValueError: no stock of \\x1b[31mbad1" in told and "jobs.py" in told
    story = as_json(lowkiq, "job", "shop", "bad1")
    (place,) = story["places"]
    assert (place["state"], place["payloads"][0]["text"], place["tags"]) == ("Morgue", '{"total":5}', ["eu"])
    none = lowkiq("job", "shop", "nobody")
    assert none.returncode == 1 and "it is done, deleted, or was never pushed" in none.stderr


def test_a_job_is_pushed_as_the_application_would(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    assert lowkiq("-r", "jobs", "push", "shop", "17", '{"total": 5}', "--tag", "eu").stdout == "17 pushed\n"
    assert as_json(lowkiq, "-r", "jobs", "push", "shop", "17", "6", "--delay", "60") == {"new": 0, "merged": 1}
    (job,) = queue.queries.fetch([17])
    assert job.payloads == [{"total": 5}, 6] and job.tags == ("eu",)
    for words, text in ((("push", "shop", "1", "{a}"), "is no JSON"), (("push", "shop", "", "1"), "id")):
        wrong = lowkiq("-r", "jobs", *words)
        assert wrong.returncode == 2 and text in wrong.stderr
    unknown = lowkiq("push", "shop", "1")
    assert unknown.returncode == 2 and "say -r MODULE" in unknown.stderr


#: Fails until somebody has mended it, and pushes.
MENDED = """
from lowkiq import Lowkiq

app = Lowkiq()


@app.worker(queue_name="shop", max_retry_count=0)
def shop(payloads_by_id):
    shop.perform_async([{"id": "next", "payload": 1}])
    print("performs", payloads_by_id, flush=True)
    breakpoint()
"""


def test_a_job_that_failed_in_production_runs_here_and_stays_there(
    lowkiq: Run, queue: type[Worker], app: Lowkiq, tmp_path: Any
) -> None:
    queue.perform_async([{"id": "bad1", "payload": {"total": 5}}, {"id": "bad1", "payload": 6}])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    before = queue.queries.morgue_fetch(["bad1"])
    failed = lowkiq("-r", "jobs", "perform", "shop", "bad1")
    assert failed.returncode == 1 and "ValueError: no stock" in failed.stdout and "would be dead" in failed.stdout
    assert queue.queries.morgue_fetch(["bad1"]) == before
    (tmp_path / "mended.py").write_text(MENDED)
    done = lowkiq("-r", "mended", "perform", "shop", "bad1", PYTHONBREAKPOINT="os.getpid")
    assert done.returncode == 0 and "performs {'bad1': [{'total': 5}, 6]}" in done.stdout, done.stderr
    assert "bad1 is done" in done.stdout and "it pushed 1 payload, which were not sent" in done.stdout
    assert queue.queries.morgue_fetch(["bad1"]) == before and not queue.queries.fetch(["next"])
    sent = lowkiq("-r", "mended", "perform", "shop", "bad1", "--push", "--delete", "--json", PYTHONBREAKPOINT="0")
    assert json.loads(sent.stdout.splitlines()[-1])["deleted"] == 1
    assert not queue.queries.morgue_fetch(["bad1"]) and queue.queries.fetch(["next"])
    queue.perform_async([{"id": "17", "payload": 1}])
    told = lowkiq("-r", "jobs", "perform", "shop", "17")
    assert told.returncode == 0 and "a node may run it meanwhile: hold it first" in told.stderr
    push_more = MENDED.replace('"id": "next", "payload": 1', '"id": "17", "payload": 2')
    (tmp_path / "more.py").write_text(push_more)
    kept = lowkiq("-r", "more", "perform", "shop", "17", "--push", "--delete", PYTHONBREAKPOINT="0")
    assert kept.returncode == 1 and "is done here, and not deleted: it has other payloads" in kept.stderr
    assert queue.queries.fetch(["17"])[0].payloads == [1, 2]
    none = lowkiq("-r", "jobs", "perform", "shop", "nobody")
    assert none.returncode == 2 and "no job 'nobody' in shop" in none.stderr


def test_dead_jobs_are_revived_and_deleted_by_error_pattern_and_tag(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": f"bad{n}"} for n in (1, 2, 3)] + [{"id": f"bad{n}", "tags": ["eu"]} for n in (4, 5)])
    assert lowkiq("-r", "jobs", "--burst").returncode == 0
    assert lowkiq("morgue", "revive", "shop", "--pattern", "bad[23]").stdout == "2 revived\n"
    assert {job.id for job in queue.queries.range_by_perform_in()} == {"bad2", "bad3"}
    asked = lowkiq("morgue", "delete", "shop", "--tag", "eu")
    assert asked.returncode == 1 and "Delete the 2 that match in the morgue of shop?" in asked.stdout
    deleted = as_json(lowkiq, "morgue", "delete", "shop", "--tag", "eu", "--yes")
    assert deleted["deleted"] == 2 and deleted["undo"]
    by_error = ("morgue", "revive", "shop", "--error", "ValueError: no stock of \x1b[31mbad7")
    assert as_json(lowkiq, *by_error) == {"revived": 1}, "of its kind"
    wrong = lowkiq("morgue", "revive", "shop", "bad1", "--tag", "eu")
    assert wrong.returncode == 2 and "say which" in wrong.stderr


def test_stats_have_a_line_a_queue_and_all_numbers_when_wide(lowkiq: Run, queue: type[Worker]) -> None:
    queue.perform_async([{"id": "a"}, {"id": "b", "perform_in": 4e9}])
    head, shop, every = lowkiq("stats").stdout.splitlines()
    assert head.split() == ["queue", "waiting", "running", "retrying", "dead", "lag", "done/s"]
    assert shop.split()[:5] == ["shop", "1", "0", "0", "0"] and every.split()[0] == "all"
    assert max(map(len, (head, shop, every))) <= 80
    wide = lowkiq("stats", "--wide").stdout
    assert "morgue_length" in wide and "│" not in wide
