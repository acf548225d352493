"""Whatever is pushed, by whomever: nothing is lost, nothing stands still, and the node lives."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq import InvalidJob, Lowkiq
from tests.node.nodes import Nodes
from tests.support import wait_until

#: Every byte that is a string by itself, and what has hurt others.
IDS = [
    *map(chr, range(128)), "\x80", "\xff", "é" * 256, "x" * 512, "🔑" * 128, "\u202eabc", "\u2028", "\ufeff",
    "\U0010ffff", "\ud7ff\ue000", "a\x00b", "{a}", "{a}:{b}", "*", "**", ":", "::", " ", "  ", "..", "../..", "%",
    "%%s", "payloads", "claim", "due", "nan", "inf", "-inf", "0", "00", "1e5", "(1", "[a", "+", "-", "$", "=",
    "'; --", "<b>", "\r\nSET a 1\r\n", "*3\r\n$3\r\nSET\r\n",
]  # fmt: skip


def test_jobs_of_every_kind_of_id_fail_run_again_and_are_done(nodes: Nodes) -> None:
    node = nodes.start().wait_ready()
    nodes.push(*({"id": id, "payload": {"n": 1, "failures": 1}} for id in IDS))
    wait_until(nodes.is_done)
    assert {id for row in nodes.records("end") for id in row[2]} == set(IDS)
    assert nodes.metrics().processed == nodes.metrics().failed == len(set(IDS))
    assert node.is_running()


#: What is no UTF-8, and so is no id of ours.
BYTES = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x80" * 512, *(bytes([byte]) for byte in range(0x80, 0x100, 8))]


def test_ids_of_bytes_that_another_program_has_pushed_run_and_are_done(nodes: Nodes) -> None:
    node = nodes.start().wait_ready()
    for id in BYTES:
        nodes.push_bytes(id, b'{"n": 1, "failures": 1}')
    wait_until(lambda: nodes.metrics().processed == len(set(BYTES)))
    nodes.push({"id": "after", "payload": {"sleep": 6}})  # longer than the time between beats
    wait_until(lambda: nodes.ended("after"))
    wait_until(nodes.is_done)
    assert node.is_running()
    assert {id.encode("utf-8", "surrogateescape") for row in nodes.records("end") for id in row[2]} == {
        *BYTES,
        b"after",
    }


@pytest.mark.parametrize(
    "id", ["", "x" * 513, "é" * 257, "\ud800", "\udcff", b"bytes", 1.5, True, None, [], 1 << 20_000], ids=range(11)
)
def test_what_can_not_be_an_id_is_refused_and_nothing_of_its_push_is_written(app: Lowkiq, id: Any) -> None:
    worker = app.worker(queue_name="q")(lambda _: None)
    with pytest.raises(InvalidJob):
        worker.perform_async([{"id": "fine"}, {"id": id}])
    assert not app.redis().keys(f"{app.settings.namespace}:*")


def test_jobs_of_a_worker_that_is_gone_wait_and_everybody_is_told(nodes: Nodes) -> None:
    """They are kept as they are: the worker may come back with the next deployment."""
    gone = nodes.app.worker(queue_name="gone", shards_count=2)(lambda _: None)
    gone.perform_async([{"id": n} for n in range(10)])
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    wait_until(lambda: node.logged("unowned_shards"))
    assert {row.queue for row in nodes.app.nodes().unowned} == {"gone"}
    assert nodes.app.metrics()["gone"].length == 10
    assert nodes.app.metrics()["gone"].lag > 0


@pytest.mark.parametrize("shards_count", [1, 2, 4, 100])
def test_a_producer_with_another_shards_count_follows_the_queue(app: Lowkiq, make_app: Any, shards_count: int) -> None:
    app.worker(queue_name="q", shards_count=3)(lambda _: None).perform_async([{"id": "a"}])
    other = make_app().worker(queue_name="q", shards_count=shards_count)(lambda _: None)
    assert other.perform_async([{"id": "a"}, {"id": "b"}]) == (1, 1)
    assert app.queues() == {"q": 3} and app.metrics()["q"].length == 2


@pytest.mark.parametrize(("numbers", "of"), [([0], 5), ([0, 0], 1), ([0, 1, 2, 3, 4, 5, 6], 7), ([0, 0, 1], 9)])
def test_with_any_number_of_nodes_all_jobs_run(nodes: Nodes, numbers: list[int], of: int) -> None:
    """Too few, doubled, more than there are shards: what is nobody's part is fostered."""
    for number in numbers:
        nodes.start(node={"node_number": number, "number_of_nodes": of}, lease_ttl=2)
    nodes.push(*({"id": n, "payload": {}} for n in range(30)))
    wait_until(nodes.is_done)
    assert {id for row in nodes.records("end") for id in row[2]} == set(map(str, range(30)))
