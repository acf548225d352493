"""Somebody has seen an alert: it is told last, wakes nobody, and comes back when it begins anew, unless it is muted."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from lowkiq import Lowkiq
from lowkiq.admin.alerts.acknowledging import acknowledge, by_whom, parse_acknowledged, reading, seen_by_all
from lowkiq.admin.alerts.acknowledging import with_acknowledged as told
from lowkiq.admin.alerts.alert import Acknowledged, Alert, Thresholds
from lowkiq.admin.live import LiveSetting
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.queue import keys
from tests.admin.alerts.test_emptied import Watcher
from tests.admin.alerts.test_list import HALF, kinds, listed, node, point, shard
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health

LATE = Alert("late queue", "warn", "q", "It is late", "Wait", since=100.0)


@pytest.mark.parametrize(
    ("seen", "since", "at", "counts"),
    [
        (Acknowledged("ann", 200.0), 100.0, 300.0, True),
        (Acknowledged("ann", 200.0), 250.0, 300.0, False),  # it ended, and began again
        (Acknowledged("ann", 200.0), None, 300.0, True),  # nobody has noted yet when it began
        (Acknowledged("ann", 200.0, until=400.0), 250.0, 300.0, True),  # muted
        (Acknowledged("ann", 200.0, until=290.0), 100.0, 300.0, False),
    ],
)
def test_it_counts_for_as_long_as_the_alert_lasts_or_until_its_time(
    seen: Acknowledged, since: float | None, at: float, counts: bool
) -> None:
    alert = msgspec.structs.replace(LATE, since=since)
    (found,) = told([alert], {alert.key: seen, "another": seen}, at)
    assert (found.acknowledged is not None) is counts


def test_an_alert_that_is_acknowledged_comes_last_and_all_is_well(app: Lowkiq) -> None:
    open_queue(app).actions.pause("we count", who="bob")
    open_queue(app, "r").actions.pause()
    tell_health(app, number_of_nodes=1, queues=["q", "r"], waited_for={})
    found = app.nodes().alerts
    first, *others = found
    assert [alert.kind for alert in found].count("paused") == 2 and not app.nodes().is_well
    assert acknowledge(app.caller, app.settings.namespace, [first], "ann", note="until noon") == 1
    last = app.nodes().alerts[-1]
    assert last.key == first.key and by_whom(last) == " by ann: until noon" and not app.nodes().is_well
    acknowledge(app.caller, app.settings.namespace, others, "ann", until=time.time() + 60)
    assert app.nodes().is_well and len(app.nodes().alerts) == len(found)
    deeds = read_incidents(app.caller, app.settings.namespace, kind="acknowledged")
    assert {(deed.who, deed.says[:5]) for deed in deeds} == {("ann", "Seen ")} and len(deeds) == len(found)


def test_what_is_told_as_one_is_seen_when_all_of_it_is() -> None:
    seen = msgspec.structs.replace(LATE, acknowledged=Acknowledged("ann"))
    assert seen_by_all([seen, seen]) and not seen_by_all([seen, LATE])


def test_what_can_not_be_read_acknowledges_nothing_and_what_is_over_is_forgotten(app: Lowkiq) -> None:
    key = keys.acknowledged(app.settings.namespace)
    old = msgspec.json.encode(Acknowledged("ann", 1.0))
    app.redis().hset(key, mapping={"a": "junk", b"\xff": "{}", "b": old, "c": msgspec.json.encode(Acknowledged())})
    acknowledge(app.caller, app.settings.namespace, [LATE], "ann")
    (page,) = app.caller.read([reading(app.settings.namespace)], None)
    assert parse_acknowledged(page).keys() == {LATE.key}


def test_a_queue_s_own_limits_come_first_as_they_are_set(app: Lowkiq) -> None:
    driver = open_queue(app)
    driver.push("1", perform_in=time.time() - 100)
    driver.lease("host:1:abc", ttl=300)
    tell_health(app, number_of_nodes=1, queues=["q"], waited_for={})
    assert Watcher(app).kinds() == ["late queue"]
    driver.actions.set(who="ann", alert_lag=600)
    assert Watcher(app).kinds() == []
    for name, value in (("alert_lag", -1), ("alert_failing", 2), ("alert_morgue", "x"), ("alert_long", None)):
        refused: dict[str, Any] = {name: value}
        with pytest.raises(Exception, match=rf"{name} is .*, it must be a number from 0 \(off\) to"):
            driver.actions.set(**refused)
    driver.actions.unset("alert_lag", who="ann")
    assert Watcher(app).kinds() == ["late queue"]


def test_each_limit_is_a_queue_s_own() -> None:
    facts = {"shards": (HALF,), "past": {"q": [point(290)]}}
    assert kinds(node(), **facts) == ["failing queue"]
    own = Thresholds(live={"q": {"alert_failing": LiveSetting(0)}, "r": {"alert_morgue": LiveSetting(9)}})
    assert kinds(node(), thresholds=own, **facts) == []
    assert (own.morgue_of("r"), own.morgue_of("q"), own.long_of("q")) == (9, 5, 5.0)


def test_a_morgue_that_grew_a_while_ago_does_not_still_grow() -> None:
    past = [point(3_590), point(590), point(120, morgue_length=70), point(15, morgue_length=70)]
    (alert,) = listed(node(), shards=(shard(morgue_length=70),), past={"q": past})
    assert "no new one for 2 min: 70 are there" in alert.says
