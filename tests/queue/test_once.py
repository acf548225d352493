"""What is sent twice, or comes late, is applied once: pushes, as scripts are told of them."""

from __future__ import annotations

import os

import pytest

from lowkiq import Lowkiq, Pushed, PushFailed, clock
from lowkiq.errors import Late
from lowkiq.job import EncodedJob
from lowkiq.queue import letters
from lowkiq.queue.call import Call
from lowkiq.queue.letters import RECEIVED, Letter, push_letter
from lowkiq.queue.push import Producer
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.senders import Sender, Senders, Stamp
from lowkiq.transport.server import Connections
from tests import mutants
from tests.queue.shard_driver import Lease, ShardDriver
from tests.queue.touched import count_in_scripts, touched


class Clerk:
    """Numbers calls as a producer does that waits so many seconds for each."""

    def __init__(self, shard: ShardDriver, name: bytes = b"~clerk") -> None:
        self.shard, self.sender = shard, Sender(name)

    def stamp(self, seconds: float = 10.0) -> Stamp:
        number = self.sender.last = max(self.sender.last + 1, int((self.shard.now() + seconds) * 1e6))
        return Stamp(self.sender.name, number)

    def call(self, *jobs: tuple[bytes, bytes], seconds: float = 10.0) -> Call[tuple[int, ...]]:
        return push_call(self.shard.shard, [EncodedJob(*job) for job in jobs], self.stamp(seconds))


@pytest.fixture
def clerk(shard: ShardDriver) -> Clerk:
    return Clerk(shard)


def finish_all(shard: ShardDriver, node: str = "a") -> list[list[bytes]]:
    """Runs what is queued, and gives its payloads."""
    lease = shard.lease(node, dead=["a"])
    jobs = lease.claim()
    lease.settle(rest="ack")
    return [job.payloads for job in jobs]


@pytest.mark.parametrize("jobs", [[(b"a", b"1")], [(b"a", b"1"), (b"b", b"2")], [(b"a", b"1"), (b"a", b"1")]])
def test_a_repeated_push_is_told_the_same_and_changes_nothing(shard, clerk, jobs):
    shard.push("b", b"0")
    clerk.shard.caller.run(clerk.call((b"x", b"x")))  # of a sender that the shard knows, too
    call = clerk.call(*jobs)
    told = shard.caller.run(call)
    before = shard.dump()
    assert shard.caller.run(call) == told
    assert shard.dump() == before
    assert finish_all(shard)
    before = shard.dump()
    assert shard.caller.run(call) == told, "also when all of it has run"
    assert shard.dump() == before


def test_a_first_try_that_comes_after_its_repetition_and_a_newer_state_changes_nothing(shard, clerk):
    first = clerk.call((b"order", b"v1"))
    assert shard.caller.run(first) == (1, 0)
    assert finish_all(shard) == [[b"v1"]]
    assert shard.caller.run(clerk.call((b"order", b"v2"))) == (1, 0)
    assert finish_all(shard) == [[b"v2"]]
    with pytest.raises(Late):
        shard.caller.run(first)
    assert finish_all(shard) == []


def test_what_its_sender_has_given_up_is_not_applied_after_a_later_call(shard, clerk):
    given_up = clerk.call((b"order", b"v1"))
    assert shard.caller.run(clerk.call((b"order", b"v1"))) == (1, 0)
    assert finish_all(shard) == [[b"v1"]]
    with pytest.raises(Late):
        shard.caller.run(given_up)
    assert finish_all(shard) == []


def lone_push_again(shard: ShardDriver) -> None:
    """Of a sender that the shard knows, when the job has run, and nobody owns the shard."""
    call = Clerk(shard).call((b"a", b"1"))
    told = shard.caller.run(call)
    lease = shard.lease("a")
    assert lease.claim()
    lease.settle(rest="ack")
    lease.release("lease")
    before = shard.dump()
    assert (shard.caller.run(call), shard.dump()) == (told, before)


def lone_push_too_late(shard: ShardDriver) -> None:
    """Of a sender that the shard knows."""
    shard.push("x", b"x")
    shard.redis.hset(shard.key("meta"), "~clerk", 1)
    call = Clerk(shard).call((b"a", b"1"), seconds=-0.001)
    before = shard.dump()
    with pytest.raises(Late):
        shard.caller.run(call)
    assert shard.dump() == before


LONE_PUSHES = {"pushed_alone_again": lone_push_again, "pushed_alone_too_late": lone_push_too_late}


@pytest.mark.parametrize("scene", LONE_PUSHES.values(), ids=list(LONE_PUSHES))
def test_a_lone_push_is_applied_once_and_in_time(shard, scene):
    scene(shard)


@pytest.mark.parametrize("name", mutants.OF_LONE_PUSHES)
def test_a_mutant_of_lone_pushes_is_found_out(shard, monkeypatch, name):
    mutants.install(name, monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        LONE_PUSHES[name](shard)


def test_what_its_sender_waits_for_no_more_is_not_applied(shard, clerk):
    call = clerk.call((b"order", b"v1"), seconds=-0.001)
    before = shard.dump()
    with pytest.raises(Late):
        shard.caller.run(call)
    assert shard.dump() == before


def test_of_several_shards_each_knows_its_own(app):
    shards = [ShardDriver(app, "q", index, 2) for index in range(2)]
    clerk = Clerk(shards[0])
    producer = Producer(app.caller, app.settings.namespace, "q", 2)
    producer.register()
    jobs = producer.by_shard([EncodedJob(b"%d" % n, b"p") for n in range(20)])
    (call,) = next(producer.turns(jobs, clerk.stamp))
    assert len(call.keys) == 2
    assert app.caller.run(call) == (20, 0)
    before = [shard.dump() for shard in shards]
    assert app.caller.run(call) == (20, 0)
    assert [shard.dump() for shard in shards] == before


def test_senders_that_have_gone_are_forgotten(shard):
    past = int((shard.now() - 3600) * 1e6)
    shard.push("a")
    shard.redis.hset(shard.key("meta"), mapping={f"~gone-{n}": past for n in range(500)})
    fields = shard.redis.hlen(shard.key("meta"))
    for n in range(40):
        shard.caller.run(Clerk(shard, b"~new-%d" % n).call((b"%d" % n, b"p")))
    assert shard.redis.hlen(shard.key("meta")) < fields - 200
    assert all(shard.redis.hexists(shard.key("meta"), f"~new-{n}") for n in range(40)), "those that may come again stay"


# ── what a producer does ────────────────────────────────────────────────────────────────────────────────────────────


def test_pushes_again_after_it_has_failed_refuses_the_first_try(app: Lowkiq, monkeypatch):
    """As PushFailed says: push all of them again. What was on its way comes after that, and after a newer state."""
    producer = Producer(app.caller, app.settings.namespace, "q", 1)
    shard = ShardDriver(app)
    producer.push([EncodedJob(b"warm", b"p")])
    with pytest.MonkeyPatch.context() as patch:
        lost: list[bytes] = []

        def lose(connections, parts, count):
            lost.append(b"".join(parts))
            raise PushFailed("lost", new=0, merged=0)

        patch.setattr(Connections, "send", lose)
        with pytest.raises(PushFailed):
            producer.push([EncodedJob(b"order", b"v1")])
    assert producer.push([EncodedJob(b"order", b"v1")]) == Pushed(1, 0)
    assert producer.push([EncodedJob(b"order", b"v2")]) == Pushed(0, 1)
    finish_all(shard)
    before = shard.dump()
    (reply,) = app.caller.connections.send(lost, 1)
    assert str(reply).startswith("LATE")
    assert shard.dump() == before


def test_a_clock_of_redis_that_jumped_ahead_is_learnt_anew(app: Lowkiq):
    producer = Producer(app.caller, app.settings.namespace, "q", 1)
    producer.push([EncodedJob(b"a", b"p")])
    app.caller.senders._ahead -= 3600
    assert producer.push([EncodedJob(b"b", b"p")]) == Pushed(1, 0)
    assert producer.push([EncodedJob(b"c%d" % n, b"p") for n in range(3)]) == Pushed(3, 0)
    app.caller.senders._ahead -= 3600
    assert producer.push([EncodedJob(b"d%d" % n, b"p") for n in range(3)]) == Pushed(3, 0)
    assert ShardDriver(app).meta("pushed") == 8


def test_a_clock_of_redis_that_was_set_back_gets_new_senders(app: Lowkiq):
    senders = app.caller.senders
    senders.learn()
    senders._ahead += 3600
    old = senders.take()
    senders.number(old, clock.monotonic())
    senders.learn()
    old.give_back()
    new = senders.take()
    assert new.name != old.name
    assert senders.number(new, clock.monotonic()) < old.last - 3_000_000_000


def test_a_fork_has_senders_of_its_own(app: Lowkiq):
    senders = app.caller.senders
    (mine := senders.take()).give_back()
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, senders.take().name)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) != mine.name
    assert senders.take() is mine


def test_two_at_a_time_have_a_sender_each_and_the_last_one_is_taken_again(app: Lowkiq):
    senders = Senders(app.caller.command)
    first, second = senders.take(), senders.take()
    assert first.name != second.name
    second.give_back()
    first.give_back()
    assert senders.take() is first


# ── letters, and shards that move ───────────────────────────────────────────────────────────────────────────────────


def test_letters_that_arrive_behind_later_ones_push_nothing_again(app: Lowkiq):
    """A receive was given up, and its letters were sent again, and forgotten; then it arrives."""
    shard = ShardDriver(app)
    shard.push("warm")

    def letter(number: int, payload: bytes) -> Letter:
        record = push_letter("x", "q", 1, EncodedJob(b"x", payload))
        return Letter.parse(b"src:0:%d" % number, b"%d" % number, record)

    def receive(*some: Letter) -> Call[int]:
        return letters._receive(shard.shard, some, ("lowkiq:{src:0}:", "7"))

    first, second = letter(1, b"v1"), letter(2, b"v2")
    late = receive(first)
    assert app.caller.run(receive(first)) == 1
    assert app.caller.run(receive(Letter.parse(first.name, b"1", first.following))) == 1
    assert app.caller.run(receive(second)) == 1
    finish_all(shard)
    before = shard.dump()
    with pytest.raises(Late):
        app.caller.run(late)
    assert shard.dump() == before
    of_an_owner_before = letters._receive(shard.shard, [first], ("lowkiq:{src:0}:", "6"))
    with pytest.raises(Late):
        app.caller.run(of_an_owner_before)
    assert app.caller.run(letters._receive(shard.shard, [letter(3, b"v3")], ("lowkiq:{src:0}:", "8"))) == 1


def test_letters_cost_the_same_however_many_an_id_has_had(app: Lowkiq, monkeypatch):
    """Those that a hot id was sent are remembered until their senders say that they won't come again."""
    count_in_scripts(monkeypatch)
    shard = ShardDriver(app)

    def receive(first: int, kind: str = "push", count: int = RECEIVED) -> int:
        some = [
            Letter.parse(b"src:0:%d" % n, b"%d" % n, push_letter("hot", "q", 1, EncodedJob(b"hot", b"p", n)))
            for n in range(first, first + count)
        ]
        if kind == "forget":
            some = [Letter.parse(one.name, b"1", one.following) for one in some]
        return touched(shard.redis, app.caller, letters._receive(shard.shard, some, ("lowkiq:{src:0}:", "7")))

    few, few_gone = receive(0), receive(0, "forget", 1)
    for first in range(100, 5_100, 1_000):
        receive(first, count=1_000)
    assert receive(5_100) <= 1.2 * few
    assert receive(5_100, "forget", 1) <= few_gone + 5
    assert receive(100, "forget", 1_000) < 30 * 1_000


# ── leases ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_acquire_that_comes_twice_or_late_takes_nothing_from_its_node(shard):
    shard.push("a")
    late, again = (shard.shard.acquire("a", 60.0, 3) for _ in range(2))
    owned = shard.caller.run(again)
    lease = Lease(shard, "a", owned.epoch)
    assert [job.id for job in lease.claim()] == ["a"]
    before = shard.jobs()
    assert shard.caller.run(again).epoch == owned.epoch
    with pytest.raises(Late):
        shard.caller.run(late)
    assert shard.jobs() == before
    assert lease.ack("a").acked == 1


def test_an_acquire_that_comes_after_its_node_has_given_back_the_shard_does_not_take_it(shard):
    late, again = (shard.shard.acquire("a", 60.0, 3) for _ in range(2))
    Lease(shard, "a", shard.caller.run(again).epoch).release()
    for call in (late, again):
        with pytest.raises(Late):
            shard.caller.run(call)
    assert shard.owner("node") is None
    assert shard.lease("a").renew(), "it may ask anew"
