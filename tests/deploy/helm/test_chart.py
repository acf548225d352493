"""The whole chart, in many installations: Helm finds nothing wrong, Kubernetes would take it, and it is safe."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Callable, Mapping
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
    one,
    render_4,
)
from tests.deploy.helm.installations import MATRIX
from tests.deploy.helm.pod_security import violations

Values = Mapping[str, Any]

#: Other people's kinds, of which there are no schemas here; tests of their own assert their fields.
FOREIGN = {"ScaledObject", "TriggerAuthentication", "ServiceMonitor"}


@pytest.fixture(params=list(MATRIX.values()), ids=list(MATRIX))
def values(request: pytest.FixtureRequest) -> Values:
    return dict(request.param)


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Kind of what makes it → the pod's spec."""
    templates = {each["kind"]: each["spec"].get("template", each) for each in found if "spec" in each}
    return {kind: templates[kind]["spec"] for kind in ("StatefulSet", "Deployment", "Pod") if kind in templates}


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


def test_pods_fulfil_the_restricted_standard(values: Values) -> None:
    for kind, pod in pods(objects(values)).items():
        assert violations(pod) == [], kind
        for each in pod["containers"]:
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            assert each["resources"] is not None


def break_it(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(pod: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            pod = pod[int(parent)] if isinstance(pod, list) else pod.setdefault(parent, {})
        pod[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("hostNetwork", True),
        ("hostPID", True),
        ("securityContext.runAsNonRoot", False),
        ("securityContext.runAsUser", 0),
        ("securityContext.seccompProfile", {"type": "Unconfined"}),
        ("securityContext.seccompProfile", {}),
        ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
        ("volumes", [{"name": "host", "hostPath": {"path": "/"}}]),
        ("containers.0.securityContext", {}),
        ("containers.0.securityContext.privileged", True),
        ("containers.0.securityContext.allowPrivilegeEscalation", True),
        ("containers.0.securityContext.capabilities.add", ["SYS_PTRACE"]),
        ("containers.0.securityContext.capabilities.drop", ["NET_RAW"]),
        ("containers.0.securityContext.runAsUser", 0),
        ("containers.0.securityContext.procMount", "Unmasked"),
        ("containers.0.ports", [{"containerPort": 80, "hostPort": 80}]),
        ("initContainers", [{"name": "other"}]),
    ],
)
def test_the_checker_of_the_standard_sees_what_breaks_it(path: str, value: Any) -> None:
    pod = copy.deepcopy(pods(objects())["StatefulSet"])
    break_it(path, value)(pod)
    assert violations(pod)


def test_pods_get_no_token_of_kubernetes_and_no_variables_of_services(values: Values) -> None:
    found = objects(values)
    for pod in pods(found).values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
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
            for value in each["metadata"]["labels"].values():
                assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", value)


def test_everything_is_found_by_its_labels(values: Values) -> None:
    found = objects(values)
    labels = {kind: each["spec"]["template"]["metadata"]["labels"] for kind in ("StatefulSet", "Deployment")
              for each in found if each["kind"] == kind}  # fmt: skip
    labels |= {"Pod": one(found, "Pod")["metadata"]["labels"]}
    selectors = [each["spec"].get("selector", each["spec"].get("podSelector")) for each in found if "spec" in each]
    for selector in filter(None, selectors):
        wanted = selector.get("matchLabels", selector)
        matches = [kind for kind, told in labels.items() if wanted.items() <= told.items()]
        # A ServiceMonitor looks for Services, which have the same.
        assert len(matches) == 1 and matches != ["Pod"], wanted


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


def test_helm_test_looks_at_the_nodes_and_at_the_web_view() -> None:
    plain, web, scaled = (one(objects(MATRIX[name]), "Pod") for name in ("least", "web", "autoscaled"))
    assert plain["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert plain["spec"]["restartPolicy"] == "Never"
    commands = [[*each["command"], *each["args"]] for each in web["spec"]["containers"]]
    assert commands[0] == ["lowkiq", "nodes", "--require=shop.jobs"]
    assert commands[1][-1] == "http://shop-lowkiq-web:80/readyz"
    assert len(plain["spec"]["containers"]) == 1
    assert scaled["spec"]["containers"][0]["args"][0] == "stats", "some numbers are always missing"


def test_packaged_it_is_the_same(tmp_path: Path) -> None:
    with helm_4().Chart.load(CHART) as chart:
        archive = chart.save(tmp_path)
    assert render_4(chart=Path(archive)) == render_4()
    assert helm_3("template", RELEASE, archive, "--kube-version=1.34.0") == helm_3(
        "template", RELEASE, CHART, "--kube-version=1.34.0"
    )
