"""Over a hostile network nothing is lost, no reply is another's, all goes on, and events tell each gap."""

from __future__ import annotations

from pathlib import Path

from tests.faults.hostile_net import run, untold
from tests.support import BUDGET


def test_nothing_is_lost_or_mixed_up_and_each_gap_is_told(tmp_path: Path) -> None:
    verdict = run("server", tmp_path, [("late replies", 1.0), ("forget", 0.0), ("half-close", 0.5)], BUDGET / 3)
    assert verdict.wrong == {}


def test_what_was_missed_without_a_gap_is_found() -> None:
    assert untold(range(6), [0, 1, None, 4, 5]) == []
    assert untold(range(6), [0, None, None, 3, 5]) == [4]
    assert untold(range(6), [0, 1, 4, None]) == [2, 3]
    assert untold(range(6), [0, 1, 2, 3, 4]) == [5]
    assert untold(range(6), [0, 1, 1, 2, 3, 4, 5]) == []
