"""The push of one job: it sends what any push sends, and what it can't do goes the usual way."""

from __future__ import annotations

import pytest
from hiredis import pack_command

from lowkiq import Lowkiq, Pushed, PushFailed
from lowkiq.errors import ShardsCountMismatch
from lowkiq.job import EncodedJob, shard_of
from lowkiq.queue.push import Producer
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.senders import Senders, Stamp
from lowkiq.transport.server import Connections, Replicas
from tests.queue.stamps import once

SHARDS = 7


def lone_job(id: bytes = b"a", payload: bytes = b"x") -> EncodedJob:
    return EncodedJob(id, payload, "", "")


@pytest.fixture
def sent(monkeypatch) -> list[bytes]:
    packed: list[bytes] = []
    send = Connections.send

    def spy(connections, parts, count):
        packed.append(b"".join(parts))
        return send(connections, parts, count)

    monkeypatch.setattr(Connections, "send", spy)
    return packed


@pytest.fixture
def stamped(monkeypatch) -> list[Stamp]:
    stamps: list[Stamp] = []
    give = Senders.number

    def spy(senders, sender, until):
        stamps.append(Stamp(sender.name, give(senders, sender, until)))
        return stamps[-1].number

    monkeypatch.setattr(Senders, "number", spy)
    return stamps


@pytest.fixture
def producer(app: Lowkiq) -> Producer:
    """One that has registered its queue. Redis has the scripts, which another test may have had it forget."""
    app.caller.run(push_call(app.shards("other", 1)[0], [lone_job()], once()))
    producer = Producer(app.caller, app.settings.namespace, "q", SHARDS)
    producer.register()
    return producer


@pytest.mark.parametrize("id", [b"a", b"order 7", "größe".encode(), b"$1\r\n2\r\n", b"x" * 1000])
@pytest.mark.parametrize("payload", [b"", b'{"n": 1}', b"*1\r\n$4\r\nPING\r\n", bytes(range(256)), b"y" * 100_000])
def test_it_sends_what_any_push_of_it_sends(app, producer, sent, stamped, id, payload) -> None:
    job = lone_job(id, payload)
    shard = app.shards("q", SHARDS)[shard_of(id, SHARDS)]
    sent.clear()
    assert producer.push([job]) == Pushed(1, 0)
    assert sent == [pack_command(app.caller.command_of(push_call(shard, [job], stamped[0])))]


def test_what_it_pushes_is_queued_and_merges(app, producer) -> None:
    pushed = [producer.push([lone_job(id, payload)]) for id, payload in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))]
    assert pushed == [(1, 0), (1, 0), (0, 1)]
    found = app.queries("q", SHARDS).fetch(["a", "b"])
    assert {job.id: job.payloads for job in found} == {"a": [1, 3], "b": [2]}


@pytest.mark.parametrize("job", [EncodedJob(b"a", b"x", 5.0, ""), EncodedJob(b"a", b"x", "", "1790000000.000000")])
def test_a_job_with_a_score_or_a_time_goes_the_usual_way(app, producer, sent, stamped, job) -> None:
    shard = app.shards("q", SHARDS)[shard_of(b"a", SHARDS)]
    sent.clear()
    assert producer.push([job]) == Pushed(1, 0)
    assert sent == [pack_command(app.caller.command_of(push_call(shard, [job], stamped[0])))]


def test_when_redis_has_lost_the_script_it_is_loaded_and_the_job_pushed_once(app, producer, sent) -> None:
    app.redis().script_flush()
    assert [producer.push([lone_job(b"a")]), producer.push([lone_job(b"b")])] == [(1, 0), (1, 0)]
    assert len(sent) == 5, "in vain, in vain by the usual way, the loading, again; then the second job at once"
    assert app.metrics()["q"].pushed == 2


def test_when_redis_refuses_it_the_usual_way_says_why(app, producer) -> None:
    producer.push([lone_job()])
    app.redis().hset(f"{app.settings.namespace}:{{q:{shard_of(b'a', SHARDS)}}}:meta", "layout", 2)
    with pytest.raises(ShardsCountMismatch, match="the queue has shards_count 2, the caller says 7"):
        producer.push([lone_job()])


def test_a_connection_that_redis_has_closed_costs_nothing(app, producer) -> None:
    app.redis().client_kill_filter(_type="normal", skipme=True)
    assert producer.push([lone_job()]) == Pushed(1, 0)


def test_without_redis_it_is_no_more_accepted_than_any_push(own_redis_server) -> None:
    app = Lowkiq(redis_url=own_redis_server.url)
    producer = Producer(app.caller, app.settings.namespace, "q", 1)
    producer.register()
    own_redis_server.stop()
    with pytest.raises(PushFailed, match="took 0 of 1 payloads for sure"):
        producer.push([lone_job()])
    app.close()


def test_who_waits_for_replicas_goes_the_usual_way(app, sent) -> None:
    producer = Producer(app.caller, app.settings.namespace, "q", 1, Replicas(1, 0.05))
    producer.register()
    with pytest.raises(PushFailed, match="0 of 1 replicas had it"):
        producer.push([lone_job()])
    assert b"WAIT" in sent[-1]


def test_of_many_shards_only_those_pushed_to_are_packed(app) -> None:
    producer = Producer(app.caller, app.settings.namespace, "many", 65_536)
    producer.register()
    producer.push([lone_job()])
    assert len(producer._ways.heads) == 1
