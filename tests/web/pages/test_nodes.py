"""The page of nodes shows each node's health, and what is missing before it."""

from __future__ import annotations

import time

import msgspec

from lowkiq.admin.beats.health import EVENT_LOOP, ThreadHealth
from lowkiq.queue import keys
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health
from tests.web.reading import read


def test_no_nodes_are_told_with_what_to_do(browser):
    assert "lowkiq-supervisor --nodes 4" in read(browser, "/nodes").text


def test_a_node_tells_all_that_its_beat_does(browser, app):
    tell_health(
        app,
        number_of_nodes=1,
        host="worker-7.example",
        pid=4242,
        state="quiet",
        started_at=time.time() - 7_300,
        owned={"orders": [*range(20), 24]},
        fostered={"orders": [24]},
        weights={"orders": 8},
        waited_for={"": {"mail": [1]}, "other:9:x": {"mail": [2]}},
        processed=1_234_567,
        rss=300 << 20,
        rss_history=[100 << 20, 200 << 20, 300 << 20],
        cpu_history=[1.0, 2.0, 3.0],
        last_exit="killed by SIGKILL, out of memory?",
        threads=[
            ThreadHealth(
                name="lowkiq-worker-0", worker="Orders", queue="orders", shard=3, ids=["17"], jobs=3, seconds=61.0
            ),
            ThreadHealth(name="lowkiq-worker-1"),
        ],
    )
    text = read(browser, "/nodes").text
    for told in (
        "Node 0 of 1 quiet worker-7.example:4242",
        "orders 3 17 +2 1 min",
        "idle",
        "Owns orders 0–19, 24",  # noqa: RUF001 (an en dash, as in print)
        "Covering orders 24",
        "Weights orders 8",
        "Waits for nobody known yet: mail 1",
        "Waits for other:9:x: mail 2",
        "Processed 1,234,567",
        "Up for 2 h 1 min",
        "Memory over the last minutes: from 100 MiB to 300 MiB",
        "300 MiB",
        "CPU over the last minutes: from 1 % to 3 %",
        "Redis 1.0 ms",
        "Restarts 7",
        "Last exit killed by SIGKILL, out of memory?",
        "1 of 1 node · 1 of 2 threads busy · 0 of 0 shards owned",
    ):
        assert told in text


def test_a_missing_number_has_a_card_of_its_own_before_the_others(browser, app):
    tell_health(app, node_number=1, number_of_nodes=3)
    text = read(browser, "/nodes").text
    assert "Nodes 0, 2 of 3 are missing: others stand in for them" in text
    assert "Node 0 of 3 missing" in text
    assert text.index("Node 2 of 3 missing") < text.index("Node 1 of 3 ready")


def test_a_late_node_stands_out(browser, app):
    tell_health(app, number_of_nodes=1)
    app.redis().zadd(keys.nodes(app.settings.namespace), {"host:1:abc": time.time() - 20})
    page = read(browser, "/nodes")
    assert "Node 0 on host has not been heard of for 20 s" in page.text
    assert "Node 0 of 1 late" in page.text
    assert page.all("article", **{"class": "node bad"})


def test_a_shard_is_on_the_card_of_who_has_its_lease(browser, app):
    """A late node's last beat, and the first of who stands in for it, tell how it was before the lease moved."""
    queue = open_queue(app, "q", 2)
    queue.lease("host:2:def")
    thread = ThreadHealth(name="t", worker="W", queue="q", shard=0, ids=["17"], jobs=1, seconds=9.0)
    tell_health(app, number_of_nodes=2, owned={"q": [0]}, waited_for={"host:2:def": {"q": [1]}}, threads=[thread])
    tell_health(
        app, node="host:2:def", pid=2, node_number=1, owned={}, waited_for={"host:1:abc": {"q": [0]}}, number_of_nodes=2
    )
    app.redis().zadd(keys.nodes(app.settings.namespace), {"host:1:abc": time.time() - 20})
    page = read(browser, "/nodes")
    late, ready = page.text[page.text.index("Node 0 of 2") :].split("Node 1 of 2")
    assert "Owns no shard" in late
    assert "At its last beat: q 0 17 9.0 s" in late
    assert "Waits for" not in late + ready
    assert "Owns q 0" in ready
    assert "1 of 2 nodes, 1 late · 0 of 0 threads busy · 1 of 2 shards owned" in page.text


def test_rows_of_tasks_are_found_again_by_their_jobs(browser, app):
    tasks = [
        ThreadHealth(name=EVENT_LOOP, worker="W", queue="q", shard=0, ids=[id], jobs=1, seconds=1.0)
        for id in ("1", "2", "2")
    ]
    tell_health(app, number_of_nodes=1, threads=[ThreadHealth(name="t")], tasks=len(tasks), longest_tasks=tasks)
    rows = [row["data-key"] for row in read(browser, "/nodes").all("li") if "data-key" in row]
    assert rows == ["t", "q 0 1", "q 0 2", "q 0 2 2"]


def test_nodes_with_one_number_are_called_doubled(browser, app):
    tell_health(app, number_of_nodes=1)
    tell_health(app, number_of_nodes=1, node="other:2:x", host="other")
    text = read(browser, "/nodes").text
    assert "2 nodes have the number 0, on host and other: process 1 on" in text
    assert "or give each machine its own NODE_NUMBER" in text
    assert text.count("ready doubled") == 2


def test_a_batch_shorter_than_a_beat_is_told_as_of_the_beat(browser, app):
    """A job that ran for 10 ms when the beat was sent is not said to have run for the seconds since."""
    thread = ThreadHealth(name="t", worker="W", queue="q", shard=0, ids=["1"], jobs=1, seconds=0.01)
    tell_health(app, number_of_nodes=1, threads=[thread])
    app.redis().zadd(keys.nodes(app.settings.namespace), {"host:1:abc": time.time() - 4})
    assert "q 0 1 10 ms" in read(browser, "/nodes").text


def test_fifty_nodes_of_a_thousand_shards_stay_readable_and_small(browser, app):
    thread = ThreadHealth(name="t", worker="W", queue="q", shard=0, ids=["order-1"], jobs=1, seconds=1.0)
    for number in range(50):
        tell_health(
            app,
            node=f"host:{number}:x",
            node_number=number,
            number_of_nodes=50,
            owned={"q": list(range(number, 1_000, 50))},
            waited_for={},
            threads=[thread] * 5,
            rss_history=[1 << 20] * 60,
            cpu_history=[1.0] * 60,
        )
    page = read(browser, "/nodes")
    assert "Owns q 3, 53 … 953" in page.text
    assert len(page.all("article")) == 50
    assert len(page.source) < 500_000


def test_what_a_node_tells_is_not_trusted(browser, app):
    evil = '"><script>alert(1)</script>\u202e'
    thread = ThreadHealth(name=evil, worker=evil, queue=evil, shard=0, ids=[evil], jobs=1, seconds=1.0)
    fields = dict.fromkeys(("node", "host", "state", "version", "last_exit"), evil)
    tell_health(app, **fields, number_of_nodes=1, owned={evil: [1]}, waited_for={evil: {evil: [2]}}, threads=[thread])
    page = read(browser, "/nodes")
    assert len(page.all("script")) == 1
    assert "\u202e" not in page.source
    assert msgspec.json.encode(evil) not in page.source.encode()


def task(id, **facts):
    return ThreadHealth(name=EVENT_LOOP, worker="W", queue="mail", shard=3, ids=[id], jobs=1, **facts)


def test_what_runs_tells_its_progress_its_process_and_that_it_is_to_stop(browser, app):
    told = ThreadHealth(
        name="lowkiq-worker-0", worker="W", queue="q", shard=0, ids=["17"], jobs=1, seconds=61.0, progress=0.4,
        note="page 3 of 8 <b>", to_stop_seconds=42.0, pid=4243,
    )  # fmt: skip
    tell_health(app, number_of_nodes=1, threads=[told])
    page = read(browser, "/nodes")
    assert "q 0 17 process 4243 1 min 1 s asked to stop 42 s ago 40 % page 3 of 8 <b>" in page.text
    assert page.all("progress", value="0.4", max="1", aria_label="Progress of 17")
    assert "17 of q runs on, for 1 min 1 s so far, 42 s after it was to stop" in page.text


def test_a_node_that_only_runs_tasks_has_no_threads_and_shows_the_longest(browser, app):
    tasks = [task(f"id-{number}", seconds=100.0 - number) for number in range(50)]
    tell_health(app, number_of_nodes=1, tasks=100, longest_tasks=tasks, loop_lag=0.0)
    text = read(browser, "/nodes").text
    assert "1 of 1 node · 100 tasks · 0 of 0 shards owned" in text
    assert text.index("mail 3 id-0 1 min 40 s") < text.index("id-9") < text.index("and 90 tasks more")
    assert "id-10" not in text
    assert "Tasks 100 Loop lag 0 s" in text
    assert "idle" not in text


def test_an_event_loop_without_tasks_is_idle_beside_busy_threads(browser, app):
    busy = ThreadHealth(name="t", worker="W", queue="q", shard=0, ids=["1"], jobs=1, seconds=1.0)
    tell_health(app, number_of_nodes=1, threads=[busy], tasks=0)
    text = read(browser, "/nodes").text
    assert "1 of 1 thread busy · 0 tasks" in text
    assert "event loop idle" in text


def test_a_blocked_event_loop_comes_first(browser, app):
    tell_health(app, number_of_nodes=1, tasks=2, longest_tasks=[task("a")], loop_lag=3.0)
    page = read(browser, "/nodes")
    assert "The event loop of node 0 on host is blocked, for 3.0 s so far: its 2 tasks stand still" in page.text
    assert "Loop lag 3.0 s" in page.text


def test_a_missing_node_keeps_its_host_and_the_jobs_that_it_had(browser, app):
    threads = [ThreadHealth(name="t", worker="W", queue="q", shard=0, ids=["17"], jobs=3, seconds=9.0)]
    told = {"queues": ["q"], "node_number": 0, "supervisor_pid": 77, "slot": 3}
    tell_health(app, node="lost", host="worker-7", pid=4242, threads=threads, **told)
    tell_health(app, node="lives", node_number=1, queues=["q"])
    client, key = app.redis(), f"{app.settings.namespace}:nodes"
    client.zincrby(key, -3_600, "lost")
    page = read(browser, "/nodes")
    card = page.text.partition("Node 0 of 2")[2].partition("Node 1 of 2")[0]
    for words in ("worker-7, pid 4242", "Last beat 1 h", "supervisor 77, slot 3", "17 and 2 more"):
        assert words in card
    assert "/queues/q/job?id=17" in page.links()
    assert client.ttl(f"{app.settings.namespace}:node:lost") > 86_000
    assert "worker-7" in read(browser, "/nodes", x_lowkiq_live="slow").text
    assert not read(browser, "/nodes", x_lowkiq_live="tick").all("div", data_live="missing")  # it stays as it is
    client.zincrby(key, -86_400, "lost")
    assert "none before that within a day" in read(browser, "/nodes").text
