"""Whatever somebody has written into Redis, each command answers as usual, and names what can't be read."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from lowkiq.cli.commands import cli
from lowkiq.doctor import command as examiner
from tests.junk import JUNK, sampled, set_up
from tests.web.node_health import tell_health

#: Junk that `stats` reads, and `nodes` beside that; of the rest pages and the doctor tell.
OF_STATS = re.compile(r"kind of (queues|due|retries|claim|morgue.*|meta|owner|payloads|errors|crashes)$"
                      "|shards_count|(long )?name of a queue|(processed|failed|pushed|merged|epoch) ")  # fmt: skip
OF_NODES = re.compile(r"kind of nodes$|kind of a beat|beat|name of a node")
#: Junk that the doctor does not read: of single jobs, their tags and transitions, of failures and times.
OF_JOBS = re.compile("^((morgue:)?payloads|claim|crashes)$|{failures}|:(tagged|tracked|tracked_last|times)(:|$)")
#: What no terminal must get: all but printable characters, line feeds and those of tables.
COMMANDS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]")


@pytest.fixture(autouse=True)
def _queue(app, monkeypatch):
    tell_health(app, node="host:2:y", number_of_nodes=1)
    set_up(app)
    monkeypatch.setenv("LOWKIQ_REDIS_URL", app.settings.redis_url)
    monkeypatch.setenv("LOWKIQ_NAMESPACE", app.settings.namespace)


@pytest.mark.parametrize("name", sampled(JUNK))
def test_commands_answer_and_name_it(name, app):
    plant, named = JUNK[name]
    plant(app.redis(), app.settings.namespace)
    is_known = name != "kind of queues"
    for arguments in (["stats"], ["nodes"], ["stats", "--json"], ["nodes", "--json"]):
        answer = CliRunner().invoke(cli, arguments)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), (arguments, answer.output)
        assert answer.exit_code in {0, 1}
        assert not COMMANDS.search(answer.output), arguments
        if "--json" in arguments:
            json.loads(answer.stdout)
        if named and (OF_STATS.match(name) or (arguments[0] == "nodes" and OF_NODES.match(name))):
            assert named in answer.output.replace('\\"', '"').replace("\\\\", "\\"), arguments
    listed = CliRunner().invoke(cli, ["morgue", "list", "q"])
    assert listed.exit_code == (0 if is_known else 2), listed.output
    assert not COMMANDS.search(listed.output)


@pytest.mark.parametrize("name", sampled(JUNK))
def test_the_doctor_examines_all_the_same(name, app):
    plant, named = JUNK[name]
    plant(app.redis(), app.settings.namespace)
    findings = examiner.examine_app(None)
    assert not [finding for finding in findings if "could not be checked" in finding.says]
    readable = [finding for finding in findings if finding.check == "queues.readable"]
    is_read = named and not OF_JOBS.search(named)
    if is_read:
        assert [finding.level for finding in readable] == ["problem"]
        assert named in readable[0].says
    elif not named:
        assert [finding.level for finding in readable] == ["ok"]
