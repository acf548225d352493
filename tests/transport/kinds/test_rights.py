"""A user with the rights that docs/redis.md names can do all that Lowkiq does, and has no right that is not needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from lowkiq import Lowkiq
from lowkiq.admin import probes
from lowkiq.queue.call import Caller
from lowkiq.settings import Settings
from lowkiq.transport.connect import client_for_people
from tests.support import ROOT, free_port
from tests.transport.kinds.cluster import RedisCluster
from tests.transport.kinds.load import Load
from tests.transport.kinds.member import Member

pytestmark = pytest.mark.long

DOCS = (ROOT / "docs" / "redis.md").read_text("utf-8")
(RULE,) = re.findall(r"^ACL SETUSER lowkiq (.*)$", DOCS, re.MULTILINE)
GRANTED = {word[1:].replace("|", " ").upper() for word in RULE.split() if word.startswith("+")}
#: What is sent besides the commands that the doctor probes.
OF_CONNECTIONS = {"ASKING", "CLIENT SETNAME", "CLUSTER SLOTS", "COMMAND", "PING", "SELECT", "UNSUBSCRIBE", "WAIT"}
OF_CHECKS = {"DISCARD", "INFO", "MULTI"}


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Member]:
    server = Member(tmp_path_factory.mktemp("server"), free_port())
    server.start()
    yield server
    server.kill()


def let_in(member: Member, *without: str) -> None:
    words = [word for word in RULE.replace("PASSWORD", "secret").split() if word[1:] not in without]
    member.ask("ACL", "SETUSER", "lowkiq", "reset", *words)


def works(url: str, directory: Path) -> None:
    with Load(directory, url, nodes=1, lease_ttl=5) as load:
        load.wait_for_progress(50)
        outcome = load.finish()
        assert outcome[1:4] == ([], [], [])
        looks(load.app)
    assert "NOPERM" not in (directory / "node-0.log").read_text()
    assert "NoPermission" not in (directory / "node-0.log").read_text()


def looks(app: Lowkiq) -> None:
    caller = Caller(client_for_people(app.settings))
    assert probes.read_refusals(caller, app.settings.namespace, "jobs") == ([], [], None)
    assert probes.read_config(caller, "maxmemory") is None
    assert probes.time_doorbell(caller, app.settings.namespace) is not None
    assert app.nodes().nodes
    caller.close()


def test_its_rights_suffice_on_a_server(server: Member, tmp_path: Path) -> None:
    let_in(server)
    works(f"redis://lowkiq:secret@127.0.0.1:{server.port}", tmp_path)


def test_its_rights_suffice_on_a_cluster(tmp_path: Path) -> None:
    with RedisCluster(3, 0) as cluster:
        for member in cluster.members:
            let_in(member)
        works(cluster.url.replace("://", "://lowkiq:secret@"), tmp_path)


def test_it_has_no_rights_that_nobody_needs() -> None:
    probed = {name for name, _ in probes.ON_KEYS} | {"EVAL", "EVALSHA", "SCRIPT LOAD", "TIME", "PUBLISH", "SUBSCRIBE"}
    assert probed | OF_CONNECTIONS | OF_CHECKS | {"OBJECT ENCODING"} == GRANTED


def test_it_sees_no_other_key_or_channel(server: Member) -> None:
    let_in(server)
    with server.client(username="lowkiq", password="secret") as user:
        for command in (
            ("GET", "other"),
            ("PUBLISH", "other", ""),
            ("FLUSHALL",),
            ("KEYS", "*"),
            ("CONFIG", "GET", "requirepass"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.execute_command(*command)


@pytest.mark.parametrize("command", ["zadd", "evalsha", "script|load", "publish"])
def test_one_right_less_is_noticed_by_the_doctor(server: Member, command: str) -> None:
    let_in(server, command)
    caller = Caller(client_for_people(Settings(redis_url=f"redis://lowkiq:secret@127.0.0.1:{server.port}")))
    assert probes.read_refusals(caller, "lowkiq", "jobs").commands == [command.upper().replace("|", " ")]
    caller.close()
