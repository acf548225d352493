"""Events: who listens hears what happens in its own database alone; databases of a server share their channels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.events import Events
from lowkiq.admin.live import set_live
from lowkiq.transport.subscription import Message, Subscription
from tests.support import RedisServer, wait_until


def test_events_of_another_database_are_not_heard(redis_server: RedisServer, make_app: Callable[..., Lowkiq]) -> None:
    here = make_app()
    url = f"unix://{redis_server.socket}?db=5"
    there = make_app(redis_url=url, namespace=here.settings.namespace)
    workers = [app.worker(queue_name="q")(lambda _: None) for app in (here, there)]
    with here.events() as heard_here, there.events() as heard_there:
        for id, app, worker in zip("ab", (here, there), workers, strict=True):
            worker.perform_async([{"id": id}])
            set_live(app.caller, here.settings.namespace, "q", {"concurrency": 3}, id)
        for events, id in ((heard_here, "a"), (heard_there, "b")):
            event = events.next(60)
            assert event and (event.kind, event.id) == ("pushed", id)
            event = events.next(60)
            assert event and event.kind == "settings_changed" and event.detail.endswith(f"by {id}")
            assert events.next(0.1) is None


def test_shards_are_told_once_redis_listens(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another connection it may hear of a push before it has heard who listens."""
    app.worker(queue_name="q")(lambda _: None)
    app.worker(queue_name="r")(lambda _: None)
    heard, when_told = list[str](), list[list[str]]()
    get, renew = Subscription.get, Events._renew

    def hear(self: Subscription, seconds: float) -> Message | None:
        message = get(self, seconds)
        heard.append(message["type"] if message else "")
        return message

    monkeypatch.setattr(Subscription, "get", hear)
    monkeypatch.setattr(Events, "_renew", lambda self: (when_told.append([*heard]), renew(self))[1])
    app.events().close()
    assert [each.count("subscribe") for each in when_told] == [2]


def test_who_closes_them_leaves_no_connection_behind(app: Lowkiq) -> None:
    app.worker(queue_name="q")(lambda _: None)
    events, read = app.events(), app.events()
    reader = threading.Thread(target=lambda: list(read), daemon=True)
    reader.start()
    wait_until(lambda: len(listening(app)) == 2)
    read.close()
    reader.join(60)
    events.close()
    wait_until(lambda: not listening(app), within=5)


def test_what_was_closed_opens_nothing_any_more(app: Lowkiq) -> None:
    app.worker(queue_name="q")(lambda _: None)
    events = app.events()
    events.close()
    assert events.next(0.1) is None
    assert list(events) == []
    assert listening(app) == []


def listening(app: Lowkiq) -> list[Any]:
    client: Any = app.redis()
    found: list[Any] = client.client_list(_type="pubsub")
    return found
