"""Whose turn it is: threads are shared out by weights, in seconds; or queues go in a strict order."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import pytest

from lowkiq import Lowkiq, SettingsError
from lowkiq.node.node import Node
from lowkiq.node.schedulers import Lag, Ordered
from lowkiq.node.shares import Shares
from lowkiq.node.threads import make_threads
from tests.node.driven import runtime_of


class Named(NamedTuple):
    queue: str
    number: int


class Part(NamedTuple):
    """A shard as a node has it, as far as schedulers look at it."""

    shard: Named


def parts(queue: str, shards: int = 5) -> list[Part]:
    return [Part(Named(queue, index)) for index in range(shards)]


#: Queue and the number of its claim → seconds that it takes.
Load = Mapping[str, Callable[[int], float]]


class Threads:
    """Threads that run claims of queues by a clock of their own, and begin the next as soon as one has ended."""

    def __init__(self, weights: Mapping[str, int], load: Load, threads: int = 1, idle: Sequence[str] = ()) -> None:
        self.scheduler: Shares[Part] = Shares(weights)
        self.load = load
        #: Queues with nothing to do.
        self.idle = set(load)
        self.now = 0.0
        self.used: defaultdict[str, float] = defaultdict(float)
        self.picks: Counter[str] = Counter()
        self.order: list[str] = []
        #: The longest that a queue has waited for a thread.
        self.waited: defaultdict[str, float] = defaultdict(float)
        self._last: dict[str, float] = {}
        self._events: list[tuple[float, int, int, Part | None, float]] = []
        self._count = count()
        for queue in load:
            if queue not in idle:
                self.bring(queue)
        for thread in range(threads):
            self._push(0.0, thread, None, 0.0)

    def bring(self, queue: str, shards: slice = slice(None)) -> None:
        """Has jobs of a queue, or of some of its shards, be due from now on."""
        self.idle.discard(queue)
        self._last[queue] = self.now
        for part in parts(queue)[shards]:
            self.scheduler.note(part, self.now)

    def end(self, queue: str) -> None:
        """Has a queue have no jobs any more."""
        self.idle.add(queue)
        for part in parts(queue):
            self.scheduler.note(part, None)

    def _push(self, at: float, thread: int, part: Part | None, seconds: float) -> None:
        heapq.heappush(self._events, (at, next(self._count), thread, part, seconds))

    def until(self, end: float) -> None:
        while self._events[0][0] <= end:
            self.now, _, thread, part, seconds = heapq.heappop(self._events)
            self.scheduler.end(thread, [(part, seconds)] if part else [])
            if part and part.shard.queue not in self.idle:
                self.scheduler.note(part, self.now)
            picked = self.scheduler.pick(self.now)
            if picked is None:
                self._push(self.now + 0.01, thread, None, 0.0)
                continue
            queue = picked.shard.queue
            taken = self.load[queue](self.picks[queue])
            self.scheduler.begin(thread, picked, self.now)
            self.picks[queue] += 1
            self.order.append(queue)
            self.used[queue] += taken
            self.waited[queue] = max(self.waited[queue], self.now - self._last[queue])
            self._last[queue] = self.now
            self._push(self.now + taken, thread, picked, taken)

    def shares(self) -> dict[str, float]:
        whole = sum(self.used.values())
        return {queue: used / whole for queue, used in self.used.items()}


def takes(seconds: float) -> Callable[[int], float]:
    return lambda _: seconds


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("slow", [0.05, 1.0, 0.004], ids=["alike", "slow", "quick"])
def test_two_queues_share_the_time_of_threads_8_to_1(threads: int, slow: float) -> None:
    """However long their jobs are."""
    run = Threads({"critical": 8}, {"critical": takes(0.05), "default": takes(slow)}, threads)
    run.until(200)
    assert run.shares()["critical"] == pytest.approx(8 / 9, abs=0.02)


@pytest.mark.parametrize("threads", [1, 4])
def test_three_queues_share_by_their_weights(threads: int) -> None:
    load = {"a": takes(0.02), "b": takes(0.3), "c": takes(0.05)}
    run = Threads({"a": 5, "b": 3, "c": 2}, load, threads)
    run.until(500)
    assert run.shares() == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.02)


def test_jobs_whose_length_varies_are_counted_as_they_were() -> None:
    load = {"a": lambda number: 0.01 if number % 10 else 2.0, "b": takes(0.1)}
    run = Threads({"a": 3, "b": 1}, load, threads=4)
    run.until(1_000)
    assert run.shares()["a"] == pytest.approx(0.75, abs=0.02)


def test_picks_of_jobs_that_take_alike_are_shared_8_to_1() -> None:
    run = Threads({"critical": 8}, {"critical": takes(0.05), "default": takes(0.05)})
    run.until(450)
    assert run.picks["critical"] == pytest.approx(8 * run.picks["default"], rel=0.01)
    assert max(len(row) for row in "".join(queue[0] for queue in run.order[50:]).split("d")) <= 9, "they take turns"


def test_a_queue_alone_gets_everything_whatever_its_weight() -> None:
    load = {"critical": takes(0.05), "default": takes(0.05)}
    run = Threads({"critical": 8}, load, threads=3, idle=["critical"])
    run.until(50)
    assert run.used["default"] == pytest.approx(150, rel=0.01)


@pytest.mark.parametrize("before", [1.0, 100.0, 1_000.0])
def test_a_queue_that_had_nothing_to_do_has_saved_nothing_up(before: float) -> None:
    """It gets its share from the first moment on, and no more than that."""
    run = Threads({"critical": 8}, {"critical": takes(0.05), "default": takes(0.05)})
    run.until(0.5)
    run.end("critical")
    run.until(before)
    run.bring("critical")
    done = run.used["critical"], run.used["default"]
    run.until(before + 45)
    assert run.used["critical"] - done[0] == pytest.approx(40, abs=1)
    assert run.used["default"] - done[1] == pytest.approx(5, abs=1)


def test_a_queue_that_ran_while_it_was_alone_owes_nothing_to_who_comes() -> None:
    """Not even for its claims that run just then, however long they are."""
    run = Threads({"b": 8}, {"a": takes(20.0), "b": takes(0.05)}, threads=2, idle=["b"])
    run.until(1_005)
    run.bring("b")
    began = run.picks["a"]
    run.until(1_045)
    assert run.picks["a"] - began >= 2


def test_a_queue_that_ran_before_nothing_was_due_owes_nothing_after_that() -> None:
    run = Threads({"b": 8}, {"a": takes(100.0), "b": takes(0.05)}, idle=["b"])
    run.until(50)
    run.end("a")
    run.until(101)
    run.load = {**run.load, "a": takes(0.05)}
    run.bring("a")
    run.bring("b")
    run.until(191)
    assert run.used["a"] == pytest.approx(110, abs=1)


def test_a_queue_that_could_not_use_its_share_has_saved_nothing_up() -> None:
    """It had one shard for four threads, and then has more of them."""
    run = Threads({"critical": 8}, {"critical": takes(0.05), "default": takes(0.05)}, threads=4, idle=["critical"])
    run.bring("critical", slice(1))
    run.until(200)
    assert run.used["critical"] == pytest.approx(200, rel=0.02), "as much as one thread can"
    run.bring("critical", slice(1, 5))
    done = run.used["default"]
    run.until(245)
    assert run.used["default"] - done == pytest.approx(20, abs=2)


def test_a_claim_counts_as_those_before_it_from_its_beginning() -> None:
    """Of threads that are free at once only one begins what takes long."""
    shares: Shares[Part] = Shares({"quick": 2})
    slow, quick = parts("slow"), parts("quick")
    for part in (*slow, *quick):
        shares.note(part, 0.0)
    for part in (quick[0], slow[0]):
        assert shares.pick(1.0) is part
        shares.begin("first", part, 1.0)
    shares.end("first", [(slow[0], 10.0), (quick[0], 20.0)])
    picked = []
    for thread in range(6):
        found = shares.pick(21.0)
        assert found is not None
        shares.begin(thread, found, 21.0)
        picked.append(found.shard.queue)
    assert picked.count("slow") == 3


def test_the_least_weight_of_all_runs_too() -> None:
    run = Threads({"critical": 1_000}, {"critical": takes(0.05), "default": takes(0.05)})
    run.until(1_000)
    assert run.used["default"] == pytest.approx(1, abs=0.2)
    assert run.waited["default"] < 1_000 * 0.05 + 1


def test_threads_do_not_all_run_into_slow_jobs_of_which_nothing_is_known() -> None:
    """A claim that lasts counts as more and more, before it has ended."""
    run = Threads({"critical": 8}, {"critical": takes(0.5), "slow": takes(600.0)}, threads=5)
    run.until(30)
    assert run.picks["slow"] < 5
    run.until(600 * 10)
    assert run.shares()["critical"] == pytest.approx(8 / 9, abs=0.06)


def test_weights_can_be_changed_while_it_runs() -> None:
    run = Threads({"a": 8}, {"a": takes(0.05), "b": takes(0.05)}, threads=2)
    run.until(100)
    run.scheduler.weigh({"b": 3})
    done = run.used["a"], run.used["b"]
    run.until(300)
    assert (run.used["b"] - done[1]) / (run.used["a"] - done[0]) == pytest.approx(3, rel=0.05)


def test_claims_that_brought_nothing_cost_their_queue_nothing() -> None:
    shares: Shares[Part] = Shares({"a": 2})
    (a,), (b,) = parts("a", 1), parts("b", 1)
    for _ in range(100):
        shares.note(a, 0.0)
        shares.note(b, 0.0)
        assert shares.pick(1.0) is a
        shares.begin("thread", a, 1.0)
        shares.end("thread", [])


def test_a_turn_that_has_ended_is_not_counted_any_more() -> None:
    """Also when many threads have begun claims."""
    run = Threads({"a": 2}, {"a": takes(0.01), "b": takes(3.0)}, threads=8)
    run.until(300)
    assert len(run.scheduler._overdue) <= 100 * 9
    for thread in range(8):
        run.scheduler.end(thread, [])
    run.scheduler.pick(1e9)
    assert not run.scheduler._overdue and not run.scheduler._turns


def test_claims_that_bring_nothing_cost_no_memory() -> None:
    shares: Shares[Part] = Shares({"a": 2})
    (part,) = parts("a", 1)
    shares.end(0, [(part, 600.0)])
    for number in range(5_000):
        shares.begin(0, part, number * 0.001)
        shares.end(0, [])
    assert len(shares._overdue) <= 200


def test_a_pick_costs_the_same_with_ten_thousand_shards() -> None:
    """Of ten queues: it is the queues that are looked through."""

    def seconds(shards: int) -> float:
        shares: Shares[Part] = Shares({"q0": 8})
        found = [part for queue in range(10) for part in parts(f"q{queue}", shards // 10)]
        for at, part in enumerate(found):
            shares.note(part, float(at))
        best = float("inf")
        for _ in range(5):
            began = time.thread_time()
            for _ in range(200):
                picked = shares.pick(1e6)
                assert picked is not None
                shares.begin(0, picked, 1e6)
                shares.end(0, [(picked, 0.001)])
                shares.note(picked, 1e6)
            best = min(best, time.thread_time() - began)
        return best

    assert seconds(10_000) < 5 * seconds(100)


# ── in a node ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pool_without_weights_has_the_scheduler_that_it_always_had(app: Lowkiq) -> None:
    app.worker(queue_name="a")(lambda _: None)
    (pool,) = {thread.pool for thread in make_threads(runtime_of(app))}
    assert type(pool._scheduler) is Lag and pool.shares is None


def test_weights_come_and_go_and_what_was_noted_stays(app: Lowkiq) -> None:
    app.worker(queue_name="a", shards_count=2)(lambda _: None)
    (pool,) = {thread.pool for thread in make_threads(runtime_of(app))}
    first, second = pool.leases
    pool.look(first, 7.0)
    for weights, kind in (({"a": 8}, Shares), ({"a": 2}, Shares), ({"elsewhere": 8}, Lag), ({}, Lag)):
        pool.weigh(weights)
        assert type(pool._scheduler) is kind and pool._scheduler.next_due_at() == 7.0
        assert (pool.shares is None) == (kind is Lag)
    pool.look(second, 5.0)
    assert [pool.pick(9.0) for _ in range(3)] == [second, first, None]


# ── a strict order ──────────────────────────────────────────────────────────────────────────────────────────────────


def pick_all(scheduler: Ordered[Part], now: float) -> list[str]:
    picked = []
    while part := scheduler.pick(now):
        picked.append(part.shard.queue)
    return picked


def test_higher_queues_go_first_and_those_that_are_not_named_last() -> None:
    ordered: Ordered[Part] = Ordered(["critical", "default"], age=60)
    for at, queue in enumerate(("other", "default", "another", "critical", "default")):
        ordered.note(Part(Named(queue, at)), float(at))
    assert ordered.next_due_at() == 0.0
    assert pick_all(ordered, 10.0) == ["critical", "default", "default", "other", "another"]


def test_a_lower_one_runs_all_the_same_once_it_has_waited_for_longer_than_age() -> None:
    ordered: Ordered[Part] = Ordered(["critical", "default"], age=60)
    low, high = parts("default", 1), parts("critical")
    ordered.note(low[0], 0.0)
    for part in high:
        ordered.note(part, 50.0)
    assert [ordered.pick(60.0), ordered.pick(60.1), ordered.pick(60.1)] == [high[0], low[0], high[1]]


def test_a_backlog_that_is_old_does_not_hold_up_the_highest() -> None:
    ordered: Ordered[Part] = Ordered(["critical", "default"], age=60)
    for part in parts("default", 10):
        ordered.note(part, 0.0)
    for part in parts("critical", 5):
        ordered.note(part, 999.0)
    picked = pick_all(ordered, 1_000.0)
    assert picked[:10] == ["default", "critical"] * 5 and picked[10:] == ["default"] * 5


def test_what_is_not_due_is_not_picked_however_high_it_is() -> None:
    ordered: Ordered[Part] = Ordered(["critical"], age=60)
    ordered.note(parts("critical")[0], 20.0)
    ordered.note(parts("default")[0], 10.0)
    assert (ordered.pick(5.0), ordered.pick(15.0), ordered.pick(15.0)) == (None, parts("default")[0], None)
    assert ordered.next_due_at() == 20.0


def test_it_may_be_build_scheduler_itself_and_each_pool_has_its_own() -> None:
    ordered: Ordered[Part] = Ordered(["critical"], age=3)
    ordered.note(parts("critical")[0], 0.0)
    another = ordered()
    assert (another.queues, another.age, another.next_due_at()) == (("critical",), 3, None)


@pytest.mark.parametrize(
    ("queues", "age", "refusal"),
    [
        ("critical", 60, "Ordered.'critical'.: name queues"),
        ([], 60, "name queues"),
        ([1], 60, "name queues"),
        (["a", "b", "a"], 60, "'a' is named twice"),
        (["a"], 0, "age is 0, it must be a number of seconds above 0"),
        (["a"], float("nan"), "age is nan"),
        (["a"], True, "age is True"),
        (["a"], "60", "age is '60'"),
    ],
)
def test_an_order_that_can_not_be_meant_is_refused(queues: list[str], age: float, refusal: str) -> None:
    with pytest.raises(SettingsError, match=refusal):
        Ordered(queues, age)


@pytest.mark.parametrize("made", [Ordered(["mial"]), lambda: Ordered(["mial"])], ids=["itself", "made"])
def test_a_queue_that_the_application_does_not_have_is_refused_at_the_start(
    make_app: Callable[..., Lowkiq], made: Callable[[], Ordered[Part]]
) -> None:
    app = make_app(build_scheduler=made)
    app.worker(queue_name="mail")(lambda _: None)
    with pytest.raises(SettingsError, match="unknown queue `mial`, did you mean `mail`"):
        Node(app)


def test_an_order_may_name_queues_that_another_node_runs(make_app: Callable[..., Lowkiq]) -> None:
    app = make_app(build_scheduler=Ordered(["mail", "video"]))
    for queue in ("mail", "video"):
        app.worker(queue_name=queue)(lambda _: None)
    Node(app, queues=["video"])


def test_weights_beside_a_scheduler_of_the_application_are_refused(make_app: Callable[..., Lowkiq]) -> None:
    app = make_app(build_scheduler=Lag)
    app.worker(queue_name="mail")(lambda _: None)
    with pytest.raises(SettingsError, match=r"weights \(mail=8\), but the application has a build_scheduler"):
        Node(app, queues={"mail": 8})
    Node(app, queues={"mail": None})


@pytest.mark.parametrize("weight", [0, -1, 1_001, 1.5, True, "8"])
def test_a_weight_that_can_not_be_one_is_refused(app: Lowkiq, weight: int) -> None:
    app.worker(queue_name="mail")(lambda _: None)
    with pytest.raises(SettingsError, match=r"queue mail: weight is .*, it must be an integer from 1 to 1,000"):
        Node(app, queues={"mail": weight})
