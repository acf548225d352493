"""A Redis that lost what it held is told of until somebody acknowledges it; nodes that return get a moment to beat."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.admin.alerts.alert import Alert, Thresholds
from lowkiq.admin.alerts.emptied import acknowledge
from lowkiq.admin.alerts.look import Look
from lowkiq.admin.beats.health import forget, read_health
from lowkiq.admin.beats.nodes import judge
from lowkiq.admin.metrics import by_queue, read_layouts, read_shards
from lowkiq.admin.past.incidents import NewIncident, note, read_incidents
from lowkiq.admin.words import moment
from lowkiq.queue import keys
from lowkiq.queue.call import redis_time
from lowkiq.queue.shard import shards_of
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health


class Watcher:
    """Who looks again and again, as a node and an open page do."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.look = Look(app.caller, app.settings.namespace, Thresholds(persistence=0), marks=True)

    def __call__(self) -> list[Alert]:
        caller, namespace = self.app.caller, self.app.settings.namespace
        layouts = read_layouts(caller, namespace)
        shards = read_shards(caller, shards_of(namespace, layouts))
        return self.look(judge(read_health(caller, namespace), shards, []), shards, by_queue(layouts, shards)).alerts

    def kinds(self) -> list[str]:
        return [alert.kind for alert in self()]


def fill(app: Lowkiq) -> None:
    driver = open_queue(app)
    driver.push_all(*((str(n), b"p", "", 4e9) for n in range(3)))
    driver.redis.zadd(driver.key("morgue"), {"dead": 1e9})
    driver.actions.pause("we count", who="ann")
    driver.actions.hold(["1"])


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    time = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(clock, "monotonic", lambda: time.now)
    return time


def test_who_has_seen_what_there_was_tells_of_it_until_somebody_acknowledges(app: Lowkiq) -> None:
    fill(app)
    tell_health(app, number_of_nodes=1, queues=["q"], waited_for={})
    node, page = Watcher(app), Watcher(app)
    assert node.kinds() == page.kinds() == ["paused"]
    app.redis().flushall()
    assert page.look.has_lost() and node.look.has_lost()
    (alert,) = page()
    assert (alert.kind, alert.severity) == ("emptied", "bad")
    assert "3 jobs queued, 1 dead before" in alert.says and "queue q was paused, and runs now" in alert.says
    assert "1 id was held" in alert.says
    open_queue(app)  # nodes make their queues known again, and beat
    tell_health(app, number_of_nodes=1, queues=["q"], waited_for={})
    assert node.kinds() == page.kinds() == Watcher(app).kinds() == ["emptied"], "once for all who look"
    assert not page.look.has_lost()
    assert acknowledge(app.caller, app.settings.namespace, "ann")
    assert not acknowledge(app.caller, app.settings.namespace, "ann")
    assert node.kinds() == page.kinds() == []
    (deed,) = read_incidents(app.caller, app.settings.namespace, kind="acknowledged")
    assert deed.who == "ann"


def test_what_was_empty_before_and_a_namespace_without_queues_are_no_loss(app: Lowkiq) -> None:
    watcher = Watcher(app)
    tell_health(app, number_of_nodes=1, waited_for={})
    assert watcher.kinds() == []
    assert not app.redis().exists(keys.marker(app.settings.namespace)), "nothing is written where there is nothing"
    open_queue(app)
    assert watcher.kinds() == []
    assert app.redis().exists(keys.marker(app.settings.namespace))
    app.redis().flushall()
    assert watcher.kinds() == []


def test_nodes_get_a_moment_after_an_outage_and_none_where_they_were_gone_before(
    app: Lowkiq, time: SimpleNamespace
) -> None:
    open_queue(app).push("1")
    tell_health(app, number_of_nodes=1, queues=["q"], waited_for={})
    watcher = Watcher(app)
    watcher()
    app.redis().zincrby(keys.nodes(app.settings.namespace), -40.0, "host:1:abc")
    time.now += 38.0
    assert watcher.kinds() == [], "nobody could look, nor beat"
    time.now += 9.0
    assert watcher.kinds() == []
    time.now += 2.0
    (alert,) = watcher()
    assert alert.says.startswith("No node has been heard of for 40 s: nothing runs")
    time.now += 60.0
    assert watcher.kinds() == ["no nodes"], "there was none before"
    assert Watcher(app).kinds() == ["no nodes"]


def test_nodes_that_were_stopped_are_told_as_such(app: Lowkiq) -> None:
    open_queue(app).push("1")
    tell_health(app)
    watcher = Watcher(app)
    watcher()
    caller, namespace = app.caller, app.settings.namespace
    at = redis_time(caller) - 3
    note(caller, namespace, [NewIncident(key="1", kind="stopped", severity="note", says="It drains", at=at)])
    forget(caller, namespace, "host:1:abc")
    (alert,) = watcher()
    assert f"All nodes have ended: the last was stopped by command at {moment(at)}; nothing runs" in alert.says
    assert alert.since == pytest.approx(at, abs=1e-5)
