"""What people are told of queues with max_running; and events of live settings."""

from __future__ import annotations

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.limits import Limit, read_limits
from lowkiq.admin.live import read_live
from lowkiq.queue import keys
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.shard import Owned
from tests.web.node_health import tell_health


@pytest.fixture
def work(app: Lowkiq) -> type[Worker]:
    return app.worker(queue_name="q", shards_count=1)(lambda _: None)


def take(app: Lowkiq, node: str, *places: str, most: int = 2) -> None:
    app.caller.run(QueuePlaces(app.settings.namespace, "q", node, 15).take(most, places))


def read(app: Lowkiq) -> dict[str, Limit]:
    live = read_live(app.caller, app.settings.namespace)
    return read_limits(app.caller, app.settings.namespace, ["q", "other"], live)


def test_a_queue_without_a_limit_has_none(app: Lowkiq, work: type[Worker]) -> None:
    assert read(app) == {}


def test_who_runs_it_and_who_waits_is_told(app: Lowkiq, work: type[Worker]) -> None:
    take(app, "a", "a 1")
    take(app, "b", "b 1")
    take(app, "a", "a 2")
    (limit,) = read(app).values()
    assert limit == Limit(2, {"a": 1, "b": 1}, ["a"])
    assert limit.text == "2 of 2 running (max_running): a 1, b 1; 1 node waits for a place"


def test_a_live_setting_comes_first(app: Lowkiq, work: type[Worker]) -> None:
    work.actions.set(max_running=5)
    assert read(app) == {"q": Limit(5, {}, [])}
    take(app, "a", "a 1")
    work.actions.set(max_running=3)
    assert read(app) == {"q": Limit(3, {"a": 1}, [])}
    work.actions.set(max_running=None)
    assert read(app) == {}


@pytest.mark.parametrize("junk", ["", "x", "9" * 30])
def test_junk_is_no_limit(app: Lowkiq, work: type[Worker], junk: str) -> None:
    app.redis().set(keys.places(app.settings.namespace, "q") + "max", junk)
    assert read(app) == {}


def test_names_that_harm_are_escaped(app: Lowkiq, work: type[Worker]) -> None:
    take(app, "a", "\x1b[31m 1")
    app.redis().zadd(keys.places(app.settings.namespace, "q") + "taken", {b"\xff\xfe 1": 1e12})
    (limit,) = read(app).values()
    assert "\x1b" not in limit.text and limit.running == 2
    app.redis().set(keys.places(app.settings.namespace, "q") + "waiting", "of another type")
    assert read(app)["q"].waiting == []


def test_a_queue_that_is_late_as_its_limit_is_reached_says_so(app: Lowkiq, work: type[Worker]) -> None:
    work.perform_async([{"id": "a", "perform_in": 1e9}])
    (shard,) = app.shards("q", 1)
    assert isinstance(app.caller.run(shard.acquire("host:1:abc", 60.0, 3)), Owned)
    tell_health(app, queues=["q"])
    (alert,) = [alert for alert in app.nodes().alerts if alert.kind == "late queue"]
    assert "max_running" not in alert.says
    take(app, "a", "a 1", "a 2")
    (alert,) = [alert for alert in app.nodes().alerts if alert.kind == "late queue"]
    assert "its max_running is reached: 2 of 2 running" in alert.says and "lowkiq set q max_running=N" in alert.do


def test_settings_that_are_set_and_unset_are_events(app: Lowkiq, work: type[Worker]) -> None:
    work.perform_async([{"id": "a"}])
    with app.events("q", kinds=["settings_changed"]) as events:
        work.actions.set(max_running=3, when_exhausted="block", who="ann")
        event = events.next(10)
        assert event and (event.kind, event.queue, event.id) == ("settings_changed", "q", "")
        assert event.detail == "set max_running = 3, when_exhausted = block by ann"
        work.actions.unset("max_running")
        event = events.next(10)
        assert event and event.detail == "unset max_running"
