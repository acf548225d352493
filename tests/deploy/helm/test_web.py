"""The web view's objects, and what asks it: Ingress, Prometheus, KEDA."""

from __future__ import annotations

import base64
import re
from typing import Any

from lowkiq.environment import SHORTEST_SECRET
from tests.deploy.helm.chart import at, objects, one
from tests.deploy.helm.installations import AUTOSCALED, MATRIX, WEB
from tests.deploy.helm.kubernetes_api import KubernetesApi


def token_of(manifest: dict[str, Any]) -> str:
    return base64.b64decode(manifest["data"]["token"]).decode()


def test_a_token_that_is_given_is_taken_and_a_new_one_restarts_the_view() -> None:
    given = MATRIX["web, with a token given"]
    assert token_of(one(objects(given), "Secret", "shop-lowkiq-web")) == "correct-horse"
    annotations = [
        at(objects(given, {"web": {"token": token}}), "Deployment spec.template.metadata.annotations")
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
    found = objects(MATRIX["web, for the world"])
    wanted = at(found, "ServiceMonitor spec.selector.matchLabels")
    assert wanted.items() <= at(found, "Service/shop-lowkiq-web metadata.labels").items()


def test_pods_go_slowly() -> None:
    behavior = at(objects(AUTOSCALED), "ScaledObject spec.advanced.horizontalPodAutoscalerConfig.behavior")
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] > behavior["scaleUp"]["stabilizationWindowSeconds"]
