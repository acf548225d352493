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
    empty = dict.fromkeys(("slot", "node_number", "pid", "uptime", "beat_age", "busy", "rss", "why"))
    return {**empty, "state": "ready", "restarts": 0, "failures": 0, **facts}


def test_a_row_says_what_is_there_what_was_and_what_comes() -> None:
    status = {
        "supervisor": {
            "pid": 7, "version": "1.2", "state": "degraded", "uptime": 61,
            "nodes": 2, "number_of_nodes": 8, "app": "shop",
        },
        "redis": row(state="ready", pid=8),
        "web": row(state="backoff", address=":8080", restarts=2, failures=2, why="try 3 in 3 s: exit code 3"),
        "nodes": [
            row(slot=0, node_number=4, pid=9, uptime=5, beat_age=0.25, busy=3, rss=52 << 20),
            row(slot=1, node_number=5, state="backoff", restarts=4, failures=3, why="try 4 in 8 s: hung"),
        ],
        "beside": [row(slot=1, node_number=5, pid=6, state="retiring", uptime=70, why="makes room: too old")],
        "roll": {
            "state": "stopped", "reason": "boom", "why": "HUP", "current": None,
            "done": ["node 4/8"], "left": ["node 5/8"],
        },
        "events": [
            {"time": 0, "event": f"event_{number}", "slot": "node 5/8", "facts": {"reason": "boom", "why": None}}
            for number in range(9)
        ],
    }  # fmt: skip
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render(status))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    own, processes = "supervisor 7 degraded up 1m 1s 2 nodes of 8 app shop", "embedded Redis ready web :8080 backoff"
    assert lines[0] == f"lowkiq 1.2 {own} {processes}"
    assert lines[1] == "roll stopped: boom; 1 done, left: node 5/8; `restart --resume` goes on"
    assert lines[3] == "0 4 9 ready 5s 0.2 s 3 52 M 0 -"
    assert lines[4] == "1 5 - backoff - - - - 4 (3 failed) try 4 in 8 s: hung"
    assert lines[5] == "1 5 6 retiring 1m 10s - - - 0 makes room: too old"
    assert lines[6] == "web - - backoff - - - - 2 (2 failed) try 3 in 3 s: exit code 3"
    assert lines[7].startswith("redis - 8 ready")
    assert [line.split(" ", 1)[1] for line in lines[8:]] == [f"node 5/8 event_{n} reason=boom" for n in range(4, 9)]


def test_at_eighty_columns_nothing_is_dropped() -> None:
    busy = row(
        slot="node 12/128", node_number=12, pid=4_194_303, state="given up", uptime=273_600, beat_age=12.5, busy=128,
        rss=65_536 << 20, restarts=1_234, failures=17, waits=48, why="try 4 in 30 s: killed by SIGKILL, out of memory?",
    )  # fmt: skip
    own = {"pid": 7, "version": "1.2", "state": "ready", "uptime": 1, "nodes": 1, "number_of_nodes": 1, "app": "shop"}
    facts = {"reason": "a long reason " * 9 + "with an end"}
    events = [{"time": 0, "event": "node_exited", "slot": "node 12/128", "facts": facts}]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render({"supervisor": own, "redis": None, "nodes": [busy], "events": events}))
    text = capture.get()
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for word in ("4194303", "given", "SIGKILL", "memory?", "65536", "1234", "failed)", "shards", "end"):
        assert word in text, text
