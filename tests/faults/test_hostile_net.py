"""Over a hostile network nothing is lost, no reply is another's, all goes on, and events tell each gap."""

from __future__ import annotations

from pathlib import Path

from tests.faults.hostile_net.__main__ import Played, run
from tests.faults.hostile_net.trial import untold
from tests.faults.hostile_net.users import STOP, Marks
from tests.support import BUDGET


def test_nothing_is_lost_or_mixed_up_and_each_gap_is_told(tmp_path: Path) -> None:
    weathers = [Played("late replies", 1.0, 0.0), Played("forget", 0.0, 0.0), Played("half-close", 0.5, 0.0)]
    assert run("server", tmp_path, weathers, BUDGET / 3).wrong == {}


def test_what_was_missed_without_a_gap_is_found() -> None:
    assert untold(range(6), [0, 1, None, 4, 5]) == []
    assert untold(range(6), [0, None, None, 3, 5]) == [4]
    assert untold(range(6), [0, 1, 4, None]) == [2, 3]
    assert untold(range(6), [0, 1, 2, 3, 4]) == [5]
    assert untold(range(6), [0, 1, 1, 2, 3, 4, 5]) == []


def took(worked: list[float], failed: list[float] | tuple[()] = (), until: float = 12.0) -> float | None:
    marks = Marks()
    marks.worked, marks.failed = worked, list(failed)
    return marks.took(10.0, until)


def test_who_works_again_and_fails_or_stops_after_that_has_not_worked_again_before() -> None:
    assert took([9.0, 11.0, 12.0]) == 1.0
    assert took([9.0, 9.9]) is None
    assert took([9.0, 11.0, 12.0], failed=[9.5, 10.5]) == 1.0
    assert took([9.0, 11.0, 12.0], failed=[11.5]) == 2.0
    assert took([9.0, 11.0, 12.0, 12.5], failed=[11.5, 12.4], until=13.0) == 2.5
    assert took([9.0, 11.0], failed=[11.5]) is None
    assert took([11.0, 11.5 + STOP], until=14.0) == 1.5 + STOP
    assert took([11.0], until=11.1 + STOP) is None
