"""Since when alerts last: noted in Redis by whoever looks, told the same by all; they become incidents."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.alerts import noted
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.alerts.look import Look
from lowkiq.admin.alerts.noted import MOST, Notes, parse_noted, reading
from lowkiq.admin.beats.health import read_health
from lowkiq.admin.beats.nodes import judge
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.queue import keys
from lowkiq.queue.call import Call, redis_time
from tests.support import wait_until
from tests.web.node_health import tell_health


def alert(subject: str = "q", kind: str = "failing queue", **facts: Any) -> Alert:
    return Alert(kind, "bad", subject, f"{subject} fails", "See", **facts)


@pytest.fixture
def key(app: Lowkiq) -> str:
    return keys.alerts(app.settings.namespace)


def notes(app: Lowkiq) -> Notes:
    """A process that notes."""
    return Notes(app.caller, app.settings.namespace)


def since(app: Lowkiq) -> dict[str, float]:
    (reply,) = app.caller.read([reading(app.settings.namespace)], [])
    return dict(parse_noted(reply).since)


def test_whoever_notes_keeps_the_time_at_which_it_was_seen_first(app: Lowkiq) -> None:
    first = notes(app)([alert(), alert("known", since=1_000.5)], [])
    assert first["failing queue:known"] == 1_000.5
    assert abs(first["failing queue:q"] - time.time()) < 60
    later = notes(app)([alert("known", since=2_000.0), alert()], [])
    assert later == first == since(app), "another process, and a later guess"


def test_one_that_is_away_for_a_moment_is_the_same_and_then_it_is_over(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = notes(app)
    process([alert()], [alert()])
    assert process([], []) == since(app) != {}
    monkeypatch.setattr(noted, "AWAY", 0.0)
    assert process([], []) == since(app) == {}


def test_each_becomes_one_incident_whoever_tells_it_and_ends(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    def incidents() -> list[tuple[str, str, bool]]:
        found = read_incidents(app.caller, app.settings.namespace, kind="failing queue")
        return [(one.says, one.queue, one.goes_on) for one in found]

    hidden, shown, other = alert("hidden"), alert("q"), notes(app)
    for process in (notes(app), other, other):
        process([shown, hidden], [shown])
    assert incidents() == [("q fails", "q", True)]
    monkeypatch.setattr(noted, "AWAY", 0.0)
    notes(app)([hidden], [])
    other([hidden], [])
    assert incidents() == [("q fails", "q", False)]
    other([shown], [shown])
    assert incidents() == [("q fails", "q", True), ("q fails", "q", False)], "again, another day"


def test_it_ended_when_it_was_told_of_last_whoever_ends_it(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = notes(app), notes(app), notes(app)
    for process in (first, second):
        process([alert("a"), alert("b")], [alert("a"), alert("b")])
    told = told_at(app)["failing queue:a"]
    wait_until(lambda: redis_time(app.caller) > told + 0.3)
    assert "failing queue:a" in first([alert("b")], []), "it is away for a moment"
    monkeypatch.setattr(noted, "AWAY", 0.2)
    third([alert("b")], [])  # which has told of none
    last = told_at(app)["failing queue:b"]
    app.caller.run(note_nothing(app))  # and its reply is lost
    wait_until(lambda: redis_time(app.caller) > last + 0.3)
    app.caller.run(note_nothing(app))
    second([], [])
    ends = {one.says: one.until for one in read_incidents(app.caller, app.settings.namespace)}
    assert ends["a fails"] == pytest.approx(told, abs=0.01)
    assert told <= (ends["b fails"] or 0.0) <= last + 0.01, "as far as it knows"


def told_at(app: Lowkiq) -> dict[str, float]:
    """When each was told of last."""
    rows = app.redis().hgetall(keys.alerts(app.settings.namespace))
    return {key.decode(): float(value.split()[1]) for key, value in rows.items()}


def note_nothing(app: Lowkiq) -> Call:
    return Call("note_alerts", [keys.alerts(app.settings.namespace)], [MOST, noted.AWAY, 60], list)


def test_an_end_whose_reply_was_lost_is_told_by_the_next_call(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    process = notes(app)
    process([alert()], [alert()])
    monkeypatch.setattr(noted, "AWAY", 0.0)
    app.caller.run(Call("note_alerts", [keys.alerts(app.settings.namespace)], [MOST, 0, 60], list))
    process([], [])
    (incident,) = read_incidents(app.caller, app.settings.namespace)
    assert not incident.goes_on


@pytest.mark.parametrize("junk", [b"", b"x", b"nan nan", b"inf 1", b"9" * 5_000, b"99999999999 99999999999", b"\xff 1"])
def test_junk_is_written_anew(app: Lowkiq, key: str, junk: bytes) -> None:
    app.redis().hset(key, mapping={"failing queue:q": junk, b"\xff\xfe": junk, "": junk})
    assert since(app).get("failing queue:q", 0.0) >= 0
    found = notes(app)([alert()], [])
    assert abs(found["failing queue:q"] - time.time()) < 60
    assert set(app.redis().hkeys(key)) == {b"", b"failing queue:q"}
    assert 0 < app.redis().ttl(key) <= noted.KEPT


def test_a_key_of_another_type_or_too_large_is_written_anew(app: Lowkiq, key: str) -> None:
    app.redis().rpush(key, "x")
    assert list(notes(app)([alert()], [])) == ["failing queue:q"]
    app.redis().hset(key, mapping={str(number): "1 1" for number in range(3 * MOST)})
    assert list(notes(app)([alert()], [])) == ["failing queue:q"]
    many = [alert(f"q{number}") for number in range(2 * MOST)]
    assert len(notes(app)(many, [])) <= MOST + 1


def test_a_view_notes_where_no_node_does(app: Lowkiq) -> None:
    caller, ns = app.caller, app.settings.namespace
    tell_health(app)
    look = Look(caller, ns, app.thresholds)

    def found() -> dict[str, float | None]:
        seen = look(judge(read_health(caller, ns), [], []), [], {})
        return {one.kind: one.since for one in look.note_if_nobody_does(seen).alerts}

    began = found()["missing"]
    assert began is not None
    wait_until(lambda: time.time() > began + 0.01)
    assert found()["missing"] == began == next(one for one in app.nodes().alerts if one.kind == "missing").since
    before = app.redis().hget(keys.alerts(ns), "")
    found()
    assert app.redis().hget(keys.alerts(ns), "") == before, "somebody has noted just now"
    other = Look(caller, ns, app.thresholds)
    seen = other(judge(read_health(caller, ns), [], []), [], {})
    assert next(one for one in other.note(seen).alerts if one.kind == "missing").since == began
