"""What a node that starts runs, where it is not what the last one ran: told once, wherever a node is killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.past.incidents import Incident, read_incidents
from lowkiq.node.counts import deploys
from lowkiq.node.counts.deploys import note_settings, note_version
from lowkiq.queue import keys
from lowkiq.queue.call import Caller


class Killed(BaseException):
    """The end of a process, which asks nobody."""


class Deploys:
    """Nodes that start, each with a version and a batch size of its own."""

    def __init__(self, app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
        @app.worker(queue_name="q", shards_count=1)
        class Jobs(Worker):
            def perform(self, batch: dict[str, list[Any]]) -> None: ...

        self.app, self.worker, self._monkeypatch = app, Jobs, monkeypatch

    def version(self, version: str) -> None:
        self._monkeypatch.setattr(deploys, "VERSION", version)
        note_version(self.app.caller, self.app.settings.namespace, ["q"])

    def settings(self, batch_size: str, node: str = "one") -> None:
        self.worker.batch_size = int(batch_size.replace(".", ""))
        note_settings(self.app.caller, self.app.settings.namespace, node, self.app.workers.values())

    def noted(self, kind: str) -> list[Incident]:
        """The newest first."""
        return read_incidents(self.app.caller, self.app.settings.namespace, kind=kind)


@pytest.fixture
def deploy(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> Deploys:
    return Deploys(app, monkeypatch)


def test_each_deployment_is_one_incident_and_a_return_is_another(deploy: Deploys) -> None:
    for version in ("1.0", "1.0", "1.1", "1.1", "1.0", "1.0", "1.1"):
        deploy.version(version)
    assert [one.says for one in deploy.noted("deploy")] == [
        "Lowkiq 1.1 runs q in place of 1.0",
        "Lowkiq 1.0 runs q in place of 1.1",
        "Lowkiq 1.1 runs q in place of 1.0",
        "Lowkiq 1.0 runs q, for the first time",
    ]


def test_settings_that_change_are_an_incident_and_an_event_once(deploy: Deploys) -> None:
    deploy.settings("1", "one")
    deploy.settings("1", "two")
    assert deploy.noted("settings changed") == []
    deploy.worker.perform_timeout = 3.5
    with deploy.app.events("q", ids=["a"], kinds=["settings_changed"]) as events:
        events.next(0.2)
        for node in ("three", "four"):
            deploy.settings("20", node)
        event = events.next(10)
        assert event is not None
        assert events.next(0.2) is None
    (incident,) = deploy.noted("settings changed")
    says = "batch_size 1 → 20, perform_timeout None → 3.5"
    assert (incident.says, incident.queue, incident.node) == (says, "q", "three")
    assert (event.kind, event.detail, event.queue, event.node, event.id) == ("settings_changed", says, "q", "three", "")
    assert abs(event.at - incident.at) < 0.001


def test_settings_that_return_are_an_incident_again(deploy: Deploys) -> None:
    for batch_size in ("1", "2", "1"):
        deploy.settings(batch_size)
    assert [one.says for one in deploy.noted("settings changed")] == ["batch_size 2 → 1", "batch_size 1 → 2"]


def test_settings_that_can_t_be_read_begin_anew(deploy: Deploys) -> None:
    key, client = keys.settings(deploy.app.settings.namespace, "q"), deploy.app.redis()
    for junk in (b"\xff = = x=\n", b"nonsense" * 1_000, None):
        client.delete(key)
        client.rpush(key, "x") if junk is None else client.set(key, junk)
        for _ in range(2):
            deploy.settings("1")
        assert b"batch_size=1 " in (client.get(key) or b"")
    assert deploy.noted("settings changed") == []


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize(("what", "kind"), [("version", "deploy"), ("settings", "settings changed")])
def test_it_is_told_once_wherever_a_node_is_killed(
    deploy: Deploys, monkeypatch: pytest.MonkeyPatch, what: str, kind: str, is_sent: bool
) -> None:
    """Before each round trip to Redis, and after each whose reply nobody hears."""
    start = getattr(deploy, what)
    start("1.0")
    known, trips, is_over = len(deploy.noted(kind)), 0, False
    while not is_over:
        trips += 1
        with monkeypatch.context() as killing:
            kill_at(trips, killing, is_sent=is_sent)
            is_over = not is_killed(start, f"2.{trips}")
        start(f"2.{trips}")
        assert len(deploy.noted(kind)) == known + trips
    assert trips > 2


def is_killed(start: Callable[[str], None], now: str) -> bool:
    try:
        start(now)
    except Killed:
        return True
    return False


def kill_at(trip: int, monkeypatch: pytest.MonkeyPatch, *, is_sent: bool) -> None:
    """The process ends at that round trip."""
    number = 0

    def dying(send: Any) -> Any:
        def sent(*arguments: Any, **options: Any) -> Any:
            nonlocal number
            number += 1
            if number == trip:
                if is_sent:
                    send(*arguments, **options)
                raise Killed
            return send(*arguments, **options)

        return sent

    for name in ("run_all", "read"):
        monkeypatch.setattr(Caller, name, dying(getattr(Caller, name)))
