"""The whole chart, in many installations: Helm finds nothing wrong, Kubernetes would take it, and it is safe."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lowkiq import __version__
from tests.deploy.helm.chart import (
    CHART,
    RELEASE,
    Refused,
    helm_3,
    helm_4,
    kubernetes_versions,
    lint_3,
    lint_4,
    notes,
    objects,
    objects_3,
    pod,
    render_4,
)
from tests.deploy.helm.installations import MATRIX

Values = Mapping[str, Any]

#: Other people's kinds, of which there are no schemas here; tests of their own assert their fields.
FOREIGN = {"ScaledObject", "TriggerAuthentication", "ServiceMonitor", "PrometheusRule"}


@pytest.fixture(params=list(MATRIX.values()), ids=list(MATRIX))
def values(request: pytest.FixtureRequest) -> Values:
    return dict(request.param)


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Kind and name of what makes it → the pod's spec."""
    makers = {"StatefulSet", "Deployment", "Pod"}
    return {f"{each['kind']} {each['metadata']['name']}": pod(each) for each in found if each["kind"] in makers}


def test_lint_is_content(values: Values) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in lint_3(values)
    for version in kubernetes_versions():
        assert lint_4(values, kubernetes=version) == []


def test_kubernetes_takes_every_object(values: Values) -> None:
    import kubernetes_validate

    for version in kubernetes_versions():
        found = objects_3(values, kubernetes=f"{version}.0")
        for each in found:
            if each["kind"] not in FOREIGN:
                kubernetes_validate.validate(each, version, strict=True)
        assert {each["apiVersion"].partition("/")[0] for each in found if each["kind"] in FOREIGN} <= {
            "keda.sh",
            "monitoring.coreos.com",
        }


def test_both_helms_make_the_same(values: Values) -> None:
    _, newest = kubernetes_versions()
    ours, theirs = objects(values), objects_3(values, kubernetes=f"{newest}.0")
    for made in (ours, theirs):
        for each in made:
            if each["kind"] == "Secret":
                each["data"].pop("token", None)  # each makes up its own
    assert ours == theirs


#: What the restricted standard asks of pods and of containers, and what else they have.
CONFINED = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
USER = {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
POWERLESS = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True
}  # fmt: skip
HARMLESS_VOLUMES = {"configMap", "emptyDir", "secret"}


def test_pods_fulfil_the_restricted_standard(values: Values) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, with what the baseline already forbids."""
    for kind, made in pods(objects(values)).items():
        assert not made.keys() & {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"}, kind
        assert made["securityContext"] in (CONFINED | USER, CONFINED)
        assert {key for volume in made["volumes"] for key in volume} <= {"name"} | HARMLESS_VOLUMES
        for each in made["containers"]:
            if each["name"] == "proxy":  # a user's own
                continue
            assert each["securityContext"] == POWERLESS
            assert not [port for port in each.get("ports", ()) if "hostPort" in port]
            assert each["resources"] is not None


def test_pods_get_no_token_of_kubernetes_and_no_variables_of_services(values: Values) -> None:
    found = objects(values)
    for made in pods(found).values():
        assert made["automountServiceAccountToken"] is False
        assert made["enableServiceLinks"] is False
    for each in found:
        if each["kind"] == "ServiceAccount":
            assert each["automountServiceAccountToken"] is False
        assert each["kind"] not in {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def test_what_is_secret_is_in_secrets_alone(values: Values) -> None:
    found = objects(values)
    told = [
        base64.b64decode(value).decode()
        for each in found
        if each["kind"] == "Secret"
        for value in each["data"].values()
    ]
    told += ["hunter2", "correct-horse"]
    rest = json.dumps([each for each in found if each["kind"] != "Secret"])
    for secret in told:
        assert secret not in rest
        assert base64.b64encode(secret.encode()).decode() not in rest
        assert secret not in notes(values)


def test_names_and_labels_fit(values: Values) -> None:
    for release in ("shop", "s" * 53):
        for each in objects(values, release=release):
            assert len(each["metadata"]["name"]) <= 63
            # A label is made of it, a hyphen and ten characters of a hash.
            assert each["kind"] != "StatefulSet" or len(each["metadata"]["name"]) <= 52
            for value in each["metadata"].get("labels", {}).values():
                assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", value)


def test_everything_is_found_by_its_labels(values: Values) -> None:
    found = objects(values)
    labels = {name: each["metadata"]["labels"] for each in found if each["kind"] == "Pod"
              for name in [f"Pod {each['metadata']['name']}"]}  # fmt: skip
    for each in found:
        if each["kind"] in {"StatefulSet", "Deployment"}:
            labels[f"{each['kind']} {each['metadata']['name']}"] = each["spec"]["template"]["metadata"]["labels"]
    sets = {name for name in labels if name.startswith("StatefulSet")}
    for each in found:
        selector = each.get("spec", {}).get("selector", each.get("spec", {}).get("podSelector"))
        if selector:
            wanted = selector.get("matchLabels", selector)
            matches = {name for name, told in labels.items() if wanted.items() <= told.items()}
            # A ServiceMonitor looks for Services, which have the same. One policy is for the nodes of all groups.
            assert matches == sets if each["kind"] == "NetworkPolicy" and sets & matches else len(matches) == 1, wanted
            assert not [name for name in matches if name.startswith("Pod")]


def test_a_new_version_of_the_chart_alone_restarts_no_pod(values: Values) -> None:
    for each in objects(values):
        if each["kind"] in {"StatefulSet", "Deployment"}:
            assert "0.1.0" not in json.dumps(each["spec"]["template"])


def test_the_least_is_what_it_takes_to_run_jobs_and_no_more() -> None:
    kinds = {each["kind"] for each in objects()}
    assert kinds == {"StatefulSet", "Service", "PodDisruptionBudget", "Secret", "ServiceAccount", "Pod"}


def test_an_older_kubernetes_than_the_chart_knows_is_refused() -> None:
    major, minor = kubernetes_versions()[0].split(".")
    with pytest.raises(Refused, match="chart requires kubeVersion"):
        objects_3(kubernetes=f"{major}.{int(minor) - 1}.9")
    objects_3(kubernetes=f"{major}.{minor}.3-eks-abcdef1")


def test_the_chart_is_of_this_lowkiq() -> None:
    assert f"appVersion: {__version__}\n" in (CHART / "Chart.yaml").read_text()


def test_packaged_it_is_the_same(tmp_path: Path) -> None:
    with helm_4().Chart.load(CHART) as chart:
        archive = chart.save(tmp_path)
    assert render_4(chart=Path(archive)) == render_4()
    assert helm_3("template", RELEASE, archive, "--kube-version=1.34.0") == helm_3(
        "template", RELEASE, CHART, "--kube-version=1.34.0"
    )
