"""The web view's objects, and what asks it: Ingress, Prometheus, KEDA."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from lowkiq.environment import SHORTEST_SECRET
from tests.deploy.helm import Refused, container, environment, notes, objects, one
from tests.deploy.helm_matrix import AUTOSCALED, MATRIX, WEB
from tests.deploy.kubernetes_api import KubernetesApi


def of_web(*values: Any) -> dict[str, Any]:
    return container(one(objects(*values), "Deployment"))


def token_of(manifest: dict[str, Any]) -> str:
    return base64.b64decode(manifest["data"]["token"]).decode()


def test_it_is_a_pod_of_its_own_beside_the_nodes() -> None:
    made = of_web(WEB)
    assert [*made["command"], *made["args"]] == ["lowkiq", "web", "--require=shop.jobs", "--bind=0.0.0.0:8080"]
    assert made["image"] == container(one(objects(WEB), "StatefulSet"))["image"]
    told = environment(made)
    assert told["LOWKIQ_WEB_TOKEN"] == {"secretKeyRef": {"name": "shop-lowkiq-web", "key": "token"}}
    assert told["LOWKIQ_NAMESPACE"] == "lowkiq" and "LOWKIQ_REDIS_URL" in told


def test_it_has_the_flags_that_are_asked_for() -> None:
    made = of_web(MATRIX["web, open and looked at only"])
    assert made["args"][2:] == ["--read-only", "--no-payloads", "--no-auth"]
    assert "LOWKIQ_WEB_TOKEN" not in environment(made)
    assert not [
        each
        for each in objects(MATRIX["web, open and looked at only"])
        if each["metadata"]["name"].endswith("-web") and each["kind"] == "Secret"
    ]
    other = of_web(MATRIX["web, with a token given"])
    assert other["args"][1] == "--bind=[::]:9000"
    assert other["ports"] == [{"name": "http", "containerPort": 9000}]


def test_it_is_alive_without_redis_but_ready_only_with_it() -> None:
    made = of_web(WEB)
    assert made["livenessProbe"]["httpGet"] == made["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert made["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_a_secret_that_is_there_may_have_a_user_as_well() -> None:
    told = environment(of_web(MATRIX["secrets that are there"]))
    assert told["LOWKIQ_WEB_TOKEN"]["secretKeyRef"] == {"name": "shop-web", "key": "token"}
    for name in ("user", "password"):
        reference = told[f"LOWKIQ_WEB_{name.upper()}"]["secretKeyRef"]
        assert reference == {"name": "shop-web", "key": name, "optional": True}


def test_a_token_that_is_given_is_taken_and_a_new_one_restarts_the_view() -> None:
    given = MATRIX["web, with a token given"]
    assert token_of(one(objects(given), "Secret", "shop-lowkiq-web")) == "correct-horse"
    annotations = [
        one(objects(given, {"web": {"token": token}}), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        for token in ("correct-horse", "battery-staple")
    ]
    assert annotations[0] != annotations[1]


def test_a_token_is_made_up_once_and_kept_by_upgrades() -> None:
    with KubernetesApi() as api:
        first = one(api.render(WEB), "Secret", "shop-lowkiq-web")
        assert re.fullmatch(f"[A-Za-z0-9]{{{SHORTEST_SECRET},}}", token_of(first)) and len(token_of(first)) == 40
        assert token_of(one(api.render(WEB), "Secret", "shop-lowkiq-web")) != token_of(first), "nothing was installed"
        api.create(first)
        for _ in range(2):
            assert one(api.render(WEB), "Secret", "shop-lowkiq-web")["data"] == first["data"]
        given = one(api.render(WEB, {"web": {"token": "correct-horse"}}), "Secret", "shop-lowkiq-web")
        assert token_of(given) == "correct-horse"


def test_a_secret_without_a_token_gets_one() -> None:
    with KubernetesApi() as api:
        api.create({"kind": "Secret", "metadata": {"name": "shop-lowkiq-web"}})
        assert len(token_of(one(api.render(WEB), "Secret", "shop-lowkiq-web"))) == 40


def test_service_and_ingress_lead_to_it() -> None:
    found = objects(MATRIX["web, for the world"])
    service = one(found, "Service", "shop-lowkiq-web")["spec"]
    assert (service["type"], service["ports"]) == (
        "LoadBalancer",
        [{"name": "http", "port": 443, "targetPort": "http"}],
    )
    ingress = one(found, "Ingress")["spec"]
    assert ingress["ingressClassName"] == "nginx"
    assert ingress["tls"] == [{"secretName": "jobs-tls", "hosts": ["jobs.example.com", "*.example.org"]}]
    assert [rule["host"] for rule in ingress["rules"]] == ["jobs.example.com", "*.example.org"]
    for rule in ingress["rules"]:
        (path,) = rule["http"]["paths"]
        assert (path["path"], path["pathType"]) == ("/", "Prefix")
        assert path["backend"] == {"service": {"name": "shop-lowkiq-web", "port": {"name": "http"}}}


def test_prometheus_shows_the_token() -> None:
    found = objects(MATRIX["web, for the world"])
    monitor = one(found, "ServiceMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    service = one(found, "Service", "shop-lowkiq-web")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {
        "port": "http", "path": "/metrics", "interval": "15s",
        "authorization": {"type": "Bearer", "credentials": {"name": "shop-lowkiq-web", "key": "token"}},
    }  # fmt: skip
    there = one(objects(MATRIX["secrets that are there"]), "ServiceMonitor")["spec"]["endpoints"][0]
    assert there["authorization"]["credentials"]["name"] == "shop-web"
    assert "authorization" not in one(objects(MATRIX["autoscaled, web open"]), "ServiceMonitor")["spec"]["endpoints"][0]


def test_keda_asks_it_for_the_lag_with_the_token() -> None:
    found = objects(AUTOSCALED)
    scaled = one(found, "ScaledObject")
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    spec = scaled["spec"]
    stateful = one(found, "StatefulSet")
    assert spec["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": stateful["metadata"]["name"],
    }
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 5)
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("metrics-api", "Value")
    assert trigger["metadata"] == {
        "url": "http://shop-lowkiq-web.jobs.svc:80/api/v1/stats", "valueLocation": "total.lag", "targetValue": "30",
        "authMode": "bearer",
    }  # fmt: skip
    authentication = one(found, "TriggerAuthentication", trigger["authenticationRef"]["name"])
    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": "token", "name": "shop-lowkiq-web", "key": "token"}
    ]


def test_keda_asks_an_open_one_without() -> None:
    found = objects(MATRIX["autoscaled, web open"])
    (trigger,) = one(found, "ScaledObject")["spec"]["triggers"]
    assert "authenticationRef" not in trigger and "authMode" not in trigger["metadata"]
    assert not [each for each in found if each["kind"] == "TriggerAuthentication"]


def test_pods_go_slowly_and_never_all_of_them() -> None:
    behavior = one(objects(AUTOSCALED), "ScaledObject")["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] > behavior["scaleUp"]["stabilizationWindowSeconds"]
    with pytest.raises(Refused, match="minReplicas"):
        objects(AUTOSCALED, {"autoscaling": {"minReplicas": 0}})


def test_a_network_policy_closes_the_nodes_and_lets_to_the_view_whom_it_is_told() -> None:
    found = objects(MATRIX["network policy"])
    of_nodes, of_view = (one(found, "NetworkPolicy", name)["spec"] for name in ("shop-lowkiq", "shop-lowkiq-web"))
    assert of_nodes["ingress"] == [] and "Ingress" in of_nodes["policyTypes"]
    (rule,) = of_view["ingress"]
    assert rule["ports"] == [{"port": "http"}]
    assert rule["from"] == [{"podSelector": {}}, *MATRIX["network policy"]["networkPolicy"]["webFrom"]]
    for spec in (of_nodes, of_view):
        dns, *others = spec["egress"]
        assert {(port["port"], port["protocol"]) for port in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
        assert others == MATRIX["network policy"]["networkPolicy"]["egress"]


def test_without_rules_jobs_may_connect_to_everything() -> None:
    spec = one(objects(MATRIX["network policy, nodes alone"]), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"] and "egress" not in spec


def test_the_notes_say_how_to_get_there_and_warn_of_open_doors() -> None:
    assert "port-forward service/shop-lowkiq-web 8080:80" in notes(WEB)
    assert "get secret shop-lowkiq-web -o go-template='{{.data.token | base64decode}}'" in notes(WEB)
    assert "https://jobs.example.com/" in notes(MATRIX["web, for the world"])
    assert "WARNING" not in notes(MATRIX["web, for the world"])
    world = {"web": {"ingress": {"tlsSecret": ""}}}
    assert "the token travels in the open" in notes(MATRIX["web, for the world"], world)
    open_door = {"web": {"noAuth": True}}
    assert "sees all jobs, and can delete them" in notes(MATRIX["web, for the world"], open_door)
    assert "the password travels in the open" in notes() and "the password travels" not in notes(
        {"redis": {"url": "rediss://:a@b"}}
    )
    assert "node numbers 0 to 3" in notes()
    assert "count as missing" in notes(AUTOSCALED)
