"""Deployments: told of once, whichever node sees one first and wherever that one is killed."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.node.counts import incident_notes
from lowkiq.node.counts.incident_notes import note_version
from lowkiq.queue.call import Caller


class Killed(BaseException):
    """The end of a process, which asks nobody."""


@pytest.fixture
def deploys(app: Lowkiq) -> Any:
    """The sentences on deployments, the newest first."""
    caller, namespace = app.caller, app.settings.namespace
    return lambda: [one.says for one in read_incidents(caller, namespace, kind="deploy")]


def deploy(app: Lowkiq, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A node of that version starts."""
    monkeypatch.setattr(incident_notes, "VERSION", version)
    note_version(app.caller, app.settings.namespace, ["q"])


def test_each_deployment_is_one_incident_and_a_return_is_another(app, monkeypatch, deploys):
    for version in ("1.0", "1.0", "1.1", "1.1", "1.0", "1.0", "1.1"):
        deploy(app, monkeypatch, version)
    assert deploys() == [
        "Lowkiq 1.1 runs q in place of 1.0",
        "Lowkiq 1.0 runs q in place of 1.1",
        "Lowkiq 1.1 runs q in place of 1.0",
        "Lowkiq 1.0 runs q, for the first time",
    ]


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_deployment_is_told_of_once_wherever_its_node_is_killed(app, monkeypatch, deploys, is_sent):
    """Before each round trip to Redis, and after each whose reply nobody hears."""
    deploy(app, monkeypatch, "1.0")
    trips = 0
    while True:
        trips += 1
        with monkeypatch.context() as killing:
            kill_at(trips, killing, is_sent=is_sent)
            try:
                deploy(app, monkeypatch, f"2.{trips}")
            except Killed:
                is_over = False
            else:
                is_over = True
        deploy(app, monkeypatch, f"2.{trips}")
        assert len(deploys()) == 1 + trips, deploys()
        assert deploys()[0].startswith(f"Lowkiq 2.{trips} runs q in place of ")
        if is_over:
            break
    assert trips > 2


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
