"""Commands on nodes, incidents and alerts, as people and programs type them."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.beats.dumps import keep_dump
from lowkiq.admin.beats.hands import HandState, ask, take, tell
from lowkiq.admin.beats.health import forget
from lowkiq.admin.past.incidents import NewIncident, end, note, read_incidents
from lowkiq.queue.call import redis_time
from tests.unit.conftest import Run
from tests.web.node_health import tell_health

NODE = "host:2:y"


@contextmanager
def answering(app: Lowkiq, state: HandState | None, says: str = "", dump: str = "") -> Iterator[list[str]]:
    """A node that answers what it is asked for; with None, it ends instead. Gives the actions that it was asked for."""
    caller, namespace, asked, is_over = app.caller, app.settings.namespace, list[str](), threading.Event()

    def answer() -> None:
        while not is_over.wait(0.02):
            for request in take(caller, namespace, NODE)[1]:
                asked.append(request.action)
                tell(caller, namespace, msgspec.structs.replace(request, state="doing", says="it is on it"))
                if state is None:
                    forget(caller, namespace, NODE)
                else:
                    tell(caller, namespace, msgspec.structs.replace(request, state=state, says=says, dump=dump))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield asked
    finally:
        is_over.set()
        thread.join()


def beat(app: Lowkiq, **facts: Any) -> None:
    tell_health(app, **{"node": NODE, "number_of_nodes": 1} | facts)


def test_a_node_is_asked_by_name_or_number_and_its_answer_awaited(lowkiq: Run, app: Lowkiq) -> None:
    beat(app)
    for action in ("quiet", "resume", "restart"):
        with answering(app, "done", "so it is") as asked:
            ended = lowkiq("nodes", action, "0" if action == "quiet" else NODE, "--wait")
        assert (ended.returncode, ended.stdout, asked) == (0, "", [action])
        lines = ended.stderr.splitlines()
        assert (lines[0], lines[-1]) == (f"{action} was asked of {NODE}", "done: so it is")
    told = lowkiq("nodes", "quiet", "0")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == f"quiet was asked of {NODE} (--wait tells the outcome)\n"
    request = json.loads(lowkiq("nodes", "restart", "0", "--json").stdout)
    assert (request["node"], request["action"], request["state"]) == (NODE, "restart", "asked")
    found = read_incidents(app.caller, app.settings.namespace)
    assert [row.kind for row in found] == ["restart", "quiet", "restart", "resume", "quiet"]
    assert all("@" in row.who for row in found)


def test_a_dump_is_printed_alone_so_that_it_can_be_piped(lowkiq: Run, app: Lowkiq) -> None:
    beat(app)
    keep_dump(app.caller, app.settings.namespace, "f" * 16, NODE, "host", "me", "MainThread\n  no job\n")
    with answering(app, "done", dump="f" * 16):
        plain, row = lowkiq("nodes", "dump", "0", "--wait"), lowkiq("nodes", "dump", "0", "--wait", "--json")
    assert plain.stdout == "MainThread\n  no job\n\n"
    assert json.loads(row.stdout)["text"] == "MainThread\n  no job\n"


def test_a_node_that_refuses_or_is_gone_is_an_exit_code_with_the_reason(lowkiq: Run, app: Lowkiq) -> None:
    beat(app)
    with answering(app, "refused", "it has no \x1b[1msupervisor"):
        refused, row = lowkiq("nodes", "restart", "0", "--wait"), lowkiq("nodes", "restart", "0", "--wait", "--json")
    assert refused.returncode == row.returncode == 1
    assert refused.stderr.splitlines()[-1] == "refused: it has no \\x1b[1msupervisor"
    assert json.loads(row.stdout)["state"] == "refused"
    with answering(app, None):
        gone = lowkiq("nodes", "restart", "0", "--wait")
    assert gone.returncode == 1
    assert gone.stderr.splitlines()[-1].startswith("gone: the node is gone: it has ended, or was killed")


def test_who_is_no_node_is_named_with_those_that_there_are(lowkiq: Run, app: Lowkiq) -> None:
    def refused(name: str, *nodes: str) -> str:
        for node in nodes:  # a beat counts for half a minute
            beat(app, node=node)
        ended = lowkiq("nodes", "quiet", name)
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
        return ended.stderr

    assert refused("0") == "lowkiq: no node has the name or number '0': there are none: lowkiq nodes\n"
    two, named = (NODE, "host:1:x"), f"name one of host:1:x and {NODE}"
    assert refused("7", *two) == f"lowkiq: no node has the name or number '7': {named}\n"
    assert refused("0", *two) == f"lowkiq: several nodes have the name or number '0': {named}\n"
    assert lowkiq("nodes", "quiet").returncode == lowkiq("nodes", "stop", "0").returncode == 2


def test_a_node_that_hears_nothing_is_not_asked_for_ever(lowkiq: Run, app: Lowkiq) -> None:
    for _ in range(9):
        ask(app.caller, app.settings.namespace, NODE, "quiet", "me")
    beat(app)
    assert lowkiq("nodes", "quiet", NODE).returncode == 0
    beat(app)
    full = lowkiq("nodes", "quiet", NODE)
    assert full.returncode == 1 and "10 requests wait for node host:2:y already: it does not hear" in full.stderr


def test_incidents_are_a_line_each_the_newest_first(lowkiq: Run, app: Lowkiq) -> None:
    caller, namespace = app.caller, app.settings.namespace
    assert lowkiq("incidents").stdout == "no incident within 30 days\n"
    assert lowkiq("incidents", "--json").stdout == "[]\n"
    now = redis_time(caller)
    news = [
        NewIncident(key="on", kind="late queue", severity="bad", says="q is late", lasts=True, queue="q", at=now - 9),
        NewIncident(key="over", kind="late queue", severity="bad", says="q was \x1b[1mlate", lasts=True, at=now - 100),
        NewIncident(key="did", kind="quiet", severity="note", says="Quiet was asked", who="me", node=NODE, at=now - 1),
    ]
    note(caller, namespace, news)
    end(caller, namespace, {"over": now - 40})
    lines = lowkiq("incidents").stdout.splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  ", "", line) for line in lines] == [
        f"quiet: Quiet was asked, by me [{NODE}]",
        "late queue: q is late (it goes on)",
        "late queue: q was \\x1b[1mlate (for 1 min)",
    ]
    assert len(lowkiq("incidents", "--limit", "1").stdout.splitlines()) == 1
    assert "Quiet was asked" in lowkiq("incidents", "--node", NODE, "--kind", "quiet").stdout
    assert lowkiq("incidents", "--queue", "nobody").stdout == "no such incident within 30 days\n"
    (row,) = json.loads(lowkiq("incidents", "--queue", "q", "--json").stdout)
    assert (row["says"], row["until"]) == ("q is late", None)
    wrong = lowkiq("incidents", "--kind", "deth")
    assert wrong.returncode == 2
    assert wrong.stderr == "lowkiq: unknown kind of incident `deth`, did you mean `death`?\n"


def test_alerts_say_what_is_wrong_since_when_and_by_their_exit_code(
    lowkiq: Run, app: Lowkiq, queue: type[Worker]
) -> None:
    def alerts(*arguments: str) -> subprocess.CompletedProcess[str]:
        return lowkiq("alerts", "-r", "jobs", *arguments, LOWKIQ_ALERT_PERSISTENCE="0")

    beat(app, node="host:1:x", owned={}, waited_for={})
    well = alerts()
    assert (well.returncode, well.stdout) == (0, "All is well.\n"), well.stdout
    assert (alerts("--bad").stdout, alerts("--json").stdout) == ("Nothing of that is wrong.\n", "[]\n")
    beat(app, node="host:1:x", number_of_nodes=2)
    ended = alerts("--bad")
    assert ended.returncode == 1
    told, command = ended.stdout.splitlines()
    assert re.fullmatch(r"\[bad\] missing( \(for .*\))?: Node 1 of 2 is missing: .*\. Start it, or lower .*\.", told)
    assert command == "  → lowkiq nodes"
    (row,) = json.loads(alerts("--json").stdout)
    assert (row["kind"], row["severity"], row["subject"], row["queues"]) == ("missing", "bad", "", [])
    (of_nodes,) = json.loads(lowkiq("nodes", "-r", "jobs", "--json", LOWKIQ_ALERT_PERSISTENCE="0").stdout)["alerts"]
    assert of_nodes["says"] == row["says"]
    lost = lowkiq("alerts", LOWKIQ_REDIS_URL="redis://:hush@127.0.0.1:1/0")
    assert lost.returncode == 1 and "can't use Redis" in lost.stderr and "hush" not in lost.stderr


@pytest.mark.parametrize("command", ["quiet", "resume", "restart", "dump"])
def test_a_redis_that_is_not_there_is_one_line(lowkiq: Run, command: str) -> None:
    ended = lowkiq("nodes", command, "0", LOWKIQ_REDIS_URL="redis://127.0.0.1:1/0")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1) and "can't use Redis" in ended.stderr
