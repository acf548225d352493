"""The nodes' StatefulSet: numbers, times, memory and probes, by what the code says of itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lowkiq.admin.nodes import MOST_NODES
from lowkiq.environment import Found
from lowkiq_supervisor import parsing
from lowkiq_supervisor.control import client
from lowkiq_supervisor.control.subcommands import DEGRADED, OK, UNREACHABLE
from lowkiq_supervisor.options import DEFAULT_BOOT_TIMEOUT, DEFAULT_DRAIN_TIMEOUT, Options
from lowkiq_supervisor.processes.node import DRAIN_GRACE
from tests.deploy.helm import Refused, container, environment, kubernetes_versions, objects, objects_3, one
from tests.deploy.helm_matrix import AUTOSCALED, MATRIX

Values = dict[str, Any]


def nodes(*values: Any) -> dict[str, Any]:
    return one(objects(*values), "StatefulSet")


def arguments(*values: Any) -> dict[str, str]:
    """Option → value of the supervisor's command line."""
    found = container(nodes(*values))
    assert found["command"] == ["lowkiq-supervisor"]
    return dict(argument.partition("=")[::2] for argument in found["args"])


def limit(memory: Any, nodes: int = 1, **values: Any) -> Values:
    return {"resources": {"limits": {"memory": memory}}, "nodes": nodes, **values}


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_the_grace_is_longer_than_the_drain(values: Values) -> None:
    made = nodes(values)
    drain = float(arguments(values)["--drain-timeout"])
    assert made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == drain + 10
    assert drain + DRAIN_GRACE < drain + 10


def test_the_times_are_the_supervisor_s_own() -> None:
    assert float(arguments()["--drain-timeout"]) == DEFAULT_DRAIN_TIMEOUT
    assert float(arguments()["--boot-timeout"]) == DEFAULT_BOOT_TIMEOUT
    assert arguments({"bootTimeout": 600})["--boot-timeout"] == "600"


@pytest.mark.parametrize(("replicas", "each"), [(1, 1), (3, 4), (250, 40)])
def test_every_pod_has_its_part_of_the_numbers(replicas: int, each: int) -> None:
    values = {"replicas": replicas, **limit("64Gi", each)}
    total = environment(container(nodes(values)))["NUMBER_OF_NODES"]
    here = int(arguments(values)["--nodes"])
    for form in ("{}", "shop-lowkiq-{}"):  # as the label has it, and as the pod's name does
        taken: list[int] = []
        for index in range(replicas):
            environ = {"NODE_NUMBER": form.format(index), "NUMBER_OF_NODES": total}
            options = Options.resolve(app="shop.jobs", nodes=here, environ=environ)
            taken += range(options.first_node, options.first_node + options.nodes)
        assert taken == list(range(int(total))) == list(range(replicas * each))


def test_a_paused_release_still_tells_a_number_with_which_a_pod_can_start() -> None:
    made = nodes({"replicas": 0, "nodes": 4, **limit("2Gi", 4)})
    assert made["spec"]["replicas"] == 0
    assert environment(container(made))["NUMBER_OF_NODES"] == "4"


def test_more_nodes_than_lowkiq_looks_for_are_refused() -> None:
    nodes({"replicas": MOST_NODES, "nodes": 1})
    with pytest.raises(Refused, match=f"{MOST_NODES + 2} nodes in all"):
        nodes({"replicas": MOST_NODES // 2 + 1, "nodes": 2})


@pytest.mark.parametrize(
    ("kubernetes", "path"),
    [
        (f"{kubernetes_versions()[0]}.0", "metadata.name"),
        ("1.31.9", "metadata.name"),
        ("1.32.0", "metadata.labels['apps.kubernetes.io/pod-index']"),
        ("1.32.1-gke.1002", "metadata.labels['apps.kubernetes.io/pod-index']"),
        (f"{kubernetes_versions()[1]}.0", "metadata.labels['apps.kubernetes.io/pod-index']"),
    ],
)
def test_the_pod_s_number_is_its_index_or_in_older_clusters_its_name(kubernetes: str, path: str) -> None:
    made = one(objects_3(kubernetes=kubernetes), "StatefulSet")
    assert environment(container(made))["NODE_NUMBER"] == {"fieldRef": {"fieldPath": path}}


def test_autoscaled_the_numbers_are_those_of_the_most_pods_and_the_replicas_are_keda_s() -> None:
    made = nodes(AUTOSCALED)
    assert "replicas" not in made["spec"]
    assert environment(container(made))["NUMBER_OF_NODES"] == "20"


def test_pods_come_together_and_are_replaced_one_by_one() -> None:
    found = objects()
    spec = one(found, "StatefulSet")["spec"]
    assert (spec["podManagementPolicy"], spec["updateStrategy"]) == ("Parallel", {"type": "RollingUpdate"})
    assert spec["minReadySeconds"] == 10
    budget = one(found, "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    service = one(found, "Service", spec["serviceName"])
    assert service["spec"]["clusterIP"] == "None"


# --- memory ---


@pytest.mark.parametrize(
    ("memory", "each", "mebibytes"),
    [
        ("1Gi", 1, 819),
        ("1Gi", 2, 409),
        ("512Mi", 4, 102),
        ("1.5Gi", 1, 1228),
        ("2097152Ki", 1, 1638),
        ("0.5Ti", 64, 6553),
        ("1G", 1, 762),
        ("1000M", 1, 762),
        ("1000000k", 1, 762),
        ("1T", 64, 11920),
        (1073741824, 1, 819),
        ("1073741824", 1, 819),
        ("100Gi", 3, 27306),
    ],
)
def test_a_node_may_have_its_part_of_four_fifths_of_the_limit(memory: Any, each: int, mebibytes: int) -> None:
    told = arguments(limit(memory, each))["--max-rss"]
    assert told == f"{mebibytes}M"
    assert parsing.size(Found(told, "--max-rss")) == mebibytes << 20


@pytest.mark.parametrize("memory", ["1e9", "1Gib", "500m", "1GB", "64 Mi", "1,5Gi", "", "2Pi", "lots"])
def test_a_limit_that_the_chart_can_t_read_is_refused(memory: str) -> None:
    if not memory:  # as good as none
        assert "--max-rss" not in arguments(limit(memory))
        return
    with pytest.raises(Refused, match=re.escape(f'resources.limits.memory: can\'t tell how many bytes "{memory}" are')):
        nodes(limit(memory))
    assert arguments(limit(memory, maxRss="none")) == arguments(limit(None))


def test_a_limit_that_idle_nodes_would_reach_is_refused() -> None:
    assert arguments(limit("320Mi", 4))["--max-rss"] == "64M"
    with pytest.raises(
        Refused, match=r"resources\.limits\.memory 300Mi is too little for nodes=4: each could have 60 MiB"
    ):
        nodes(limit("300Mi", 4))
    nodes(limit("300Mi", 4, maxRss="55M"))


def test_without_a_limit_or_a_wish_memory_isn_t_looked_at() -> None:
    assert "--max-rss" not in arguments(limit(None))
    assert "--max-rss" not in arguments({"resources": {"limits": None, "requests": None}})
    assert "--max-rss" not in arguments({"maxRss": "none"})
    assert arguments({"maxRss": "1.5G"})["--max-rss"] == "1.5G"


# --- probes ---


def probe(name: str, *values: Any) -> dict[str, Any]:
    return dict(container(nodes(*values))[f"{name}Probe"])


def test_ready_is_what_status_calls_well() -> None:
    assert probe("readiness")["exec"]["command"] == ["lowkiq-supervisor", "status", "--json"]
    assert OK == 0


def test_only_a_supervisor_that_doesn_t_answer_is_restarted() -> None:
    assert (OK, DEGRADED, UNREACHABLE) == (0, 1, 2)
    for name in ("liveness", "startup"):
        shell, option, script = probe(name)["exec"]["command"]
        assert (shell, option) == ("sh", "-c")
        assert script == f"lowkiq-supervisor status --json >/dev/null; test $? -ne {UNREACHABLE}"


@pytest.mark.parametrize("boot", [1, 120, 3600])
def test_the_startup_probe_is_more_patient_than_the_supervisor(boot: int) -> None:
    told = probe("startup", {"bootTimeout": boot})
    assert told["periodSeconds"] * told["failureThreshold"] >= boot + 25


def test_probes_wait_longer_than_status_does() -> None:
    for name in ("startup", "liveness", "readiness"):
        assert probe(name)["timeoutSeconds"] > client.ANSWER_TIME + 2, "Python has to start as well"
        assert probe(name)["periodSeconds"] >= 5


# --- the rest ---


def test_the_pod_never_starts_a_redis_of_its_own() -> None:
    assert "--no-embedded-redis" in arguments()
    assert "--no-embedded-redis" in arguments({"redis": {"url": "", "elsewhere": True}})


def test_the_state_directory_is_in_a_volume_and_the_supervisor_makes_it_itself() -> None:
    made = container(nodes())
    mounts = {mount["mountPath"]: mount["name"] for mount in made["volumeMounts"]}
    place = environment(made)["LOWKIQ_STATE_DIR"]
    assert mounts[place.rpartition("/")[0]] == "state" and place not in mounts
    volumes = nodes()["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes if "emptyDir" in volume] == ["state", "tmp"]


def test_the_redis_url_comes_from_a_secret_and_a_new_one_restarts_the_pods() -> None:
    given = environment(container(nodes()))["LOWKIQ_REDIS_URL"]
    assert given == {"secretKeyRef": {"name": "shop-lowkiq-redis", "key": "redis-url"}}
    there = MATRIX["secrets that are there"]
    assert environment(container(nodes(there)))["LOWKIQ_REDIS_URL"] == {
        "secretKeyRef": {"name": "shop-redis", "key": "url"}
    }
    assert not [each for each in objects(there) if each["kind"] == "Secret"]
    assert "LOWKIQ_REDIS_URL" not in environment(container(nodes({"redis": {"url": "", "elsewhere": True}})))
    templates = [nodes({"redis": {"url": url}})["spec"]["template"] for url in ("redis://a", "redis://b", "redis://a")]
    assert templates[0] == templates[2] != templates[1]


def test_nodes_don_t_know_the_web_view_s_token() -> None:
    for values in (MATRIX["web"], MATRIX["secrets that are there"]):
        assert not [name for name in environment(container(nodes(values))) if "WEB" in name]


def test_pods_are_spread_over_machines_and_zones_if_possible() -> None:
    spec = nodes()["spec"]
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for each in spread:
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"] == spec["selector"]
    own = nodes(MATRIX["everything"])["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert own == MATRIX["everything"]["topologySpreadConstraints"]


def test_what_pods_can_have_they_get() -> None:
    values = MATRIX["everything"]
    made = nodes(values)
    pod = made["spec"]["template"]["spec"]
    for name in ("affinity", "nodeSelector", "tolerations", "priorityClassName"):
        assert pod[name] == values[name]
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    assert pod["serviceAccountName"] == "jobs"
    assert "runAsUser" not in pod["securityContext"]
    told = container(made)
    assert told["image"] == f"registry.example.com/shop@sha256:{'0' * 64}"
    assert told["args"][-2:] == values["extraArgs"]
    assert told["env"][-2:] == values["env"] and told["envFrom"] == values["envFrom"]
    assert told["volumeMounts"][-1:] == values["volumeMounts"] and pod["volumes"][-1:] == values["volumes"]
    assert made["metadata"]["name"] == "orders"
    assert made["metadata"]["labels"]["team"] == "orders"
    template = made["spec"]["template"]["metadata"]
    assert template["labels"] | {"team": "orders", "sidecar.istio.io/inject": "false"} == template["labels"]
    assert template["annotations"] == values["podAnnotations"]
