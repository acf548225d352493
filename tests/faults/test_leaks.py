"""A short look for leaks; `make leaks` takes one of ten minutes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.faults import leaks

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("LOWKIQ_TEST_LEAKS_SECONDS", "16"))


@pytest.mark.timeout(600)
def test_work_leaves_nothing_behind_but_the_documented_keys(tmp_path: Path) -> None:
    samples, complaints = leaks.run(tmp_path, SECONDS, rounds=4)
    assert complaints == []
    assert samples[-1].jobs > samples[0].jobs > 1_000


def sample(**changes: Any) -> leaks.Sample:
    plain = leaks.Sample(1, {"node 0": (50 << 20, 9, 20)}, 1 << 20, [b"lowkiq:queues", b"lowkiq:{work:0}:meta"])
    return plain._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"processes": {"node 0": (60 << 20, 9, 20)}}, "node 0 has grown"),
        ({"processes": {"node 0": (50 << 20, 20, 20)}}, "node 0 has 20 threads"),
        ({"processes": {"node 0": (50 << 20, 9, 24)}}, "node 0 has 24 descriptors"),
        ({"redis_bytes": 2 << 20}, "Redis has grown"),
        ({"keys": [b"lowkiq:{work:0}:errors"]}, "keys are left"),
    ],
)
def test_a_leak_is_complained_of(changes: dict[str, Any], complaint: str) -> None:
    (found,) = leaks._complaints([sample(), sample(), sample(**changes)], 0)
    assert found.startswith(complaint)


def test_what_is_as_it_was_is_not_complained_of() -> None:
    assert list(leaks._complaints([sample(), sample(), sample()], 0)) == []
