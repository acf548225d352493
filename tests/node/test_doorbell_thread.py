"""What the thread that listens does when it hears nothing for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.node import doorbell
from lowkiq.node.doorbell import Doorbell
from tests.node.driven import runtime_of
from tests.support import wait_until


class Watched:
    """A client whose subscriptions count what is sent and heard. A mute one gets no answer to its pings."""

    def __init__(self, app: Lowkiq, *, is_mute: bool) -> None:
        self._client = app.redis()
        self._is_mute = is_mute
        self.subscriptions = self.pings = self.pongs = 0

    def pubsub(self) -> Any:
        watched, made = self, self._client.pubsub()
        ping, get_message = made.ping, made.get_message
        self.subscriptions += 1

        def count_ping() -> None:
            watched.pings += 1
            if not watched._is_mute:
                ping()

        def count_pong(timeout: float) -> Any:
            message = get_message(timeout=timeout)
            watched.pongs += message is not None and message["type"] == "pong"
            return message

        made.ping, made.get_message = count_ping, count_pong
        return made


@contextmanager
def listening(app: Lowkiq, client: Any) -> Iterator[None]:
    caller = SimpleNamespace(client=client)
    thread = Doorbell(runtime_of(app, caller=caller), {}, lambda _: None)
    thread.start()
    try:
        yield
    finally:
        thread.stop()
        thread.join(60)
        assert thread not in threading.enumerate()


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTEN", "SILENCE", "RETRY"):
        monkeypatch.setattr(doorbell, name, 0.02)


@pytest.mark.usefixtures("impatience")
def test_an_end_that_answers_is_asked_again_and_again(app: Lowkiq) -> None:
    client = Watched(app, is_mute=False)
    with listening(app, client):
        wait_until(lambda: client.pongs >= 3)
    assert client.subscriptions == 1


@pytest.mark.usefixtures("impatience")
def test_an_end_that_does_not_answer_is_left(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that something between has forgotten looks like one on which nobody speaks."""
    monkeypatch.setattr(doorbell, "ANSWER", 0.02)
    client = Watched(app, is_mute=True)
    with listening(app, client):
        wait_until(lambda: client.subscriptions >= 3)
    assert client.pings >= 2
