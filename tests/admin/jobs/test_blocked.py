"""Blocked jobs: they keep all their payloads, hold up their id and nobody else, and go on when somebody says so."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.queries import Queries
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.jobs.states import counts_of
from lowkiq.queue.shard import Exhausted
from tests.node.driven import burst
from tests.queue.shard_driver import FUTURE, PAST


@pytest.fixture
def work(app: Lowkiq):
    """A queue whose jobs fail while they are named in `bad`."""

    @app.worker(queue_name="q", shards_count=1, max_retry_count=0, when_exhausted="block")
    class Jobs(Worker):
        ran: ClassVar[list[tuple[str, list[Any]]]] = []
        bad: ClassVar[set[str]] = {"a"}

        def perform_one(self, id: str, payloads: list[Any]) -> None:
            self.ran.append((id, payloads))
            if id in self.bad:
                raise ValueError(f"{id} is bad")

    return Jobs


def push(work, *rows) -> None:
    work.perform_async([{"id": id, "payload": payload, "score": payload} for id, payload in rows])


def blocked(work) -> list[tuple[str, list[Any], str | None]]:
    return [(job.id, job.payloads, job.error) for job in work.queries.blocked()]


def alerts(app: Lowkiq) -> list[Alert]:
    return [alert for alert in app.nodes().alerts if alert.kind == "blocked"]


def test_a_blocked_id_keeps_all_payloads_and_holds_up_nobody_else(app, work):
    push(work, ("a", 1), ("a", 2), ("b", 1))
    burst(app)
    push(work, ("a", 3), ("b", 2), ("c", 1))
    burst(app)
    assert work.ran == [("a", [1, 2]), ("b", [1]), ("b", [2]), ("c", [1])]
    assert blocked(work) == [("a", [1, 2, 3], "ValueError: a is bad")]
    (job,) = work.queries.fetch(["a"])
    assert job.is_blocked and job.retry_count == -1
    assert work.queries.morgue_range_by_updated_at() == []


def test_a_burst_waits_neither_for_what_is_blocked_nor_for_what_is_held(app, work):
    push(work, ("a", 1), ("b", 1), ("c", 1))
    work.actions.hold(["a", "b"])
    burst(app)
    work.actions.release(["a"])
    burst(app)
    assert work.ran == [("c", [1]), ("a", [1])]
    numbers = app.metrics()["q"]
    assert (numbers.length, numbers.held, numbers.blocked, numbers.lag) == (2, 1, 1, 0)


def test_a_retry_runs_all_of_it_in_order(app, work):
    push(work, ("a", 2), ("a", 1))
    burst(app)
    work.bad.clear()
    assert work.actions.retry(["a", "b"]) == 1
    assert work.actions.retry(["a"]) == 0
    assert work.queries.fetch(["a"])[0].error == "ValueError: a is bad"
    burst(app)
    assert work.ran == [("a", [1, 2])] * 2
    assert blocked(work) == [] and app.metrics()["q"].length == 0


def test_a_skip_drops_the_oldest_payload_only(app, work):
    push(work, ("a", 1), ("a", 2))
    burst(app)
    work.bad.clear()
    assert work.actions.skip(["a"]) == 1
    (job,) = work.queries.fetch(["a"])
    assert (job.payloads, job.error, job.is_blocked) == ([2], None, False)
    burst(app)
    assert work.ran[-1] == ("a", [2])


def test_a_skip_of_the_last_payload_ends_the_job(app, work):
    push(work, ("a", 1))
    burst(app)
    assert work.actions.skip(["a"]) == 1
    assert app.metrics()["q"].length == 0
    push(work, ("a", 2))
    work.bad.clear()
    burst(app)
    assert work.ran[-1] == ("a", [2])


def test_blocked_jobs_are_retried_in_the_order_in_which_they_were_blocked(app, work):
    work.bad |= {"b", "c"}
    for id in ("c", "a", "b"):
        push(work, (id, 1))
        burst(app)
    work.bad.clear()
    assert work.actions.retry_all() == 3
    burst(app)
    assert [id for id, _ in work.ran[-3:]] == ["c", "a", "b"]


def test_a_deletion_can_be_undone_and_the_job_is_blocked_again(app, work):
    push(work, ("a", 1))
    burst(app)
    deleted = work.actions.delete_and_keep("blocked", ["a"])
    assert deleted.moved == 1 and blocked(work) == []
    assert work.actions.undo(deleted.undo) == 1
    assert blocked(work) == [("a", [1], "ValueError: a is bad")]


def test_nothing_else_makes_it_due(app, work):
    push(work, ("a", 1))
    burst(app)
    assert work.actions.perform_all_jobs_now() == 0
    assert work.actions.perform_now(["a"]) == 0
    work.actions.bury(["a"])
    push(work, ("a", 2))
    burst(app)
    work.actions.morgue_queue_up(["a"])
    assert blocked(work) == [("a", [1, 2], "ValueError: a is bad")]


def test_a_cancel_and_a_kill_end_it(app, work):
    for act in (work.actions.cancel, work.actions.bury):
        push(work, ("a", 1))
        burst(app)
        assert act(["a"]) == 1
        assert blocked(work) == [] and app.metrics()["q"].blocked == 0


def test_it_is_a_state_of_its_own_and_not_late(app, work):
    push(work, ("a", 1))
    burst(app)
    work.perform_async([{"id": "later", "perform_in": FUTURE}])
    metrics = app.metrics()["q"]
    assert (metrics.blocked, metrics.due, metrics.scheduled, metrics.length, metrics.lag) == (1, 0, 1, 2, 0)
    assert counts_of(metrics)["blocked"] == 1
    previews = Previews(app.caller, app.shards("q", 1), load_error=str, max_id_bytes=512)
    for view, ids in (("blocked", ["a"]), ("scheduled", ["later"]), ("waiting", []), ("due", ["later", "a"])):
        assert [job.id for job in previews.page(view, limit=10).jobs] == ids, view
        assert previews.count(Match(view, "*")) == (len(ids), False), view
        assert previews.count(Match(view)) == (len(ids), False), view
        assert [job.id for job in previews.page(view, limit=10, pattern="a").jobs] == [id for id in ids if id == "a"]


def test_an_alert_comes_and_goes_with_it(app, work):
    assert alerts(app) == []
    push(work, ("a", 1))
    burst(app)
    (alert,) = alerts(app)
    (job,) = work.queries.blocked()
    assert alert.says.startswith("1 blocked job waits in q, the first for ")
    assert "retry them, skip their oldest payloads, or delete them" in alert.do
    assert (alert.since, alert.severity, alert.command) == (job.perform_in, "bad", "lowkiq blocked list q")
    work.actions.delete(["a"])
    assert alerts(app) == []


def test_what_happens_to_it_is_told(shard):
    shard.actions.track(["a"])
    shard.push_all(("a", b"1", 1.0, PAST), ("a", b"2", 2.0, PAST))
    lease = shard.lease("n")
    for _ in range(2):
        lease.claim()
        lease.settle(exhausted=[Exhausted("a", "boom", "block")])
        shard.actions.retry(["a"])
    lease.claim()
    lease.settle(exhausted=[Exhausted("a", "boom", "block")])
    shard.actions.skip(["a"])
    lease.claim()
    lease.settle(exhausted=[Exhausted("a", "boom", "discard")])

    queries = Queries(
        shard.caller, [shard.shard], load_payload=bytes, load_error=str, max_id_bytes=512, max_payloads=10
    )
    told = [one.kind for one in queries.history("a")]
    assert [kind for kind in told if kind not in {"pushed", "started"}] == [
        "blocked", "retried", "blocked", "retried", "blocked", "skipped", "discarded",
    ]  # fmt: skip


@pytest.mark.parametrize(("fate", "dead"), [("bury", [1]), ("discard", [])])
def test_otherwise_the_oldest_payload_goes_and_the_others_start_anew(app, fate, dead):
    ran: list[Any] = []

    @app.worker(queue_name="q", shards_count=1, max_retry_count=0, when_exhausted=fate)
    def work(id: str, payloads: list[Any]) -> None:
        ran.append(payloads)
        if 1 in payloads:
            raise ValueError("no")

    push(work, ("a", 1), ("a", 2))
    burst(app)
    assert ran == [[1, 2], [2]]
    assert [job.payloads for job in work.queries.morgue_fetch(["a"])] == [dead] * bool(dead)
    metrics = app.metrics()["q"]
    assert (metrics.processed, metrics.failed, metrics.length) == (1, 1, 0)
