"""The nodes' StatefulSet: numbers, times, memory and probes, by what the code says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq.environment import Found
from lowkiq_supervisor import parsing
from lowkiq_supervisor.control import ping
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.node import DRAIN_GRACE
from tests.deploy.helm.chart import arguments, container, environment, kubernetes_versions, objects, objects_3, one
from tests.deploy.helm.installations import MATRIX, limit

Values = dict[str, Any]


def nodes(*values: Any) -> dict[str, Any]:
    return one(objects(*values), "StatefulSet")


def told(*values: Any) -> dict[str, str]:
    return arguments(container(nodes(*values)))


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_the_grace_is_longer_than_the_drain(values: Values) -> None:
    for made in objects(values):
        if made["kind"] == "StatefulSet":
            drain = float(arguments(container(made))["--drain-timeout"])
            grace = made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            assert grace == values.get("terminationGracePeriodSeconds", drain + 10)
            assert drain + DRAIN_GRACE < drain + 10 <= grace


@pytest.mark.parametrize(("replicas", "each"), [(1, 1), (3, 4), (250, 40)])
def test_every_pod_has_its_part_of_the_numbers(replicas: int, each: int) -> None:
    values = {"replicas": replicas, **limit("64Gi", each)}
    total = environment(container(nodes(values)))["NUMBER_OF_NODES"]
    here = int(told(values)["--nodes"])
    for form in ("{}", "shop-lowkiq-{}"):  # as the label has it, and as the pod's name does
        taken: list[int] = []
        for index in range(replicas):
            environ = {"NODE_NUMBER": form.format(index), "NUMBER_OF_NODES": total}
            options = Options.resolve(app="shop.jobs", nodes=str(here), environ=environ)
            taken += range(options.first_node, options.first_node + options.nodes)
        assert taken == list(range(int(total))) == list(range(replicas * each))


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


@pytest.mark.parametrize(
    ("memory", "each", "mebibytes"),
    [
        ("1Gi", 1, 409), ("1Gi", 2, 273), ("512Mi", 4, 81), ("1.5Gi", 1, 614), ("2097152Ki", 1, 819),
        ("0.5Ti", 63, 6553), ("100Gi", 2, 27306), (1073741824, 1, 409), ("1073741824", 1, 409),
        ("1G", 1, 381), ("1000M", 1, 381), ("1000000k", 1, 381), ("1T", 63, 11920),
    ],
)  # fmt: skip
def test_a_node_and_the_successor_of_one_may_have_their_parts_of_four_fifths_of_the_limit(
    memory: Any, each: int, mebibytes: int
) -> None:
    size = told(limit(memory, each))["--max-rss"]
    assert size == f"{mebibytes}M"
    assert parsing.size(Found(size, "--max-rss")) == mebibytes << 20


def probe(name: str, *values: Any) -> dict[str, Any]:
    return dict(container(nodes(*values))[f"{name}Probe"])


@pytest.mark.parametrize("boot", [1, 120, 3600])
def test_the_startup_probe_is_more_patient_than_the_supervisor(boot: int) -> None:
    made = probe("startup", {"bootTimeout": boot})
    assert made["periodSeconds"] * made["failureThreshold"] >= 2 * boot + 25


def test_probes_wait_longer_than_ping_does() -> None:
    for name in ("startup", "liveness", "readiness"):
        assert probe(name)["timeoutSeconds"] > ping.ANSWER_TIME + 2, "Python has to start as well"
        assert probe(name)["periodSeconds"] >= 5


def test_the_state_directory_is_in_a_volume_and_the_supervisor_makes_it_itself() -> None:
    made = container(nodes())
    mounts = {mount["mountPath"]: mount["name"] for mount in made["volumeMounts"]}
    place = environment(made)["LOWKIQ_STATE_DIR"]
    assert mounts[place.rpartition("/")[0]] == "state" and place not in mounts
    volumes = nodes()["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes if "emptyDir" in volume] == ["state", "tmp"]


def test_a_new_redis_url_restarts_the_pods() -> None:
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
