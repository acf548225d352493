"""The table of `lowkiq-supervisor status`."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from lowkiq_supervisor.control.table import duration, render


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0s"), (59.9, "59s"), (60, "1m 0s"), (725, "12m 5s"), (3600, "1h 0m"), (273_600, "3d 4h")],
)
def test_durations_are_told_in_their_two_largest_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def row(**facts: Any) -> dict[str, Any]:
    empty = dict.fromkeys(
        ("slot", "node_number", "pid", "uptime", "beat_age", "busy", "rss", "last_exit", "next_retry")
    )
    return {**empty, "state": "ready", "restarts": 0, "failures": 0, **facts}


def test_a_row_says_what_is_there_what_was_and_what_comes() -> None:
    status = {
        "supervisor": {
            "pid": 7, "version": "1.2", "state": "degraded", "uptime": 61,
            "nodes": 2, "number_of_nodes": 8, "app": "shop",
        },
        "redis": row(state="ready", pid=8),
        "web": row(state="backoff", address=":8080", restarts=2, failures=2, next_retry=3, last_exit="exit code 3"),
        "nodes": [
            row(slot=0, node_number=4, pid=9, uptime=5, beat_age=0.25, busy=3, rss=52 << 20),
            row(slot=1, node_number=5, state="backoff", restarts=4, failures=3, last_exit="hung", next_retry=7.5),
        ],
    }  # fmt: skip
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render(status))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    own, processes = "supervisor 7 degraded up 1m 1s 2 nodes of 8 app shop", "embedded Redis ready web :8080 backoff"
    assert lines[0] == f"lowkiq 1.2 {own} {processes}"
    assert lines[2] == "0 4 9 ready 5s 0.2 s 3 52 M 0 - -"
    assert lines[3] == "1 5 - backoff - - - - 4 (3 failed) 7.5 s hung"
    assert lines[4] == "web - - backoff - - - - 2 (2 failed) 3.0 s exit code 3"
    assert lines[5].startswith("redis - 8 ready")
