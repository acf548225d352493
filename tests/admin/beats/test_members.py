"""What nodes that nobody numbers know of one another."""

from __future__ import annotations

import msgspec

from lowkiq import Lowkiq
from lowkiq.admin.beats.health import LATE_AFTER
from lowkiq.admin.beats.members import Member, Members, Placement
from lowkiq.queue import keys

FIRST = Member(5, {"orders": [0, 1], "mail": []})
SECOND = Member(2, {"orders": []})


def members(app: Lowkiq, node: str) -> Members:
    return Members(app.caller, app.settings.namespace, node)


def test_each_hears_of_all_others_with_what_they_have(app: Lowkiq) -> None:
    first, second = members(app, "first"), members(app, "second")
    assert first.tell(FIRST)
    assert first.known == {"first": FIRST}
    assert second.tell(SECOND)
    assert second.known == {"first": FIRST, "second": SECOND}
    assert first.tell(FIRST)
    assert first.known == second.known


def test_nothing_new_is_no_change(app: Lowkiq) -> None:
    first = members(app, "first")
    assert first.tell(FIRST)
    assert not first.tell(FIRST)
    assert first.tell(msgspec.structs.replace(FIRST, owned={"orders": [0]}))


def test_who_leaves_is_no_member_and_the_others_are_rung(app: Lowkiq) -> None:
    first, second = members(app, "first"), members(app, "second")
    first.tell(FIRST)
    with app.redis().pubsub(ignore_subscribe_messages=True) as bell:
        bell.subscribe(keys.doorbell(app.settings.namespace, "first"))
        bell.get_message(timeout=5)
        second.tell(SECOND)
        assert bell.get_message(timeout=5)["data"] == b"hand"
        second.tell(None)
        assert bell.get_message(timeout=5)["data"] == b"hand"
    assert first.tell(FIRST)
    assert first.known == {"first": FIRST}
    assert second.known == {"first": FIRST}


def test_who_is_not_heard_of_is_a_member_no_more(app: Lowkiq) -> None:
    first = members(app, "first")
    members(app, "second").tell(SECOND)
    first.tell(FIRST)
    app.redis().zincrby(keys.members(app.settings.namespace), -LATE_AFTER - 1, "second")
    assert first.tell(FIRST)
    assert first.known == {"first": FIRST}
    assert app.redis().hkeys(f"{keys.members(app.settings.namespace)}:said") == [b"first"]


def test_the_dead_are_told_of_by_others(app: Lowkiq) -> None:
    first = members(app, "first")
    members(app, "second").tell(SECOND)
    first.leave(["second"])
    first.tell(FIRST)
    assert first.known == {"first": FIRST}


def test_a_time_to_come_is_of_a_clock_that_was_set_back(app: Lowkiq) -> None:
    first, key = members(app, "first"), keys.members(app.settings.namespace)
    members(app, "second").tell(SECOND)
    app.redis().zincrby(key, 10_000, "second")
    first.tell(FIRST)
    first_at, second_at = app.redis().zmscore(key, ["first", "second"])
    assert first_at and second_at and second_at <= first_at + 1


def test_what_can_t_be_read_is_told_of_and_left_out(app: Lowkiq) -> None:
    first, key = members(app, "first"), keys.members(app.settings.namespace)
    members(app, "junk").tell(SECOND)
    app.redis().hset(f"{key}:said", "junk", b'{"weight": 0, "owned": {}}')
    assert first.tell(FIRST)
    assert first.known == {"first": FIRST}
    assert any("junk" in one.key and "HDEL" in one.remedy for one in app.caller.met.now())


def test_a_redis_that_has_lost_everything_is_told_all_again(app: Lowkiq) -> None:
    first = members(app, "first")
    first.tell(FIRST)
    app.redis().flushdb()
    assert first.tell(FIRST)
    assert first.known == {"first": FIRST}


def test_places_are_known_to_all_until_they_are_no_more(app: Lowkiq) -> None:
    first, second = members(app, "first"), members(app, "second")
    first.tell(FIRST)
    second.tell(SECOND)
    place = Placement("second", 7.0, 0.5)
    second.give({("orders", 1): place, ("a:b", 0): place}, [])
    assert first.tell(FIRST)
    assert first.placements == {("orders", 1): place, ("a:b", 0): place}
    second.give({}, [("a:b", 0)])
    assert first.tell(FIRST)
    assert first.placements == {("orders", 1): place}


def test_a_place_that_can_t_be_read_is_none(app: Lowkiq) -> None:
    first, key = members(app, "first"), keys.members(app.settings.namespace)
    for field, text in (("orders:x", b"{}"), ("orders:1", b"[]"), (b"\xff:1", b"1")):
        app.redis().hset(f"{key}:placements", field, text)  # type: ignore[arg-type]
    assert first.tell(FIRST)
    assert first.placements == {}
    assert sum("placements" in one.key for one in app.caller.met.now()) == 3
