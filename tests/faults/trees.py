"""
Pods: trees of processes, each of which dies at one stroke when a job wants it, as a container does that is out of
memory; they are started again immediately. Run as a module, since it forks: it ends once the queue is dry, and prints
how many have died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from functools import partial
from typing import Any

import psutil

from lowkiq import Lowkiq, Worker
from lowkiq.tree_page import TreePage
from tests.faults import poison
from tests.faults.poison import QUEUE, SHARDS, Slot, is_dry, load


def kill_tree() -> None:
    """Ends the pod with all that it has started: nobody is left who knows of it."""
    root, alone = psutil.Process(int(os.environ["POD"])), socket.socket(socket.AF_UNIX)
    try:
        alone.bind(f"\0pod-{root.pid}")
    except OSError:  # another one is at it: two would stop each other
        signal.pause()
    doomed = [process for process in (root, *root.children(recursive=True)) if process.pid != os.getpid()]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in doomed:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
    os.kill(os.getpid(), signal.SIGKILL)


def app_of(redis_url: str, namespace: str) -> Lowkiq:
    app = Lowkiq(
        redis_url=redis_url, namespace=namespace, threads_per_node=3, poll_interval=0.1, claim_window=0.2,
        lease_ttl=1.0, load_payload=load,
    )  # fmt: skip

    @app.worker
    class Jobs(Worker):
        queue_name = QUEUE
        shards_count = SHARDS

        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            for id, payloads in payloads_by_id.items():
                for payload in payloads:
                    kind = payload["kind"]
                    time.sleep(float(kind.removeprefix("long ")) if kind.startswith("long") else 0.005)
                    {"tree": kill_tree}.get(kind, poison.KINDS.get(kind, lambda: None))()
                app.redis().hincrby(f"{app.settings.namespace}:ran", id, 1)

    return app


def live(redis_url: str, namespace: str, nodes: int) -> None:
    """A pod: its main process fills its slots."""
    os.setpgid(0, 0)
    os.environ["POD"] = str(os.getpid())
    dead: Any = poison.deque(maxlen=20)
    tree = TreePage()
    slots = [Slot(number, nodes, dead, partial(app_of, redis_url, namespace), tree) for number in range(nodes)]
    while True:
        for slot in slots:
            slot.has_died()
        time.sleep(0.02)


def start(*options: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            live(*options)
        finally:
            os._exit(1)
    return pid


def main(redis_url: str, namespace: str, nodes: int, pods: int) -> int:
    """Returns how many pods have died."""
    running = {start(redis_url, namespace, nodes) for _ in range(pods)}
    app, deaths = app_of(redis_url, namespace), 0
    while not is_dry(app):
        for pid in list(running):
            if os.waitpid(pid, os.WNOHANG)[0]:
                deaths += 1
                running.remove(pid)
                running.add(start(redis_url, namespace, nodes))
        time.sleep(0.02)
    for pid in running:
        os.environ["POD"] = str(pid)
        root = psutil.Process(pid)
        for process in (*root.children(recursive=True), root):
            with contextlib.suppress(psutil.Error):
                process.kill()
        os.waitpid(pid, 0)
    return deaths


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
