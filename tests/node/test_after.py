"""Jobs that run after others, and batches."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq import Fixed, InvalidJob, Lowkiq, LowkiqError, NewJob
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.admin.pauses import Waits, by_whom
from tests.node.driven import burst


class Shop:
    """An application of which the nodes note what they run, in order."""

    def __init__(self, app: Lowkiq) -> None:
        self.app = app
        self.ran: list[str] = []
        self.fail: set[str] = set()
        self.orders = self._worker("orders", 3)
        self.reports = self._worker("reports", 2)

    def _worker(self, queue: str, shards_count: int) -> Any:
        @self.app.worker(queue_name=queue, shards_count=shards_count, max_retry_count=0)
        def perform(id: str, _: list[Any]) -> None:
            self.ran.append(id)
            if id in self.fail:
                raise ValueError("no")

        return perform


@pytest.fixture
def shop(app: Lowkiq) -> Shop:
    return Shop(app)


def test_a_job_runs_after_those_that_it_waits_for(shop: Shop) -> None:
    shop.orders.perform_async([{"id": n} for n in range(20)])
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, n) for n in range(20)]}, {"id": "other"}])
    burst(shop.app)
    assert sorted(shop.ran) == sorted([*map(str, range(20)), "other", "report"])
    assert [id for id in shop.ran if id != "other"][-1] == "report"  # "other" waits for nothing, and may be later
    assert shop.reports.queries.held() == []


def test_what_has_nothing_counts_as_done(shop: Shop) -> None:
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, "never seen")]}])
    burst(shop.app)
    assert shop.ran == ["report"]


def test_a_job_waits_for_one_in_the_morgue_until_that_is_deleted(shop: Shop) -> None:
    shop.fail.add("bad")
    shop.orders.perform_async([{"id": "bad"}])
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, "bad")]}])
    burst(shop.app)
    assert shop.ran == ["bad"]
    shop.orders.actions.morgue_delete(["bad"])
    burst(shop.app)
    assert shop.ran == ["bad", "report"]


def test_somebody_has_a_waiting_job_run(shop: Shop) -> None:
    shop.fail.add("bad")
    shop.orders.perform_async([{"id": "bad"}])
    shop.reports.perform_async([{"id": "report", "after": [(shop.orders, "bad")]}])
    burst(shop.app)
    (held,) = shop.reports.queries.held()
    assert held.waits == Waits(1, 1, (("orders", "bad"),))
    assert by_whom(held) == ": it waits for 1 of 1 job: orders bad"
    assert shop.reports.actions.release(["report"]) == 0, "nobody holds it"
    assert shop.reports.actions.stop_waiting(["report"]) == 1
    burst(shop.app)
    assert shop.ran == ["bad", "report"]


def test_a_batch_ends_with_the_job_after_all_of_it(shop: Shop) -> None:
    with shop.app.batch(on_done=(shop.reports, {"id": "eu"})) as batch:
        for first in range(0, 1_200, 400):
            batch.push(shop.orders, [{"id": n} for n in range(first, first + 400)])
        batch.push(shop.reports, [{"id": "part"}])
        burst(shop.app)
        assert "eu" not in shop.ran
        (held,) = shop.reports.queries.held()
        assert held.waits == Waits(0, 0, (), is_open=True)
    burst(shop.app)
    assert len(shop.ran) == 1_202
    assert shop.ran[-1] == "eu"


def test_two_batches_with_the_same_job_at_the_end_are_both_waited_for(shop: Shop) -> None:
    """The end of the one does not free what the other one holds open, whichever comes first."""
    end: tuple[Any, NewJob] = (shop.reports, {"id": "eu"})
    first, second = shop.app.batch(on_done=end), shop.app.batch(on_done=end)
    with second:
        with first:
            first.push(shop.orders, [{"id": "a"}])
        burst(shop.app)
        assert shop.ran == ["a"]
        (held,) = shop.reports.queries.held()
        assert held.waits == Waits(0, 1, (), is_open=True)
        second.push(shop.orders, [{"id": "b"}])
    burst(shop.app)
    assert shop.ran == ["a", "b", "eu"]


def test_a_batch_goes_on_with_what_one_of_its_name_has_left_open(shop: Shop) -> None:
    end: tuple[Any, NewJob] = (shop.reports, {"id": "eu"})
    with pytest.raises(OSError, match="away"), shop.app.batch(on_done=end, name="import 7") as batch:
        batch.push(shop.orders, [{"id": "a"}])
        raise OSError("away")
    burst(shop.app)
    assert shop.ran == ["a"]
    with shop.app.batch(on_done=end, name="import 7") as batch:
        batch.push(shop.orders, [{"id": "b"}])
    burst(shop.app)
    assert shop.ran == ["a", "b", "eu"]


@pytest.mark.parametrize("name", ["the only one", "of 3 parts", ": 1 :"])
def test_a_batch_whose_name_reads_as_a_jobs_is_none(shop: Shop, name: str) -> None:
    with shop.app.batch(on_done=(shop.reports, {"id": "eu"}), name=name) as batch:
        batch.push(shop.orders, [{"id": "a"}])
        burst(shop.app)
        (held,) = shop.reports.queries.held()
        assert held.waits == Waits(0, 0, (), is_open=True)
    burst(shop.app)
    assert shop.ran == ["a", "eu"]


def test_a_batch_that_is_not_waited_for_any_more_says_so_at_its_end(shop: Shop) -> None:
    batch = shop.app.batch(on_done=(shop.reports, {"id": "eu"}))
    with pytest.raises(LowkiqError, match="'eu' of queue reports waits for its batch no more"), batch:
        batch.push(shop.orders, [{"id": "a"}])
        assert shop.reports.actions.delete(["eu"])
    other = shop.app.batch(on_done=(shop.reports, {"id": "eu"}))
    with other, pytest.raises(LowkiqError, match="waits for its batch no more"):
        batch._close()  # it is not taken for the other one's
    burst(shop.app)
    assert sorted(shop.ran) == ["a", "eu"]


def test_to_repeat_the_end_of_a_batch_changes_nothing(shop: Shop) -> None:
    with shop.app.batch(on_done=(shop.reports, {"id": "eu"})) as batch:
        batch.push(shop.orders, [{"id": "a"}])
    for is_all in (True, False):
        assert not batch._producer.wait(batch._on_done, batch._name, ["orders 2 never"], is_all=is_all)
    burst(shop.app)
    assert shop.ran == ["a", "eu"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_where_pushes_wait_for_success_is_all_of_it(app: Lowkiq, fails: bool) -> None:
    ran: list[str] = []

    @app.worker(queue_name="steps", shards_count=2)
    def step(id: str, payloads: list[Any]) -> None:
        ran.append(id)

    @app.worker(queue_name="ends", shards_count=2)
    def end(id: str, payloads: list[Any]) -> None:
        ran.append(f"end of {payloads[0]}")

    @app.worker(queue_name="imports", shards_count=1, pushes="on_success", retry=Fixed(0.0, limit=2))
    def imports(id: str, payloads: list[Any]) -> None:
        with app.batch(on_done=(end, {"id": "eu", "payload": id})) as batch:
            batch.push(step, [{"id": n} for n in range(30)])
        assert not end.queries.held()
        ran.append("import")
        if fails and ran.count("import") == 1:
            raise OSError("away")

    imports.perform_async([{"id": "x"}])
    burst(app)
    burst(app)
    assert ran[: 1 + fails] == ["import"] * (1 + fails)
    assert sorted(ran[1 + fails : -1]) == sorted(map(str, range(30)))
    assert ran[-1] == "end of x"


def test_the_next_try_of_a_job_goes_on_with_the_batches_that_it_has_left_open(app: Lowkiq) -> None:
    ran: list[str] = []

    @app.worker(queue_name="steps", shards_count=2)
    def step(id: str, payloads: list[Any]) -> None:
        ran.append(id)

    @app.worker(queue_name="imports", shards_count=1, retry=Fixed(0.0, limit=2))
    def imports(id: str, payloads: list[Any]) -> None:
        ran.append("import")
        for part in ("a", "b"):
            with app.batch(on_done=(step, {"id": "end"})) as batch:
                batch.push(step, [{"id": part}])
                if part == "b" and ran.count("import") == 1:
                    raise OSError("away")

    imports.perform_async([{"id": "x"}])
    burst(app)
    burst(app)
    assert ran.count("import") == 2
    assert ran[-1] == "end"
    assert not step.queries.held()


def test_an_empty_batch_is_done(shop: Shop) -> None:
    with shop.app.batch(on_done=(shop.reports, {"id": "eu"})):
        pass
    burst(shop.app)
    assert shop.ran == ["eu"]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([], "leave the key out"),
        ("orders", "list of pairs"),
        ([17], "pairs of a worker and an id"),
        ([("nothing", 17)], "no worker of this application"),
        ([("orders", "")], "must not be empty"),
        ([("reports", "a")], "wait for one another"),
        ([("orders", n) for n in range(501)], "app.batch"),
    ],
)
def test_bad_input_is_refused(shop: Shop, after: Any, said: str) -> None:
    with pytest.raises(InvalidJob, match=said):
        shop.reports.perform_async([{"id": "a", "after": after}])


def test_jobs_that_wait_for_one_another_are_refused(shop: Shop) -> None:
    with pytest.raises(InvalidJob, match="reports 'a' after reports 'b' after reports 'a'"):
        shop.reports.perform_async(
            [{"id": "a", "after": [(shop.reports, "b")]}, {"id": "b", "after": [(shop.reports, "a")]}]
        )


@pytest.fixture
def waiting(shop: Shop) -> Shop:
    """Its job "report" waits for "bad", which is dead."""
    shop.fail.add("bad")
    shop.orders.perform_async([{"id": "bad"}])
    shop.reports.perform_async([{"id": "report", "payload": n, "after": [(shop.orders, "bad")]} for n in range(2)])
    burst(shop.app)
    assert shop.ran == ["bad"]
    return shop


def goes_on_waiting(shop: Shop) -> None:
    """Raises AssertionError if the report has run, or does not once it may."""
    burst(shop.app)
    assert shop.ran == ["bad"], "it ran too early"
    (held,) = shop.reports.queries.held()
    assert held.waits == Waits(1, 1, (("orders", "bad"),))
    assert not held.by_person
    shop.orders.actions.morgue_delete(["bad"])
    burst(shop.app)
    assert shop.ran == ["bad", "report"]
    assert shop.reports.queries.held() == []


def test_to_let_go_of_a_hold_does_not_end_a_wait(waiting: Shop) -> None:
    actions = waiting.reports.actions
    assert actions.hold(["report"], "a customer called", who="ann") == 1
    (held,) = waiting.reports.queries.held()
    assert held.by_person
    assert by_whom(held) == " by ann: a customer called; it also waits for 1 of 1 job: orders bad"
    assert actions.release(["report"]) == 1
    assert actions.release(["report"]) == 0
    goes_on_waiting(waiting)


def test_a_job_that_waits_no_more_may_still_be_held(waiting: Shop) -> None:
    actions = waiting.reports.actions
    actions.hold(["report"])
    assert actions.stop_waiting(["report", "another"]) == 1
    burst(waiting.app)
    assert waiting.ran == ["bad"]
    assert actions.release(["report"]) == 1
    burst(waiting.app)
    assert waiting.ran == ["bad", "report"]


def test_what_has_come_to_its_end_may_still_be_held(waiting: Shop) -> None:
    waiting.reports.actions.hold(["report"])
    waiting.orders.actions.morgue_delete(["bad"])
    burst(waiting.app)
    assert waiting.ran == ["bad"]
    waiting.reports.actions.release(["report"])
    burst(waiting.app)
    assert waiting.ran == ["bad", "report"]


def undoable(shop: Shop) -> UndoableActions:
    return UndoableActions(shop.app.caller, shop.app.shards("reports", 2), max_id_bytes=500)


def test_what_is_undone_goes_on_waiting(waiting: Shop) -> None:
    actions = undoable(waiting)
    deleted = actions.delete_and_keep("held", ["report"])
    burst(waiting.app)
    assert deleted.undo
    assert actions.undo(deleted.undo) == 1
    assert actions.undo(deleted.undo) == 0
    goes_on_waiting(waiting)


def test_what_is_revived_goes_on_waiting(waiting: Shop) -> None:
    waiting.reports.actions.bury(["report"])
    burst(waiting.app)
    assert waiting.reports.actions.morgue_queue_up(["report"]) == 1
    goes_on_waiting(waiting)


def test_what_is_deleted_from_the_morgue_and_undone_goes_on_waiting_when_it_is_revived(waiting: Shop) -> None:
    waiting.reports.actions.bury(["report"])
    actions = undoable(waiting)
    deleted = actions.delete_and_keep("morgue", ["report"])
    assert deleted.undo
    actions.undo(deleted.undo)
    actions.morgue_queue_up(["report"])
    goes_on_waiting(waiting)


@pytest.mark.parametrize("way", ["revive", "undo"])
def test_what_was_done_meanwhile_is_not_waited_for(waiting: Shop, way: str) -> None:
    """It asks anew when it is back: nobody tells again what it was told while it was away."""
    actions = undoable(waiting)
    undo = actions.delete_and_keep("held", ["report"]).undo if way == "undo" else ""
    if way == "revive":
        actions.bury(["report"])
    waiting.orders.actions.morgue_delete(["bad"])
    burst(waiting.app)
    actions.undo(undo) if undo else actions.morgue_queue_up(["report"])
    burst(waiting.app)
    assert waiting.ran == ["bad", "report"]


@pytest.mark.parametrize("kills", [False, True])
def test_a_job_that_comes_back_to_one_that_waits_waits_for_all(waiting: Shop, kills: bool) -> None:
    actions = undoable(waiting)
    undo = "" if kills else actions.delete_and_keep("held", ["report"]).undo
    if kills:
        actions.bury(["report"])
    waiting.fail.add("worse")
    waiting.orders.perform_async([{"id": "worse"}])
    burst(waiting.app)
    waiting.reports.perform_async([{"id": "report", "after": [(waiting.orders, "worse")]}])
    actions.undo(undo) if undo else actions.morgue_queue_up(["report"])
    for id in ("bad", "worse"):
        burst(waiting.app)
        assert waiting.ran == ["bad", "worse"]
        waiting.orders.actions.morgue_delete([id])
    burst(waiting.app)
    assert waiting.ran == ["bad", "worse", "report"]


def test_what_is_dropped_for_good_is_waited_for_no_more(waiting: Shop) -> None:
    waiting.reports.actions.bury(["report"])
    waiting.reports.actions.morgue_delete(["report"])
    waiting.orders.actions.morgue_delete(["bad"])
    burst(waiting.app)
    left: Any = waiting.app.redis().keys("*:{reports:*")
    assert not [key for key in left if any(name in key for name in (b"wait", b"held", b"asks", b"morgue"))]


def test_a_batch_ends_whose_last_job_is_dead(shop: Shop) -> None:
    with shop.app.batch(on_done=(shop.reports, {"id": "end"})) as batch:
        batch.push(shop.orders, [{"id": "one"}])
        shop.reports.actions.bury(["end"])
    burst(shop.app)
    shop.reports.actions.morgue_queue_up(["end"])
    burst(shop.app)
    assert shop.ran == ["one", "end"]
