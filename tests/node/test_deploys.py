"""What a node that starts runs, where it is not what the last one ran: noted once, and told."""

from __future__ import annotations

from typing import Any

from lowkiq import Lowkiq
from lowkiq.admin.past.incidents import Incident, read_incidents
from lowkiq.node.counts.deploys import note_settings, note_version
from lowkiq.queue import keys


def noted(app: Lowkiq) -> list[Incident]:
    return read_incidents(app.caller, app.settings.namespace)


def start(app: Lowkiq, node: str) -> None:
    note_settings(app.caller, app.settings.namespace, node, app.workers.values())


def work(app: Lowkiq) -> Any:
    @app.worker(queue_name="q", shards_count=1)
    def work(batch: dict[str, list[Any]]) -> None: ...

    return work


def test_settings_that_change_are_an_incident_and_an_event_once(app: Lowkiq) -> None:
    worker = work(app)
    start(app, "one")
    start(app, "two")
    assert noted(app) == []
    worker.batch_size, worker.perform_timeout = 20, 3.5
    with app.events("q", ids=["a"], kinds=["settings_changed"]) as events:
        events.next(0.2)
        for node in ("three", "four"):
            start(app, node)
        event = events.next(10)
        assert event is not None
        assert events.next(0.2) is None
    (incident,) = noted(app)
    says = "batch_size 1 → 20, perform_timeout None → 3.5"
    assert (incident.kind, incident.says, incident.queue, incident.node) == ("settings changed", says, "q", "three")
    assert (event.kind, event.detail, event.queue, event.node, event.id) == ("settings_changed", says, "q", "three", "")
    assert abs(event.at - incident.at) < 0.001


def test_settings_that_can_t_be_read_begin_anew(app: Lowkiq) -> None:
    work(app)
    for junk in (b"\xff = = x=\n", b"nonsense" * 1_000, None):
        key = keys.settings(app.settings.namespace, "q")
        app.redis().delete(key)
        app.redis().rpush(key, "x") if junk is None else app.redis().set(key, junk)
        start(app, "one")
        assert b"batch_size=1 " in (app.redis().get(key) or b"")
    assert noted(app) == []


def test_a_version_is_an_incident_once(app: Lowkiq) -> None:
    for _ in range(2):
        note_version(app.caller, app.settings.namespace, ["q"])
    (incident,) = noted(app)
    assert incident.kind == "deploy" and "for the first time" in incident.says
