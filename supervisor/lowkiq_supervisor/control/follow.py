"""Follow: waits for the end of a rolling restart, and shows how far it has come."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lowkiq_supervisor.control.client import ask

#: Seconds between two looks.
INTERVAL = 0.3


def follow(place: Path, number: int, timeout: float) -> int:
    """Returns 0 when every process has its successor, 1 when the roll has stopped, or goes on after so many seconds."""
    until = time.monotonic() + timeout
    with _display() as show:
        while True:
            found = ask(place, "status")
            roll = found["roll"]
            show(found)
            if roll["number"] != number or roll["state"] != "running":
                break
            if time.monotonic() >= until:
                print(
                    f"lowkiq-supervisor: the restart goes on after {timeout:g} s: `status` shows how far it has come",
                    file=sys.stderr,
                )
                return 1
            time.sleep(INTERVAL)
    if roll["number"] == number and roll["state"] == "over":
        print(f"over: {', '.join(roll['done']) or 'nothing'} replaced")
        return 0
    reason = roll["reason"] if roll["number"] == number else "another restart was asked for"
    print(f"lowkiq-supervisor: the restart has stopped: {reason}", file=sys.stderr)
    if roll["left"]:
        print(f"left as they were: {', '.join(roll['left'])}; `restart --resume` goes on with them", file=sys.stderr)
    return 1


@contextlib.contextmanager
def _display() -> Iterator[Callable[[dict[str, Any]], None]]:
    """The table of the status on a terminal; else a line for each process that has its successor."""
    if sys.stdout.isatty():
        from rich.live import Live  # noqa: PLC0415 - only people need it

        from lowkiq_supervisor.control.table import render  # noqa: PLC0415

        with Live(auto_refresh=False) as live:
            yield lambda found: live.update(render(found), refresh=True)
        return
    told = 0

    def tell(found: dict[str, Any]) -> None:
        nonlocal told
        for title in found["roll"]["done"][told:]:
            print(f"{title}: replaced", flush=True)
        told = len(found["roll"]["done"])

    yield tell
