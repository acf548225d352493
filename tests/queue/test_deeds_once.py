"""What people do to jobs is applied once: also when its reply is lost and it is sent again, or when it comes late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import redis

from lowkiq.errors import Late
from lowkiq.job import KEPT_BYTES, EncodedJob
from lowkiq.queue import scripts
from lowkiq.queue.call import Call
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.senders import Stamp
from lowkiq.queue.shard import Exhausted
from tests import mutants
from tests.queue.shard_driver import ShardDriver
from tests.queue.stamps import once
from tests.queue.wire import Wire

Step = Callable[[ShardDriver], Any]
UNDO = "0" * 16


class Deed(NamedTuple):
    """A deed, what was before it, and what others do, and are told that it is done, before it comes again."""

    script: str
    words: Sequence[Any]
    before: Step
    meanwhile: Step


def push(shard: ShardDriver, payload: bytes = b"old", **options: Any) -> None:
    shard.push("a", payload, **options)


def push_new(shard: ShardDriver) -> None:
    push(shard, b"new")


def push_later(shard: ShardDriver) -> None:
    push(shard, b"later", perform_in=3_600)


def run(script: str, *words: Any) -> Step:
    """Somebody else's deed."""
    return lambda shard: shard.caller.run(
        Call(script, [shard.shard.prefix], [shard.shard.layout, *words], lambda reply: reply)
    )


def end(how: Any) -> Step:
    """Pushes a job, runs it, and has it end in the morgue, or block its id."""

    def step(shard: ShardDriver) -> None:
        push(shard)
        lease = shard.lease(dead=["a"])
        lease.claim()
        lease.settle(exhausted=[Exhausted("a", "boom", how)])

    return step


def run_all(shard: ShardDriver) -> None:
    lease = shard.lease(dead=["a"])
    lease.claim()
    lease.settle(rest="ack")


def both(*steps: Step) -> Step:
    return lambda shard: [step(shard) for step in steps]


def push_after(shard: ShardDriver) -> None:
    shard.caller.run(push_call(shard.shard, [EncodedJob(b"a", b"old", after="7:q 1 one")], once()))


die, block, hold = end("bury_all"), end("block"), run("hold", "{}", "a")
DEEDS = {
    "drop": Deed("drop", ["queue", "a"], push, push_new),
    "drop dead": Deed("drop", ["morgue", "a"], die, die),
    "cancel": Deed("cancel", ["a"], push, push_new),
    "put_away": Deed("put_away", ["queue", UNDO, 600, "a"], push, both(run("put_back", UNDO, "a"), push_new)),
    "put_away nothing": Deed("put_away", ["queue", UNDO, 600, "a"], lambda _: None, push_new),
    "bury": Deed("bury", [500, "any", "a"], push, push_new),
    "revive": Deed("revive", [500, "a"], die, both(run_all, die)),
    "put_back": Deed("put_back", [UNDO, "a"], both(push, run("put_away", "queue", UNDO, 600, "a")),
        run("put_away", "queue", UNDO, 600, "a")),
    "hold": Deed("hold", ["{}", "a"], push, run("let_go", "a")),
    "let_go": Deed("let_go", ["a"], both(push, hold), hold),
    "stop_waiting": Deed("stop_waiting", ["a"], push_after, both(run_all, push_after)),
    "perform_now": Deed("perform_now", ["a"], push_later, both(run_all, push_later)),
    "retry": Deed("unblock", ["retry", "a"], block, both(run_all, block)),
    "skip": Deed("unblock", ["skip", "a"], block, block),
    "track": Deed("track", [1, 100, "a"], push, run("track", 0, 100, "a")),
    "untrack": Deed("track", [0, 100, "a"], run("track", 1, 100, "a"), run("track", 1, 100, "a")),
    "pause": Deed("pause", ["{}"], push, run("resume")),
    "resume": Deed("resume", [], run("pause", "{}"), run("pause", "{}")),
    "recur": Deed("recur", ["a", "", "every", "1.0"], push, run("recur", "a", "every", "", "")),
}  # fmt: skip


def call_of(shard: ShardDriver, script: str, words: Sequence[Any]) -> Call[Any]:
    return Call(script, [shard.shard.prefix], [shard.shard.layout, *words], lambda reply: reply)


def get_ready(shard: ShardDriver, call: Call[Any]) -> None:
    """Has scripts, and Redis's clock, be known: what is sent from here on is the call alone."""
    shard.caller.command_of(call)
    shard.caller.senders.look()


def begin(shard: ShardDriver, deed: Deed) -> None:
    shard.push("other")
    run_all(shard)
    deed.before(shard)
    get_ready(shard, call_of(shard, *deed[:2]))


def check_repeated(shard: ShardDriver, deed: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(shard, deed)
    states: list[Any] = []

    def meanwhile() -> None:
        deed.meanwhile(shard)
        states.append(shard.dump())

    wire = Wire(shard.caller, meanwhile, monkeypatch)
    wire.lose_reply()
    told = shard.caller.run(call_of(shard, *deed[:2]))
    first, again = wire.replies
    assert again == first
    assert told == first[0]
    assert shard.dump() == states[0]


def check_late(shard: ShardDriver, deed: Deed, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(shard, deed)
    wire = Wire(shard.caller, lambda: None, monkeypatch)
    wire.hold_up()
    with pytest.raises(redis.TimeoutError):
        shard.caller.run(call_of(shard, *deed[:2]))
    shard.caller.run(call_of(shard, *deed[:2]))
    deed.meanwhile(shard)
    before = shard.dump()
    (reply,) = wire.arrive()
    assert str(reply).startswith("LATE"), reply
    assert shard.dump() == before


def test_each_deed_is_in_the_table() -> None:
    known = {deed.script for deed in DEEDS.values()}
    once = {name for name, script in scripts.load(flags=False).items() if script.is_once}
    assert known == once - {"checkpoint"}  # no deed of people: test_checkpoint.py


@pytest.mark.parametrize("name", DEEDS)
def test_one_whose_reply_was_lost_changes_nothing_that_came_since(shard, name, monkeypatch):
    check_repeated(shard, DEEDS[name], monkeypatch)


@pytest.mark.parametrize("name", DEEDS)
def test_one_that_comes_after_it_was_done_again_changes_nothing(shard, name, monkeypatch):
    check_late(shard, DEEDS[name], monkeypatch)


@pytest.mark.parametrize("name", DEEDS)
def test_one_that_nobody_waits_for_changes_nothing(shard, name):
    deed = DEEDS[name]
    begin(shard, deed)
    before = shard.dump()
    past = Stamp(b"~past", int((shard.now() - 1) * 1e6))
    (result,) = shard.caller.run_all([call_of(shard, *deed[:2])._replace(stamp=past)])
    assert isinstance(result, Late)
    assert shard.dump() == before


def test_a_clock_of_redis_that_jumped_ahead_is_learnt_anew(shard):
    push(shard)
    shard.caller.run(call_of(shard, *DEEDS["track"][:2]))
    shard.caller.senders._ahead -= 3_600
    assert shard.caller.run(call_of(shard, *DEEDS["drop"][:2])) == 1


def test_of_several_in_one_round_trip_each_is_told_its_own(shard, monkeypatch):
    push(shard)
    calls = [call_of(shard, *DEEDS[name][:2]) for name in ("hold", "let_go", "track", "drop")]
    get_ready(shard, calls[0])
    wire = Wire(shard.caller, lambda: push_new(shard), monkeypatch)
    wire.lose_reply()
    assert shard.caller.run_all(calls) == [1, 1, 1, 1]
    assert wire.replies[0] == wire.replies[1]
    assert "a" in shard.queued()


def test_lists_are_told_again_as_they_were(shard, monkeypatch):
    """Ids may have any bytes, and a script may give some back."""
    ids = ["a 1:b", "s1:", "\udcff\n"]
    words = [id.encode("utf-8", KEPT_BYTES) for id in ids]
    for first in (0, 10):
        for id in ids:
            shard.push_payloads(id, 5, first)
        arguments = [shard.shard.layout, 500 if first == 0 else 2, "any", *words]
        call = Call("bury", [shard.shard.prefix], arguments, lambda reply: reply)
        if first == 0:
            shard.caller.run(call)
    get_ready(shard, call)
    wire = Wire(shard.caller, lambda: None, monkeypatch)
    wire.lose_reply()
    told = shard.caller.run(call)
    assert wire.replies[0] == wire.replies[1]
    assert told == [0, *words]


def test_what_is_remembered_of_deeds_is_bounded_and_lapses(shard):
    push(shard)
    shard.redis.hset(shard.key("deeds"), mapping={f"~gone-{n}": "1 1" for n in range(500)})
    for n in range(40):
        stamp = Stamp(b"~new-%d" % n, int((shard.now() + 60) * 1e6))
        shard.caller.run(call_of(shard, *DEEDS["hold"][:2])._replace(stamp=stamp))
    assert shard.redis.hlen(shard.key("deeds")) < 300
    assert 590 < shard.redis.ttl(shard.key("deeds")) <= 600


def test_one_that_was_refused_may_come_again(shard):
    push(shard)
    stamp = Stamp(b"~me", int((shard.now() + 60) * 1e6))
    call = call_of(shard, *DEEDS["drop"][:2])._replace(stamp=stamp)
    other = call._replace(arguments=["7", *call.arguments[1:]])
    (refused,) = shard.caller.run_all([other])
    assert isinstance(refused, Exception)
    assert shard.caller.run(call) == 1


REMEMBER = "  redis.call('HSET', key, sender, number .. ' ' .. written(reply))"
REFUSE = "if said == 'OLD' or not said and now > tonumber(number) then return too_late(now) end"
MUTANTS = {
    "deeds_not_heard": ("  if said then return read_reply(said) end", "", check_repeated, "drop"),
    "deeds_not_remembered": (REMEMBER, "", check_repeated, "cancel"),
    "deeds_late": (REFUSE, "if said == 'OLD' then said = nil end", check_late, "put_away"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_without_its_safeguard_a_deed_is_done_twice(make_app, name, monkeypatch):
    safeguard, instead, check, deed = MUTANTS[name]
    mutants.replace("senders.lua", safeguard, instead, monkeypatch)
    shard = ShardDriver(make_app())
    with pytest.raises(AssertionError):
        check(shard, DEEDS[deed], monkeypatch)
