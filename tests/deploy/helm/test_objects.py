"""Facts about the chart's objects: of these values, at these places, this."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import pytest

from lowkiq.environment import SHORTEST_SECRET
from lowkiq_supervisor.control import ping
from lowkiq_supervisor.options import DEFAULT_BOOT_TIMEOUT, DEFAULT_DRAIN_TIMEOUT
from tests.deploy.helm.chart import at, notes, objects, one
from tests.deploy.helm.installations import AUTOSCALED, MATRIX, WEB, limit
from tests.deploy.helm.kubernetes_api import KubernetesApi

THERE, WORLD, EVERYTHING = MATRIX["secrets that are there"], MATRIX["web, for the world"], MATRIX["everything"]
OPEN, GIVEN = MATRIX["web, open and looked at only"], MATRIX["web, with a token given"]
POLICY = MATRIX["network policy"]
ELASTIC = MATRIX["elastic, a Deployment of as many pods as others say"]
EGRESS = POLICY["networkPolicy"]["egress"]
DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
TOKEN = {"name": "shop-lowkiq-web", "key": "token"}
ANSWERS = ["lowkiq-supervisor", "ping"]
MAX_RSS = "StatefulSet args.--max-rss"

#: What is so → of which values, and where: see `at`.
FACTS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────
    "the supervisor's times are its own": ({}, {
        "StatefulSet container.command": ["lowkiq-supervisor"],
        "StatefulSet args.--drain-timeout": f"{DEFAULT_DRAIN_TIMEOUT:g}",
        "StatefulSet args.--boot-timeout": f"{DEFAULT_BOOT_TIMEOUT:g}",
    }),
    "another boot timeout": ({"bootTimeout": 600}, {"StatefulSet args.--boot-timeout": "600"}),
    "a paused release still tells a number with which a pod can start": (limit("2Gi", 4, replicas=0), {
        "StatefulSet spec.replicas": 0,
        "StatefulSet env.NUMBER_OF_NODES": "4",
    }),
    "autoscaled, the numbers are those of the most pods and the replicas are KEDA's": (AUTOSCALED, {
        "StatefulSet spec.replicas": None,
        "StatefulSet env.NUMBER_OF_NODES": "20",
    }),
    "elastic nodes have no numbers": ({"ownership": "elastic"}, {
        "StatefulSet env.NODE_NUMBER": None,
        "StatefulSet env.NUMBER_OF_NODES": None,
        "StatefulSet spec.replicas": 2,
        "StatefulSet spec.serviceName": "shop-lowkiq-headless",
    }),
    "nor does a Deployment of them have a service, or a number that isn't named": (ELASTIC, {
        "Deployment spec.replicas": None,
        "Deployment spec.serviceName": None,
        "Deployment spec.podManagementPolicy": None,
        "Deployment spec.updateStrategy": None,
        "Deployment spec.strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "Deployment spec.minReadySeconds": 10,
        "Deployment env.NODE_NUMBER": None,
        "Deployment args.--nodes": "2",
        "Service": None,
        "StatefulSet": None,
    }),
    "KEDA scales the Deployment": (MATRIX["elastic, autoscaled"], {
        "ScaledObject spec.scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop-lowkiq"},
        "Deployment/shop-lowkiq spec.replicas": None,
        "Deployment/shop-lowkiq env.NUMBER_OF_NODES": None,
        "Pod container.args.0": "nodes",
    }),
    "a group may be elastic beside one of numbers": (MATRIX["groups, one of them elastic"], {
        "Deployment/shop-lowkiq-a env.NUMBER_OF_NODES": None,
        "StatefulSet/shop-lowkiq-b env.NUMBER_OF_NODES": "4",
        "Service metadata.name": "shop-lowkiq-b-headless",
    }),
    "pods come together and are replaced one by one": ({}, {
        "StatefulSet spec.podManagementPolicy": "Parallel",
        "StatefulSet spec.updateStrategy": {"type": "RollingUpdate"},
        "StatefulSet spec.minReadySeconds": 10,
        "PodDisruptionBudget spec.maxUnavailable": 1,
        "PodDisruptionBudget spec.unhealthyPodEvictionPolicy": "AlwaysAllow",
        "StatefulSet spec.serviceName": "shop-lowkiq-headless",
        "Service/shop-lowkiq-headless spec.clusterIP": "None",
    }),
    "without a limit memory isn't looked at": (limit(None), {MAX_RSS: None}),
    "nor with an empty one": (limit(""), {MAX_RSS: None}),
    "nor without any": ({"resources": {"limits": None, "requests": None}}, {MAX_RSS: None}),
    "nor if that is the wish": ({"maxRss": "none"}, {MAX_RSS: None}),
    "whatever the limit is": (limit("lots", maxRss="none"), {MAX_RSS: None}),
    "a wish is taken as it is": ({"maxRss": "1.5G"}, {MAX_RSS: "1.5G"}),
    "also where idle nodes would reach their part of the limit": (limit("300Mi", 4, maxRss="55M"), {MAX_RSS: "55M"}),
    "ready is what ping calls so, and only a supervisor that doesn't answer is restarted": ({}, {
        "StatefulSet container.readinessProbe.exec.command": ["lowkiq-supervisor", "ping", "--ready"],
        "StatefulSet container.livenessProbe.exec.command": ANSWERS,
        "StatefulSet container.startupProbe.exec.command": ANSWERS,
    }),
    "the pod never starts a Redis of its own": ({}, {
        "StatefulSet args.--no-embedded-redis": "",
        "StatefulSet env.LOWKIQ_REDIS_URL.secretKeyRef": {"name": "shop-lowkiq-redis", "key": "redis-url"},
    }),
    "one that is elsewhere is told by other means": ({"redis": {"url": "", "elsewhere": True}}, {
        "StatefulSet args.--no-embedded-redis": "",
        "StatefulSet env.LOWKIQ_REDIS_URL": None,
    }),
    "secrets that are there are used, and none is made": (THERE, {
        "StatefulSet env.LOWKIQ_REDIS_URL.secretKeyRef": {"name": "shop-redis", "key": "url"},
        "Deployment env.LOWKIQ_WEB_TOKEN.secretKeyRef": {"name": "shop-web", "key": "token"},
        "Deployment env.LOWKIQ_WEB_USER.secretKeyRef": {"name": "shop-web", "key": "user", "optional": True},
        "Deployment env.LOWKIQ_WEB_PASSWORD.secretKeyRef": {"name": "shop-web", "key": "password", "optional": True},
        "Secret": None,
    }),
    "what pods can have they get": (EVERYTHING, {
        "StatefulSet pod.affinity": EVERYTHING["affinity"],
        "StatefulSet pod.nodeSelector": EVERYTHING["nodeSelector"],
        "StatefulSet pod.tolerations": EVERYTHING["tolerations"],
        "StatefulSet pod.priorityClassName": EVERYTHING["priorityClassName"],
        "StatefulSet pod.topologySpreadConstraints": EVERYTHING["topologySpreadConstraints"],
        "StatefulSet pod.imagePullSecrets": [{"name": "registry"}, {"name": "other"}],
        "StatefulSet pod.serviceAccountName": "jobs",
        "StatefulSet pod.securityContext.runAsUser": None,
        "StatefulSet pod.volumes.-1": EVERYTHING["volumes"][0],
        "StatefulSet container.image": f"registry.example.com/shop@sha256:{'0' * 64}",
        "StatefulSet args.--queues": "OrderSync,Mail",
        "StatefulSet args.--threads": "20",
        "StatefulSet pod.terminationGracePeriodSeconds": 40,
        "StatefulSet pod.dnsPolicy": EVERYTHING["dnsPolicy"],
        "StatefulSet pod.dnsConfig": EVERYTHING["dnsConfig"],
        "StatefulSet pod.hostAliases": EVERYTHING["hostAliases"],
        "StatefulSet pod.runtimeClassName": EVERYTHING["runtimeClassName"],
        "StatefulSet pod.containers.1": EVERYTHING["extraContainers"][0],
        "StatefulSet container.lifecycle": EVERYTHING["lifecycle"],
        "StatefulSet spec.updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}},
        "StatefulSet metadata.annotations": EVERYTHING["annotations"],
        "Deployment metadata.annotations": EVERYTHING["annotations"],
        "ConfigMap/orders-more apiVersion": "v1",
        "ConfigMap/shop-text apiVersion": "v1",
        "StatefulSet container.args.-2": "--preload",
        "StatefulSet container.args.-1": "--max-age=6h",
        "StatefulSet container.env.-2": EVERYTHING["env"][0],
        "StatefulSet container.env.-1": EVERYTHING["env"][1],
        "StatefulSet container.envFrom": EVERYTHING["envFrom"],
        "StatefulSet container.volumeMounts.-1": EVERYTHING["volumeMounts"][0],
        "StatefulSet metadata.name": "orders",
        "StatefulSet metadata.labels.team": "orders",
        "StatefulSet spec.template.metadata.labels.team": "orders",
        "StatefulSet spec.template.metadata.labels.sidecar|istio|io/inject": "false",
        "StatefulSet spec.template.metadata.annotations": EVERYTHING["podAnnotations"],
    }),
    # ── the web view ────────────────────────────────────────────────────────────────────────────────────────────────
    "the web view is a pod of its own beside the nodes, alive without Redis but ready only with it": (WEB, {
        "Deployment container.command": ["lowkiq", "web"],
        "Deployment container.args": ["--require=shop.jobs", "--bind=0.0.0.0:8080"],
        "Deployment container.image": "registry.example.com/shop:v1",
        "StatefulSet container.image": "registry.example.com/shop:v1",
        "Deployment env.LOWKIQ_WEB_TOKEN": {"secretKeyRef": TOKEN},
        "Deployment env.LOWKIQ_NAMESPACE": "lowkiq",
        "Deployment env.LOWKIQ_REDIS_URL.secretKeyRef.name": "shop-lowkiq-redis",
        "Deployment container.livenessProbe.httpGet": {"path": "/healthz", "port": "http"},
        "Deployment container.startupProbe.httpGet": {"path": "/healthz", "port": "http"},
        "Deployment container.readinessProbe.httpGet": {"path": "/readyz", "port": "http"},
    }),
    "it has the flags that are asked for": (OPEN, {
        "Deployment args": {
            "--require": "shop.jobs", "--bind": "0.0.0.0:8080", "--read-only": "", "--no-payloads": "",
            "--no-auth": "",
        },
        "Deployment env.LOWKIQ_WEB_TOKEN": None,
        "Secret/shop-lowkiq-web": None,
    }),
    "and the address": (GIVEN, {
        "Deployment args.--bind": "[::]:9000",
        "Deployment container.ports": [{"name": "http", "containerPort": 9000}],
    }),
    "Service and Ingress lead to it": (WORLD, {
        "Service/shop-lowkiq-web spec.type": "LoadBalancer",
        "Service/shop-lowkiq-web spec.ports": [{"name": "http", "port": 443, "targetPort": "http"}],
        "Ingress spec.ingressClassName": "nginx",
        "Ingress spec.tls": [{"secretName": "jobs-tls", "hosts": ["jobs.example.com", "*.example.org"]}],
        "Ingress spec.rules": [
            {"host": host, "http": {"paths": [{
                "path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "shop-lowkiq-web", "port": {"name": "http"}}},
            }]}}
            for host in ("jobs.example.com", "*.example.org")
        ],
    }),
    "and that below a path, which its links begin with": (
        {**WORLD, "web": {**WORLD["web"], "ingress": {**WORLD["web"]["ingress"], "path": "/lowkiq"}}},
        {"Deployment env.LOWKIQ_WEB_ROOT_PATH": "/lowkiq"},
    ),
    "Prometheus shows the token": (WORLD, {
        "ServiceMonitor apiVersion": "monitoring.coreos.com/v1",
        "ServiceMonitor metadata.labels.release": "prometheus",
        "ServiceMonitor spec.endpoints": [{
            "port": "http", "path": "/metrics", "interval": "15s",
            "authorization": {"type": "Bearer", "credentials": TOKEN},
        }],
    }),
    "Prometheus shows a token that was there": (THERE, {
        "ServiceMonitor spec.endpoints.0.authorization.credentials.name": "shop-web",
    }),
    "KEDA asks for the lag with the token": (AUTOSCALED, {
        "ScaledObject apiVersion": "keda.sh/v1alpha1",
        "ScaledObject spec.scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "shop-lowkiq"},
        "StatefulSet metadata.name": "shop-lowkiq",
        "ScaledObject spec.minReplicaCount": 1,
        "ScaledObject spec.maxReplicaCount": 5,
        "ScaledObject spec.triggers": [{
            "type": "metrics-api", "metricType": "Value", "authenticationRef": {"name": "shop-lowkiq"},
            "metadata": {
                "url": "http://shop-lowkiq-web.jobs.svc:80/api/v1/stats", "valueLocation": "total.lag",
                "targetValue": "30", "authMode": "bearer",
            },
        }],
        "TriggerAuthentication/shop-lowkiq spec.secretTargetRef": [{"parameter": "token", **TOKEN}],
    }),
    "both ask an open one without": (MATRIX["autoscaled, web open"], {
        "ServiceMonitor spec.endpoints.0.authorization": None,
        "ScaledObject spec.triggers.0.authenticationRef": None,
        "ScaledObject spec.triggers.0.metadata.authMode": None,
        "TriggerAuthentication": None,
    }),
    "a network policy closes the nodes, and lets to the view whom it is told": (POLICY, {
        "NetworkPolicy/shop-lowkiq spec.policyTypes": ["Ingress", "Egress"],
        "NetworkPolicy/shop-lowkiq spec.ingress": [],
        "NetworkPolicy/shop-lowkiq spec.egress": [DNS, *EGRESS],
        "NetworkPolicy/shop-lowkiq-web spec.ingress": [
            {"ports": [{"port": "http"}], "from": [{"podSelector": {}}, *POLICY["networkPolicy"]["webFrom"]]}
        ],
        "NetworkPolicy/shop-lowkiq-web spec.egress": [DNS, *EGRESS],
    }),
    "without rules jobs may connect to everything": (MATRIX["network policy, nodes alone"], {
        "NetworkPolicy spec.policyTypes": ["Ingress"],
        "NetworkPolicy spec.egress": None,
    }),
    "helm test looks at the nodes": ({}, {
        "Pod metadata.annotations.helm|sh/hook": "test",
        "Pod spec.restartPolicy": "Never",
        "Pod container.command": ["lowkiq"],
        "Pod container.args": ["nodes", "--require=shop.jobs"],
    }),
    "and at the web view": (WEB, {
        "Pod spec.containers.0.args": ["nodes", "--require=shop.jobs"],
        "Pod spec.containers.1.args.-1": "http://shop-lowkiq-web:80/readyz",
    }),
    "autoscaled, at jobs, since some numbers are always missing": (AUTOSCALED, {
        "Pod spec.containers.0.args.0": "stats",
    }),
}  # fmt: skip


@pytest.mark.parametrize(("values", "places"), FACTS.values(), ids=FACTS)
def test_what_is_where(values: Mapping[str, Any], places: Mapping[str, Any]) -> None:
    found = objects(values)
    assert {place: at(found, place) for place in places} == places


def test_ping_tells_by_its_exit_code_what_probes_ask() -> None:
    assert (ping.OK, ping.NOT_READY, ping.UNREACHABLE) == (0, 1, 2)


OPEN_WORLD = {**WORLD, "web": {**WORLD["web"], "noAuth": True}}
WORLD_WITHOUT_TLS = {**WORLD, "web": {**WORLD["web"], "ingress": {**WORLD["web"]["ingress"], "tlsSecret": ""}}}


@pytest.mark.parametrize(
    ("values", "text", "is_said"),
    [
        ({}, "the password travels in the open", True),
        ({"redis": {"url": "rediss://:a@b"}}, "the password travels", False),
        ({}, "node numbers 0 to 3", True),
        (AUTOSCALED, "count as missing", True),
        (WEB, "port-forward service/shop-lowkiq-web 8080:80", True),
        (WEB, "get secret shop-lowkiq-web -o go-template='{{.data.token | base64decode}}'", True),
        (WORLD, "https://jobs.example.com/", True),
        (WORLD, "WARNING", False),
        (WORLD_WITHOUT_TLS, "the token travels in the open", True),
        (OPEN_WORLD, "sees all jobs, and can delete them", True),
    ],
)
def test_the_notes_say_how_to_get_there_and_warn_of_open_doors(
    values: Mapping[str, Any], text: str, is_said: bool
) -> None:
    assert (text in notes(values)) is is_said


# ── the web view, and what asks it ──────────────────────────────────────────────────────────────────────────────────


def token_of(manifest: dict[str, Any]) -> str:
    return base64.b64decode(manifest["data"]["token"]).decode()


def test_a_token_that_is_given_is_taken_and_a_new_one_restarts_the_view() -> None:
    assert token_of(one(objects(GIVEN), "Secret", "shop-lowkiq-web")) == "correct-horse"
    annotations = [
        at(objects(GIVEN, {"web": {"token": token}}), "Deployment spec.template.metadata.annotations")
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


def test_prometheus_finds_the_service_by_its_labels() -> None:
    found = objects(WORLD)
    wanted = at(found, "ServiceMonitor spec.selector.matchLabels")
    assert wanted.items() <= at(found, "Service/shop-lowkiq-web metadata.labels").items()


def test_pods_go_slowly() -> None:
    behavior = at(objects(AUTOSCALED), "ScaledObject spec.advanced.horizontalPodAutoscalerConfig.behavior")
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] > behavior["scaleUp"]["stabilizationWindowSeconds"]
