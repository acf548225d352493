"""Each kind of alert, as Redis makes it: told by page, API, command line, doctor and /metrics, until it is over."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lowkiq import Lowkiq
from lowkiq.admin.alerts.alert import KINDS
from lowkiq.admin.alerts.emptied import Loss
from lowkiq.admin.beats.health import ThreadHealth
from lowkiq.admin.past.statistics import Addition, Times, add, day_of
from lowkiq.admin.resharding import reshard
from lowkiq.cli import tables
from lowkiq.doctor.examination import examine
from lowkiq.doctor.subject import Subject
from lowkiq.queue import keys
from lowkiq.queue.shard import Exhausted
from lowkiq.web import create_app
from lowkiq.web.snapshot import Snapshots
from tests.support import wait_until
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health
from tests.web.reading import read
from tests.web.test_alerts import remember

NODE = "host:1:abc"


def beat(app: Lowkiq, **facts: Any) -> None:
    """The node that is well, if these facts are not otherwise."""
    tell_health(app, **{"number_of_nodes": 1, "queues": ["q"], "waited_for": {}} | facts)


def beats(**facts: Any) -> Callable[[Lowkiq], None]:
    return lambda app: beat(app, **facts)


def runs(seconds: float, **facts: Any) -> dict[str, Any]:
    return {"threads": [ThreadHealth(name="t", queue="q", shard=0, ids=["17"], jobs=1, seconds=seconds, **facts)]}


def push_due(app: Lowkiq, ago: float = 5.0) -> None:
    open_queue(app).push("1", perform_in=time.time() - ago)


def stands_still(app: Lowkiq) -> None:
    open_queue(app).push("1", perform_in=4e9)
    beat(app)
    namespace = app.settings.namespace
    app.redis().hset(keys.queues(namespace), "q", "2:1")
    began = reshard(app.caller, namespace, "q", 2).began_at
    app.redis().hset(keys.resharding(namespace, "q"), mapping={"began_at": began - 120, "moved_at": began - 120})


def lost(app: Lowkiq) -> None:
    push_due(app)
    beat(app)


def late(app: Lowkiq) -> None:
    beat(app)
    app.redis().zincrby(keys.nodes(app.settings.namespace), -14.0, NODE)


def vanished(app: Lowkiq) -> None:
    beat(app)
    beat(app, node="far:2:x", host="far", pid=2, supervisor_pid=8, owned={"q": [1]}, is_elastic=True)
    app.redis().zincrby(keys.nodes(app.settings.namespace), -40.0, "far:2:x")


def late_queue(app: Lowkiq) -> None:
    beat(app)
    push_due(app, 157.0)
    open_queue(app).lease(NODE, ttl=300)


def rate_line(app: Lowkiq) -> None:
    """A line of which somebody has noted that it grows: to see that takes a minute."""
    beat(app)
    open_queue(app).push("1", perform_in=4e9)
    now, namespace = time.time(), app.settings.namespace
    app.redis().zadd(f"{keys.rate(namespace, 'q')}planned", {"0:1": now + 600})
    app.redis().hset(keys.alerts(namespace), "rate:q", f"{now:.6f} {now:.6f}")


def failing(app: Lowkiq) -> None:
    beat(app)
    app.redis().hset(open_queue(app).key("meta"), "failed", 40)
    remember(app, "q", 200)


def dying(app: Lowkiq) -> None:
    beat(app)
    app.redis().zadd(open_queue(app).key("morgue"), {str(number): time.time() for number in range(70)})
    remember(app, "q", 200, morgue_length=9)


def doubled(app: Lowkiq) -> None:
    beat(app, supervisor_pid=7)
    beat(app, node="far:2:x", host="far", pid=2, supervisor_pid=8, owned={})


def long_job(app: Lowkiq) -> None:
    times = Times.none()
    for _ in range(200):
        times.runs.add(1.0, 1)
    open_queue(app)
    add(app.caller, app.settings.namespace, "one", 1, [Addition("q", day_of(time.time()), times)])
    beat(app, **runs(300.0))


def configure(appendonly: str) -> Callable[[Lowkiq], None]:
    def change(app: Lowkiq) -> None:
        beat(app)
        app.redis().config_set("appendonly", appendonly)

    return change


def blocked(app: Lowkiq) -> None:
    beat(app)
    driver = open_queue(app)
    driver.push("17")
    owner = driver.lease(NODE, ttl=300)
    owner.claim()
    owner.settle(exhausted=[Exhausted("17", "ValueError: no", "block")])


def paused(app: Lowkiq) -> None:
    beat(app)
    open_queue(app).actions.pause("we count", who="ann")


def held(app: Lowkiq) -> None:
    beat(app)
    driver = open_queue(app)
    driver.actions.hold(["17"], "a customer called", who="ann")
    driver.push_all(*(("17", b"%d" % n, float(n), time.time() + 3_600) for n in range(101)))


def waits(name: str, ago: float, scale: float = 1.0) -> Callable[[Lowkiq], None]:
    """Something of a shard's that has waited so long."""

    def make(app: Lowkiq) -> None:
        beat(app)
        prefix = open_queue(app).shard.prefix
        app.redis().zadd(prefix + name, {"17": (time.time() - ago) * scale})
        if name == "held":
            app.redis().hset(prefix + "waits", "17", "1 1")

    return make


def emptied(app: Lowkiq) -> None:
    """As one finds it who has seen what there was: the view's own memory is another test's."""
    beat(app)
    text = msgspec.json.encode(Loss(time.time() - 3, queued=7, at=time.time()))
    app.redis().set(keys.emptied(app.settings.namespace), text)


def no_queue(app: Lowkiq) -> None:
    marker = keys.marker(app.settings.namespace)
    known = app.redis().get(marker)
    app.redis().flushall()
    if known:  # else that Redis has lost all would be an alert
        app.redis().set(marker, known)
    beat(app)


#: Kind → what makes it.
MADE: dict[str, Callable[[Lowkiq], None]] = {
    "emptied": emptied,
    "Redis": configure("no"),
    "no nodes": push_due,
    "missing": beats(number_of_nodes=2),
    "late": late,
    "vanished": vanished,
    "crash loop": beats(notices=["crash loop: node 1/2 can't start since 12:03 UTC, 3 times"]),
    "roll stopped": beats(notices=["roll stopped: a rolling restart has stopped: no disk"]),
    "unowned": lost,
    "refused": beats(refused={"q": "another shards_count"}),
    "trouble": beats(redis_error="ResponseError: unknown command"),
    "event loop": beats(tasks=2, loop_lag=3.0),
    "late queue": late_queue,
    "rate": rate_line,
    "failing queue": failing,
    "growing morgue": dying,
    "blocked": blocked,
    "paused": paused,
    "held": held,
    "unsent": waits("outbox", 60.0, 1e6),
    "recurring": waits("recurs", 60.0),
    "dependent": waits("held", 7_200.0),
    "reshard": stands_still,
    "unreadable": lambda app: (beat(app), app.redis().hset(keys.queues(app.settings.namespace), "odd", "x"))[0],
    "doubled": doubled,
    "memory": beats(rss=300 << 20, rss_limit=150 << 20, rss_history=[300 << 20] * 12),
    "recycling": beats(notices=["recycling: node 0/1 was cut off"]),
    "supervisor": beats(notices=["an older peer's sentence"]),
    "runs on": beats(**runs(90.0, to_stop_seconds=61.0)),
    "long job": long_job,
}
#: Kind → what ends it, where that is not that all is as it should be.
ENDED = {"Redis": configure("yes")}


class Surfaces:
    """All places that tell of alerts."""

    def __init__(self, app: Lowkiq, browser: Any, output: Any) -> None:
        self._app, self._browser, self._output = app, browser, output

    def tell(self) -> dict[str, list[str]]:
        """Place → kinds that it tells of now; the doctor, and the page's list, by their next steps."""
        alerts = self._browser.get("/api/v1/alerts").json()["alerts"]
        page, nodes = read(self._browser, "/"), self._browser.get("/api/v1/nodes").json()
        samples = [line for line in self._browser.get("/metrics").text.splitlines() if line.startswith("lowkiq_alert{")]
        state = self._app.nodes()
        self._output.readouterr()
        for line in tables.of_alerts(state.alerts, self._app.caller):
            print(line)
        lines = [line for line in self._output.readouterr().out.splitlines() if not line.startswith("  ")]
        return {
            "API": [one["kind"] for one in alerts],
            "API, nodes": [one["kind"] for one in nodes["alerts"]],
            "page": [one["kind"] for one in alerts if one["do"] in page.text and one["says"][:20] in page.text],
            "page, quiet": [] if "Nothing is wrong" in page.text else [one["kind"] for one in alerts],
            "/metrics": [line.partition('kind="')[2].partition('"')[0] for line in samples],
            "lowkiq nodes": [one.kind for one in state.alerts],
            "its lines": [line.partition("] ")[2].partition(" (for ")[0] for line in lines],
        }

    def doctor(self) -> str:
        subject = Subject(self._app, os.environ, has_app=False)
        try:
            return "\n".join(f"{one.says} -> {one.do}" for one in examine(subject))
        finally:
            subject.close()


def test_all_kinds_are_here() -> None:
    assert MADE.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", MADE)
def test_an_alert_is_told_everywhere_with_its_next_step_and_goes(
    kind: str, own_redis_server: Any, browse: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Snapshots.__init__, "__defaults__", (0.0,))  # each look is a new one
    app = Lowkiq(redis_url=own_redis_server.url)
    surfaces = Surfaces(app, browse(create_app(app, no_auth=True)), capsys)
    beat(app)
    assert set(map(tuple, surfaces.tell().values())) == {()}, "at first all is well"
    if kind == "no nodes":
        app.redis().delete(keys.nodes(app.settings.namespace))
    MADE[kind](app)
    wait_until(lambda: all(told == [kind] for told in surfaces.tell().values()))
    (alert,) = app.nodes().alerts
    assert alert.since is not None and alert.do and (alert.where or alert.command)
    (line,) = [line for line in surfaces.doctor().splitlines() if line.endswith(f" -> {alert.do}")]
    is_known = kind in {
        "late",
        "vanished",
        "late queue",
        "event loop",
        "runs on",
        "long job",
    }  # since when, without a note
    assert not is_known or re.search(r" \(for \d+", line), line
    ENDED.get(kind, no_queue)(app)
    wait_until(lambda: not any(surfaces.tell().values()))
    assert alert.do not in surfaces.doctor()
    app.close()
