"""A shop of six workers (quick, slow, failing, dying, scheduled, hot ids) and the load on it."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterable
from pathlib import Path

from lowkiq import Lowkiq, Worker
from lowkiq.errors import LowkiqError

#: Queue → shards. Their names say what they are like; a shop would call them orders, invoices, mail …
QUEUES = {"quick": 8, "slow": 4, "failing": 4, "dying": 2, "scheduled": 4, "hot": 4}
#: Jobs that `slow` does in a second, on all nodes together: each shard one after another, a fifth of a second each.
SLOW_RATE = 20

#: Jobs of `failing` fail as long as the file `broken` is there; those of `dying` kill their process if told to.
APP = f"""
import os, random, signal, time
from pathlib import Path
from lowkiq import Lowkiq, Worker

here = Path(__file__).parent
app = Lowkiq(poll_interval=0.2, threads_per_node=5)


@app.worker(queue_name="quick", shards_count={QUEUES["quick"]}, batch_size=10)
def quick(payloads_by_id):
    time.sleep(0.002)


@app.worker(queue_name="slow", shards_count={QUEUES["slow"]}, batch_size=1, concurrency=1)
def slow(payloads_by_id):
    time.sleep({QUEUES["slow"]} / {SLOW_RATE})


@app.worker
class Failing(Worker):
    queue_name, shards_count = "failing", {QUEUES["failing"]}

    def retry_in(self, retry_count):
        return 20 * (retry_count + 1)

    def perform(self, payloads_by_id):
        time.sleep(random.uniform(0.005, 0.05))
        if (here / "broken").exists():
            raise TimeoutError(f"the ERP did not answer within {{random.randint(5, 30)}} s")


@app.worker(queue_name="dying", shards_count={QUEUES["dying"]})
def dying(payloads_by_id):
    for payloads in payloads_by_id.values():
        if "die" in payloads:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)


@app.worker(queue_name="scheduled", shards_count={QUEUES["scheduled"]})
def scheduled(payloads_by_id):
    time.sleep(0.01)


@app.worker(queue_name="hot", shards_count={QUEUES["hot"]}, batch_size=5)
def hot(payloads_by_id):
    time.sleep(0.01)
"""


class Load(threading.Thread):
    """Pushes what the shop can bear, to all six queues, until it is stopped; Redis may be away meanwhile."""

    def __init__(self, url: str) -> None:
        super().__init__(name="load", daemon=True)
        self._app = Lowkiq(redis_url=url)
        self._workers: dict[str, type[Worker]] = {
            name: self._app.worker(queue_name=name, shards_count=count)(lambda _: None)
            for name, count in QUEUES.items()
        }
        self._stopping = threading.Event()

    def run(self) -> None:
        for turn in itertools.count():
            if self._stopping.wait(0.2):
                return
            with contextlib.suppress(LowkiqError):
                self._push("quick", (f"order-{turn}-{number}" for number in range(10)))
                self._push("failing", (f"sync-{turn}-{number}" for number in range(2)))
                self._push("hot", (f"user-{random.randint(1, 7)}@example.com" for _ in range(20)))
                self._push("slow", [f"report-{turn}"])
                self._push("scheduled", [f"reminder-{turn}"], delay=random.uniform(2, 20))
                if turn % 25 == 0:
                    self._push("dying", [f"import-{turn}"])

    def _push(self, queue: str, ids: Iterable[str], payload: str = "now", **options: float) -> None:
        self._workers[queue].perform_async({"id": id, "payload": payload, **options} for id in ids)

    def overload(self, seconds: float) -> None:
        """As many slow jobs at once as take so long."""
        self._push("slow", (f"annual-{random.random()}" for _ in range(int(seconds * SLOW_RATE))))

    def kill(self) -> None:
        """A job that kills every process that it runs in."""
        self._push("dying", [f"poison-{random.randint(1, 10**6)}"], "die")

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._app.close()


def write_app(directory: Path) -> None:
    """The module `shop`, which supervisors of this directory run."""
    (directory / "shop.py").write_text(APP)
