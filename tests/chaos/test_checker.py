"""The checker of chaos: it finds each kind of violation in a history made by hand, and explains what faults explain."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import history as histories
from tests.chaos import journal
from tests.chaos.checker import Verdict, check
from tests.chaos.history import History, Node, Push, Window
from tests.chaos.meetings import meetings
from tests.chaos.plan import plan
from tests.chaos.world.database import Database
from tests.chaos.world.queues import RATES

ROW = ("orders", "17")


def record(at: float, kind: str, run: str, token: int, *numbers: int, **details: Any) -> dict[str, Any]:
    return {"k": kind, "t": at, "r": run, "e": token, "a": 1, "n": list(numbers)} | details


def history(*records: dict[str, Any], pushed: int = 0, faults: tuple[Window, ...] = ()) -> History:
    """Two nodes, A (pid 1) and B (pid 2), that live from 0 to 100; payloads 1 to `pushed` acknowledged at once."""
    return History(
        pushes={(*ROW, number): Push(0.1, 0.2) for number in range(1, pushed + 1)},
        rows={ROW: list(records)},
        nodes={name: Node(name, pid, 0, "direct", 0.0, 100.0) for name, pid in (("A", 1), ("B", 2))},
        faults=list(faults),
    )


def run(at: float, run: str, token: int, *numbers: int, until: float | None = None) -> list[dict[str, Any]]:
    return [record(at, "begin", run, token, *numbers), record(until or at + 0.1, "commit", run, token, *numbers)]


def by_time(*runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(itertools.chain(*runs), key=lambda entry: float(entry["t"]))


def verdict_is(verdict: Verdict, **found: Any) -> None:
    """Just these were found, and nothing else."""
    clean = {"lost": [], "out_of_order": 0, "overlaps": 0, "unexplained": 0, "refused": 0, "innocents": 0, "framed": 0}
    assert {
        "lost": verdict.lost,
        "out_of_order": len(verdict.out_of_order),
        "overlaps": len(verdict.overlaps),
        "unexplained": len(verdict.unexplained),
        "refused": verdict.refused,
        "innocents": len(verdict.innocents),
        "framed": verdict.framed,
    } == clean | found


def refused_lower(*, lost: int) -> list[dict[str, Any]]:
    """An overlap whose lower token was refused, at a node that knew that its lease was lost, or did not."""
    begun = [record(1, "begin", "A.0", 5, 1), record(2, "begin", "B.0", 6, 1)]
    refused = [record(2.1, "commit", "A.0", 5, 1, a=0), record(2.1, "ended", "A.0", 5, lost=lost)]
    return [*begun, *refused, record(2.2, "commit", "B.0", 6, 1)]


def stale_start(*, lost: int) -> list[dict[str, Any]]:
    """A start with a token that is refused at once."""
    return [*run(1, "B.0", 6, 1), record(3, "begin", "A.0", 5, 1, a=0), record(3, "ended", "A.0", 5, lost=lost)]


#: A run that does not count as done.
FAILED = [record(1, "begin", "A.0", 5, 1), record(1.1, "fail", "A.0", 5)]
TWICE = [*run(10, "A.0", 5, 1), *run(12, "B.0", 6, 1)]


@pytest.mark.parametrize(
    ("pushed", "records", "found"),
    [
        (2, run(1, "A.0", 5, 1), {"lost": [(*ROW, 2)]}),
        (1, [record(1, "begin", "A.0", 5, 1), record(2, "commit", "A.0", 5, 1, a=0)], {"lost": [(*ROW, 1)]}),
        (2, [*run(1, "A.0", 5, 2), *run(2, "A.1", 5, 1)], {"out_of_order": 1}),
        (2, run(1, "A.0", 5, 2, 1), {"out_of_order": 1}),
        (2, [*FAILED, *run(2, "A.1", 5, 2), *run(3, "A.2", 5, 1)], {"out_of_order": 1}),
        (2, [*FAILED, *run(2, "A.1", 5, 1, 2)], {}),
        (1, refused_lower(lost=1), {"refused": 1}),
        (1, refused_lower(lost=0), {"overlaps": 1}),
        (2, by_time(run(1, "A.0", 5, 1, until=3), run(2, "A.1", 5, 2, until=4)), {"overlaps": 1, "out_of_order": 1}),
        (1, by_time(run(1, "A.0", 5, 1, until=3), run(2, "B.0", 6, 1, until=4)), {"overlaps": 1, "unexplained": 1}),
        (1, stale_start(lost=1), {"refused": 1}),
        (1, stale_start(lost=0), {"overlaps": 1}),
        (1, TWICE, {"unexplained": 1}),
    ],
    ids=[
        "a payload that nobody has written", "one whose only write was refused", "a start before a lower one is done",
        "payloads of one run that fall", "a start after one that failed", "a failed run that is repeated",
        "a refused lower token of a lost lease", "a refused lower token of a lease thought held",
        "two runs under one token", "an overlap in which both write", "a stale token of a lost lease",
        "a stale token of a lease thought held", "a duplicate without a fault",
    ],
)  # fmt: skip
def test_each_violation_is_found_and_nothing_else(
    pushed: int, records: list[dict[str, Any]], found: dict[str, Any]
) -> None:
    verdict = check(history(*records, pushed=pushed))
    verdict_is(verdict, **found)
    assert verdict.is_good is not bool(found.keys() - {"refused"})


# ── lost ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_history_without_faults_is_clean() -> None:
    verdict = check(history(*run(1, "A.0", 5, 1, 2), *run(2, "A.1", 5, 3), pushed=3))
    verdict_is(verdict)
    assert verdict.is_good
    assert (verdict.payloads, verdict.performed) == (3, 3)


def test_a_world_in_which_nothing_was_done_has_not_passed() -> None:
    assert not check(history()).is_good


def test_a_payload_that_is_queued_or_buried_or_was_never_acknowledged_is_not_lost() -> None:
    made = history(pushed=2)
    made.pushes[*ROW, 3] = Push(0.1, None)
    made.queued, made.morgue = {(*ROW, 1)}, {(*ROW, 2)}
    verdict = check(made)
    verdict_is(verdict)
    verdict.performed = 1
    assert not verdict.is_good, "a world that does not run dry has not passed"


def test_a_loss_is_a_failovers_only_where_that_may_be_and_shortly_after_the_acknowledgement() -> None:
    failover = (Window("kill primary", 0.5, 0.5),)
    assert check(history(pushed=1, faults=failover)).lost
    verdict = check(history(pushed=1, faults=failover), may_lose=True)
    verdict_is(verdict)
    assert (verdict.lost_to_failover, round(verdict.loss_before, 3)) == (1, 0.3)
    late = (Window("kill primary", 60, 60),)
    assert check(history(pushed=1, faults=late), may_lose=True).lost == [(*ROW, 1)]


def test_a_planned_failover_loses_nothing_once_clients_follow() -> None:
    """The old primary may live on for long after that: who still talks to it loses what nobody else does."""
    followed = (Window("fail over", -5, 60, loses_until=0.1),)
    assert check(history(pushed=1, faults=followed), may_lose=True).lost == [(*ROW, 1)]
    assert not check(history(pushed=1, faults=(followed[0]._replace(loses_until=1.0),)), may_lose=True).lost


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_buried_payload_and_one_that_was_never_acknowledged_hold_nobody_back() -> None:
    made = history(*run(1, "A.0", 5, 3), pushed=3)
    made.morgue = {(*ROW, 1)}
    made.pushes[*ROW, 2] = Push(0.1, None)
    verdict_is(check(made))


def test_what_overtakes_a_push_that_a_failover_may_have_lost_is_counted_apart() -> None:
    overtaking = [*run(1, "A.0", 5, 2), *run(2, "A.1", 5, 1)]
    failover = (Window("kill primary", 0.5, 0.9),)
    verdict = check(history(*overtaking, pushed=2, faults=failover), may_lose=True)
    verdict_is(verdict)
    assert verdict.disordered_by_failover == 1
    verdict_is(check(history(*overtaking, pushed=2, faults=failover)), out_of_order=1)


# ── overlaps ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_was_dead_by_then_overlaps_with_nobody() -> None:
    made = history(record(1, "begin", "A.0", 5, 1), *run(2, "B.0", 6, 1), pushed=1)
    made.nodes["A"].until = 1.5
    verdict_is(check(made))
    made.nodes["A"].until = 2.5
    verdict_is(check(made), refused=1)


# ── duplicates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def duplicates(*faults: Window, of: list[dict[str, Any]] = TWICE) -> dict[str, int]:
    return dict(check(history(*of, pushed=1, faults=faults)).duplicates)


@pytest.mark.parametrize(
    "fault",
    [
        Window("kill node", 10.2, 10.2, [1]),
        Window("pause node", 10.05, 11, [1]),
        Window("pause node", 9, 9.9, [1]),  # its lease ran out while it was paused
        Window("redis away", 9.5, 10.5),
    ],
)
def test_a_fault_that_hit_the_first_node_in_its_claim_window_explains_it(fault: Window) -> None:
    assert duplicates(fault) == {fault.kind: 1}


@pytest.mark.parametrize(
    "fault",
    [
        Window("kill node", 11.5, 11.5, [1]),  # long after it should have been settled
        Window("kill node", 10.2, 10.2, [2]),  # another node
        Window("kill node", 12.05, 12.05, [1]),  # after the second had begun
        Window("pause node", 1, 2, [1]),
        Window("drop replies", 9.5, 10.5, via="proxy"),  # it does not talk through the proxy
    ],
)
def test_a_fault_elsewhere_or_at_another_time_does_not(fault: Window) -> None:
    assert duplicates(fault) == {"unexplained": 1}


def test_a_second_run_under_the_same_token_is_explained_by_no_fault_of_the_node() -> None:
    same = [*run(10, "A.0", 5, 1), *run(12, "A.1", 5, 1)]
    assert duplicates(Window("pause node", 10.05, 11, [1]), of=same) == {"unexplained": 1}


@pytest.mark.parametrize("push", [Push(0.1, 0.2, attempts=2), Push(0.1, None)])
def test_a_push_that_has_failed_and_was_made_anew_explains_it(push: Push) -> None:
    made = history(*TWICE, pushed=1)
    made.pushes[*ROW, 1] = push
    assert check(made).duplicates == {"pushed again": 1}


def test_a_push_that_was_acknowledged_is_applied_once_though_replies_were_lost() -> None:
    assert duplicates(Window("redis away", 0.15, 0.16)) == {"unexplained": 1}


def test_what_is_not_long_is_done_soon_after_the_last_fault() -> None:
    for dry_after, is_good in ((0.0, True), (29.0, True), (31.0, False), (math.inf, False)):
        made = history(*run(1, "A.0", 5, 1), pushed=1)
        made.dry_after = dry_after
        assert check(made).is_good is is_good


# ── what it reads ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_kill_has_torn_spoils_no_other_record(tmp_path: Path) -> None:
    path = tmp_path / "torn"
    path.write_bytes(journal.line("first") + journal.line("torn")[:-9])
    journal.Journal(path).write("last")
    assert [found["k"] for found in journal.read(path)] == ["first", "last"]


def test_the_database_refuses_a_lower_token_than_it_has_seen(tmp_path: Path) -> None:
    database = Database(tmp_path)
    assert database.write("orders", "17", "begin", 5, r="A.0")
    assert database.write("orders", "17", "begin", 6, r="B.0")
    assert not database.write("orders", "17", "commit", 5, r="A.0", n=[1])
    assert database.write("orders", "18", "begin", 5, r="A.1")
    assert [entry["a"] for entry in journal.read(tmp_path / "orders.17.log")] == [1, 1, 0]


def test_a_world_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    for name in ("producers", "rows", "nodes"):
        (tmp_path / name).mkdir()
    producer = journal.Journal(tmp_path / "producers" / "0.jsonl")
    producer.write("start", via="proxy")
    for number, end in ((1, "ack"), (2, "unsure"), (3, None)):
        producer.write("push", q="orders", sent=[["17", number, "kill" if number == 9 else None]])
        if end:
            producer.write(end, attempts=number)
    producer.write("push", q="orders", sent=[["17", 4, None], ["17", 5, None], ["18", 4, None]])
    for one in (["18", 4], ["17", 4]):
        producer.write("ack", one=one, attempts=1)
    Database(tmp_path / "rows").write("orders", "17", "commit", 5, r="A.0", n=[1])
    node = journal.Journal(tmp_path / "nodes" / "A.jsonl")
    node.write("boot", p="A", pid=1, parent=0, via="direct")
    node.write("garbled", q="orders", id="17", got="[b'1']")
    journal.Journal(tmp_path / "faults.jsonl").write("kill node", since=1, until=1, pids=[1])
    (tmp_path / "left.json").write_text(
        '{"queued": [], "morgue": [["orders", "17", 9]], "killers": [["orders", "17", 9]]}'
    )
    read = histories.read(tmp_path)
    acked = {(id, number) for (_, id, number), push in read.pushes.items() if push.acked_at is not None}
    assert acked == {("17", 1), ("17", 4), ("18", 4)}
    assert {number for _, _, number in read.pushes} == {1, 2, 3, 4, 5}
    assert {push.via for push in read.pushes.values()} == {"proxy"}
    assert [entry["n"] for entry in read.rows[ROW]] == [[1]]
    assert read.nodes["A"].pid == 1
    assert read.faults == [Window("kill node", 1, 1, [1])]
    assert read.morgue == {(*ROW, 9)}
    assert read.garbled == ["orders 17 got [b'1']"]


def test_the_same_seed_gives_the_same_faults_and_another_seed_gives_others() -> None:
    first, again, other = (list(itertools.islice(plan(seed), 200)) for seed in (1, 1, 2))
    assert first == again != other
    assert [fault.at for fault in first] == sorted(fault.at for fault in first)


@pytest.mark.parametrize(
    ("strikes", "is_poison", "found"),
    [
        ((), True, {}),
        ((), False, {"innocents": 1}),
        ((2.5,), False, {"innocents": 1}),
        ((2.5, 4.5), False, {"framed": 1}),
        ((0.2, 9.0), False, {"innocents": 1}),  # when it did not run
    ],
)
def test_an_id_is_buried_only_if_it_kills_its_nodes(
    strikes: tuple[float, ...], is_poison: bool, found: dict[str, int]
) -> None:
    begun = (2, 4, 6)
    faults = tuple(Window("kill node", at, at, begun) for at in strikes)
    seen = history(*(record(at, "begin", f"{at}.0", at, 1) for at in begun), faults=faults)
    seen.nodes = {f"{at}": Node(f"{at}", at, 0, "direct", at - 1, at + 1) for at in begun}
    seen.pushes[*ROW, 1] = Push(0.1, 0.2, is_poison=is_poison)
    seen.morgue = seen.killers = {(*ROW, 1)}
    verdict_is(check(seen), **found)


@pytest.mark.parametrize(("is_paused", "found"), [(True, {"framed": 1}), (False, {"innocents": 1})])
def test_a_run_of_whose_end_redis_could_not_know_was_struck_too(is_paused: bool, found: dict[str, int]) -> None:
    """It goes on after a pause, when its lease is over, and is refused."""
    begun = (2, 4, 6)
    faults = tuple(Window("pause node", at + 0.2, at + 1.2, (at,)) for at in begun[:2] if is_paused)
    records = [
        entry
        for at in begun
        for entry in (record(at, "begin", f"{at}.0", at, 1), record(at + 1.2, "fail", f"{at}.0", at))
    ]
    seen = history(*records, faults=faults)
    seen.nodes = {f"{at}": Node(f"{at}", at, 0, "direct", at - 1, at + 9) for at in begun}
    seen.pushes[*ROW, 1] = Push(0.1, 0.2)
    seen.morgue = seen.killers = {(*ROW, 1)}
    verdict_is(check(seen), **found)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_window_with_more_starts_than_its_rate_allows_is_found_unless_a_process_was_stopped(*, stopped: bool) -> None:
    (queue, rate), *_ = RATES.items()
    rows = {
        (queue, str(number)): run(10 + number * 0.1, f"A.{number}", 5, 1)
        for number in range(int(rate.limit * 1.01) + 1)
    }
    faults = (Window("pause node", 9.0, 10.05, (1,)),) if stopped else ()
    made = history(faults=faults)
    made.rows = rows
    verdict = check(made)
    assert (verdict.rated, len(verdict.overfull), verdict.overfull_explained) == (len(rows), not stopped, stopped)
    assert verdict.is_good == stopped


# ── fewer runs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def of_fewer(*records: dict[str, Any], pushed: int, faults: tuple[Window, ...] = ()) -> Verdict:
    """A queue that keeps the last payload, or one whose ids start once in five seconds."""
    told = history(*records, pushed=pushed, faults=faults)
    told.keeping = {"orders"}
    told.throttles = {"orders": 5.0}
    return check(told)


def test_what_a_higher_one_has_superseded_is_not_lost_and_the_highest_is() -> None:
    assert of_fewer(*run(1, "A.0", 5, 3), pushed=3).is_good
    verdict_is(of_fewer(*run(1, "A.0", 5, 2), pushed=3), lost=[(*ROW, 3)])


def test_a_run_of_several_and_one_of_a_lower_after_a_higher_one_are_found() -> None:
    several = of_fewer(*run(1, "A.0", 5, 2, 3), pushed=3)
    assert len(several.not_kept) == 1
    lower = of_fewer(*by_time(run(1, "A.0", 5, 3), run(9, "A.1", 5, 2)), pushed=3)
    assert lower.not_kept == [f"{ROW}: run A.1 started 2 after 3"]
    assert not lower.is_good


def test_a_start_within_the_throttle_is_found_and_explained_by_a_process_that_had_stood_still() -> None:
    runs = by_time(run(11, "A.0", 5, 1), run(14, "B.0", 6, 2))
    early = of_fewer(*runs, pushed=2)
    assert (len(early.too_early), early.too_early_explained) == (1, 0)
    stopped = of_fewer(*runs, pushed=2, faults=(Window("pause node", 10.5, 10.9, (1,)),))
    assert (stopped.too_early, stopped.too_early_explained) == ([], 1)
    just_started = of_fewer(*by_time(run(2, "A.0", 5, 1), run(5, "B.0", 6, 2)), pushed=2)
    assert (just_started.too_early, just_started.too_early_explained) == ([], 1)
    assert of_fewer(*by_time(run(1, "A.0", 5, 1), run(6.1, "B.0", 6, 2)), pushed=2).is_good


def test_what_follows_is_owed_once_its_source_is_written_unless_that_was_buried(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    commits = [record(1, "begin", "A.0", 5, 1, 2), record(2, "commit", "A.0", 5, 1, 2)]
    (rows / "batches.17.log").write_text("".join(json.dumps(one) + "\n" for one in commits))
    (tmp_path / "left.json").write_text(json.dumps({"morgue": [["batches", "17", 2]], "killers": [], "queued": []}))
    (tmp_path / "pauses.jsonl").touch()
    found = histories.read(tmp_path)
    assert found.pushes == {("after-batches", "17", 1): Push(2, 2), ("after-batches", "17", 2): Push(2, None)}
    assert check(found).lost == [("after-batches", "17", 1)]


def test_what_a_run_had_in_use_when_something_broke_is_counted() -> None:
    """The pairs that were played live: runs cut off, ids that go on elsewhere, reshards and failovers meanwhile."""
    made = history(
        record(1, "begin", "A.0", 1, 1),  # its process is killed at 2
        *run(3, "B.0", 2, 1),
        *run(5, "C.0", 3, 2, until=9),
        pushed=2,
        faults=(Window("fail over", 4, 4.5),),
    )
    made.nodes["A"].until = 2
    made.nodes["C"] = Node("C", 3, 0, "direct", 0.0, 100.0)
    made.pushes[*ROW, 1] = made.pushes[*ROW, 1]._replace(uses=frozenset({"tags"}))
    made.reshards["orders"] = [8.0]
    made.holds = {ROW}
    assert {what: dict(counts) for what, counts in meetings(made).items()} == {
        "death": {"hold": 1, "tags": 1},
        "move": {"hold": 1},
        "reshard": {"hold": 1},
        "failover": {"hold": 1},
    }


def test_what_nobody_has_pushed_is_no_good_world() -> None:
    made = history(*run(1, "A.0", 1, 1), pushed=1)
    assert check(made).is_good
    made.garbled = ["orders 17 got [b'1']"]
    assert not check(made).is_good
