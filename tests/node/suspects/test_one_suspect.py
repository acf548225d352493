"""What a thread does with a suspect that it has claimed: runs it, tries it alone, or puts it off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from lowkiq.errors import Fenced
from lowkiq.node.suspects import trials
from lowkiq.node.suspects.suspects import Suspects
from lowkiq.node.suspects.trials import TRIED, Trials
from lowkiq.shared_page import SharedPage
from lowkiq.tree_page import TreePage


class Suspected:
    """A claim of a suspect; notes what becomes of it."""

    is_lost = is_rated = False
    next_id: str | None = "s"
    shard = SimpleNamespace(queue="q", index=0)

    def __init__(self, crowds: int = TRIED) -> None:
        self.crowds, self.told, self.trials = crowds, list[Any](), list[Any]()
        self.during: Any = lambda: None

    def perform(self, *_: Any) -> None:
        self.told.append("performed")
        self.during()

    def give_back(self) -> None:
        self.told.append("given back")

    def put_off(self, seconds: float) -> None:
        self.told.append("put off" if seconds > 0 else "put off by nothing")

    def refused(self, error: Exception) -> None:
        self.told.append("refused")

    def isolate_call(self, id: str, *, is_alone: bool) -> Any:
        return id, is_alone


class Thread:
    is_leaving, seat = False, None


class Bench:
    """A thread of a node, and another node of its tree."""

    def __init__(self) -> None:
        self.tree = TreePage()
        self.gate, self.other = (Trials(SharedPage(self.tree)) for _ in range(2))
        self.thread: Any = Thread()
        self.sent, self.answer, self.rated = list[Any](), True, list[Any]()
        self.met = list[Exception]()
        runtime: Any = SimpleNamespace(
            caller=SimpleNamespace(run_all=self._run_all), outage=SimpleNamespace(met=self.met.append)
        )
        self.suspects: Any = Suspects(runtime, self.thread, self.gate, lambda claim, *_: self.rated.append(claim))  # type: ignore[arg-type]

    def _run_all(self, calls: Any) -> Any:
        self.sent += calls
        if isinstance(self.answer, redis.RedisError):
            raise self.answer
        return [self.answer]

    answer: Any

    def perform(self, claim: Suspected) -> list[Any]:
        self.suspects.perform(claim)
        assert not self.gate._performing and not self.gate._tried
        return claim.told


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(trials, "GATHER", 0.0)
    return Bench()


def test_one_of_few_crowds_just_runs(bench: Bench) -> None:
    assert bench.perform(Suspected(1)) == ["performed", "given back"]
    assert bench.sent == []


def test_one_that_is_tried_runs_alone_and_redis_knows_before(bench: Bench) -> None:
    claim = Suspected()
    claim.during = lambda: claim.told.append((list(bench.sent), bench.gate._suspect is not None))
    assert bench.perform(claim) == ["performed", ([("s", True)], True), "given back"]
    assert bench.gate._suspect is None


def test_beside_others_it_runs_and_nobody_takes_it_for_alone(bench: Bench) -> None:
    bench.other.enter(Thread())  # type: ignore[arg-type]
    claim = Suspected()
    claim.during = lambda: claim.told.append(bench.gate._suspect)
    assert bench.perform(claim) == ["performed", None, "given back"]
    assert bench.sent == []


def test_while_another_one_is_tried_it_is_put_off(bench: Bench) -> None:
    bench.other.begin(Thread(), TRIED)  # type: ignore[arg-type]
    bench.gate._tree.take_turn = lambda: False  # type: ignore[method-assign]  # the turn is a process's, and this is one
    assert bench.perform(Suspected()) == ["put off", "given back"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [(redis.ConnectionError("away"), []), (Fenced("FENCED"), ["refused"]), (False, [])],
)
def test_without_redis_s_word_it_does_not_run(bench: Bench, answer: Any, told: list[str]) -> None:
    bench.answer = answer
    assert bench.perform(Suspected()) == [*told, "given back"]
    assert len(bench.met) == isinstance(answer, redis.RedisError)


def test_it_does_not_run_as_its_node_leaves_or_once_it_was_given_back(bench: Bench) -> None:
    claim = Suspected()
    claim.next_id = None
    assert bench.perform(claim) == ["given back"]
    bench.gate._tree.open(0.0)
    bench.thread.is_leaving = True
    assert bench.perform(Suspected()) == ["given back"]


def test_it_starts_at_its_rate(bench: Bench) -> None:
    claim = Suspected()
    claim.is_rated = True
    assert (bench.perform(claim), bench.rated) == (["given back"], [claim])
