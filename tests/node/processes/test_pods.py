"""Containers whose hosts have one name, and whose processes have the same ids: nobody takes one for the other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from lowkiq.admin.beats.health import NodeHealth
from tests.harness import Supervised
from tests.node.nodes import Nodes
from tests.support import SUPERVISOR, lacks, wait_until

#: Runs a command as a container does: as process 1, on a host of this name.
POD = [
    "unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--uts", "--mount-proc",
    "--fork", "--kill-child", "sh", "-c", 'hostname shop && exec "$@"', "sh",
]  # fmt: skip
SHOP = """
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="jobs", shards_count=3)
def sync(id, payloads):
    Path(id).touch()
"""


@pytest.fixture(autouse=True)
def _can_make_pods() -> None:
    try:
        subprocess.run([*POD, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        lacks(f"no namespaces of processes: {error}")


def pod(nodes: Nodes, directory: Path) -> Supervised:
    directory.mkdir()
    (directory / "shop.py").write_text(SHOP)
    environment = {"REDIS_URL": nodes.app.settings.redis_url, "LOWKIQ_NAMESPACE": nodes.namespace}
    settings = {"LOWKIQ_SOAK": "0", "LOWKIQ_LEASE_TTL": "2"}
    return Supervised(directory, [*SUPERVISOR, "--nodes", "1", "-r", "shop"], environment | settings, POD).ready(1)


def node_of(pod: Supervised, pid: int) -> psutil.Process:
    """A process by its id in there."""
    inside = psutil.Process(pod.process.pid).children(recursive=True)
    lines = {process: Path(f"/proc/{process.pid}/status").read_text().splitlines() for process in inside}
    return next(process for process in inside if f"NSpid:\t{process.pid}\t{pid}" in lines[process])


def test_two_are_two_and_the_death_of_a_node_in_one_ends_no_lease_in_the_other(nodes: Nodes, tmp_path: Path) -> None:
    with pod(nodes, tmp_path / "one") as one, pod(nodes, tmp_path / "other") as other:

        def sharing() -> list[NodeHealth]:
            found = nodes.app.nodes().nodes
            return found if len(found) == 2 and all(node.owned.get("jobs") for node in found) else []

        found = wait_until(sharing)
        assert [(node.host, node.supervisor_pid, node.node_number) for node in found] == [("shop", 1, 0)] * 2
        assert len({node.pid for node in found}) == 1, "or else this shows nothing"
        assert len({node.node for node in found}) == len({node.supervisor for node in found}) == 2
        node_of(one, found[0].pid).kill()
        one.until_logged("ready", 2, "node 0/1")
        nodes.worker.perform_async([{"id": str(number)} for number in range(30)])
        wait_until(nodes.is_done)
        assert {node.node for node in found} & {node.node for node in nodes.app.nodes().nodes}
        assert not other.events("lease_lost")
