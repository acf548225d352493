"""World: Redis, a proxy, supervisors and producers, started, kept alive, healed and ended."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import psutil
from redis.exceptions import RedisError

from lowkiq import Lowkiq
from lowkiq.errors import LowkiqError
from tests.chaos.journal import Journal, now
from tests.chaos.world import queues
from tests.chaos.world.processes import Revived
from tests.chaos.world.replicated import Servers
from tests.support import ROOT, SUPERVISOR, free_port, wait_until

#: Seconds of a lease: short, so that many run out.
LEASE: Final = 1.0
#: Seconds that running jobs get when a node stops.
DRAIN: Final = 4
NAMESPACE: Final = "chaos"
#: The numbers of the supervisors' machines. Those with the same number contend for the same shards.
MACHINES: Final = (0, 1, 0)
NODES_EACH: Final = 2
PRODUCERS: Final = 3


class World:
    """Everything that runs. All processes are its own, and end with it."""

    def __init__(self, directory: Path, servers: Servers, seed: int, load: str, mutant: str | None) -> None:
        self._directory = directory
        self._load, self._mutant = load, mutant
        #: With an odd seed nobody numbers the nodes.
        self._is_elastic = load == "mixed" and seed % 2 == 1
        self.servers = servers
        for name in ("nodes", "producers", "rows", "logs"):
            (directory / name).mkdir()
        self._journal = Journal(directory / "world.jsonl")
        self._proxy: subprocess.Popen[bytes] | None = None
        self.proxy_url = self._start_proxy() if servers.socket else servers.url
        #: Whoever has an odd number reaches Redis through the proxy.
        self.supervisors = [self._supervisor(index, machine) for index, machine in enumerate(MACHINES)]
        self.producers = [
            self._revived(f"producer-{index}", index, "-m", "tests.chaos.world.producer", str(index), str(seed))
            for index in range(PRODUCERS)
        ]

    def __enter__(self) -> Self:
        self.servers.start()
        wait_until(self.servers.answers)
        self.revive()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_supervisors()
        self.stop_producers()
        if self._proxy:
            self._proxy.communicate()  # it ends with its stdin
        self.app.close()
        self.servers.stop()

    def revive(self) -> None:
        """Starts what has ended, if its time has come."""
        for each in [*self.supervisors, *self.producers]:
            if not each.is_running and now() >= each.start_at:
                each.start()

    def nodes(self) -> list[int]:
        return [pid for supervisor in self.supervisors for pid in supervisor.children()]

    def helpers(self, *, of_fork: bool) -> list[int]:
        """The helper processes of all nodes; or the fork servers, which make them."""
        found = []
        for pid in self.nodes():
            with contextlib.suppress(psutil.Error):
                servers = [child for child in psutil.Process(pid).children() if "fork server" in _title(child)]
                found += servers if of_fork else [helper for server in servers for helper in server.children()]
        return sorted(process.pid for process in found)

    def weather(self, what: str, seconds: float) -> bool:
        """Tells the proxy; False without one."""
        if self._proxy is None or self._proxy.stdin is None:
            return False
        self._proxy.stdin.write(json.dumps([what, seconds]).encode() + b"\n")
        self._proxy.stdin.flush()
        return True

    def stop_producers(self) -> None:
        _stop(self.producers, 30)

    def stop_supervisors(self) -> None:
        """Stops them, so that what nodes have in hand returns to the queues."""
        _stop(self.supervisors, DRAIN + 10)

    def drain(self, within: float) -> float:
        """
        Waits until all queues have run dry, if they do in time; gives the seconds until those had that are not
        unhurried.
        """
        began, dry_after = now(), math.inf
        while now() - began < within:
            for each in self.supervisors:
                if not each.is_running:
                    each.start()
            self._retry_blocked()
            self._let_go_of_the_dead()
            self._run_now_what_died_often()
            left = self.left()
            if not left.keys() - queues.UNHURRIED:
                dry_after = min(dry_after, now() - began)
            if not left:
                break
            time.sleep(0.2)
        return dry_after

    def left(self) -> Counter[str]:
        """Queue → ids that are queued there, or in hand; all of them while nobody can tell."""
        try:
            return +Counter({name: queue.length + queue.busy for name, queue in self.app.metrics().items()})
        except RedisError:
            return Counter(self.app.workers.keys())

    def _retry_blocked(self) -> None:
        for queue in queues.LOADS[self._load].queues:
            if queue.blocks:
                with contextlib.suppress(RedisError):
                    self.app.workers[queue.name].actions.retry_all()

    def _run_now_what_died_often(self) -> None:
        """What was in hand at many deaths pauses after each, for ten minutes in the end: a person has it run now."""
        worker = self.app.workers.get(queues.HALF_A_MINUTE)
        with contextlib.suppress(RedisError, LowkiqError):
            if worker and (later := [job.id for job in worker.queries.find("*") if job.perform_in > time.time() + 1]):
                worker.actions.perform_now(later)

    def _let_go_of_the_dead(self) -> None:
        """Has run what waits for others that are all buried, or for the rest of a batch whose producer is gone."""
        if queues.WAITING not in self.app.workers:
            return
        waiting = self.app.workers[queues.WAITING]
        with contextlib.suppress(RedisError, LowkiqError):
            for hold in waiting.queries.held():
                if hold.waits and all(self._is_buried(*other) for other in hold.waits.first):
                    self._journal.write("let go", q=queues.WAITING, id=hold.id)
                    waiting.actions.stop_waiting([hold.id], who="the tests")

    def _is_buried(self, queue: str, id: str) -> bool:
        return any(job.id == id for job in self.app.workers[queue].queries.morgue_find(id))

    @cached_property
    def app(self) -> Lowkiq:
        """Application that looks at what is left."""
        app = Lowkiq(redis_url=self.servers.url, namespace=NAMESPACE)
        for queue in queues.LOADS[self._load].queues:
            app.worker(queue_name=queue.name, shards_count=queue.shards_count)(lambda _: None)
        return app

    # ── its parts ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _supervisor(self, index: int, machine: int) -> Revived:
        total = (max(MACHINES) + 1) * NODES_EACH
        options = ["--nodes", str(NODES_EACH)]
        if not self._is_elastic:
            options += ["--node-number", str(machine), "--number-of-nodes", str(total)]
        options += ["--drain-timeout", str(DRAIN), "--degraded", "--state-dir", str(self._directory / f"s{index}")]
        if index % 2 == 0:  # half of them weigh from the start, all when people set weights
            named = enumerate(queues.LOADS[self._load].queues)
            options += ["--queues", ",".join(f"{queue.name}={1 + place % 8}" for place, queue in named)]
        return self._revived(
            f"supervisor-{index}", index, *SUPERVISOR, *options, "-r", "tests.chaos.world.jobs", "--preload"
        )

    def _revived(self, name: str, index: int, *arguments: str) -> Revived:
        return Revived(name, arguments, self._directory / "logs", self._environment(index))

    def _environment(self, index: int) -> dict[str, str]:
        is_through_proxy = self._proxy is not None and index % 2 == 1
        return {
            "LOWKIQ_REDIS_URL": self.proxy_url if is_through_proxy else self.servers.url,
            "LOWKIQ_NAMESPACE": NAMESPACE,
            "LOWKIQ_LEASE_TTL": str(LEASE),
            "LOWKIQ_POLL_INTERVAL": "0.3",
            "LOWKIQ_THREADS_PER_NODE": str(queues.LOADS[self._load].threads),
            "CHAOS_DIRECTORY": str(self._directory),
            "CHAOS_LOAD": self._load,
            "CHAOS_VIA": "proxy" if is_through_proxy else "direct",
        } | ({"CHAOS_MUTANT": self._mutant} if self._mutant else {})

    def _start_proxy(self) -> str:
        port = free_port()
        with (self._directory / "logs" / "proxy.log").open("ab") as log:
            self._proxy = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.world.proxy", str(port), str(self.servers.socket)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self._proxy.stdout
        assert self._proxy.stdout.readline() == b"ready\n", "the proxy did not start"
        return f"redis://127.0.0.1:{port}/0"


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def _stop(group: list[Revived], within: float) -> None:
    for each in group:
        for pid in each.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        each.send(signal.SIGCONT)
        each.send(signal.SIGTERM)
    for each in group:
        each.end(within)
