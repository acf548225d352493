"""The chart's values: all are explained, and what can't be meant is refused in words that help."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from lowkiq.admin.beats.health import MOST_NODES
from lowkiq.environment import SHORTEST_SECRET, Found
from lowkiq.redis_url import SCHEMES
from lowkiq.settings import NAME
from lowkiq_supervisor import parsing
from tests.deploy.helm.chart import CHART, Refused, at, helm_3, lint_3, objects, one, render_4
from tests.deploy.helm.installations import WEB, limit

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
README = (CHART / "README.md").read_text()

#: Values that go to Kubernetes as a whole.
WHOLE = {"resources", "web.resources", "updateStrategy", "podSecurityContext", "securityContext"}


def flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = before + name
        if isinstance(value, dict) and value and path not in WHOLE:
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def test_the_readme_s_table_is_the_values() -> None:
    table = README.partition("| value | default | meaning |")[2]
    rows = re.findall(r"^\| `([^`]+)` \| (?:`(.+?)`)? ?\| (.*) \|$", table, re.MULTILINE)
    told = {name: default for name, default, _ in rows}
    assert list(told) == [name for name, _ in flat(VALUES)]
    for name, value in flat(VALUES):
        assert told[name] == (value if isinstance(value, str) else json.dumps(value)), name


def test_the_readme_s_links_and_example_are_good() -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (CHART / link).exists(), link
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", README, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= headings
    first, elastic, _, password = (
        yaml.safe_load(text) for text in re.findall(r"^ *```yaml\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
    )
    objects({"redis": {"url": ""}}, first)
    made = objects(elastic)
    target = one(made, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target["name"] == one(made, target["kind"])["metadata"]["name"]
    objects({"redis": {"url": ""}}, password)


def test_the_schema_knows_every_value_and_no_other() -> None:
    def properties(schema: Mapping[str, Any], before: str = "") -> Iterator[str]:
        for name, inner in schema["properties"].items():
            assert schema["additionalProperties"] is False
            if "properties" in inner:
                yield from properties(inner, f"{before}{name}.")
            else:
                yield before + name

    # Umbrella charts pass `global` to all of theirs.
    assert set(properties(SCHEMA)) == {name for name, _ in flat(VALUES)} | {"global"}


def test_the_schema_is_one() -> None:
    import jsonschema

    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)


def test_under_an_umbrella_chart_it_takes_what_all_get() -> None:
    objects({"global": {"registry": "registry.example.com"}})


def test_the_chart_alone_passes_lint_and_says_what_it_needs() -> None:
    nothing = {"app": "", "image": {"repository": "", "tag": ""}, "redis": {"url": ""}}
    assert "0 chart(s) failed" in lint_3(nothing)


def test_as_much_as_is_not_refused_is_taken() -> None:
    objects({"replicas": MOST_NODES, "nodes": 1})
    assert at(objects(limit("400Mi", 4)), "StatefulSet args.--max-rss") == "64M"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"app": ""}, "app is missing: the module with your Lowkiq application, such as --set app=shop.jobs"),
        ({"image": {"repository": ""}}, "image.repository is missing"),
        ({"image": {"tag": ""}}, "image.tag is missing: name one that is never pushed again"),
        ({"redis": {"url": ""}}, "which Redis? Set redis.url, or redis.existingSecret, or redis.elsewhere=true"),
        ({"redis": {"existingSecret": "a", "elsewhere": True}}, "redis.url and redis.existingSecret and redis.el"),
        ({"workload": "Deployment"}, "workload: a Deployment's pods have no numbers; set ownership=elastic"),
        ({"replicas": None}, "replicas is missing: numbered nodes must know how many there are"),
        (
            {"ownership": "elastic", "workload": "Deployment", "updateStrategy": {"rollingUpdate": {"partition": 1}}},
            "updateStrategy: OnDelete and partition are a StatefulSet's",
        ),
        ({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "updateStrategy: Recreate and maxSurge are a"),
        ({"extraArgs": ["--nodes=3"]}, "extraArgs: --nodes is set by the value nodes"),
        ({"extraArgs": ["--max-rss", "3G"]}, "extraArgs: --max-rss is set by the value maxRss"),
        ({"extraArgs": ["-rshop"]}, "extraArgs: -rshop is the chart's"),
        ({"extraArgs": ["--burst"]}, "extraArgs: --burst is the chart's"),
        ({"extraArgs": ["--web=:8080"]}, "extraArgs: --web would run the web view in every pod; use"),
        ({"env": [{"name": "NODE_NUMBER", "value": "1"}]}, "env: NODE_NUMBER is the chart's"),
        ({"env": [{"name": "LOWKIQ_DRAIN_TIMEOUT", "value": "1"}]}, "env: LOWKIQ_DRAIN_TIMEOUT is set by drainTimeout"),
        ({"env": [{"name": "LOWKIQ_REDIS_URL", "value": "redis://a"}]}, "env: LOWKIQ_REDIS_URL is set by redis.url"),
        ({"web": {"enabled": True, "token": "long-enough", "existingSecret": "a"}}, "web.token and web.existingSecret"),
        ({"web": {"enabled": True, "noAuth": True, "token": "long-enough"}}, "web.noAuth lets everybody in"),
        ({"web": {"enabled": True, "ingress": {"enabled": True}}}, "web.ingress.hosts is empty"),
        ({"web": {"ingress": {"enabled": True, "hosts": ["a"]}}}, "web.ingress.enabled needs web.enabled"),
        ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled needs web.enabled"),
        ({"autoscaling": {"enabled": True}}, "autoscaling.enabled needs web.enabled"),
        (
            {**WEB, "autoscaling": {"enabled": True, "minReplicas": 7}},
            "autoscaling.minReplicas 7 is more than autoscaling.maxReplicas 6",
        ),
        ({"replicas": MOST_NODES // 2 + 1, "nodes": 2}, f"{MOST_NODES + 2} nodes in all"),
        (limit("300Mi", 4), "resources.limits.memory 300Mi is too little for nodes=4 and the su"),
        *(
            (limit(memory), f'resources.limits.memory: can\'t tell how many bytes "{memory}" are')
            for memory in ("1e9", "1Gib", "500m", "1GB", "64 Mi", "1,5Gi", "2Pi", "lots")
        ),
    ],
)  # fmt: skip
def test_what_doesn_t_go_together_is_refused(values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=re.escape(message)):
        render_4(values)
    with pytest.raises(Refused, match=re.escape(message)):
        helm_3("template", "shop", CHART, "--kube-version=1.34.0", values=[values])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 3}, "(root): Additional property replica is not allowed"),
        ({"web": {"listn": "x"}}, "web: Additional property listn is not allowed"),
        ({"replicas": -1}, "replicas: Must be greater than or equal to 0"),
        ({"replicas": "three"}, "replicas: Invalid type. Expected: integer, given: string"),
        ({"nodes": None}, "(root): nodes is required"),
        ({"nodes": 0}, "nodes: Must be greater than or equal to 1"),
        ({"nodes": 1.5}, "nodes: Invalid type. Expected: integer, given: number"),
        ({"drainTimeout": 100_000}, "drainTimeout: Must be less than or equal to 86400"),
        ({"image": {"tag": 1.1}}, "image.tag: Invalid type. Expected: string, given: number"),
        ({"image": {"tag": "a b"}}, "image.tag: Does not match pattern"),
        ({"image": {"digest": "sha256:1"}}, "image.digest: Does not match pattern"),
        ({"image": {"pullPolicy": "always"}}, "image.pullPolicy must be one of the following"),
        ({"app": "shop/jobs.py"}, "app: Does not match pattern"),
        ({"redis": {"url": "redis:6379"}}, "redis.url: Does not match pattern"),
        ({"redis": {"namespace": "a:b"}}, "redis.namespace: Does not match pattern"),
        ({"maxRss": False}, "maxRss: Invalid type. Expected: string, given: boolean"),  # `off`, in YAML
        ({"maxRss": "400Mi"}, "maxRss: Does not match pattern"),
        ({"env": [{"name": "A", "value": 5}]}, "env.0.value: Invalid type. Expected: string, given: integer"),
        ({"env": [{"nme": "A"}]}, "env.0: Additional property nme is not allowed"),
        ({"env": {"A": "b"}}, "env: Invalid type. Expected: array, given: object"),
        ({"resources": {"limit": {}}}, "resources: Additional property limit is not allowed"),
        ({"web": {"token": "short"}}, "web.token: Does not match pattern"),
        ({"web": {"port": 80}}, "web.port: Must be greater than or equal to 1024"),
        ({"web": {"listen": "127.0.0.1"}}, "web.listen must be one of the following"),
        ({"web": {"ingress": {"hosts": ["https://a"]}}}, "web.ingress.hosts.0: Does not match pattern"),
        ({"labels": {"app.kubernetes.io/name": "a"}}, "labels: Must not validate the schema (not)"),
        ({"podLabels": {"a": True}}, "podLabels.a: Invalid type. Expected: string, given: boolean"),
        ({"fullnameOverride": "Orders"}, "fullnameOverride: Does not match pattern"),
        ({"fullnameOverride": "o" * 41}, "fullnameOverride: Does not match pattern"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "podDisruptionBudget.maxUnavailable: Must"),
        ({"autoscaling": {"minReplicas": 0}}, "autoscaling.minReplicas: Must be greater than or equal to 1"),
        ({"tmpSizeLimit": "1GB"}, "tmpSizeLimit: Does not match pattern"),
    ],
)
def test_the_schema_refuses_nonsense(values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=re.escape(message)):
        helm_3("template", "shop", CHART, "--kube-version=1.34.0", values=[values])
    with pytest.raises(Refused, match=r"values don't meet the specifications of the schema"):
        render_4(values)


def matches(path: str, text: str) -> bool:
    schema = SCHEMA
    for name in path.split("."):
        schema = schema["properties"][name]
    return re.search(schema["pattern"], text) is not None


def test_the_schema_takes_what_lowkiq_takes() -> None:
    for scheme in SCHEMES:
        assert matches("redis.url", f"{scheme}://x")
    for name in ("lowkiq", "a.b-c_D1", "a:b", "a b", "ä"):
        assert matches("redis.namespace", name) == bool(NAME.fullmatch(name))
    for token in ("x" * SHORTEST_SECRET, "x" * (SHORTEST_SECRET - 1), ""):
        assert matches("web.token", token) == (not token or len(token) >= SHORTEST_SECRET)
    for size in ("1048576", "1.5G", "400M", "2T", "100K"):
        assert matches("maxRss", size) and parsing.size(Found(size, "maxRss"))
    for app in ("shop.jobs", "shop.jobs:app", "jobs"):
        assert matches("app", app)
    for name in ("drainTimeout", "bootTimeout"):
        for edge in (SCHEMA["properties"][name]["minimum"], SCHEMA["properties"][name]["maximum"]):
            assert parsing.seconds(Found(str(edge), name)) == edge
