"""What a node promises while all is well: order, merging, batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker, current
from tests.node.driven import burst
from tests.node.nodes import Nodes, overlaps
from tests.support import wait_until


def test_payloads_come_from_low_to_high_score(app: Lowkiq) -> None:
    got: list[dict[str, list[Any]]] = []
    worker = app.worker(queue_name="jobs")(lambda batch: got.extend([batch]))
    worker.perform_async([{"id": "a", "payload": n, "score": score} for n, score in enumerate([3, 1, 2.5, -4])])
    burst(app)
    assert got == [{"a": [3, 1, 2, 0]}]


def test_without_scores_the_order_of_pushing_is_kept(app: Lowkiq) -> None:
    got: list[Any] = []
    worker = app.worker(queue_name="jobs")(lambda batch: got.extend(batch["a"]))
    worker.perform_async([{"id": "a", "payload": number} for number in range(50)])
    worker.perform_async([{"id": "a", "payload": number} for number in range(50, 100)])
    burst(app)
    assert got == list(range(100))


def test_batch_size_bounds_the_ids_of_a_perform_and_is_reached(app: Lowkiq) -> None:
    sizes: list[int] = []
    worker = app.worker(queue_name="jobs", shards_count=1, batch_size=7)(lambda batch: sizes.append(len(batch)))
    worker.perform_async([{"id": number} for number in range(30)])
    burst(app)
    assert sizes == [7, 7, 7, 7, 2]


@pytest.mark.parametrize("max_payloads", [1, 3])
def test_max_payloads_bounds_an_id_not_a_batch(make_app: Callable[..., Lowkiq], max_payloads: int) -> None:
    app = make_app(max_payloads=max_payloads)
    got: list[dict[str, list[Any]]] = []
    worker = app.worker(queue_name="jobs", shards_count=1, batch_size=5)(lambda batch: got.extend([batch]))
    worker.perform_async([{"id": id, "payload": number, "score": number} for id in "abcde" for number in range(4)])
    burst(app)
    assert {id: len(payloads) for id, payloads in got[0].items()} == dict.fromkeys("abcde", max_payloads)
    for id in "abcde":
        assert [payload for batch in got for payload in batch.get(id, [])] == [0, 1, 2, 3]


def test_a_batch_is_of_one_shard(app: Lowkiq) -> None:
    from lowkiq.job import shard_of

    shards: list[set[int]] = []
    worker = app.worker(queue_name="jobs", shards_count=4, batch_size=50)(
        lambda batch: shards.append({shard_of(id.encode(), 4) for id in batch} | {current().shard})
    )
    worker.perform_async([{"id": number} for number in range(100)])
    burst(app)
    assert sorted(shards, key=min) == [{0}, {1}, {2}, {3}]


def test_jobs_of_one_id_never_overlap_on_two_nodes_of_all_shards(nodes: Nodes) -> None:
    first, second = nodes.start(node={"number_of_nodes": 2}), nodes.start(node={"number_of_nodes": 2, "node_number": 1})
    first.wait_ready(), second.wait_ready()
    for number in range(40):
        nodes.push(*({"id": id, "payload": {"n": number, "sleep": 0.002}, "score": number} for id in "abcdef"))
    wait_until(nodes.is_done)
    records = nodes.records("start", "end", "overlap")
    assert overlaps(records) == []
    for id in "abcdef":
        ran = [payload["n"] for what, _, jobs, *_ in records if what == "start" for payload in jobs.get(id, [])]
        assert ran == list(range(40))


def test_an_update_that_arrives_while_its_job_runs_runs_after_it(nodes: Nodes) -> None:
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"n": 1, "gate": "go"}})
    wait_until(lambda: nodes.started("a"))
    nodes.push({"id": "a", "payload": {"n": 2}})
    assert nodes.metrics().length == 1
    nodes.open("go")
    wait_until(nodes.is_done)
    ran = [(what, [payload["n"] for payload in jobs["a"]]) for what, _, jobs, *_ in nodes.records("start", "end")]
    assert ran == [("start", [1]), ("end", [1]), ("start", [2]), ("end", [2])]


def test_an_undecodable_payload_goes_to_the_morgue_raw_and_the_others_of_its_id_run(
    make_app: Callable[..., Lowkiq],
) -> None:
    import json

    ran: list[Any] = []
    app = make_app(dump_payload=lambda payload: payload if isinstance(payload, bytes) else json.dumps(payload))
    worker = app.worker(queue_name="jobs", shards_count=1, batch_size=10)(lambda batch: ran.extend([batch]))
    garbage = b"\xff\x00{not json"
    worker.perform_async([
        {"id": "a", "payload": 1, "score": 1},
        {"id": "a", "payload": garbage, "score": 2},
        {"id": "a", "payload": 3, "score": 3},
        {"id": "b", "payload": garbage, "score": 1},
        {"id": "c", "payload": 1, "score": 1},
    ])  # fmt: skip
    burst(app)
    merged: dict[str, list[Any]] = {}
    for batch in ran:
        for id, payloads in batch.items():
            merged.setdefault(id, []).extend(payloads)
    assert merged == {"a": [1, 3], "c": [1]}
    dead = {job.id: job for job in worker.queries.morgue_fetch(["a", "b"])}
    assert {id: job.payloads for id, job in dead.items()} == {"a": [garbage], "b": [garbage]}
    assert all("load_payload can't decode" in str(job.error) for job in dead.values())
    assert app.metrics()["jobs"].length == app.metrics()["jobs"].busy == 0


def test_a_deep_payload_that_was_accepted_can_be_run(app: Lowkiq) -> None:
    """How deep a payload may be must not depend on how deep the stack of its producer is."""
    from lowkiq import InvalidJob

    ran: list[Any] = []
    worker = app.worker(queue_name="jobs")(lambda batch: ran.extend([batch]))
    accepted = 0
    for depth in (100, 199, 900, 960, 980):
        payload: list[Any] = []
        for _ in range(depth):
            payload = [payload]
        try:
            worker.perform_async([{"id": depth, "payload": payload}])
        except InvalidJob:
            continue
        accepted += 1
    burst(app)
    assert accepted >= 2
    assert len(ran) == accepted
    assert app.metrics()["jobs"].morgue_length == 0


def test_burst_waits_for_what_is_due_and_for_what_jobs_push_but_not_for_later_retries(app: Lowkiq) -> None:
    ran: list[str] = []

    @app.worker
    class Jobs(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            (id,) = payloads_by_id
            ran.append(id)
            if id == "parent":
                Other.perform_async([{"id": "child"}])
            if id == "failing":
                raise ValueError("later")

    @app.worker
    class Other(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            ran.extend(payloads_by_id)

    Jobs.perform_async([{"id": "parent"}, {"id": "failing"}, {"id": "future", "perform_in": time.time() + 3600}])
    burst(app)
    assert sorted(ran) == ["child", "failing", "parent"]
    assert {job.id for job in Jobs.queries.fetch(["failing", "future"])} == {"failing", "future"}


def test_a_perform_in_of_long_ago_is_due(app: Lowkiq) -> None:
    ran: list[Any] = []
    worker = app.worker(queue_name="jobs")(lambda batch: ran.extend([batch]))
    worker.perform_async([{"id": "a", "perform_in": 1e9}])
    burst(app)
    assert ran == [{"a": [""]}]
