"""Kubernetes API, as far as Helm's `lookup` asks it: which kinds there are, and secrets."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.deploy.helm.chart import CHART, NAMESPACE, RELEASE, documents, helm_4, merged
from tests.deploy.helm.installations import LEAST

SECRETS = {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret", "verbs": ["get"]}


class KubernetesApi:
    """A cluster of a few secrets, and a Helm that looks at it."""

    def __init__(self) -> None:
        self._answers: dict[str, Any] = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [SECRETS]},
        }
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def create(self, secret: Mapping[str, Any]) -> None:
        name = secret["metadata"]["name"]
        self._answers[f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"] = {"apiVersion": "v1", **secret}

    def render(self, *values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Objects that an installation or upgrade in this cluster would make."""
        helm = helm_4()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        with (
            helm.Config(kubeconfig_content=json.dumps(config), namespace=NAMESPACE) as cluster,
            helm.Chart.load(CHART) as chart,
        ):
            files = cluster.render(chart, merged(LEAST, *values), name=RELEASE, namespace=NAMESPACE)
        return documents(files)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answers = self._answers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = answers.get(self.path.partition("?")[0])
                code = 200 if answer else 404
                gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
                body = json.dumps(answer or gone).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody wants to read it."""

        return Handler
