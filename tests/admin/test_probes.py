"""Probes: what Redis lets us do is found out without doing it."""

from __future__ import annotations

import re

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from lowkiq.admin import probes
from lowkiq.admin.metrics import read_layouts
from lowkiq.queue import keys, scripts
from lowkiq.queue.call import Caller
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Exhausted
from lowkiq.settings import Settings
from lowkiq.transport.connect import client_for_people
from tests.queue.shard_driver import PAST, ShardDriver
from tests.support import ROOT

SOURCES = [ROOT / "lowkiq" / room for room in ("queue", "admin", "transport")]
PROBED = {name for name, _ in probes.ON_KEYS} | {"EVAL", "EVALSHA", "SCRIPT LOAD", "TIME", "PUBLISH", "SUBSCRIBE"}


@pytest.fixture
def people(own_redis_server):
    """Makes callers of a server that the test may spoil, as this or that user."""
    clients = []

    def make(user=None):
        url = own_redis_server.url + (f"?username={user}&password=pw" if user else "")
        clients.append(client_for_people(Settings(redis_url=url)))
        return Caller(clients[-1])

    yield make
    for client in clients:
        client.close()
        client.connection_pool.disconnect()


@pytest.fixture
def admin(people):
    return people().client


def refusals(caller):
    return probes.read_refusals(caller, "lowkiq", "orders")


def test_every_command_of_the_scripts_is_probed():
    used = {
        command.replace("', '", " ")
        for script in scripts.load(flags=False).values()
        for command in re.findall(r"redis\.p?call\('([A-Z]+(?:', 'ENCODING)?)'", script.source)
    }
    assert len(used) > 20
    assert used - PROBED == {"OBJECT ENCODING"}, "it makes a claim quicker, and is missed by none that must go without"


def test_every_plain_command_is_probed():
    """As the store's own text has them: the first word of `command(...)` and of the tuples that `commands` gets."""
    used = set()
    for path in (path for room in SOURCES for path in room.rglob("*.py")):
        if path.name != "probes.py":
            text = path.read_text("utf-8")
            used |= set(re.findall(r'command\(\s*"([A-Z ]+)"', text)) | set(
                re.findall(r'\("([A-Z]{3,})", [k*~f]', text)
            )
    assert {"GET", "SET", "TIME", "LRANGE", "HSCAN"} <= used
    assert used - PROBED == {"INFO"}, "INFO is a luxury"


def test_commands_and_keys_that_a_user_may_not_use_are_named(people, admin):
    assert refusals(people()) == ([], [], None), "who may do everything is refused nothing"
    admin.execute_command("ACL SETUSER low on >pw ~* &* +@all -rpush -evalsha -script -unlink")
    assert refusals(people("low")) == (["UNLINK", "RPUSH", "EVALSHA", "SCRIPT LOAD"], [], None)
    admin.execute_command("ACL SETUSER narrow on >pw ~lowkiq:{* &* +@all")
    assert refusals(people("narrow")) == ([], ["~lowkiq:*"], None)


def test_channels_that_a_user_may_not_use_are_found_by_ringing(people, admin):
    admin.execute_command("ACL SETUSER low on >pw ~* resetchannels &other:* +@all")
    with pytest.raises(redis.exceptions.NoPermissionError):
        probes.time_doorbell(people("low"), "lowkiq")


def test_a_user_without_transactions_is_not_probed(people, admin):
    """Without MULTI the probes would be run."""
    admin.execute_command("ACL SETUSER low on >pw ~* &* +@all -multi")
    with pytest.raises(redis.exceptions.NoPermissionError):
        refusals(people("low"))
    assert admin.keys() == []


def test_a_full_redis_refuses_writes(people, admin):
    admin.config_set("maxmemory", 1)
    found = refusals(people())
    assert found.commands == found.patterns == []
    assert isinstance(found.writes, OutOfMemoryError)


def test_too_few_replicas_and_a_replica_refuse_writes(people, admin):
    admin.config_set("min-replicas-to-write", 2)
    assert "NOREPLICAS" in str(refusals(people()).writes)
    admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    assert isinstance(refusals(people()).writes, ReadOnlyError)


def test_probing_runs_nothing(people, admin):
    dirty = admin.info("persistence")["rdb_changes_since_last_save"]
    calls = {name: stats["calls"] for name, stats in admin.info("commandstats").items()}
    caller = people()
    refusals(caller)
    after = {name: stats["calls"] for name, stats in admin.info("commandstats").items()}
    ran = {name for name in after if after[name] > calls.get(name, 0)}
    assert ran <= {"cmdstat_multi", "cmdstat_discard", "cmdstat_info", "cmdstat_client", "cmdstat_client|setname",
                   "cmdstat_client|setinfo", "cmdstat_hello", "cmdstat_auth"}  # fmt: skip
    assert admin.keys() == []
    assert admin.info("persistence")["rdb_changes_since_last_save"] == dirty
    assert caller.command("PING"), "the connection is fit for use afterwards"


def test_the_scripts_can_be_loaded(people, admin):
    flags = probes.load_scripts(people())
    assert flags == (int(admin.info("server")["redis_version"].split(".")[0]) >= 7)
    shas = [script.sha.decode() for script in scripts.load(flags=flags).values()]
    assert all(admin.script_exists(*shas))


def test_who_may_not_run_scripts_is_told(people, admin):
    admin.execute_command("ACL SETUSER low on >pw ~* &* +@all -eval")
    with pytest.raises(redis.exceptions.NoPermissionError):
        probes.load_scripts(people("low"))


def test_a_doorbell_is_heard(people):
    assert 0 < probes.time_doorbell(people(), "lowkiq") < probes.ARRIVES_WITHIN


def test_a_setting_of_the_server_is_read_where_that_is_allowed(people, admin):
    assert probes.read_config(people(), "appendfsync") == "always"
    assert probes.read_config(people(), "no-such-setting") is None
    admin.execute_command("ACL SETUSER low on >pw ~* &* +@all -config")
    assert probes.read_config(people("low"), "appendfsync") is None


def test_the_clocks_of_one_machine_agree(app):
    offset, error = probes.clock_offset(app.caller)
    assert abs(offset) <= error + 0.01


def test_layouts_of_queues_and_shards(app, shard):
    shard.push("a")
    app.redis().hset(keys.queues(app.settings.namespace), mapping={"q": "2:1", "new": "2:3", ".": "1", "..": "2:1"})
    assert read_layouts(app.caller, app.settings.namespace) == {"new": Layout(2, 3), "q": Layout(2, 1)}
    other = ShardDriver(app, queue="other")
    assert probes.read_shard_layouts(app.caller, [shard.shard, other.shard]) == [Layout(2, 1), None]


def test_jobs_buried_for_their_crashes_are_found(shard):
    for id in ("killer", "loser"):
        shard.push(id, perform_in=PAST)
    lease = shard.lease("a")
    lease.claim()
    lease.settle(exhausted=[Exhausted("loser", "boom")], released=["killer"])
    for number in range(3):
        lease.claim()
        lease.isolate("killer")
        lease = shard.lease(f"n{number}", max_crashes=3, dead=["a", f"n{number - 1}"])
    assert set(shard.morgue()) == {"killer", "loser"}
    assert probes.read_buried(shard.caller, [shard.shard]) == ["killer"]
