"""The chart's alerts: they ask for metrics that there are, say what to do, and fire when they should, by promtool."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lowkiq import Lowkiq
from lowkiq.web.api.prometheus import SnapshotCollector
from lowkiq.web.backend import Backend
from lowkiq.web.snapshot import Snapshots
from tests.deploy.helm.chart import CHART, at, objects, one
from tests.deploy.helm.installations import AUTOSCALED, GROUPS, MATRIX
from tests.deploy.tools import run
from tests.support import lacks
from tests.web.node_health import tell_health
from tests.web.snapshots import get

ALERTS = MATRIX["alerts"]
#: Labels by which Prometheus knows the web view that our ServiceMonitor names.
OURS = '{namespace="jobs",service="shop-lowkiq-web"%s}'

Metrics = Mapping[str, set[str]]


def rules(*values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Alert → its rule."""
    (group,) = at(objects(ALERTS, *values), "PrometheusRule spec.groups")
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.fixture
def metrics(app: Lowkiq) -> Metrics:
    """Names of what /metrics tells → their labels, when there are a queue and a node."""
    app.worker(queue_name="q", shards_count=1)(lambda payloads_by_id: None).perform_async([{"id": 1, "payload": 1}])
    tell_health(app, tasks=0)
    backend = Backend(app)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(get(Snapshots(backend))))
    backend.caller.client.close()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selectors(expression: str) -> Iterator[Any]:
    """Selectors of metrics, as Prometheus' own language has them."""
    try:
        import promql_parser
    except ImportError:
        lacks("no promql-parser here: pip install -e '.[dev]'")
    found: list[Any] = []

    def look(part: Any) -> bool:
        if isinstance(part, promql_parser.MatrixSelector):
            found.append(part.vector_selector)
        elif isinstance(part, promql_parser.VectorSelector):
            found.append(part)
        return True

    promql_parser.walk(promql_parser.parse(expression), look)
    return iter(found)


@pytest.mark.parametrize("values", [{}, AUTOSCALED, GROUPS], ids=["plain", "autoscaled", "groups"])
def test_each_rule_asks_for_what_the_web_view_tells(values: Mapping[str, Any], metrics: Metrics) -> None:
    asked = set()
    for name, rule in rules(values).items():
        for selector in selectors(rule["expr"]):
            asked.add(selector.name)
            assert selector.name in metrics, f"{name}: there is no {selector.name}"
            matched = {matcher.name for matcher in selector.matchers.matchers} - {"namespace", "service"}
            assert matched <= metrics[selector.name], name
            shown = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
            assert shown <= metrics[selector.name], name
    assert len(asked) >= 5


def test_each_alert_says_what_it_means_and_what_to_do() -> None:
    for name, rule in rules().items():
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, name
        assert rule["labels"]["severity"] in {"warning", "critical"}, name
        assert re.search(r"lowkiq|kubectl", rule["annotations"]["runbook"]), name
        for command in re.findall(r"-- (lowkiq\S* \w+)", rule["annotations"]["runbook"]):
            assert command in {
                "lowkiq nodes",
                "lowkiq alerts",
                "lowkiq morgue",
                "lowkiq-supervisor status",
                "lowkiq-supervisor dump",
            }, name


def test_the_readme_names_them_all() -> None:
    section = (CHART / "README.md").read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(Lowkiq\w+)`", section)) == set(rules())


def test_thresholds_labels_and_more_rules_are_values() -> None:
    changed = {"lag": 7, "lagFor": "1m", "morgueGrowth": 9, "nodesFor": "2m", "restarts": 11, "alertsFor": "3m"}
    mine = {"alert": "Mine", "expr": "vector(1)"}
    found = rules({"prometheusRule": {**changed, "extraRules": [mine], "selector": 'job="x"'}})
    assert found["LowkiqQueueLate"]["expr"] == 'lowkiq_queue_lag_seconds{job="x"} > 7'
    assert found["LowkiqQueueLate"]["for"] == "1m"
    assert found["LowkiqMorgueGrows"]["expr"].endswith("> 9")
    assert found["LowkiqNodesMissing"]["for"] == "2m"
    assert found["LowkiqNodesRestart"]["expr"].endswith("> 11")
    assert {found[name]["for"] for name in ("LowkiqBad", "LowkiqWarns")} == {"3m"}
    assert found["Mine"] == mine
    labels = one(objects(MATRIX["everything"]), "PrometheusRule")["metadata"]["labels"]
    assert labels["release"] == "prometheus"


def test_where_pods_come_and_go_numbers_that_are_away_alarm_nobody() -> None:
    for values in (AUTOSCALED, GROUPS):
        found = rules(values)
        assert "LowkiqNodesMissing" not in found
        assert "missing" in re.findall(r'kind!~"(.*?)"', found["LowkiqBad"]["expr"])[0].split("|")


#: What is so, as series of a sample a minute → the alerts that fire after ten minutes and after an hour and a half.
WELL = {"lowkiq_nodes_missing": ("", "0x120")}
MISSING = {
    "lowkiq_nodes_missing": ("", "2x120"), "lowkiq_alert": (',kind="missing",severity="bad",subject=""', "1x120"),
}  # fmt: skip
EVENTS: Sequence[tuple[str, Mapping[str, tuple[str, str]], Mapping[str, Any], set[str], set[str]]] = [
    ("all is well", {}, {}, set(), set()),
    ("a queue is late", {"lowkiq_queue_lag_seconds": (',queue="q"', "301x120"),
                         "lowkiq_alert": (',kind="late queue",severity="warn",subject="q"', "1x120")}, {},
     {"LowkiqQueueLate"}, {"LowkiqQueueLate"}),
    ("a queue is late for a moment", {"lowkiq_queue_lag_seconds": (',queue="q"', "301x3 0x117")}, {}, set(), set()),
    ("a job has died, and an hour passes", {"lowkiq_queue_morgue_length": (',queue="q"', "3x5 4x115")}, {},
     {"LowkiqMorgueGrows"}, set()),
    ("nodes are missing", MISSING, {}, {"LowkiqNodesMissing"}, {"LowkiqNodesMissing"}),
    ("they may be", MISSING, AUTOSCALED, set(), set()),
    ("nodes die, and recover", {"lowkiq_node_restarts_total": (',host="shop-lowkiq-0",node_number="0"', "0+1x8 8x112")},
     {}, {"LowkiqNodesRestart"}, set()),
    ("a warning", {"lowkiq_alert": (',kind="doubled",severity="warn",subject=""', "1x120")}, {}, {"LowkiqWarns"},
     {"LowkiqWarns"}),
    ("a queue fails, and recovers",
     {"lowkiq_alert": (',kind="failing queue",severity="bad",subject="q"', "1x20 _x100")}, {}, {"LowkiqBad"}, set()),
    ("no view", {"lowkiq_nodes_missing": ("", "0x20 _x100")}, {}, set(), {"LowkiqUnseen"}),
]  # fmt: skip


@pytest.mark.parametrize(("series", "values", "soon", "later"), [event[1:] for event in EVENTS],
                         ids=[event[0] for event in EVENTS])  # fmt: skip
def test_promtool_sees_the_right_alerts_fire(
    series: Mapping[str, tuple[str, str]], values: Mapping[str, Any], soon: set[str], later: set[str], tmp_path: Path
) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here: it comes with Prometheus")
    made = at(objects(ALERTS, values), "PrometheusRule spec")
    (tmp_path / "rules.yaml").write_text(json.dumps(made))
    queries = [
        {
            "expr": f'count by (alertname) (ALERTS{{alertstate="firing",alertname="{name}"}})',
            "eval_time": when,
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}] if name in fired else [],
        }
        for when, fired in (("10m", soon), ("90m", later))
        for name in rules(values)
    ]
    given = [{"series": name + OURS % labels, "values": text} for name, (labels, text) in {**WELL, **series}.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": queries}
    (tmp_path / "test.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": [test]}))
    run(["promtool", "check", "rules", tmp_path / "rules.yaml"])
    run(["promtool", "test", "rules", tmp_path / "test.yaml"])
