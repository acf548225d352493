"""A queue gets another number of shards while nodes run it and producers push, without a restart of anybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from lowkiq.admin.resharding import read_layout, read_progress, reshard
from lowkiq.queue.keys import Layout
from tests.node.nodes import Nodes, overlaps
from tests.support import wait_until

IDS = [f"id-{number}" for number in range(60)]


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes(shards_count=5)


class Producer:
    """Pushes round after round to all ids, from a thread, until it is told to stop."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._stop = threading.Event()
        self.rounds = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            rows = [{"id": id, "payload": {"round": self.rounds}, "score": self.rounds} for id in IDS]
            self._nodes.push(*rows[: len(rows) // 2])
            for row in rows[len(rows) // 2 :]:
                self._nodes.push(row)
            self.rounds += 1


def layout(nodes: Nodes) -> Layout | None:
    return read_layout(nodes.app.caller, nodes.namespace, "jobs")


def is_settled(nodes: Nodes, count: int) -> bool:
    known = layout(nodes)
    return known is not None and known.shards_count == count and not known.is_moving


def rounds_of(nodes: Nodes) -> dict[str, list[int]]:
    """Id → rounds in the order in which they began."""
    found: dict[str, list[int]] = {}
    for _, _, jobs, *_ in nodes.records("start"):
        for id, payloads in jobs.items():
            found.setdefault(id, []).extend(payload["round"] for payload in payloads)
    return found


@pytest.mark.parametrize("is_elastic", [True, False])
def test_a_queue_is_resharded_both_ways_while_it_is_in_use(nodes: Nodes, is_elastic: bool) -> None:
    for number in range(2):
        node = {"is_elastic": True} if is_elastic else {"node_number": number, "number_of_nodes": 2}
        nodes.start(lease_ttl=6, node=node)
    with Producer(nodes) as producer:
        wait_until(lambda: producer.rounds > 3)
        for count in (12, 3, 6):
            reshard(nodes.app.caller, nodes.namespace, "jobs", count)
            wait_until(lambda count=count: is_settled(nodes, count))  # type: ignore[misc]
            seen = producer.rounds
            wait_until(lambda seen=seen: producer.rounds > seen + 3)  # type: ignore[misc]
    wait_until(nodes.is_done)
    assert layout(nodes) == Layout(2, 6, 4)
    assert overlaps(nodes.records("start", "end", "overlap")) == []
    assert all(rounds == list(range(producer.rounds)) for rounds in rounds_of(nodes).values())
    metrics = nodes.metrics()
    assert (metrics.pushed, metrics.failed) == (producer.rounds * len(IDS), 0)


def test_movers_that_die_have_heirs_and_so_have_nodes(nodes: Nodes) -> None:
    """Both ways, with a kill of whoever moves, again and again, while jobs run and are pushed."""
    kills = 0
    started = [nodes.start(lease_ttl=3, node={"is_elastic": True}) for _ in range(2)]
    with Producer(nodes) as producer:
        wait_until(lambda: producer.rounds > 3)
        nodes.app.push(nodes.worker, [{"id": f"later {n}", "payload": {}, "perform_in": 4e9} for n in range(20_000)])
        for count in (7, 4):
            reshard(nodes.app.caller, nodes.namespace, "jobs", count)
            while not is_settled(nodes, count):
                found = read_progress(nodes.app.caller, nodes.namespace, "jobs")
                mover = next((node for node in started if found and f":{node.pid}:" in found.node), None)
                if mover and kills < 6 and found and found.moved > 2_000 * (kills + 1):
                    mover.kill()
                    kills += 1
                    started.remove(mover)
                    started.append(nodes.start(lease_ttl=3, node={"is_elastic": True}))
                time.sleep(0.02)
    assert kills > 1
    wait_until(lambda: nodes.metrics().length == 20_000 and nodes.metrics().busy == 0)
    began = rounds_of(nodes)
    for id in IDS:
        first = list(dict.fromkeys(began[id]))  # what ran when its node died runs again
        assert first == list(range(producer.rounds)), id
