"""Nodes share their threads out by the weights of their queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowkiq import Lowkiq
from tests.harness import Supervised, command, status
from tests.support import RedisServer, wait_until

#: Jobs tell how long they have taken, and in which order they ended.
APP = """
import time
from lowkiq import Lowkiq

app = Lowkiq()

def work(queue, seconds):
    def perform(payloads_by_id):
        began = time.monotonic()
        time.sleep(seconds)
        app.redis().rpush(f"{app.settings.namespace}:ran", f"{queue} {time.monotonic() - began}")

    app.worker(queue_name=queue)(perform)

work("critical", 0.005)
work("default", 0.01)
"""
#: The share of critical is 8 / 9, and how exactly is for tests/node/test_shares.py to say, by a clock of its own.
LEAST, MOST = 0.7, 0.98
#: Jobs, of the other queue more than its share.
CRITICAL, DEFAULT = 600, 150
#: Shards are found at once, and claims are small beside what is measured.
QUICK = {"LOWKIQ_POLL_INTERVAL": "0.05", "LOWKIQ_CLAIM_WINDOW": "0.01"}


class Shop:
    def __init__(self, directory: Path, server: RedisServer, app: Lowkiq) -> None:
        (directory / "shop.py").write_text(APP)
        self.directory, self.app = directory, app
        self.environment = {"REDIS_URL": server.url, "LOWKIQ_NAMESPACE": app.settings.namespace}
        self.workers = {queue: app.worker(queue_name=queue)(lambda _: None) for queue in ("critical", "default")}

    def start(self, *arguments: str, threads: int) -> Supervised:
        environment = self.environment | {"LOWKIQ_THREADS": str(threads), **QUICK}
        return Supervised.main(self.directory, "-r", "shop", *arguments, **environment).ready(1)

    def push(self, critical: int, default: int) -> None:
        """Has both be there when the first of them begins."""
        for worker in self.workers.values():
            worker.actions.pause()
        for queue, jobs in (("critical", critical), ("default", default)):
            self.workers[queue].perform_async([{"id": number} for number in range(jobs)])
        for worker in self.workers.values():
            worker.actions.resume()

    def ran(self) -> list[tuple[str, float]]:
        rows = self.app.redis().lrange(f"{self.app.settings.namespace}:ran", 0, -1)
        return [(queue, float(seconds)) for queue, seconds in (row.decode().split() for row in rows)]

    def share_of_critical(self, jobs: int) -> float:
        """
        Its share of the time from the first quarter of its jobs to the third: before, the node finds out what is due
        where and how long it takes; after, some shards are empty before others, and leave threads to who has jobs.
        """
        wait_until(lambda: sum(queue == "critical" for queue, _ in self.ran()) == jobs)
        rows = self.ran()
        places = [place for place, (queue, _) in enumerate(rows) if queue == "critical"]
        during = rows[places[jobs // 4] : places[3 * jobs // 4]]
        assert sum(queue == "default" for queue, _ in rows[: places[-1]]) < DEFAULT, "there were jobs of both"
        seconds = {name: sum(took for queue, took in during if queue == name) for name in ("critical", "default")}
        return seconds["critical"] / sum(seconds.values())


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> Shop:
    return Shop(tmp_path, redis_server, app)


@pytest.mark.parametrize("threads", [1, 3])
def test_two_backlogs_share_the_threads_8_to_1_and_the_rest_goes_to_who_is_left(shop: Shop, threads: int) -> None:
    with shop.start("--queues", "critical=8,default=1", threads=threads) as supervisor:
        wait_until(lambda: shop.app.nodes().nodes)
        assert shop.app.nodes().nodes[0].weights == {"critical": 8, "default": 1}
        assert status(shop.directory)["supervisor"]["weights"] == {"critical": 8, "default": 1}
        assert "queues critical=8, default=1" in command(shop.directory, "status").stdout
        shop.push(critical=CRITICAL, default=DEFAULT)
        share = shop.share_of_critical(CRITICAL)
        wait_until(lambda: len(shop.ran()) == CRITICAL + DEFAULT)
        supervisor.end()
    assert LEAST < share < MOST


def test_a_weight_is_followed_while_the_node_runs(shop: Shop) -> None:
    with shop.start(threads=2) as supervisor:
        shop.workers["critical"].actions.set(weight=8, who="ann")
        wait_until(lambda: [node.weights for node in shop.app.nodes().nodes] == [{"critical": 8}])
        shop.push(critical=CRITICAL, default=DEFAULT)
        assert LEAST < shop.share_of_critical(CRITICAL) < MOST
        shop.workers["critical"].actions.unset("weight")
        wait_until(lambda: [node.weights for node in shop.app.nodes().nodes] == [{}])
        supervisor.end()
