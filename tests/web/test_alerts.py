"""The page, the API and /metrics show one list of alerts: nothing is called well that is not."""

from __future__ import annotations

import time
from typing import Any

from lowkiq import Lowkiq
from lowkiq.admin.alerts.look import State
from lowkiq.queue import keys
from lowkiq.web import create_app
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health
from tests.web.reading import read


def remember(app: Lowkiq, queue: str, ago: float, **numbers: int) -> None:
    """A point of a queue's history, so long ago."""
    names = ("length", "retries", "busy", "morgue_length", "lag", "processed", "failed", "pushed", "merged")
    row = " ".join(str(numbers.get(name, 0)) for name in names)
    for span in ("5m", "1h"):
        app.redis().rpush(f"{keys.history(app.settings.namespace, queue)}{span}", f"{int(time.time() - ago)} {row}")


def ill(app: Lowkiq) -> None:
    """A node that is well, a late queue, one that fails always, and one with a growing morgue."""
    shards = {"late": [0], "failing": [0], "dying": [0]}
    tell_health(app, number_of_nodes=1, queues=[*shards], owned=shards, waited_for={})
    late, failing, dying = (open_queue(app, queue) for queue in shards)
    late.push("1", perform_in=time.time() - 157)
    for driver in (late, failing, dying):
        driver.lease("host:1:abc", ttl=300)
    app.redis().hset(failing.key("meta"), "failed", 40)
    remember(app, "failing", 200)
    app.redis().zadd(dying.key("morgue"), {str(number): time.time() for number in range(70)})
    remember(app, "dying", 200, morgue_length=9)


def test_a_late_a_failing_and_a_dying_queue_are_told_everywhere(own_redis_server: Any, browse: Any) -> None:
    app = Lowkiq(redis_url=own_redis_server.url)
    ill(app)
    browser = browse(create_app(app, no_auth=True))
    text = read(browser, "/").text
    assert "All is well" not in text and "Nothing is wrong" not in text
    assert "Queue late is 2 min 3" in text and "61 jobs of dying went to the morgue in the last 3 min" in text
    assert "100 % of the tries of failing have failed in the last 3 min" in text
    assert "went to the morgue" in read(browser, "/queues/dying").text
    reply = browser.get("/api/v1/alerts").json()
    told = [(one["kind"], one["queue"]) for one in reply["alerts"]]
    assert told == [("failing queue", "failing"), ("growing morgue", "dying"), ("late queue", "late")]
    assert reply["is_well"] is False and browser.get("/api/v1/nodes").json()["is_well"] is False
    assert all(one["since"] and one["do"] and one["where"] and one["key"] for one in reply["alerts"])
    assert abs(reply["at"] - reply["alerts"][2]["since"] - 97) < 60, "since it was a minute late"
    of_one = browser.get("/api/v1/alerts?queue=dying&severity=bad").json()["alerts"]
    assert [one["command"] for one in of_one] == ["lowkiq morgue list dying"]
    state = app.nodes()
    assert isinstance(state, State) and not state.is_well
    assert [(one.kind, one.queue) for one in state.alerts] == told, "so `lowkiq nodes` and `lowkiq alerts` say the same"
    scraped = browser.get("/metrics").text
    assert 'lowkiq_alert{kind="late queue",severity="warn",subject="late"} 1.0' in scraped
    assert 'lowkiq_alert_since_seconds{kind="late queue",severity="warn",subject="late"} 1.' in scraped
    off = Lowkiq(redis_url=own_redis_server.url, alert_lag=0, alert_failing=0, alert_morgue=0)
    assert off.nodes().is_well
    assert "Nothing is wrong" in read(browse(create_app(off, no_auth=True)), "/").text
    off.close()
    app.close()


def test_a_view_that_may_not_write_shows_alerts_all_the_same(app: Lowkiq, browse: Any, own_redis_server: Any) -> None:
    rights = "~*", "&*", "+@all", "-hset", "-info", "-config"
    own_redis_server.ask("ACL", "SETUSER", "reader", "on", ">secret12", *rights)
    reader = Lowkiq(redis_url=own_redis_server.url.replace("unix://", "unix://reader:secret12@"))
    tell_health(Lowkiq(redis_url=own_redis_server.url))
    alerts = browse(create_app(reader, no_auth=True)).get("/api/v1/alerts").json()["alerts"]
    assert [one["kind"] for one in alerts] == ["missing"]
    reader.close()
