"""Queries, actions and numbers of jobs in lowkiq.testing: what code and tests ask for without a Redis."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest

import lowkiq
from lowkiq import Debounce, Fixed, Job, Lowkiq, LowkiqError, Snooze, Worker, testing


class Shop:
    """Two queues; each run is noted, and does what was put into `does`."""

    def __init__(self) -> None:
        self.app = Lowkiq(redis_url="redis://127.0.0.1:1/0", push_timeout=0.01)
        self.ran: list[tuple[str, list[Any]]] = []
        self.does: Callable[[str], object] = lambda _: None

        @self.app.worker(queue_name="orders", retry=Fixed(60, limit=1))
        def orders(id: str, payloads: list[Any]) -> None:
            self.ran.append((f"order {id}", payloads))
            self.does(id)

        @self.app.worker(queue_name="mails", max_retry_count=0, when_exhausted="block")
        def mails(id: str, payloads: list[Any]) -> None:
            self.ran.append((f"mail {id}", payloads))
            self.does(id)

        self.orders, self.mails = orders, mails

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.ran]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def fail(_: str) -> None:
    raise ValueError("no")


# ── actions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_deleted_or_cancelled_does_not_run(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": id} for id in (1, 2, 3)])
        assert shop.orders.actions.delete([1, 9]) == 1
        assert shop.orders.actions.cancel(["2", "9"]) == 1
        assert [job.id for job in jobs.pending(shop.orders)] == ["3"]
        jobs.drain()
        jobs.assert_pushed(shop.orders, id=1)
    assert shop.names == ["order 3"]


def test_ids_are_a_list_as_ever(shop: Shop) -> None:
    with testing.fake(shop.app), pytest.raises(TypeError, match="17"):
        shop.orders.actions.delete("17")


def test_a_run_that_is_cancelled_hears_of_it_and_does_not_come_back(shop: Shop) -> None:
    heard = []

    def give_up(id: str) -> None:
        shop.orders.actions.cancel([id])
        heard.append(lowkiq.current().cancelled)
        raise ValueError("no")

    shop.does = give_up
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        (outcome,) = jobs.drain(until="+1h")
        assert (outcome.cancelled, outcome.failed, outcome.done, outcome.retry_in) == (True, False, False, None)
        assert jobs.pending(shop.orders) == jobs.morgue(shop.orders) == []
    assert heard == [True] and shop.names == ["order 1"]


def test_a_cancelled_run_that_is_done_all_the_same_is_done(shop: Shop) -> None:
    shop.does = lambda one: shop.orders.actions.cancel([one])
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        (outcome,) = jobs.drain()
        assert (outcome.done, outcome.cancelled) == (True, False)


def test_of_a_batch_only_those_are_cancelled_that_were(shop: Shop) -> None:
    @shop.app.worker(batch_size=3, shards_count=1)
    def sync(payloads_by_id: dict[str, list[Any]]) -> None:
        sync.actions.cancel(["b"])
        raise Snooze(60)

    with testing.fake(shop.app) as jobs:
        sync.perform_async([{"id": id} for id in "abc"])
        told = {outcome.id: (outcome.cancelled, outcome.snoozed) for outcome in jobs.drain()}
        assert told == {"a": (False, 60), "b": (True, None), "c": (False, 60)}
        assert [job.id for job in jobs.pending(sync)] == ["a", "c"]


def test_what_is_held_runs_once_it_is_let_go(shop: Shop) -> None:
    with testing.fake(shop.app, at=2e9) as jobs:
        shop.orders.perform_async([{"id": 1, "payload": "a"}, {"id": 2}])
        assert shop.orders.actions.hold([1, 7], "the bank asks", who="ann") == 2
        assert shop.orders.actions.hold([1]) == 0
        shop.orders.actions.hold([1], "the bank asks", who="ann")
        jobs.drain(until="+1h")
        assert shop.names == ["order 2"]
        shop.orders.perform_async([{"id": 1, "payload": "b"}])
        (one, seven) = shop.orders.queries.held()
        assert (one.id, one.why, one.who, one.by_person, one.waits) == ("1", "the bank asks", "ann", True, None)
        assert seven.id == "7"
        assert shop.orders.actions.release([1]) == 1 and shop.orders.actions.release([1]) == 0
        jobs.drain()
    assert shop.ran == [("order 2", [""]), ("order 1", ["a", "b"])]


def test_a_job_that_waits_for_another_and_is_held_needs_both(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "first", "delay": 60}])
        for id in ("both", "waits", "tired"):
            shop.mails.perform_async([{"id": id, "after": [(shop.orders, "first")]}])
        assert shop.mails.actions.hold(["both"]) == 1
        assert shop.mails.actions.release(["waits"]) == 0, "nobody holds it"
        assert shop.mails.actions.stop_waiting(["tired"]) == 1
        (both,) = [hold for hold in shop.mails.queries.held() if hold.id == "both"]
        assert both.waits is not None
        assert (both.by_person, both.waits.left, both.waits.first) == (True, 1, (("orders", "first"),))
        jobs.drain()
        assert shop.names == ["mail tired"]
        jobs.drain(until="+2m")
        assert shop.names == ["mail tired", "order first", "mail waits"]
        assert shop.mails.actions.release(["both"]) == 1
        jobs.drain()
    assert shop.names[-1] == "mail both"


def test_those_for_whom_others_wait_are_told(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "first"}, {"id": "second"}])
        shop.mails.perform_async([{"id": "a", "after": [(shop.orders, "first"), (shop.orders, "none")]}])
        assert shop.orders.actions.waited_for(["first", "second", "none"]) == ["first"]
        jobs.drain()
        assert shop.orders.actions.waited_for(["first"]) == []


def test_a_hold_that_ends_first_leaves_the_waiting(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "first", "delay": 60}])
        shop.mails.perform_async([{"id": "both", "after": [(shop.orders, "first")]}])
        shop.mails.actions.hold(["both"])
        assert shop.mails.actions.release(["both"]) == 1
        jobs.drain()
        assert shop.names == []
        jobs.drain(until="+2m")
    assert shop.names == ["order first", "mail both"]


def test_what_waits_takes_that_along_to_the_morgue_and_back(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "first", "delay": 60}])
        shop.mails.perform_async([{"id": id, "after": [(shop.orders, "first")]} for id in ("dead", "gone", "new")])
        assert shop.mails.actions.bury(["dead", "gone", "new"]) == 3
        assert shop.mails.actions.morgue_delete(["gone"]) == 1
        shop.mails.perform_async([{"id": "gone"}, {"id": "new"}])
        jobs.drain()
        assert shop.names == ["mail gone", "mail new"], "a new one waits for nothing"
        assert shop.mails.actions.morgue_queue_up(["dead"]) == 1
        jobs.drain()
        assert "mail dead" not in shop.names
        jobs.drain(until="+2m")
    assert shop.names[-2:] == ["order first", "mail dead"]


def test_a_deleted_job_that_has_waited_waits_no_more_when_it_is_pushed_again(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "first", "delay": 60}])
        shop.mails.perform_async([{"id": "a", "after": [(shop.orders, "first")]}])
        assert shop.mails.actions.delete(["a"]) == 1
        assert shop.mails.queries.held() == []
        shop.mails.perform_async([{"id": "a"}])
        jobs.drain()
    assert shop.names == ["mail a"]


def test_what_is_dead_or_blocked_can_be_sent_on(shop: Shop) -> None:
    shop.does = fail
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        shop.mails.perform_async([{"id": id, "payload": n} for id in (2, 3) for n in (1, 2)])
        jobs.drain(until="+1h")
        assert [job.id for job in shop.orders.queries.morgue_fetch([1])] == ["1"]
        assert sorted(job.id for job in shop.mails.queries.blocked()) == ["2", "3"]
        shop.does, shop.ran = lambda _: None, []
        assert shop.orders.actions.morgue_queue_up([1]) == 1
        assert shop.mails.actions.retry([2]) == shop.mails.actions.skip([3]) == 1
        jobs.drain()
    assert shop.ran == [("order 1", [""]), ("mail 2", [1, 2]), ("mail 3", [2])]


def test_what_is_for_later_can_be_performed_now(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": id, "delay": 3_600} for id in (3, 1, 2)])
        assert shop.orders.actions.perform_now([1]) == 1
        jobs.drain()
        assert shop.orders.actions.perform_all_jobs_now() == 2
        jobs.drain()
    assert shop.names == ["order 1", "order 3", "order 2"]


def test_a_queue_can_be_paused_and_go_on(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        assert shop.orders.actions.pause("it is night").is_confirmed
        shop.mails.perform_async([{"id": 1}])
        jobs.drain(until="+1h")
        assert shop.names == ["mail 1"]
        assert shop.app.metrics()["orders"].paused == 5
        assert shop.orders.actions.resume() == 5
        jobs.drain()
    assert shop.names == ["mail 1", "order 1"]


# ── queries and numbers ─────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_are_found_as_in_redis(shop: Shop) -> None:
    with testing.fake(shop.app, at=2e9) as jobs:
        shop.orders.perform_async([{"id": f"eu-{n}", "payload": n, "delay": n, "tags": ["eu"]} for n in range(3)])
        shop.orders.perform_async([{"id": "us-1", "payload": "x", "tags": ["us", "vip"]}])
        queries = shop.orders.queries
        assert [(job.id, job.payloads) for job in queries.fetch(["us-1", "none", "eu-2"])] == [
            ("us-1", ["x"]), ("eu-2", [2])
        ]  # fmt: skip
        assert [job.id for job in queries.range_by_perform_in(min=2e9 + 1, max=2e9 + 5)] == ["eu-1", "eu-2"]
        assert [job.id for job in queries.rev_range_by_perform_in(limit=1)] == ["eu-2"]
        assert sorted(job.id for job in queries.find("eu-[^0]")) == ["eu-1", "eu-2"]
        assert [job.id for job in queries.find(tag="vip")] == ["us-1"]
        assert [(count.tag, count.ids) for count in queries.top()] == [("eu", 3), ("us", 1), ("vip", 1)]
        jobs.drain(until="+1m")
        assert queries.fetch(["us-1"]) == [] == list(queries.find("*"))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ["a*", "a-1", "a.1", "b[1]", "é"]), ("a?1", ["a-1", "a.1"]), ("a.1", ["a.1"]), (r"a\*", ["a*"]),
        ("[ab]*", ["a*", "a-1", "a.1", "b[1]"]), ("[^a]*", ["b[1]", "é"]), ("[a-b][*-.]*", ["a*", "a-1", "a.1"]),
        (r"b\[1\]", ["b[1]"]), (r"b[\[]1]", ["b[1]"]), ("é", ["é"]), ("a", []), ("a[]1", []),
    ],
)  # fmt: skip
def test_globs_are_those_of_redis(shop: Shop, make_app: Callable[..., Lowkiq], pattern: str, found: list[str]) -> None:
    real = make_app()
    worker = real.worker(queue_name="q")(lambda batch: None)
    ids = ["a*", "a-1", "a.1", "b[1]", "é"]
    worker.perform_async([{"id": id} for id in ids])
    assert sorted(job.id for job in worker.queries.find(pattern)) == found
    with testing.fake(shop.app):
        shop.orders.perform_async([{"id": id} for id in ids])
        assert sorted(job.id for job in shop.orders.queries.find(pattern)) == found


def test_jobs_are_counted_by_state(shop: Shop) -> None:
    shop.does = fail
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        shop.mails.perform_async([{"id": 1}])
        jobs.drain()
        shop.orders.perform_async([{"id": 2}, {"id": 3}, {"id": 4, "delay": 60}, {"id": 5}])
        shop.orders.actions.bury([5])
        shop.orders.actions.hold([3])
        orders, mails = (shop.app.metrics()[name] for name in ("orders", "mails"))
        assert (orders.length, orders.fresh, orders.retries, orders.due, orders.scheduled) == (4, 3, 1, 2, 2)
        assert (orders.held, orders.morgue_length, orders.pushed, orders.failed) == (1, 1, 5, 1)
        assert (mails.blocked, mails.length, mails.due) == (1, 1, 0)
        assert shop.app.queues() == {"orders": 5, "mails": 5}


def test_a_running_job_can_look(shop: Shop) -> None:
    seen: list[Any] = []
    shop.does = lambda one: seen.append((shop.app.metrics()["orders"].busy, shop.orders.queries.fetch([one])))
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        jobs.drain()
    assert seen == [(1, [])]


def test_payloads_are_shown_as_queries_have_them_and_as_perform_does(shop: Shop) -> None:
    """`pending` gives what the handler is given; queries what is stored."""

    @shop.app.worker
    def sync(id: int, payloads: list[datetime.date]) -> None: ...

    day = datetime.date(2030, 1, 1)
    with testing.fake(shop.app) as jobs:
        sync.perform_async([{"id": 1, "payload": day}])
        assert [job.payloads for job in jobs.pending(sync)] == [[day]]
        assert [job.payloads for job in sync.queries.fetch([1])] == [["2030-01-01"]]


def test_ids_that_are_not_text_are_found_as_they_are(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": "Straße 1:2 {3}"}])
        assert [job.id for job in shop.orders.queries.fetch(["Straße 1:2 {3}"])] == ["Straße 1:2 {3}"]
        assert shop.orders.actions.delete(["Straße 1:2 {3}"]) == 1
        assert jobs.pending(shop.orders) == []


def test_queries_go_back_to_redis_afterwards(shop: Shop) -> None:
    with testing.fake(shop.app):
        assert shop.orders.queries.fetch([1]) == []
    with pytest.raises(Exception, match="127"):
        shop.orders.queries.fetch([1])


@pytest.mark.parametrize(
    "ask",
    [
        lambda shop: shop.app.nodes(),
        lambda shop: shop.app.redis(),
        lambda shop: shop.app.statistics("orders"),
        lambda shop: shop.orders.queries.settings(),
        lambda shop: shop.orders.actions.set(batch_size=2),
        lambda shop: shop.orders.actions.reshard(9),
        lambda shop: shop.orders.actions.track([1]),
    ],
)
def test_what_is_about_nodes_is_refused_and_told_where_to_look(shop: Shop, ask: Callable[[Shop], object]) -> None:
    with testing.fake(shop.app), pytest.raises(LowkiqError, match=r"no Redis in lowkiq\.testing.*lowkiq_redis"):
        ask(shop)


def test_a_queue_that_is_not_the_applications_is_refused(shop: Shop) -> None:
    with testing.fake(shop.app), pytest.raises(LowkiqError, match="no queue 'order' here; known are: orders, mails"):
        shop.app.queries("order", 5).fetch([1])


def test_queues_that_a_test_does_not_touch_cost_it_nothing(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        assert shop.orders.queries.fetch([1]) and jobs.pending(shop.orders)
        jobs.drain()
        assert [*jobs._queues] == ["orders"]


def test_threads_can_look_and_act_while_others_push(shop: Shop) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(30):
                shop.orders.perform_async([{"id": f"{number}-{n}"}])
                shop.app.metrics()
                assert len(list(shop.orders.queries.find(f"{number}-{n}"))) == 1
                assert shop.orders.actions.delete([f"{number}-{n}"]) == 1
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with testing.fake(shop.app) as jobs:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert jobs.pending(shop.orders) == []
    assert errors == []


# ── drain(only=[…]) ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_jobs_of_some_workers_run(shop: Shop) -> None:
    with testing.fake(shop.app, at=2e9) as jobs:
        shop.orders.perform_async([{"id": 1}, {"id": 2, "delay": 600}])
        shop.mails.perform_async([{"id": 1}, {"id": 2, "delay": 600}])
        assert [outcome.queue for outcome in jobs.drain(only=[shop.mails])] == ["mails"]
        jobs.drain(until="+1h", only=[shop.mails])
        assert shop.names == ["mail 1", "mail 2"]
        assert jobs.now == pytest.approx(2e9 + 3_600), "time goes on for all"
        assert [outcome.at >= 2e9 + 3_600 for outcome in jobs.drain()] == [True, True]
        assert jobs.drain(only=[]) == []
        shop.orders.perform_async([{"id": 3}])
        assert [outcome.id for outcome in jobs.drain(only=["orders"])] == ["3"]
    assert shop.names[2:] == ["order 1", "order 2", "order 3"]


def test_what_they_push_runs_if_it_is_of_them(shop: Shop) -> None:
    def push_to_both(id: str) -> None:
        if "x" not in id:
            shop.orders.perform_async([{"id": f"x{id}"}])
            shop.mails.perform_async([{"id": f"x{id}"}])

    shop.does = push_to_both
    with testing.fake(shop.app) as jobs:
        shop.orders.perform_async([{"id": 1}])
        jobs.drain(only=[shop.orders])
        assert shop.names == ["order 1", "order x1"]
        jobs.drain(only=(worker for worker in (shop.orders, shop.mails)))
    assert shop.names[-1] == "mail x1"


def test_what_recurs_is_pushed_as_time_goes_on_whoever_runs(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.app.recurring.set(shop.orders, "hourly", "1h")
        jobs.drain(until="+1h", only=[shop.mails])
        assert shop.names == [] and [job.id for job in jobs.pending(shop.orders)] == ["hourly"]
        jobs.drain()
    assert shop.names == ["order hourly"]


def test_coroutines_too(shop: Shop) -> None:
    async def main() -> None:
        with testing.fake(shop.app) as jobs:
            await shop.orders.aperform_async([{"id": 1}])
            await shop.mails.aperform_async([{"id": 1}])
            assert [outcome.queue for outcome in await jobs.adrain(only=[shop.orders])] == ["orders"]

    asyncio.run(main())


def test_only_is_a_list_of_workers_of_the_application(shop: Shop) -> None:
    stranger = Shop().orders
    with testing.fake(shop.app) as jobs:
        for only in (shop.orders, "orders", 5):
            with pytest.raises(LowkiqError, match=r"only is .*it is a list of workers: only=\[…\]"):
                jobs.drain(only=only)  # type: ignore[arg-type]
        for one in (print, "order"):
            with pytest.raises(LowkiqError, match=r"(print|'order').* is no worker"):
                jobs.drain(only=[one])  # type: ignore[list-item]
        with pytest.raises(LowkiqError, match="another application"):
            jobs.drain(only=[stranger])


# ── inline ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inline_what_is_sent_on_runs_at_once(shop: Shop) -> None:
    with testing.inline(shop.app):
        shop.orders.actions.hold([1])
        shop.orders.perform_async([{"id": 1}])
        assert shop.names == []
        shop.orders.actions.release([1])
        assert shop.names == ["order 1"]
        shop.does = fail
        with pytest.raises(ValueError, match="no"):
            shop.mails.perform_async([{"id": 2}])
        with pytest.raises(ValueError, match="no"):
            shop.mails.actions.retry([2])
        shop.does = lambda _: None
        assert shop.mails.actions.retry([2]) == 1
        assert shop.mails.queries.blocked() == []
    assert shop.names == ["order 1", *["mail 2"] * 3]


def test_inline_the_jobs_of_a_batch_run_before_its_end_and_that_runs_at_the_end_of_the_block(shop: Shop) -> None:
    with testing.inline(shop.app):
        with shop.app.batch(on_done=(shop.mails, {"id": "end"})) as batch:
            batch.push(shop.orders, [{"id": 1}, {"id": 2}])
            assert shop.names == ["order 1", "order 2"]
        assert shop.names[-1] == "mail end"


def test_a_debounced_job_is_seen_and_can_be_hurried(shop: Shop) -> None:
    @shop.app.worker(debounce=Debounce(5, at_most=30))
    def calm(id: str, payloads: list[Any]) -> None:
        shop.ran.append((f"calm {id}", payloads))

    with testing.fake(shop.app, at=2e9) as jobs:
        calm.perform_async([{"id": 1}])
        (job,) = calm.queries.fetch([1])
        assert isinstance(job, Job) and job.perform_in == pytest.approx(2e9 + 5)
        calm.actions.perform_now([1])
        jobs.drain()
    assert shop.names == ["calm 1"]


def test_a_worker_class_has_them_as_well(shop: Shop) -> None:
    @shop.app.worker
    class Sync(Worker[str]):
        def perform_one(self, id: str, payloads: list[str]) -> None: ...

    with testing.fake(shop.app):
        Sync.perform_async([{"id": 1, "payload": "x"}])
        assert Sync.actions.delete_all_failed_jobs() == 0
        assert [job.payloads for job in Sync.queries.fetch([1])] == [["x"]]
