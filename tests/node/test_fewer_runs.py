"""Fewer runs, by a node: what a debounced, a throttled and a kept id are handed over."""

from __future__ import annotations

from typing import Any

from lowkiq import Debounce, Lowkiq, Snooze
from tests.node.driven import burst


def test_a_throttled_id_runs_once_and_then_with_all_that_came_meanwhile(app: Lowkiq) -> None:
    runs: list[list[int]] = []

    @app.worker(queue_name="q", throttle=3600)
    def work(id: str, payloads: list[int]) -> None:
        runs.append(payloads)

    for payload in (1, 2, 3):
        work.perform_async([{"id": "a", "payload": payload}])
        burst(app)
    assert runs == [[1]]
    assert app.metrics()["q"].scheduled == 1
    assert work.actions.perform_now(["a"]) == 1
    burst(app)
    assert runs == [[1], [2, 3]]


def test_a_debounced_id_waits_though_nodes_have_time(app: Lowkiq) -> None:
    @app.worker(queue_name="q", debounce=Debounce(3600, at_most=7200))
    def work(id: str, payloads: list[int]) -> None:
        raise AssertionError

    for payload in (1, 2, 3):
        work.perform_async([{"id": "a", "payload": payload}])
    burst(app)
    (job,) = work.queries.fetch(["a"])
    assert (job.payloads, job.retry_count) == ([1, 2, 3], -1)


def test_of_what_is_kept_a_run_gets_the_last_and_a_snoozed_one_gives_way(app: Lowkiq) -> None:
    runs: list[Any] = []

    @app.worker(queue_name="q", keep="last")
    def work(id: str, payloads: list[int]) -> None:
        runs.append(payloads)
        if payloads == [2]:
            work.perform_async([{"id": "a", "payload": 3}])
            raise Snooze(0)

    work.perform_async([{"id": "a", "payload": 1}, {"id": "a", "payload": 2}])
    burst(app)
    assert runs == [[2], [3]]
    metrics = app.metrics()["q"]
    assert (metrics.superseded, metrics.processed, metrics.length) == (2, 1, 0)
