"""A shop: an application with something of everything, run by `lowkiq-supervisor --nodes 4 --web`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from urllib.parse import quote

from lowkiq import Lowkiq, Worker
from tests.harness import Supervised, command
from tests.support import wait_until

NODES = 4

#: Ids that begin with "bad" fail as long as the file `broken` is there; those with "slow" wait for the file `go`,
#: or until they are cancelled.
APP = """
import time
from pathlib import Path
from lowkiq import Lowkiq, Worker, current

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
            while id.startswith("slow") and not (here / "go").exists() and not current().cancelled:
                current().progress(0.4, "page 3 of 8")
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
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._options = ("--nodes", str(NODES), "-r", "shop", "--web", self._address, *options)
        self.url = f"http://{self._address}"
        (directory / "shop.py").write_text(app)
        (directory / "broken").touch()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._supervised = stack.enter_context(Supervised.main(self.directory, *self._options))
            stack.callback(self._end)
            self._supervised.until_ready(NODES)
            self._supervised.until_logged("ready", slot=f"web {self._address}")
            self._link = str(self._supervised.until_logged("web_link")[0]["url"])
            self.app = Lowkiq(redis_url=f"unix://{self.directory}/.lowkiq/redis/redis.sock")
            stack.callback(self.app.close)
            wait_until(lambda: len(self.app.nodes().nodes) == NODES)
            counts = self.app.queues()
            self.orders: type[Worker] = self.app.worker(queue_name="orders", shards_count=counts["orders"])(lambda _: 0)
            self.mail: type[Worker] = self.app.worker(queue_name="mail", shards_count=counts["mail"])(lambda _: 0)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind:
            print(self._supervised.log_path.read_text()[-8000:])

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `lowkiq-supervisor` in the shop's directory."""
        return command(self.directory, *arguments)

    def enter(self, path: str = "/") -> str:
        """The link that the log shows, which signs a browser in and leads on."""
        return f"{self._link}&next={quote(path, safe='')}"

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
        self.app.recurring.set(self.orders, "sweep", "15m")
        self.push(*(f"order-{number}" for number in range(300)), *(f"bad-{number}" for number in range(30)))
        self.mail.perform_async({"id": f"user-{number}@example.com", "payload": number} for number in range(20))
        self.mail.perform_async([{"id": "newsletter", "payload": "hello", "perform_in": 4_000_000_000}])
        wait_until(lambda: self.app.metrics()["orders"].morgue_length == 30)
        self.push("slow-1")  # from now on one shard stands still
        wait_until(lambda: self.app.metrics()["orders"].busy == 1)

    def _end(self) -> None:
        (self.directory / "go").touch()
        self._supervised.send(signal.SIGTERM)
        self._supervised.exit_code()


#: Pages of a queue on which one decides: they stand still, and say so.
ASKING = ("settings", "pause", "resume")


def page_paths(queue: str, id: str) -> list[str]:
    """The addresses of every page there is, with a queue and one of its jobs."""
    views = ("due", "retries", "held", "in_flight", "morgue")
    return [
        "/",
        "/?span=30d",
        "/nodes",
        *(f"/queues/{queue}?view={view}" for view in views),
        f"/queues/{queue}/job?id={quote(id, safe='')}",
        *(f"/queues/{queue}/{page}" for page in ASKING),
        "/recurring",
        "/bulks",
        "/help",
        "/incidents",
        "/dumps",
        "/search",
        f"/search?q={quote(id[:3], safe='')}*",
    ]
