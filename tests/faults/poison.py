"""
Nodes that share pages with whoever starts them, and are started again as soon as they have died; and jobs that kill
them. Run as a module, since it forks: it ends once the queue is dry, and prints how many nodes have died.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from lowkiq import Lowkiq, Worker
from lowkiq.node.node import Node
from lowkiq.shared_page import Bulletin, DeadNode, SharedPage
from lowkiq.tree_page import TreePage

QUEUE, SHARDS = "jobs", 8
#: How a job ends its process.
KINDS: dict[str, Callable[[], Any]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(1),
    "abort": os.abort,
    "load": lambda: None,  # before it is performed
    "server": lambda: kill_from_apart(os.getppid()),
    "node": lambda: kill_from_apart(int(os.environ["NODE"])),
    "child": lambda: (subprocess.run(["kill", "-9", str(os.getpid())], check=False), time.sleep(60)),
}
#: Those that kill another process than their own count as deaths beside others, for the last of many.
FROM_APART = {"server", "node"}


def kill_from_apart(pid: int) -> None:
    """Kills another process, from one that a suspect has for itself; its own, where that is the node's."""
    os.kill(pid if os.getpid() != int(os.environ["NODE"]) else os.getpid(), signal.SIGKILL)
    time.sleep(60)


def app_of(redis_url: str, namespace: str, *, knows: bool) -> Lowkiq:
    """`knows`: nodes learn who is dead, and what ran. Else they wait for leases to run out."""
    app = Lowkiq(
        redis_url=redis_url, namespace=namespace, threads_per_node=3, poll_interval=0.1, claim_window=0.2,
        lease_ttl=60 if knows else 0.6, load_payload=load,
    )  # fmt: skip

    @app.worker
    class Jobs(Worker):
        queue_name = QUEUE
        shards_count = SHARDS
        batch_size = 3

        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            for id, payloads in payloads_by_id.items():
                for payload in payloads:
                    time.sleep(random.uniform(0, 0.01))  # so that others run
                    KINDS.get(payload["kind"], lambda: None)()
                app.redis().hincrby(f"{app.settings.namespace}:ran", id, 1)

    return app


def load(data: bytes) -> Any:
    if b'"load"' in data:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"kind": data.decode().partition(':"')[2].partition('"')[0]}


class Slot:
    """One node, and whoever comes after it."""

    def __init__(
        self,
        number: int,
        nodes: int,
        dead: deque[DeadNode],
        make_app: Callable[[], Lowkiq],
        tree: TreePage | None = None,
    ) -> None:
        self.number, self.nodes, self._dead, self._make_app = number, nodes, dead, make_app
        #: Shared by all slots.
        self._tree = tree or TreePage()
        self.fill()

    def fill(self) -> None:
        self.page = SharedPage(self._tree)
        self.page.write_bulletin(Bulletin(tuple(self._dead)))
        self.name = f"node-{self.number}-{time.monotonic_ns()}"
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            os.environ["NODE"] = str(os.getpid())
            node = Node(
                self._make_app(), node_number=self.number, number_of_nodes=self.nodes, name=self.name, page=self.page
            )
            os._exit(node.run())

    def has_died(self) -> bool:
        if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            return False
        self._dead.append(DeadNode(self.name, self.page.running()))
        self.page.close()
        self.fill()
        return True

    def end(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)


def main(redis_url: str, namespace: str, nodes: int, *, knows: bool) -> int:
    """Returns how many nodes have died."""
    make_app = partial(app_of, redis_url, namespace, knows=knows)
    dead: deque[DeadNode] = deque(maxlen=20 if knows else 0)
    tree = TreePage()
    slots = [Slot(number, nodes, dead, make_app, tree) for number in range(nodes)]
    app, deaths = make_app(), 0
    while not is_dry(app):
        deaths += sum(slot.has_died() for slot in slots)
        time.sleep(0.02)
    for slot in slots:
        slot.end()
    return deaths


def is_dry(app: Lowkiq) -> bool:
    (metrics,) = app.metrics().values()
    return metrics.length == metrics.busy == 0


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), knows=sys.argv[4] == "knows"))
