"""A node's places: who asks when, and what becomes of places whose fate is unsure."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, clock
from lowkiq.admin.limits import read_limits
from lowkiq.node import places as module
from lowkiq.node.places import Places
from lowkiq.queue.places import QueuePlaces
from tests import mutants


class Line:
    """A pool that notes when shards are to be looked at."""

    def __init__(self) -> None:
        self.looks: dict[Any, float] = {}
        self.turns: list[Any] = []

    def look(self, lease: Any, look_at: float) -> None:
        self.looks[lease] = look_at

    def keep(self, lease: Any, since: float) -> None:
        self.turns.append(lease)


class Driven(Places):
    def __init__(self, app: Lowkiq, node: str, most: int | None = 1) -> None:
        self.app, self.line, self.errors = app, Line(), list[redis.RedisError]()
        calls = QueuePlaces(app.settings.namespace, "q", node, 15)
        super().__init__(calls, app.caller, self.errors.append)
        self.limit(most)

    def taken(self) -> int:
        (limit,) = read_limits(self.app.caller, self.app.settings.namespace, ["q"]).values()
        return limit.running


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has turns last for so long that no machine is too slow for them."""
    mutants.replace("places.lua", "local FIRST = 50000", "local FIRST = 3600000000", monkeypatch)
    monkeypatch.setattr(module, "TURN", 3600.0)
    monkeypatch.setattr(module, "ASK_AGAIN", 3600.0)


@pytest.fixture
def one(app: Lowkiq) -> Driven:
    return Driven(app, "one")


@pytest.fixture
def two(app: Lowkiq) -> Driven:
    return Driven(app, "two")


def expire(app: Lowkiq, places: Places) -> None:
    key, client = places.prefix + "taken", app.redis()
    names: Any = client.zrange(key, 0, -1)
    client.zadd(key, dict.fromkeys(names, 1.0))


def test_a_place_is_used_again_within_its_turn_and_without_a_call(one: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = one.take([], 1)
    monkeypatch.setattr(one, "_exchange", None)
    assert one.take([place], 1) == [place]


def test_after_its_turn_it_goes_to_who_waits(one: Driven, two: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = one.take([], 1)
    assert two.take([], 1) == []
    monkeypatch.setattr(module, "TURN", 0.0)
    assert one.take([place], 1) == []
    two.ring(0.0)
    assert len(two.take([], 1)) == 1


def test_it_is_kept_after_its_turn_if_nobody_waits(one: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = one.take([], 1)
    monkeypatch.setattr(module, "TURN", 0.0)
    assert len(one.take([place], 1)) == one.taken() == 1


def test_who_was_refused_asks_again_when_it_is_rung_or_later(one: Driven, two: Driven) -> None:
    (place,) = one.take([], 1)
    assert two.take([], 1) == []
    two.park("a shard", two.line)
    assert two.line.looks["a shard"] > clock.monotonic() + module.ASK_AGAIN / 2
    one.give([place])
    assert two.take([], 1) == [], "it does not ask"
    two.ring(0.0)
    assert two.line.looks["a shard"] <= clock.monotonic()
    assert len(two.take([], 1)) == 1


def test_a_ring_that_overtakes_the_refusal_is_heard(one: Driven, two: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = one.take([], 1)
    run = two._caller.run

    def late(call: Any) -> Any:
        reply = run(call)
        patch.undo()
        one.give([place])
        two.ring(0.0)
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(two._caller, "run", late)
        assert two.take([], 1) == []
    assert len(two.take([], 1)) == 1


def test_places_of_which_the_reply_was_lost_are_given_back(one: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    run = one._caller.run

    def lost(call: Any) -> Any:
        run(call)
        raise redis.ConnectionError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(one._caller, "run", lost)
        assert one.take([], 1) == []
    assert len(one.errors) == one.taken() == 1
    assert one.keep([]) == []
    assert one.taken() == 0


def test_a_place_that_is_given_back_while_it_is_kept_is_not_taken_again(
    one: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = one.take([], 1)
    keep = one._calls.keep

    def late(*words: Any) -> Any:
        one.give([place])
        return keep(*words)

    monkeypatch.setattr(one._calls, "keep", late)
    assert one.keep([]) == []
    assert one.taken() == 0


def test_a_place_that_another_node_has_by_now_is_lost(app: Lowkiq, one: Driven, two: Driven) -> None:
    (place,) = one.take([], 1)
    expire(app, one)
    assert len(two.take([], 1)) == 1
    assert one.keep([]) == [place]
    assert place.is_lost
    assert one.take([place], 1) == []
    assert two.taken() == 1


def test_places_of_the_dead_are_freed_once(app: Lowkiq, one: Driven, two: Driven, monkeypatch: Any) -> None:
    one.take([], 1)
    two.keep(["one"])
    assert two.taken() == 0
    monkeypatch.setattr(two, "_exchange", None)
    two.keep(["one"])


def test_shards_that_wait_are_looked_at_when_the_limit_changes(one: Driven, two: Driven) -> None:
    one.take([], 1)
    two.take([], 1)
    for shard in ("a", "b"):
        two.park(shard, two.line)
    assert two.limit(2) is two
    assert all(at <= clock.monotonic() for at in two.line.looks.values())
    assert len(two.take([], 1)) == 1
    assert two.limit(None) is None


def test_the_shard_that_has_waited_longest_comes_first(one: Driven) -> None:
    for shard in ("a", "b", "a", "c"):
        one.park(shard, one.line)
    one.turn(one.line, 2)
    one.unpark("a")
    one.turn(one.line)
    one.turn(Line())
    assert one.line.turns == ["a", "b", "b"]
