"""What the doctor makes of queues and nodes, as a real Redis holds them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lowkiq import Lowkiq, Rate
from lowkiq.admin.beats.health import ThreadHealth
from lowkiq.doctor import machine_checks, node_checks, queue_checks
from lowkiq.doctor.subject import Check, Subject, Verdict, checks_of
from lowkiq.queue import keys
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.shard import Exhausted
from lowkiq.version import VERSION
from tests.beside import run_beside
from tests.node.driven import burst
from tests.queue.shard_driver import PAST, ShardDriver
from tests.web.node_health import tell_health

Examine = Callable[..., list[Verdict]]


@pytest.fixture
def examine(app: Lowkiq) -> Iterator[Examine]:
    """Makes one check."""
    made = []

    def examine(check: Check, *, has_app: bool = True) -> list[Verdict]:
        made.append(Subject(app, os.environ, has_app=has_app))
        found = list(check(made[-1]))
        assert all((verdict.do is not None) == (verdict.level in {"warning", "problem"}) for verdict in found)
        return found

    yield examine
    for subject in made:
        subject.close()


def levels(found: list[Verdict]) -> list[str]:
    return [verdict.level for verdict in found]


def serve(app: Lowkiq, queue: str = "q", shards_count: int = 1) -> Any:
    return app.worker(queue_name=queue, shards_count=shards_count)(lambda payloads_by_id: None)


def register(app: Lowkiq, **queues: Any) -> None:
    rows: dict[Any, Any] = dict(queues)
    app.redis().hset(keys.queues(app.settings.namespace), mapping=rows)


def test_code_and_redis_agree(app: Lowkiq, examine: Examine) -> None:
    serve(app)
    serve(app, "new")
    register(app, q="2:1")
    agreed, unknown = examine(queue_checks.shards_count)
    assert (agreed.level, agreed.says) == ("ok", "shards_count agrees with Redis: q")
    assert (unknown.level, unknown.says) == ("note", "not in Redis yet, the first push or node makes them: new")


def test_another_shards_count_than_code_begins_with_is_said(app: Lowkiq, examine: Examine) -> None:
    serve(app)
    register(app, q="2:24")
    (found,) = examine(queue_checks.shards_count)
    assert found.level == "warning"
    assert found.says == "queue q has 24 shards, whatever shards_count 1 its code begins with"
    assert found.do == "set shards_count = 24, or run `lowkiq reshard q 1`"


def test_an_application_without_workers(examine: Examine) -> None:
    assert levels(examine(queue_checks.shards_count)) == ["warning"]
    assert levels(examine(queue_checks.shards_count, has_app=False)) == ["note"]


def test_a_newer_layout_is_a_problem_told_once(app: Lowkiq, examine: Examine) -> None:
    serve(app)
    register(app, q=f"{keys.LAYOUT_VERSION + 1}:1")
    assert examine(queue_checks.shards_count) == []
    (found,) = examine(queue_checks.layouts)
    assert found.level == "problem"
    assert found.says == f"queue q has layout 3, this Lowkiq {VERSION} writes layout 2"
    assert found.do == "upgrade it: a newer Lowkiq has taken the queue over"


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ("3:2", "queue q (shard 1) has layout 3"),
        ("2:3", "shard 1 of queue q was written with shards_count 3, the queue has 2"),
    ],
)
def test_a_shard_with_a_layout_of_its_own(app: Lowkiq, examine: Examine, layout: str, says: str) -> None:
    serve(app, shards_count=2).perform_async([{"id": 1}])
    assert levels(examine(queue_checks.layouts)) == ["ok"]
    app.redis().hset(keys.shard(app.settings.namespace, "q", 1) + "meta", "layout", layout)
    (found,) = examine(queue_checks.layouts)
    assert found.level == "problem" and says in found.says


def test_what_waits_for_its_own_run_is_not_late(app: Lowkiq, examine: Examine) -> None:
    serve(app)
    register(app, q="2:1")
    tell_health(app)
    lease = run_beside(ShardDriver(app))
    assert levels(examine(queue_checks.late)) == []
    lease.settle(1, rest="ack")
    (found,) = examine(queue_checks.late)
    assert found.level == "warning" and "1 job queued, 1 in hand" in found.says


def test_a_queue_that_nobody_serves(app: Lowkiq, make_app: Callable[..., Lowkiq], examine: Examine) -> None:
    serve(app)
    theirs = make_app()
    serve(theirs, "theirs").perform_async([{"id": 1}])
    serve(theirs, "empty")
    register(app, empty="2:1")
    (found,) = examine(queue_checks.unserved)
    assert found.level == "warning" and found.says.startswith("queue theirs has 1 jobs, no worker")
    assert not examine(queue_checks.unserved, has_app=False)
    ShardDriver(theirs, "theirs").lease()
    assert not examine(queue_checks.unserved), "a node of another application has it"


def test_shards_that_nobody_has(app: Lowkiq, examine: Examine) -> None:
    serve(app).perform_async([{"id": 1, "perform_in": PAST}])
    (found,) = examine(queue_checks.unowned)
    assert found.level == "warning" and "Start nodes" in str(found.do), "there is no node at all"
    assert "nothing runs, and 1 queue has jobs due" in found.says
    tell_health(app)
    (found,) = examine(queue_checks.unowned)
    assert found.level == "problem" and "lowkiq nodes" in str(found.do)
    assert "Shard 0 of q has jobs due and no node" in found.says
    ShardDriver(app).lease()
    assert levels(examine(queue_checks.unowned)) == ["ok"]


def test_jobs_in_the_hands_of_a_node_that_is_gone(app: Lowkiq, examine: Examine) -> None:
    serve(app).perform_async([{"id": 1, "perform_in": PAST}])
    lease = ShardDriver(app).lease(ttl=60)
    lease.claim()
    assert levels(examine(queue_checks.unowned)) == ["ok"]
    app.redis().hset(lease.driver.key("owner"), "until", "1.0")
    (found,) = examine(queue_checks.unowned)
    assert "1 job is in the hands of nodes that are gone" in found.says


def test_jobs_that_are_late_though_a_node_has_them(app: Lowkiq, examine: Examine) -> None:
    worker = serve(app)
    tell_health(app)
    ShardDriver(app).lease()
    worker.perform_async([{"id": "now"}])
    assert levels(examine(queue_checks.late)) == ["ok"]
    worker.perform_async([{"id": "old", "perform_in": PAST}])
    (found,) = examine(queue_checks.late)
    assert found.level == "warning" and "late: 2 jobs queued, 0 in hand" in found.says


def test_jobs_that_killed_their_nodes(app: Lowkiq, examine: Examine) -> None:
    serve(app).perform_async([{"id": "killer\x1b", "perform_in": PAST}, {"id": "loser", "perform_in": PAST}])
    lease = ShardDriver(app).lease("a")
    lease.claim()
    lease.settle(exhausted=[Exhausted("loser", "boom")], rest="release")
    well, dead = examine(queue_checks.deaths)
    assert (well.level, dead.level) == ("ok", "note") and "q 1" in dead.says
    lease.claim()
    lease.isolate("killer\x1b")
    ShardDriver(app).lease("b", max_crashes=1, dead=["a"])
    killed, dead = examine(queue_checks.deaths)
    assert killed.level == "warning" and killed.says.endswith(": killer\\x1b")
    assert "lowkiq morgue revive q ID" in str(killed.do) and "q 2" in dead.says


def test_without_nodes_there_is_little_to_say(examine: Examine) -> None:
    assert levels(examine(node_checks.present)) == ["note"]
    for check in (node_checks.numbers, node_checks.versions, node_checks.trips, node_checks.restarts):
        assert examine(check) == []


def test_nodes_that_are_well(app: Lowkiq, examine: Examine) -> None:
    for number in range(2):
        tell_health(app, node=f"n{number}", node_number=number, version=VERSION, restarts=0)
    assert [verdict.says for verdict in examine(node_checks.present)] == ["2 nodes live"]
    assert [verdict.says for verdict in examine(node_checks.numbers)] == ["numbers 0 to 1 are there, each once"]
    assert levels(examine(node_checks.versions)) == ["ok"]
    for check in (node_checks.trips, node_checks.long_jobs, node_checks.restarts):
        assert examine(check) == []


def test_a_node_that_is_late(app: Lowkiq, examine: Examine) -> None:
    tell_health(app, node="host\x1b", host="host\x1b")
    app.redis().zadd(keys.nodes(app.settings.namespace), {"host\x1b": app.redis().time()[0] - 20})
    assert examine(node_checks.present)[1].says.startswith("Node 0 on host\\x1b has not been heard of for 20 s")


def test_numbers_that_do_not_fit(app: Lowkiq, examine: Examine) -> None:
    for name, number, of in (("a", 0, 2), ("b", 0, 2), ("c", 2, 4)):
        tell_health(app, node=name, node_number=number, number_of_nodes=of)
    missing, doubled, totals = examine(node_checks.numbers)
    assert missing.says.startswith("Nodes 1, 3 of 4 are missing:")
    assert doubled.says.startswith("2 nodes have the number 0, on host:")
    assert totals.says == "nodes disagree how many there are: 2, 4"
    assert {missing.level, doubled.level, totals.level} == {"warning"}


def test_nodes_without_numbers_share_and_should_be_among_themselves(app: Lowkiq, examine: Examine) -> None:
    for name in ("a", "b"):
        tell_health(app, node=name, number_of_nodes=4, is_elastic=True)
    (alone,) = examine(node_checks.numbers)
    assert (alone.level, alone.says) == ("ok", "2 nodes share the shards by themselves")
    tell_health(app, node="c", number_of_nodes=1)
    (mixed,) = examine(node_checks.numbers)
    assert mixed.level == "warning"
    assert mixed.says.startswith("2 nodes without a number beside 1 with one: no job is lost")


@pytest.mark.parametrize(
    ("check", "health", "level", "says"),
    [
        (node_checks.versions, {"version": "9.9"}, "note", f"nodes run Lowkiq 9.9; this is {VERSION}"),
        (node_checks.trips, {"redis_round_trip": 5.1}, "problem", "took 5.1 s, longer than the 5 s"),
        (
            node_checks.restarts,
            {"restarts": 3, "last_exit": "SIGKILL"},
            "note",
            "node 0 has been restarted 3 times; last exit: SIGKILL",
        ),
    ],
)
def test_a_node_is_told_of(
    app: Lowkiq, examine: Examine, check: Check, health: dict[str, Any], level: str, says: str
) -> None:
    tell_health(app, **health)
    (found,) = examine(check)
    assert found.level == level and says in found.says


def test_a_job_that_takes_hours(app: Lowkiq, examine: Examine) -> None:
    busy = ThreadHealth(name="t", queue="q", shard=3, ids=["\x1b1"], jobs=1, seconds=9000.0)
    tell_health(app, threads=[busy, ThreadHealth(name="u")])
    stuck, found = examine(node_checks.long_jobs)
    assert stuck.level == "warning" and found.level == "note"
    assert found.says.endswith("has been at shard 3 of q for 2.5 h: \\x1b1")


def test_a_task_that_does_not_stop_and_blocks_its_loop(app: Lowkiq, examine: Examine) -> None:
    stuck = ThreadHealth(
        name="event loop", queue="q", shard=3, ids=["1"], jobs=1, seconds=9000.0, to_stop_seconds=8990.0
    )
    tell_health(app, tasks=1, longest_tasks=[stuck], loop_lag=8995.0)
    assert [found.level for found in examine(node_checks.long_jobs)] == ["problem", "warning", "note"]


def test_more_threads_than_concurrency_allows(app: Lowkiq, examine: Examine) -> None:
    serve(app, shards_count=3).concurrency = 3
    tell_health(app)
    (found,) = examine(machine_checks.capacity)
    assert found.says.startswith("concurrency allows 9 batches at a time for 10 threads")
    serve(app, "second")
    assert examine(machine_checks.capacity) == [], "that can use all threads, with one shard"


def test_payloads_larger_than_redis_takes(make_app: Callable[..., Lowkiq]) -> None:
    subject = Subject(make_app(max_payload_bytes=2 << 20), {}, has_app=True)
    subject.config = {"proto-max-bulk-len": str(1 << 20)}.get  # type: ignore[assignment, method-assign]
    (found,) = machine_checks.payloads(subject)
    assert found.level == "problem"


def test_blocked_jobs_are_a_problem(app: Lowkiq, examine: Examine) -> None:
    serve(app)
    register(app, q="2:1")
    shard = ShardDriver(app, "q", 0, 1)
    shard.push("a", perform_in=PAST)
    lease = shard.lease()
    lease.claim()
    assert examine(checks_of("blocked")) == []
    lease.settle(exhausted=[Exhausted("a", "boom", "block")])
    (found,) = examine(checks_of("blocked"))
    assert found.level == "problem" and found.says.startswith("1 blocked job waits in q, the first for")
    assert found.do and "retry them, skip their oldest payloads, or delete them" in found.do


def test_a_weight_of_a_queue_that_no_node_runs_is_a_warning(app: Lowkiq, examine: Examine) -> None:
    worker = serve(app)
    worker.perform_async([{"id": "a"}])
    worker.actions.set(weight=8)
    assert levels(examine(queue_checks.settings)) == ["note", "warning"]
    tell_health(app, queues=["other"])
    _, found = examine(queue_checks.settings)
    assert found.says == "queue q has a weight of 8, and no node runs it: nothing is shared"
    assert found.do == "start a node that names it in --queues, or: lowkiq unset q weight"
    tell_health(app, queues=["q"])
    assert levels(examine(queue_checks.settings)) == ["note"]
    worker.actions.set(weight=None)
    tell_health(app, queues=["other"])
    assert levels(examine(queue_checks.settings)) == ["note"]


def test_a_limit_that_limits_nothing_is_noted(app: Lowkiq, examine: Examine) -> None:
    app.worker(queue_name="q", shards_count=2, concurrency=3)(lambda _: None)
    register(app, q="2:2")
    calls = QueuePlaces(app.settings.namespace, "q", "one", 15)
    app.caller.run(calls.take(7, ["one 1"]))
    (found,) = examine(queue_checks.limits)
    assert found.level == "note" and "has max_running 7, which limits nothing" in found.says
    app.caller.run(calls.take(1, []))
    (found,) = examine(queue_checks.limits)
    assert found.level == "note" and "1 of 1 running" in found.says
    app.caller.run(calls.take(2, []))
    assert examine(queue_checks.limits) == []


def test_rates_that_can_t_be_kept_well_are_named_and_what_waits_for_one(app: Lowkiq, examine: Examine) -> None:
    app.worker(queue_name="narrow", rate=Rate(2, per=0.1), shards_count=1)(lambda _: None)
    app.worker(queue_name="fast", rate=Rate(10_000), shards_count=1)(lambda _: None)
    worker = app.worker(queue_name="shop", rate=Rate(1, per=3600), shards_count=1)(lambda _: None)
    worker.perform_async([{"id": number} for number in range(4)])
    burst(app)
    fast, narrow, waiting = examine(queue_checks.rates)
    assert fast.says.startswith("rate 10000/1 of queue fast is more than 2,000 jobs a second")
    assert narrow.says.startswith("rate 2/0.1 of queue narrow: what may start has to do so within 0.7 ms")
    assert waiting.says.startswith("3 jobs of queue shop wait for its rate, the last for another 3 h")
