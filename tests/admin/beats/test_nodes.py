"""What heartbeats say of all nodes: which numbers are doubled, what supervisors report, and what runs of a shard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from lowkiq import clock
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.alerts.look import alerts_of, shown
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.beats.health import EVENT_LOOP, NodeHealth, ThreadHealth, batch_of, running_batches
from lowkiq.admin.beats.nodes import Nodes, judge
from lowkiq.node.health.dump import health_of_thread


def node(**facts: Any) -> NodeHealth:
    known: dict[str, Any] = {
        "node": "host:1:abc", "boot_id": "b", "host": "host", "pid": 1, "supervisor_pid": 7, "node_number": 0,
        "number_of_nodes": 1, "slot": 0, "state": "ready", "started_at": 1.0, "beat_at": 2.0, "version": "1",
        "owned": {}, "waited_for": {}, "threads": [], "processed": 0, "failed": 0, "rss": 1, "cpu_percent": 0.0,
        "redis_round_trip": None, "restarts": 0, "last_exit": None,
    }  # fmt: skip
    return NodeHealth(**known | facts)


def judged(*nodes: NodeHealth) -> Nodes:
    return judge(list(nodes), [], [])


def listed(nodes: Nodes) -> list[Alert]:
    """The list that people get of these nodes."""
    now = Situation(nodes=nodes)
    return shown(alerts_of(now), now)


def test_a_process_and_its_successor_are_one_node() -> None:
    pair = node(), node(node="host:2:def", pid=2, state="starting")
    assert judged(*pair).doubled == []
    assert not listed(judged(*pair))


def test_another_supervisor_s_node_of_that_number_is_another_node() -> None:
    others: list[dict[str, Any]] = [{"host": "far"}, {"supervisor_pid": 8}, {"supervisor_pid": None, "slot": None}]
    for other in others:
        found = judged(node(), node(node="host:2:def", pid=2), node(node="host:3:ghi", pid=3, **other))
        assert found.doubled == [0]
        (alert,) = listed(found)
        assert alert.says.startswith("2 nodes have the number 0, on ")


def test_a_notice_that_all_nodes_of_a_supervisor_carry_is_one_alert_and_not_trusted() -> None:
    first = node(notices=["node 1/2 can't start since 12:03 UTC", "evil\x1b[31m\u202e" + "x" * 1000])
    second = node(node="host:2:def", slot=1, node_number=1, notices=["node 1/2 can't start since 12:03 UTC"])
    found = listed(judged(first, second))
    assert [alert.kind for alert in found] == ["supervisor"] * 2
    told = {alert.says for alert in found}
    assert "On host, node 1/2 can't start since 12:03 UTC" in told
    assert all("\x1b" not in says and "\u202e" not in says and len(says) < 1000 for says in told)
    assert len(listed(judged(node(notices=[str(number) for number in range(1000)])))) <= 11


def thread(*ids: str, seconds: float, jobs: int | None = None, shard: int = 0) -> ThreadHealth:
    count = len(ids) if jobs is None else jobs
    return ThreadHealth(name=ids[0], worker="W", queue="q", shard=shard, ids=list(ids), jobs=count, seconds=seconds)


def test_several_threads_of_a_node_can_perform_one_shard() -> None:
    several = node(threads=[thread("a", seconds=1.0), thread("b", seconds=9.0), thread("c", seconds=1.0, shard=1)])
    found = running_batches([several])
    assert {place: [batch.thread.name for batch in batches] for place, batches in found.items()} == {
        ("q", 0): ["b", "a"], ("q", 1): ["c"],
    }  # fmt: skip


def test_of_a_shard_that_several_nodes_name_the_last_beat_is_right() -> None:
    before = node(beat_age=8.0, threads=[thread("old", seconds=9.0), thread("older", seconds=10.0)])
    after = node(node="host:2:def", beat_age=1.0, threads=[thread("new", seconds=1.0)])
    for order in ([before, after], [after, before]):
        assert [batch.thread.name for batch in running_batches(order)["q", 0]] == ["new"]


def test_a_job_is_of_the_batch_that_names_it_else_of_one_too_large_to_name_all() -> None:
    large, small = thread("x", seconds=9.0, jobs=50), thread("a", "b", seconds=1.0)
    batches = running_batches([node(threads=[large, small])])["q", 0]
    named, perhaps = batch_of("b", batches), batch_of("c", batches)
    assert named and named.thread is small
    assert perhaps and perhaps.thread is large
    assert batch_of("c", [named]) is None


def test_a_beat_tells_what_each_thread_performs_also_of_one_shard() -> None:
    shard, worker = SimpleNamespace(queue="q", index=3), object()

    def batch(id: str, since: float) -> Any:
        running = [SimpleNamespace(id=id)]
        batch = SimpleNamespace(running=running, running_since=since, progress=None, to_stop_since=None, pid=None)
        return SimpleNamespace(worker=worker, shard=shard), batch

    now = clock.monotonic()
    first: Any = SimpleNamespace(name="t0", batches=[batch("a", now - 20.0)])
    second: Any = SimpleNamespace(name="t1", batches=[batch("b", now - 10.0)])
    told = [health_of_thread(first), health_of_thread(second)]
    assert [(one.name, one.shard, one.ids) for one in told] == [("t0", 3, ["a"]), ("t1", 3, ["b"])]
    assert told[0].seconds > told[1].seconds >= 10.0


# ── jobs that do not stop, and loops that are blocked ───────────────────────────────────────────────────────────────


def task(id: str, **facts: Any) -> ThreadHealth:
    return ThreadHealth(name=EVENT_LOOP, worker="W", queue="q", shard=0, ids=[id], jobs=1, **facts)


def test_a_job_that_was_asked_to_stop_longer_ago_than_a_beat_is_an_alert_that_says_what_to_do() -> None:
    soon, late = thread("soon", seconds=70.0), thread("17", seconds=90.0, jobs=4)
    threads = [
        msgspec.structs.replace(soon, to_stop_seconds=2.0),
        msgspec.structs.replace(late, name="lowkiq-worker-1", to_stop_seconds=61.0),
    ]
    found = judged(node(threads=threads))
    (alert,) = listed(found)
    assert (alert.kind, alert.severity, alert.subject) == ("runs on", "warn", "q")
    assert alert.says == (
        "17 and 3 more of q runs on, for 1 min 30 s so far, 1 min 1 s after it was to stop, by a cancel or its "
        "perform_timeout: node 0 on host, thread lowkiq-worker-1"
    )
    assert "TTIN" in alert.do and "current().cancelled" in alert.do and 'isolation="process"' in alert.do
    (alert,) = listed(judged(node(tasks=1, longest_tasks=[task("a", seconds=9.0, to_stop_seconds=8.0)])))
    assert "node 0 on host, its event loop" in alert.says and "CancelledError" in alert.do


def test_of_many_jobs_that_do_not_stop_the_longest_are_named_and_none_is_trusted() -> None:
    rows = [task(f"\x1b{number}" + "x" * 150, seconds=10.0 + number, to_stop_seconds=9.0) for number in range(30)]
    found = listed(judged(node(tasks=30, longest_tasks=rows)))
    assert len(found) == 11
    assert found[0].says.startswith("\\x1b29xxx")
    assert "20 more batches run on" in found[-1].says
    assert all("\x1b" not in alert.says and len(alert.says) < 400 for alert in found)


def test_an_event_loop_that_is_late_by_over_a_second_is_an_alert() -> None:
    found = judged(
        node(host="Far", tasks=3, loop_lag=2.6), node(node_number=1, number_of_nodes=2, tasks=1, loop_lag=0.9)
    )
    (alert,) = listed(found)
    assert (alert.kind, alert.severity) == ("event loop", "bad")
    assert alert.says == "The event loop of node 0 on Far is blocked, for 2.6 s so far: its 3 tasks stand still"
    assert "TTIN" in alert.do and "asyncio.to_thread" in alert.do


def test_a_node_s_batches_are_those_of_its_threads_and_its_tasks_the_longest_first() -> None:
    mixed = node(
        threads=[ThreadHealth(name="idle"), thread("a", seconds=2.0)], tasks=1, longest_tasks=[task("b", seconds=3.0)]
    )
    assert [running.jobs for running in mixed.batches] == ["b", "a"]
    assert [running.place for running in mixed.batches] == ["its event loop", "thread a"]
    helper = node(threads=[msgspec.structs.replace(thread("a", seconds=2.0), name="t", pid=77)])
    assert helper.batches[0].place == "thread t in process 77"
    stuck = msgspec.structs.replace(helper.threads[0], to_stop_seconds=9.0)
    (alert,) = listed(judged(node(threads=[stuck])))
    assert "Its process 77 should be dead" in alert.do
