"""What a run with hostile jobs would complain of, if it were so."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.hostile.__main__ import FILES, MEMORY, Hostile
from tests.faults.hostile.history import History
from tests.faults.hostile.jobs import HOSTILE
from tests.support import RedisServer

#: A node, its helper, another node; their supervisor is 1.
NODE, HELPER, OTHER = 11, 12, 13
NAMES = {NODE: [1], HELPER: [NODE, 1], OTHER: [1]}


def boots() -> list[dict[str, Any]]:
    return [{"k": "boot", "t": 0.0, "pid": pid, "parents": parents} for pid, parents in NAMES.items()]


def row(kind: str, at: float, pid: int, *numbers: int, meets: list[str] | None = None, failed: int = -1) -> Any:
    named = {"q": "q", "n": {"id": list(numbers)}, "try_": failed, "meets": meets or []}
    return {"k": kind, "t": at, "pid": pid} | named


def run(begin: float, pid: int, *numbers: int, **more: Any) -> list[Any]:
    return [row("begin", begin, pid, *numbers, **more), row("end", begin + 1, pid, *numbers)]


def died(pid: int, at: float, event: str = "died_will_restart") -> dict[str, Any]:
    """A line of the log; `at` is of the journal's clock."""
    when = datetime.fromtimestamp(time.time() - time.monotonic() + at, UTC)
    return {"event": event, "pid": pid, "timestamp": when.isoformat()}


@pytest.mark.parametrize(
    ("rows", "log", "complaint"),
    [
        ([*run(1, NODE, 1), *run(3, OTHER, 2)], [], ""),
        ([*run(1, NODE, 1), *run(3, OTHER, 1)], [], "performed again"),
        ([*run(1, NODE, 1), *run(3, OTHER, 1)], [died(NODE, 2.5)], ""),
        ([*run(1, NODE, 1), *run(30, OTHER, 1)], [died(NODE, 25)], "performed again"),
        ([row("begin", 1, NODE, 1), *run(3, OTHER, 1)], [], "performed again"),
        ([row("begin", 1, NODE, 1), *run(3, OTHER, 1)], [died(OTHER, 2)], "performed again"),
        ([row("begin", 1, HELPER, 1), *run(3, OTHER, 1)], [died(NODE, 2)], ""),
        ([row("begin", 1, NODE, 1), row("cancelled", 2, NODE, 1), *run(3, NODE, 1)], [], ""),
        ([*run(1, NODE, 2), *run(3, OTHER, 1)], [], "out of order"),
        ([row("begin", 1, NODE, 1), *run(1.5, OTHER, 2), row("end", 3, NODE, 1)], [], "out of order"),
        (run(1, NODE, 2, 1), [], "out of order"),
        (run(1, NODE, 1, meets=["a precision of 3"]), [], "met a precision of 3"),
        (run(1, NODE, 1, failed=0), [], "failed: q"),
        (run(1, 99, 1), [], "no node's"),
        ([{"k": "intruder", "t": 1.0, "pid": NODE}], [], "spoke for another"),
    ],
)
def test_jobs(rows: list[Any], log: list[Any], complaint: str) -> None:
    found = History([*boots(), *rows], log).complaints
    assert bool(found) == bool(complaint)
    assert complaint in "".join(found)


@pytest.fixture
def hostile(tmp_path: Path, redis_server: RedisServer) -> Hostile:
    return Hostile(tmp_path / "run", redis_server, 0.0, Random(1))


def did(queue: str, deed: str, pid: int) -> dict[str, Any]:
    return {"k": "deed", "t": 1.0, "pid": pid, "q": queue, "id": f"0:{deed}"}


def test_a_deed_that_was_never_done(hostile: Hostile) -> None:
    hostile.asked = {"hostile_loop 0:exit", "hostile_loop 0:KILL"}
    rows = [did("hostile_loop", "exit", NODE), *(did(queue, deed, NODE) for queue in HOSTILE for deed in FILES)]
    assert [*hostile.check_deeds(History([*boots(), *rows], []))] == ["never done: hostile_loop 0:KILL"]


@pytest.mark.parametrize("event", ["died_will_restart", "cut_off_for_successor", "recycled"])
def test_files_count_only_where_somebody_had_to_remove_them(hostile: Hostile, event: str) -> None:
    rows = [did(queue, deed, HELPER) for queue in HOSTILE for deed in FILES]
    history = History([*boots(), *rows], [died(NODE, 2.0, event)])
    has_time = event == "recycled"
    assert bool([*hostile.check_deeds(history)]) != has_time
    paths = [
        hostile.folders / f"{hostile.directory.name}-{HELPER}-a_b",
        MEMORY / f"sem.{hostile.directory.name}-{HELPER}-c",
    ]
    for path in paths:
        path.touch()
    assert [*hostile.left(history)] == [f"a file is left: {path}" for path in paths if has_time]
    assert not paths[1].exists()


def test_files_of_nobody_in_particular(hostile: Hostile) -> None:
    (hostile.folders / "lowkiq-abc").touch()
    assert len([*hostile.left(History([], []))]) == 1
