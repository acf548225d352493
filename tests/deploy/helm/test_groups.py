"""Groups of nodes (`workers:`): each is a set of its own with its queues and numbers; without them nothing changes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lowkiq_supervisor.options import Options
from tests.deploy.helm.chart import (
    CHART,
    Refused,
    arguments,
    at,
    container,
    environment,
    helm_3,
    notes,
    objects,
    one,
    pod,
    render_4,
)
from tests.deploy.helm.installations import GROUPS, MATRIX, WEB, limit

README = (CHART / "README.md").read_text()
#: Fields of a StatefulSet that can't change: another value is refused by the cluster, or is another set.
BEFORE: Mapping[str, Any] = {
    "metadata": {
        "name": "shop-lowkiq",
        "labels": {
            "app.kubernetes.io/name": "lowkiq", "app.kubernetes.io/instance": "shop",
            "app.kubernetes.io/component": "nodes", "app.kubernetes.io/version": "0.1.0",
            "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "lowkiq-0.1.0",
        },
    },
    "serviceName": "shop-lowkiq-headless",
    "podManagementPolicy": "Parallel",
    "selector": {"matchLabels": {
        "app.kubernetes.io/name": "lowkiq", "app.kubernetes.io/instance": "shop",
        "app.kubernetes.io/component": "nodes",
    }},
}  # fmt: skip


def group(name: str, *values: Mapping[str, Any]) -> dict[str, Any]:
    return one(objects(GROUPS, *values), "StatefulSet", f"shop-lowkiq-{name}")


@pytest.mark.parametrize("values", [{}, WEB, MATRIX["secrets that are there"]])
def test_without_groups_an_upgrade_keeps_the_set_its_pods_and_what_finds_them(values: Mapping[str, Any]) -> None:
    found = objects(values)
    made = one(found, "StatefulSet")
    fixed = {name: made["spec"][name] for name in ("serviceName", "podManagementPolicy", "selector")}
    assert {"metadata": made["metadata"], **fixed} == BEFORE
    assert "volumeClaimTemplates" not in made["spec"]
    assert made["spec"]["template"]["metadata"]["labels"] == BEFORE["selector"]["matchLabels"]
    assert at(found, "PodDisruptionBudget metadata.name") == "shop-lowkiq"
    assert at(found, "PodDisruptionBudget spec.selector") == BEFORE["selector"]
    assert at(found, "Service/shop-lowkiq-headless spec.selector") == BEFORE["selector"]["matchLabels"]


def test_each_group_is_a_set_a_service_and_a_budget_of_its_own() -> None:
    found = objects(GROUPS)
    names = {kind: [each["metadata"]["name"] for each in found if each["kind"] == kind]
             for kind in ("StatefulSet", "PodDisruptionBudget", "ScaledObject", "Service")}  # fmt: skip
    assert names == {
        "StatefulSet": ["shop-lowkiq-mail", "shop-lowkiq-slow", "shop-lowkiq-video"],
        "PodDisruptionBudget": ["shop-lowkiq-mail", "shop-lowkiq-slow"],
        "ScaledObject": ["shop-lowkiq-slow"],
        "Service": ["shop-lowkiq-mail-headless", "shop-lowkiq-slow-headless", "shop-lowkiq-video-headless",
                    "shop-lowkiq-web"],
    }  # fmt: skip
    for each in found:
        if each["kind"] == "StatefulSet":
            assert each["spec"]["serviceName"] == f"{each['metadata']['name']}-headless"


def test_a_group_has_its_values_on_top_of_the_others() -> None:
    video, mail = group("video"), group("mail")
    told = arguments(container(video))
    assert (told["--queues"], told["--nodes"], told["--drain-timeout"], told["--max-rss"]) == (
        "Video,Thumbs", "1", "600", "900M",
    )  # fmt: skip
    assert "--threads" not in told and "--max-jobs" in told
    assert container(video)["image"] == "registry.example.com/shop:v2-gpu"
    assert environment(container(video))["CODEC"] == "av1"
    assert container(video)["resources"] == {
        "requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}
    }  # fmt: skip
    assert pod(video)["nodeSelector"] == {"gpu": "true"} and pod(video)["runtimeClassName"] == "nvidia"
    assert pod(video)["terminationGracePeriodSeconds"] == 610
    told = arguments(container(mail))
    assert (told["--queues"], told["--nodes"], told["--threads"], told["--max-rss"]) == ("Mail", "2", "20", "273M")
    assert container(mail)["image"] == "registry.example.com/shop:v1"
    assert not pod(mail).keys() & {"nodeSelector", "tolerations", "runtimeClassName"}
    assert (mail["spec"]["replicas"], video["spec"]["replicas"]) == (3, 2)
    assert pod(one(objects(GROUPS), "Deployment")).keys() & {"nodeSelector", "runtimeClassName"} == set()


def test_an_empty_list_and_a_no_of_a_group_win_over_the_others() -> None:
    common = {"extraArgs": ["--preload"], "tolerations": [{"key": "a"}], "replicas": 3}
    own = {"extraArgs": [], "tolerations": [], "replicas": 0}
    made = group("mail", common, {"workers": {"mail": own}})
    assert "--preload" not in arguments(container(made)) and "tolerations" not in pod(made)
    assert made["spec"]["replicas"] == 0
    assert "--preload" in arguments(container(group("slow", common)))


@pytest.mark.parametrize(("name", "pods", "nodes"), [("mail", 3, 2), ("video", 2, 1), ("slow", 4, 2)])
def test_numbers_count_within_a_group(name: str, pods: int, nodes: int) -> None:
    made = container(group(name))
    total = environment(made)["NUMBER_OF_NODES"]
    taken: list[int] = []
    for index in range(pods):
        environ = {"NODE_NUMBER": f"shop-lowkiq-{name}-{index}", "NUMBER_OF_NODES": total}
        options = Options.resolve(app="shop.jobs", nodes=arguments(made)["--nodes"], environ=environ)
        taken += range(options.first_node, options.first_node + options.nodes)
    assert taken == list(range(int(total))) == list(range(pods * nodes))


def test_keda_follows_the_lag_of_the_group_s_queues() -> None:
    triggers = at(objects(GROUPS), "ScaledObject spec.triggers")
    assert [(each["metadata"]["url"], each["metadata"]["valueLocation"]) for each in triggers] == [
        ("http://shop-lowkiq-web.jobs.svc:80/api/v1/queues/Reports", "metrics.lag"),
    ]
    assert triggers[0]["authenticationRef"] == {"name": at(objects(GROUPS), "TriggerAuthentication metadata.name")}


def test_while_pods_of_a_group_come_and_go_the_test_asks_redis_alone() -> None:
    tests = [one(objects(values), "Pod")["spec"]["containers"][0]["args"][0] for values in (GROUPS, MATRIX["least"])]
    assert tests == ["stats", "nodes"]


def test_the_notes_name_each_group_and_a_command_that_reaches_one() -> None:
    told = notes(GROUPS)
    assert "shop-lowkiq-mail: 3 pods of 2 nodes run Mail of shop.jobs; node numbers 0 to 5." in told
    assert "shop-lowkiq-video: 2 pods of 1 nodes run Video, Thumbs of shop.jobs; node numbers 0 to 1." in told
    assert "shop-lowkiq-slow: 2 to 4 pods" in told
    assert "rollout status statefulset/shop-lowkiq-mail" in told and "exec shop-lowkiq-mail-0 --" in told


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        ({}, None),
        (limit("1Gi", 2, maxRss="341M"), None),
        (limit("1Gi", 2, maxRss="342M"), "maxRss 342M × 3 processes"),
        (limit("1G", 1, maxRss="500M"), "maxRss 500M × 2 processes (1 nodes"),
        (limit(None, 2, maxRss="9G"), None),
        (limit("1Gi", 2, maxRss="none"), None),
        (limit("1Gi", 2, maxRss="357913941"), None),
        (limit("1Gi", 2, maxRss="357913942"), "maxRss 357913942 × 3"),
        ({**GROUPS, "maxRss": "400M"}, "workers.mail.maxRss 400M × 3 processes"),
    ],
)
def test_the_notes_warn_of_a_limit_that_has_no_room_for_a_successor(
    values: Mapping[str, Any], warned: str | None
) -> None:
    told = notes(values)
    assert ("WARNING: " + warned in told) if warned else "WARNING" not in told


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"": {"queues": ["A"]}}, "workers: \"\" can't be a group's name"),
    ({"Mail": {"queues": ["A"]}}, "workers: \"Mail\" can't be a group's name"),
    ({"a-": {"queues": ["A"]}}, "workers: \"a-\" can't be a group's name"),
    ({"web": {"queues": ["A"]}}, "workers: web is the web view's name"),
    ({"a": {"queues": []}}, "workers.a.queues is missing: name the queues"),
    ({"a": {}}, "workers.a.queues is missing: name the queues"),
    ({"a": {"queues": ["A", "B"]}, "b": {"queues": ["B"]}}, "workers.b.queues: B is in workers.a already"),
    ({"a": {"queues": ["A", "A"]}}, "workers.a.queues: A is in workers.a already"),
    ({"a": {"queues": ["A=8", "B"]}, "b": {"queues": ["B=2"]}}, "workers.b.queues: B is in workers.a already"),
    ({"m" * 41: {"queues": ["A"]}}, f"workers.{'m' * 41}: the StatefulSet's name shop-lowkiq-{'m' * 41} has 53 char"),
    ({"a": {"queues": ["A"], "workload": "Deployment"}}, "workers.a.workload: a Deployment's pods have no numbers"),
    ({"a": {"queues": ["A"], "replicas": None}}, "workers.a.replicas is missing: numbered nodes must know"),
    ({"a": {"queues": ["A"], "extraArgs": ["--nodes=3"]}}, "workers.a.extraArgs: --nodes is set by the value nodes"),
    ({"a": {"queues": ["A"], "extraArgs": ["--queues=B"]}}, "workers.a.extraArgs: --queues is set by the value queues"),
    ({"a": {"queues": ["A"], "env": [{"name": "NODE_NUMBER"}]}}, "workers.a.env: NODE_NUMBER is the chart's"),
    ({"a": {"queues": ["A"], "replicas": 10_000}}, "workers.a: 20000 nodes in all"),
    ({"a": {"queues": ["A"], **limit("64Mi")}}, "workers.a.resources.limits.memory 64Mi is too little for nodes=1"),
    ({"a": {"queues": ["A"], "autoscaling": {"enabled": True}}}, "autoscaling.enabled needs web.enabled"),
    ({"a": {"queues": ["A"], "terminationGracePeriodSeconds": 30}}, "workers.a.terminationGracePeriodSeconds 30 is le"),
]


@pytest.mark.parametrize(("workers", "message"), REFUSALS)
def test_the_templates_refuse_groups_that_can_t_be(workers: dict[str, Any], message: str, tmp_path: Path) -> None:
    """They do so without the schema, which some turn off, and which comes first."""
    alone = shutil.copytree(CHART, tmp_path / "lowkiq")
    (alone / "values.schema.json").unlink()
    with pytest.raises(Refused, match=re.escape(message)):
        render_4({"workers": workers}, chart=alone)


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ({"": {"queues": ["A"]}}, "workers: Does not match pattern"),
        ({"A": {"queues": ["A"]}}, "workers: Does not match pattern"),
        ({"m" * 52: {"queues": ["A"]}}, "workers: Does not match pattern"),
        ({"a": {}}, "workers.a: queues is required"),
        ({"a": {"queues": []}}, "workers.a.queues: Array must have at least 1 items"),
        ({"a": {"queues": ["A", "A"]}}, "workers.a.queues: array items[0,1] must be unique"),
        ({"a": {"queues": ["A,B"]}}, "workers.a.queues.0: Does not match pattern"),
        ({"a": {"queues": ["A=0"]}}, "workers.a.queues.0: Does not match pattern"),
        ({"a": {"queues": "A"}}, "workers.a.queues: Invalid type. Expected: array, given: string"),
        ({"a": {"queues": ["A"], "nodes": 0}}, "workers.a.nodes: Must be greater than or equal to 1"),
        ({"a": {"queues": ["A"], "redis": {}}}, "workers.a: Additional property redis is not allowed"),
        ({"a": {"queues": ["A"], "web": {}}}, "workers.a: Additional property web is not allowed"),
        ({"a": {"queues": ["A"], "labels": {"lowkiq/group": "b"}}}, "workers.a.labels: Must not validate"),
    ],
)
def test_the_schema_refuses_them_as_well(workers: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as refused:
        helm_3("template", "shop", CHART, "--kube-version=1.34.0", values=[{"workers": workers}])
    assert message in str(refused.value)


def test_queues_of_all_beside_groups_are_refused() -> None:
    with pytest.raises(Refused, match="queues: with workers, each group names its own"):
        render_4(GROUPS, {"queues": ["Mail"]})


def test_the_schema_lets_a_group_have_every_value_of_nodes_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    of_all = {
        "workers", "redis", "web", "serviceMonitor", "prometheusRule", "networkPolicy", "serviceAccount",
        "fullnameOverride", "extraObjects", "global",
    }  # fmt: skip
    assert set(schema["definitions"]["group"]["properties"]) == set(schema["properties"]) - of_all


def test_the_readme_s_groups_render_as_it_says() -> None:
    (text,) = re.findall(r"```yaml\n# groups.yaml\n(.*?)```", README, re.DOTALL)
    values = yaml.safe_load(text)
    found = objects(values)
    told = {each["metadata"]["name"]: arguments(container(each)) for each in found if each["kind"] == "StatefulSet"}
    assert {name: each["--queues"] for name, each in told.items()} == {
        "shop-lowkiq-mail": "Mail", "shop-lowkiq-orders": "OrderSync,Invoices", "shop-lowkiq-video": "Video",
    }  # fmt: skip
    assert "WARNING" not in notes(values)
