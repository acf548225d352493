"""Places of a queue with max_running: who gets one, in which order, and what becomes of them."""

from __future__ import annotations

import pytest
import redis

from lowkiq import Lowkiq
from lowkiq.admin.limits import Limit, read_limits
from lowkiq.queue import keys
from lowkiq.queue.places import QueuePlaces
from tests import mutants

TTL = 10


class Node:
    """A node that asks for places of a queue, of which two batches may run."""

    def __init__(self, app: Lowkiq, name: str) -> None:
        self._caller, self._calls = app.caller, QueuePlaces(app.settings.namespace, "q", name, TTL)

    def take(self, *wanted: str, give: tuple[str, ...] = (), dead: tuple[str, ...] = (), most: int = 2) -> list[str]:
        return self._caller.run(self._calls.take(most, wanted, give, dead))

    def keep(self, *places: str, most: int = 2) -> list[str]:
        return self._caller.run(self._calls.keep(most, places))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has who was rung go first for so long that no machine is too slow for it."""
    mutants.replace("places.lua", "local FIRST = 50000", "local FIRST = 3600000000", monkeypatch)


@pytest.fixture
def a(app: Lowkiq) -> Node:
    return Node(app, "a")


@pytest.fixture
def b(app: Lowkiq) -> Node:
    return Node(app, "b")


def expire(app: Lowkiq, *names: str, of: str = "taken") -> None:
    """Has their time be over."""
    client: redis.Redis = app.redis()
    client.zadd(keys.places(app.settings.namespace, "q") + of, dict.fromkeys(names, 1.0))


def look(app: Lowkiq) -> Limit:
    return read_limits(app.caller, app.settings.namespace, ["q", "other"], {})["q"]


def test_no_more_are_taken_than_may_run(app: Lowkiq, a: Node, b: Node) -> None:
    assert a.take("a 1") == ["a 1"]
    assert b.take("b 1", "b 2") == ["b 1"]
    assert a.take("a 2") == []
    assert look(app) == Limit(2, {"a": 1, "b": 1}, ["b", "a"])
    assert look(app).is_reached


def test_a_repeat_changes_nothing(app: Lowkiq, a: Node) -> None:
    for _ in range(2):
        assert a.take("a 1") == ["a 1"]
    for _ in range(2):
        assert a.take("a 2", give=("a 1",)) == ["a 2"]
    assert look(app) == Limit(2, {"a": 1}, [])


def test_who_has_waited_longest_comes_first(app: Lowkiq, a: Node, b: Node) -> None:
    assert a.take("a 1", "a 2") == ["a 1", "a 2"]
    assert b.take("b 1") == []
    assert a.take("a 3", give=("a 1",)) == []
    assert look(app).waiting == ["b", "a"]
    assert b.take("b 2") == ["b 2"]
    assert look(app) == Limit(2, {"a": 1, "b": 1}, ["a"])


def test_who_was_rung_and_does_not_come_is_not_waited_for(app: Lowkiq, a: Node, b: Node) -> None:
    assert a.take("a 1", "a 2") == ["a 1", "a 2"]
    assert b.take("b 1") == []
    assert a.take("a 3", give=("a 1",)) == []
    expire(app, "b", of="rung")
    assert a.take("a 4") == ["a 4"]


def test_a_place_that_is_not_kept_is_free_again(app: Lowkiq, a: Node, b: Node) -> None:
    assert a.take("a 1", "a 2") == ["a 1", "a 2"]
    expire(app, "a 1")
    assert b.take("b 1") == ["b 1"]
    assert a.keep("a 1", "a 2") == ["a 1"], "another node has it"


def test_one_whose_time_is_over_is_kept_as_long_as_nobody_has_it(app: Lowkiq, a: Node) -> None:
    assert a.take("a 1", "a 2") == ["a 1", "a 2"]
    expire(app, "a 1", "a 2")
    assert a.keep("a 1", "a 2") == []
    assert look(app).nodes == {"a": 2}


def test_places_of_the_dead_are_free_at_once(app: Lowkiq, a: Node, b: Node) -> None:
    assert a.take("a 1", "a 2") == ["a 1", "a 2"]
    assert b.take("b 1") == []
    assert b.take("b 2", "b 3", dead=("a",)) == ["b 2", "b 3"]
    assert look(app) == Limit(2, {"b": 2}, [])


def test_nothing_more_is_taken_once_fewer_may_run(app: Lowkiq, a: Node) -> None:
    assert a.take("a 1", "a 2") == ["a 1", "a 2"]
    assert a.take("a 3", give=("a 1",), most=1) == []
    assert a.keep("a 2", most=1) == []
    assert a.take("a 4", give=("a 2",), most=1) == ["a 4"]


def test_all_of_it_is_forgotten_in_the_end(app: Lowkiq, a: Node, b: Node) -> None:
    a.take("a 1", "a 2")
    b.take("b 1")
    prefix = keys.places(app.settings.namespace, "q")
    found = {key.decode().removeprefix(prefix): app.redis().ttl(key) for key in app.redis().scan_iter(prefix + "*")}
    assert found.keys() == {"taken", "waiting", "asked", "max"}
    assert all(ttl > 0 for ttl in found.values())
