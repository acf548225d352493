"""A machine that went away without saying goodbye is told of for a while, until it is back, or somebody says enough."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from lowkiq import Lowkiq
from lowkiq.admin.alerts.vanished import TOLD_FOR
from lowkiq.admin.beats.health import BEAT_TTL, NodeHealth, forget
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.cli.commands import cli
from lowkiq.queue import keys
from tests.admin.alerts.test_list import kinds, listed, node
from tests.web.node_health import tell_health

HERE = node(is_elastic=True, owned={"q": [0, 1, 2]})


def gone(number: int = 0, **facts: Any) -> NodeHealth:
    known: dict[str, Any] = {
        "node": f"far:{number}:x", "host": "far", "supervisor_pid": 8, "node_number": number, "owned": {"q": [number]},
        "is_elastic": True, "beat_age": 40.0, "beat_at": 100.0,
    }  # fmt: skip
    return node(**known | facts)


def test_nodes_of_one_machine_are_one_alert_which_says_who_has_their_shards() -> None:
    (alert,) = listed(HERE, vanished=[gone(0), gone(1, beat_age=45.0)])
    assert (alert.kind, alert.severity, alert.subject) == ("vanished", "warn", "far")
    assert "with 2 nodes; its 2 shards went to node 0 on host (2)" in alert.says


def test_a_hundred_machines_are_ten_alerts_and_how_many_more() -> None:
    rows = listed(HERE, vanished=[gone(0, host=f"far-{number}", supervisor_pid=number) for number in range(100)])
    assert len(rows) == 11
    assert rows[-1].says == "90 more machines went away without saying goodbye"


@pytest.mark.parametrize(
    ("other", "is_told"),
    [
        ({"host": "far", "started_at": 101.0}, False),
        ({"host": "far", "started_at": 99.0}, True),
        ({"host": "far", "started_at": 101.0, "queues": ["another"]}, True),
        ({"host": "far", "supervisor_pid": 8}, False),
        ({"host": "far", "supervisor_pid": 8, "boot_id": "another container's"}, True),
        ({"host": "near", "started_at": 101.0}, True),
    ],
)
def test_it_ends_when_the_machine_is_back(other: dict[str, Any], is_told: bool) -> None:
    back = node(node="far:9:y", is_elastic=True, number_of_nodes=1, **{"supervisor_pid": 9} | other)
    assert ("vanished" in kinds(HERE, back, vanished=[gone()])) is is_told


def test_where_no_node_is_left_that_is_the_one_alert() -> None:
    assert kinds(vanished=[gone()]) == ["no nodes"]


class Past:
    """A namespace with a node that lives, and one of another machine that beat last so many seconds ago."""

    def __init__(self, app: Lowkiq, ago: float, **facts: Any) -> None:
        self.app = app
        tell_health(app, is_elastic=True, number_of_nodes=1, waited_for={}, queues=["q"])
        known = {"node": "far:2:x", "host": "far", "supervisor_pid": 8, "is_elastic": True, "owned": {"q": [1]}}
        tell_health(app, **known | facts)
        app.redis().zincrby(keys.nodes(app.settings.namespace), -ago, "far:2:x")

    @property
    def kinds(self) -> list[str]:
        return [alert.kind for alert in self.app.nodes().alerts if alert.kind != "Redis"]


def test_it_is_told_between_half_a_minute_and_a_quarter_of_an_hour(app: Lowkiq) -> None:
    assert Past(app, BEAT_TTL + 5).kinds == ["vanished"]
    assert Past(app, TOLD_FOR + BEAT_TTL + 5).kinds == []


def test_a_goodbye_is_none(app: Lowkiq) -> None:
    past = Past(app, BEAT_TTL + 5)
    forget(app.caller, app.settings.namespace, "far:2:x")
    assert past.kinds == []


def test_numbered_nodes_are_missing_and_not_vanished(app: Lowkiq) -> None:
    assert Past(app, BEAT_TTL + 5, is_elastic=False).kinds == []


def test_somebody_says_enough(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    past = Past(app, BEAT_TTL + 5)
    monkeypatch.setenv("LOWKIQ_REDIS_URL", app.settings.redis_url)
    monkeypatch.setenv("LOWKIQ_NAMESPACE", app.settings.namespace)
    refused = CliRunner().invoke(cli, ["nodes", "forget", "host"])
    assert refused.exit_code != 0 and past.kinds == ["vanished"]
    done = CliRunner().invoke(cli, ["nodes", "forget", "far"])
    assert (done.exit_code, done.output) == (0, "1 node of far is forgotten\n")
    assert past.kinds == []
    (incident,) = read_incidents(app.caller, app.settings.namespace, kind="forget")
    assert incident.host == "far" and incident.who
