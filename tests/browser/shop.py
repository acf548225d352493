"""A shop: an application with something of everything, run by `lowkiq-supervisor --nodes 4 --web`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lowkiq import Lowkiq, Worker
from tests.support import ROOT, SUPERVISOR, wait_until

NODES = 4

#: Ids that begin with "bad" fail as long as the file `broken` is there; those with "slow" wait for the file `go`.
APP = """
import time
from pathlib import Path
from lowkiq import Lowkiq, Worker

here = Path(__file__).parent
app = Lowkiq(poll_interval=0.2)


class Orders(Worker):
    queue_name = "orders"
    shards_count = 12
    max_retry_count = 2

    def retry_in(self, retry_count):
        return 0.5

    def perform(self, payloads_by_id):
        for id in payloads_by_id:
            if id.startswith("bad") and (here / "broken").exists():
                raise TimeoutError(f"the ERP did not answer within {len(id)} s")
            while id.startswith("slow") and not (here / "go").exists():
                time.sleep(0.05)


class Mail(Worker):
    queue_name = "mail"
    shards_count = 4
    max_retry_count = 25

    def perform(self, payloads_by_id):
        if (here / "broken").exists():
            raise ConnectionError("the mail server refuses us")


app.worker(Orders)
app.worker(Mail)
"""


class Shop:
    """Runs the shop in a directory, and ends it."""

    def __init__(self, directory: Path, *options: str, app: str = APP) -> None:
        self.directory = directory
        self._options = options
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        (directory / "shop.py").write_text(app)
        (directory / "broken").touch()

    def __enter__(self) -> Self:
        # A unix socket's path must be short, and temporary directories are not.
        self._log = (self.directory / "log").open("wb")
        self.process = subprocess.Popen(
            self._command("--nodes", str(NODES), "-r", "shop", "--web", f"127.0.0.1:{self.port}", *self._options),
            cwd=self.directory,
            env=self._environment(),
            stdout=self._log,
            stderr=self._log,
        )
        try:
            wait_until(self._is_up, within=60, every=0.1)
        except BaseException:
            self._end()
            raise
        redis = self.directory / ".lowkiq/redis/redis.sock"
        self.app = Lowkiq(redis_url=f"unix://{redis}")
        counts = self.app.queues()
        self.orders: type[Worker] = self.app.worker(queue_name="orders", shards_count=counts["orders"])(lambda _: None)
        self.mail: type[Worker] = self.app.worker(queue_name="mail", shards_count=counts["mail"])(lambda _: None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.app.close()
        self._end()
        if kind:
            print((self.directory / "log").read_text()[-8000:])

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `lowkiq-supervisor` in the shop's directory."""
        return subprocess.run(
            self._command(*arguments),
            cwd=self.directory, env=self._environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.command("status", "--json").stdout)
        return told

    def kill_node(self, number: int) -> None:
        node = next(node for node in self.app.nodes().nodes if node.node_number == number)
        os.kill(node.pid, signal.SIGKILL)

    def push(self, *ids: str) -> None:
        self.orders.perform_async({"id": id, "payload": {"order": id, "state": "paid"}} for id in ids)

    def mend(self) -> None:
        """From now on nothing fails."""
        (self.directory / "broken").unlink()

    def fill(self) -> None:
        """Something for every page: done, failing, dead, slow and scheduled jobs."""
        self.push(*(f"order-{number}" for number in range(300)), *(f"bad-{number}" for number in range(30)))
        self.mail.perform_async({"id": f"user-{number}@example.com", "payload": number} for number in range(20))
        self.mail.perform_async([{"id": "newsletter", "payload": "hello", "perform_in": 4_000_000_000}])
        wait_until(lambda: self.app.metrics()["orders"].morgue_length == 30, within=60)
        self.push("slow-1")  # from now on one shard stands still
        wait_until(lambda: self.app.metrics()["orders"].busy == 1)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, (self.directory / "log").read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200) and len(Lowkiq(redis_url=self._redis_url()).nodes().nodes) == NODES
        except OSError:
            return False

    def _redis_url(self) -> str:
        return f"unix://{self.directory}/.lowkiq/redis/redis.sock"

    def _end(self) -> None:
        (self.directory / "go").touch()
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._log.close()

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOWKIQ_", "REDIS_URL"))}
        path = os.pathsep.join([str(self.directory), str(ROOT), str(ROOT / "supervisor")])
        return kept | {"PYTHONPATH": path}

    @staticmethod
    def _command(*arguments: str) -> list[str]:
        return [sys.executable, *SUPERVISOR, *arguments]
