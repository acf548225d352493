"""`lowkiq doctor`, as people type it: with a Redis that is well, in several ways of being ill, and without one."""

from __future__ import annotations

import signal
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq
from tests.doctor.doctor_command import APP, PATIENCE, Doctor
from tests.queue.shard_driver import PAST, ShardDriver
from tests.support import RedisServer
from tests.web.node_health import tell_health


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APP)
    return tmp_path


@pytest.fixture
def doctor(directory: Path, own_redis_server: RedisServer) -> Doctor:
    return Doctor(directory, own_redis_server.url)


@pytest.fixture
def app(own_redis_server: RedisServer) -> Iterator[Lowkiq]:
    """The application on the server that may be spoiled."""
    app = Lowkiq(redis_url=own_redis_server.url)
    app.worker(queue_name="shop", shards_count=2)(lambda payloads_by_id: None)
    yield app
    app.close()


@pytest.fixture
def admin(app: Lowkiq) -> redis.Redis:
    return app.redis()


def test_a_machine_that_is_well(doctor: Doctor) -> None:
    told = doctor()
    assert told.code == 0
    assert told.checks("problem", "warning") == set()
    assert told.checks("ok") >= {
        "redis.answers", "redis.version", "redis.persistence", "redis.memory", "redis.clock", "rights.commands",
        "queues.layout", "machine.state_dir", "machine.software",
    }  # fmt: skip


def test_for_people_it_is_a_table_with_the_gravest_first(doctor: Doctor, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", 1 << 30)
    admin.config_set("maxmemory-policy", "allkeys-lru")
    told = doctor(as_json=False)
    assert told.code == 1
    lines = told.output.splitlines()
    assert lines[0].startswith("problem  redis.memory ")
    assert lines[0].split("→")[1].startswith(" CONFIG SET maxmemory-policy noeviction")
    assert lines[-1].startswith("1 problem, 0 warnings,")


def test_without_an_application_redis_is_examined_and_help_has_examples(doctor: Doctor) -> None:
    told = doctor("--json")
    assert told.code == 0
    assert "say -r MODULE" in told.of("queues.shards_count")[0]["says"]
    told = doctor("--help", as_json=False)
    assert "Exits 0 without problems, 1 with some, 3 when the application can't be found" in told.output
    assert "lowkiq doctor -r shop.jobs --json" in told.output


def test_it_changes_nothing(doctor: Doctor, app: Lowkiq, admin: redis.Redis) -> None:
    """Every key is the same to the byte, Redis has counted no write, and was asked for none but to throw it away."""
    shard = ShardDriver(app, "shop", 0, 2)
    for id in ("a", "b", "c"):
        shard.push(id, perform_in=PAST)
        shard.push(id, b"more", perform_in=PAST)
    lease = shard.lease()
    lease.claim(limit=2)
    lease.exhaust("a")
    tell_health(app)
    admin.hset("lowkiq:queues", "shop", 2)

    def state() -> dict[bytes, Any]:
        return {key: (admin.dump(key), admin.pexpiretime(key) if has_expiry else 0) for key in admin.scan_iter()}

    has_expiry = int(admin.info("server")["redis_version"].split(".")[0]) >= 7
    before, dirty = state(), admin.info("persistence")["rdb_changes_since_last_save"]
    with admin.monitor() as monitor:
        told = doctor()
        admin.echo("the end")
        commands = []
        for line in monitor.listen():
            if "the end" in line["command"]:
                break
            commands.append((line["client_type"], line["command"].split()[0].upper()))
    assert state() == before
    assert admin.info("persistence")["rdb_changes_since_last_save"] == dirty
    assert told.of("rights.commands") and told.of("nodes.present")
    ran = {command for kind, command in commands if kind != "lua"}
    assert ran <= {
        "PING", "INFO", "CONFIG", "TIME", "EVAL", "EVALSHA", "SCRIPT", "PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "HSCAN",
        "HGET", "GETRANGE", "LRANGE", "HMGET", "ZRANGE", "ZREVRANGE", "GET", "MULTI", "DISCARD", "CLIENT", "HELLO",
    }, ran  # fmt: skip
    in_scripts = {command for kind, command in commands if kind == "lua"}
    assert in_scripts <= {"TIME", "HMGET", "ZCARD", "HLEN", "ZRANGE"}, "of all scripts only stats is run"


def test_without_redis_the_rest_is_examined(doctor: Doctor) -> None:
    told = doctor(LOWKIQ_REDIS_URL="redis://:hush@127.0.0.1:1/0")
    assert told.code == 1 and "hush" not in told.output
    (away, left) = told.of("redis.answers")
    assert away["level"] == "problem" and "redis://:***@127.0.0.1:1/0 (from LOWKIQ_REDIS_URL)" in away["says"]
    assert "checks that need Redis" in left["says"]
    assert {"machine.state_dir", "machine.disk", "machine.software"} <= told.checks("ok")


def test_a_redis_that_hangs_holds_nobody(doctor: Doctor, own_redis_server: RedisServer) -> None:
    assert own_redis_server.process
    own_redis_server.process.send_signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        told = doctor()
        assert time.monotonic() - started < PATIENCE / 2
    finally:
        own_redis_server.process.send_signal(signal.SIGCONT)
    assert told.code == 1
    assert "whether it is overloaded or stopped" in told.of("redis.answers")[0]["do"]
    assert "machine.software" in told.checks("ok")


class OnlyPings(socketserver.StreamRequestHandler):
    """A server that greets and answers PING, and nothing else."""

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2].upper())
            if answer := {b"PING": b"+PONG\r\n", b"CLIENT": b"+OK\r\n"}.get(words[0]):
                self.wfile.write(answer)


def test_a_redis_that_hangs_in_the_midst(doctor: Doctor) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OnlyPings) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = doctor(LOWKIQ_REDIS_URL=f"redis://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    assert told.code == 1
    assert told.of("redis.answers")[0]["level"] == "ok"
    (gone,) = told.of("redis.version")
    assert gone["level"] == "problem" and "Redis is gone, or hangs, since the last check" in gone["says"]
    assert "machine.software" in told.checks("ok")


def test_the_embedded_redis_that_does_not_run(doctor: Doctor, directory: Path) -> None:
    (directory / ".lowkiq" / "redis").mkdir(parents=True)
    told = doctor(LOWKIQ_REDIS_URL="")
    assert "from the state directory" in told.of("redis.answers")[0]["says"]
    assert "start lowkiq-supervisor, which runs this Redis" in told.of("redis.answers")[0]["do"]


def test_what_it_says_of_rights_is_what_mends_them(doctor: Doctor, admin: redis.Redis, own_redis_server: Any) -> None:
    url = f"{own_redis_server.url}?username=low&password=horse"
    admin.execute_command("ACL SETUSER low on >horse ~other:* resetchannels &lowkiq:bell:* +@read +@write +@connection")
    admin.execute_command("ACL SETUSER low +multi +discard -unlink -rpush")
    told = doctor(LOWKIQ_REDIS_URL=url)
    assert told.code == 1 and "horse" not in told.output
    for _ in range(3):  # rights to a command hide that the key is not allowed
        if not (lacking := [finding for finding in told.of("rights.commands") if finding["level"] == "problem"]):
            break
        words = lacking[0]["do"].removeprefix("ACL SETUSER USER ").split()
        admin.execute_command("ACL", "SETUSER", "low", *words)
        told = doctor(LOWKIQ_REDIS_URL=url)
    assert not told.checks("problem"), told.output
    assert told.code == 0
    assert "may not look" in told.of("redis.version")[0]["says"], "INFO is a luxury"
    app = Lowkiq(redis_url=url)
    worker = app.worker(queue_name="shop", shards_count=2)(lambda payloads_by_id: None)
    assert worker.perform_async([{"id": number} for number in range(9)]).new == 9
    app.close()


def test_a_full_redis(doctor: Doctor, app: Lowkiq, admin: redis.Redis) -> None:
    app.workers["shop"].perform_async([{"id": 1, "perform_in": 4e9}])
    admin.config_set("maxmemory", 1)
    told = doctor()
    assert told.code == 1
    assert told.checks("problem") >= {"redis.memory"}
    writes = told.of("rights.commands")[-1]
    assert writes["level"] == "problem" and "nothing can be written now" in writes["says"]


def test_a_redis_that_keeps_nothing_is_only_warned_of(doctor: Doctor, admin: redis.Redis) -> None:
    admin.config_set("appendonly", "no")
    told = doctor()
    assert told.code == 0 and "redis.persistence" in told.checks("warning")
    assert "nothing is kept on disk" in told.of("redis.persistence")[0]["says"]


def test_another_shards_count(doctor: Doctor, admin: redis.Redis) -> None:
    admin.hset("lowkiq:queues", "shop", 24)
    told = doctor()
    assert told.of("queues.shards_count")[0]["do"].startswith("set shards_count = 24")


def test_a_newer_layout_and_a_queue_that_breaks_every_look(doctor: Doctor, admin: redis.Redis) -> None:
    """What a newer Lowkiq keeps need not be readable."""
    admin.hset("lowkiq:queues", mapping={"shop": "4:2", "odd": 1})
    admin.set("lowkiq:{shop:0}:due", "of another kind")
    told = doctor()
    assert told.code == 1 and told.checks("problem") == {"queues.layout"}
    admin.set("lowkiq:{odd:0}:due", "broken")
    told = doctor()
    assert told.code == 1 and told.checks("problem") == {"queues.layout", "queues.readable"}
    assert "under lowkiq:{odd:0}:due that Lowkiq can't read" in told.of("queues.readable")[0]["says"]


def test_an_application_that_breaks_is_a_finding(doctor: Doctor, directory: Path) -> None:
    (directory / "jobs.py").write_text(APP + "\n1 / 0\n")
    told = doctor()
    assert told.code == 1
    says = "jobs can't be imported: ZeroDivisionError: division by zero (jobs.py:11)"
    assert says in told.of("settings.app")[0]["says"]
    assert "redis.answers" in told.checks("ok")


@pytest.mark.parametrize(
    ("arguments", "changes", "code"),
    [(("-r", "nothing"), {}, 3), (("-r", "jobs"), {"LOWKIQ_THREADS_PER_NODE": "five"}, 2)],
)
def test_what_can_t_be_examined_has_its_own_code(
    doctor: Doctor, arguments: tuple[str], changes: Any, code: int
) -> None:
    assert doctor(*arguments, **changes).code == code


def test_a_client_of_one_s_own(doctor: Doctor, directory: Path) -> None:
    """fakeredis knows few of the looks: none of them may break the command."""
    pytest.importorskip("fakeredis")
    makes = "import fakeredis\napp = Lowkiq(redis=lambda: fakeredis.FakeRedis(version=(7,)))"
    (directory / "jobs.py").write_text(APP.replace("app = Lowkiq()", makes))
    told = doctor()
    assert "the client that `redis` makes (from the app)" in told.of("redis.answers")[0]["says"]
    assert told.code == 0
    assert told.checks("problem", "warning") == set()
