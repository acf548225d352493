"""Queues of the original, as version 1.2.2 has left them in Redis (lowkiq_ruby.rb), are moved over as they were."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from examples import from_ruby
from examples.ruby_queue import RubyQueue, Unreadable, read_payload
from lowkiq import Job, Lowkiq
from tests.node.driven import burst
from tests.support import RedisServer, running_redis

#: What a node was handed.
RAN: dict[str, list[Any]] = {}
FIXTURE = Path(__file__).with_name("lowkiq_ruby.json")


@pytest.fixture(scope="module")
def ruby_server():
    """A Redis of Ruby's own."""
    with running_redis() as server:
        yield server


@pytest.fixture
def ruby(ruby_server: RedisServer) -> redis.Redis:
    """What the original has left, in its Redis."""
    client = ruby_server.client()
    client.flushall()
    for key, value in json.loads(FIXTURE.read_text()).items():
        for score, member in value.get("zset", ()):
            client.zadd(key, {base64.b64decode(member): score})
        for field, text in value.get("hash", ()):
            client.hset(key, base64.b64decode(field), base64.b64decode(text))
        if "string" in value:
            client.set(key, base64.b64decode(value["string"]))
    return client


@pytest.fixture
def worker(app: Lowkiq):
    @app.worker(queue_name="OrderSync", shards_count=3)
    def order_sync(id: str, payloads: list[Any]) -> None:
        RAN[id] = payloads

    RAN.clear()
    return order_sync


@pytest.fixture
def move(app: Lowkiq, worker, ruby_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    """Runs the command, and returns its exit code."""

    def run(*words: str) -> Any:
        monkeypatch.setattr(from_ruby, "load_app", lambda _: app)
        monkeypatch.setattr(sys, "argv", ["from_ruby", "-r", "shop", "--source", ruby_server.url, *words])
        with pytest.raises(SystemExit) as ended:
            from_ruby.main()
        return ended.value.code

    return run


def jobs(worker) -> dict[str, Job]:
    return {job.id: job for job in worker.queries.find("*")}


def left(ruby: redis.Redis) -> set[str]:
    """What Ruby's queue still has, but for its counters."""
    names = {key.decode().removeprefix("lowkiq:A:v1:OrderSync:") for key in ruby.scan_iter()}
    return names - {"processed", "failed", "processing_length_by_shard"}


def test_all_is_moved_as_it_was(move, worker, ruby) -> None:
    assert move("OrderSync") == 0
    found = jobs(worker)
    assert {id: (job.payloads, job.scores) for id, job in found.items() if id != "empty"} == {
        "17": ([{"state": "sent", "symbol": "fast", "text": "naïve"}], (2.0,)),
        "dead": (["v2"], (2.0,)),
        "later": ([[{"a": "b"}, "a" * 300]], (5.5,)),
        "lost": ([{"n": 1}, {"n": 2}, {"n": 3}], (1.0, 2.0, 3.0)),
    }
    assert found["empty"].payloads == [""]
    assert found["17"].perform_in == 4_000_000_000.25
    assert (found["dead"].retry_count, found["dead"].error) == (0, "the bank refuses")
    assert found["lost"].retry_count == -1
    dead = {job.id: (job.payloads, job.error) for job in worker.queries.morgue_fetch(["17", "dead"])}
    assert dead == {
        "17": ([{"state": "paid", "total": 1.5, "items": [1, -300, 2**70, None, True, False]}], "the bank refuses"),
        "dead": (["v1"], "the bank refuses"),
    }
    assert left(ruby) == set()


def test_what_was_moved_runs_in_order(app, move, worker, ruby) -> None:
    move("OrderSync")
    burst(app)
    assert RAN["lost"] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert worker.actions.morgue_queue_up(["17"]) == 1


@pytest.mark.parametrize("calls", range(8))
def test_a_move_that_was_killed_is_done_again_without_harm(
    move, worker, ruby, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    removed = RubyQueue.remove
    rest = iter(range(calls))

    def dies(queue: Any, job: Any) -> None:
        if next(rest, None) is None:
            raise KeyboardInterrupt
        removed(queue, job)

    monkeypatch.setattr(RubyQueue, "remove", dies)
    move("OrderSync")
    monkeypatch.setattr(RubyQueue, "remove", removed)
    assert move("OrderSync") == 0
    found = {id: job.payloads for id, job in jobs(worker).items()}
    assert (found["lost"], found["dead"]) == ([{"n": 1}, {"n": 2}, {"n": 3}], ["v2"])
    assert [len(job.payloads) for job in worker.queries.morgue_fetch(["17", "dead"])] == [1, 1]
    assert left(ruby) == set()


def test_it_merges_with_what_was_pushed_here(move, worker, ruby) -> None:
    worker.perform_async([{"id": "lost", "payload": {"n": 4}}, {"id": "17", "payload": {"n": 5}}])
    assert move("OrderSync") == 0
    found = jobs(worker)
    assert found["lost"].payloads == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert found["17"].payloads[-1] == {"n": 5}


def test_a_dry_run_changes_nothing(move, app, worker, ruby, capsys) -> None:
    before = left(ruby)
    assert move("--dry-run", "OrderSync") == 0
    assert "OrderSync: would move 5 queued, 1 in hand, 2 in the morgue" in capsys.readouterr().out
    assert (left(ruby), app.queues()) == (before, {})


def test_what_can_t_be_read_stays_where_it_is(move, worker, ruby, capsys) -> None:
    ruby.zadd("lowkiq:A:v1:OrderSync:payloads:later", {b"\x04\bU:\x0fBigDecimal": 1})
    assert move("OrderSync") == 1
    assert "left where it is: OrderSync later: " in capsys.readouterr().err
    assert "payloads:later" in left(ruby)
    assert "later" not in jobs(worker)


def test_a_queue_may_have_another_name_here(move, app, worker, ruby, capsys) -> None:
    assert move("--payloads", "json", "Shop::Orders=OrderSync") == 0
    assert move("Other") == 1
    assert "no queue 'Other' here; known are: OrderSync" in capsys.readouterr().err


def test_a_queue_of_a_newer_lowkiq_is_refused(move, app, ruby, capsys) -> None:
    app.redis().hset(f"{app.settings.namespace}:queues", "OrderSync", "4:5")
    assert move("OrderSync") == 1
    assert "layout 4" in capsys.readouterr().err


def test_a_queue_of_another_number_of_shards_gets_them_there(move, app, make_app, ruby) -> None:
    make_app().worker(queue_name="OrderSync", shards_count=5)(lambda _: None).perform_async([{"id": "other"}])
    assert move("OrderSync") == 0
    assert app.queues()["OrderSync"] == 5
    assert app.metrics()["OrderSync"].length > 1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x04\bi\x06x", None),
        (b"\x04\b[", "error"),
        (b"nonsense", "Expected token"),
        (b'\x04\b{\x07:\x06ai\x06I"\x06a\x06:\x06ETi\x07', "the same key"),
        (b"\x04\b{\x06i\x06i\x07", "has the key 1"),
        (b"\x04\bc\x0bObject", "nothing that JSON can hold"),
        (b"\x04\bf\binf", "nothing that JSON can hold|could not"),
    ],
)
def test_what_is_no_json_is_refused(data: bytes, told: str | None) -> None:
    if told is None:
        assert read_payload(data) == 1
        return
    with pytest.raises(Unreadable, match=told):
        read_payload(data)
