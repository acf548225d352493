"""The client of the control socket; and how it follows a rolling restart to its end."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lowkiq_supervisor.errors import BootError, CommandRefused, Unreachable
from lowkiq_supervisor.state_dir import StateDir, refuse_a_long_path

#: Seconds to wait for an answer; the supervisor's loop turns in milliseconds.
ANSWER_TIME = 5.0


def ask(state_dir: Path, command: str, *, timeout: float | None = ANSWER_TIME, **details: Any) -> dict[str, Any]:
    """
    Send one command and return the answer. Raises Unreachable, or CommandRefused with the supervisor's own message.

    Args:
        timeout: seconds to wait for the answer; None: as long as the supervisor lives.
    """
    path = StateDir(state_dir).control_socket
    try:
        refuse_a_long_path(path)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_TIME)
            connection.connect(str(path))
            connection.sendall(json.dumps({"command": command, **details}).encode() + b"\n")
            connection.settimeout(timeout)
            with connection.makefile("rb") as lines:
                line = lines.readline()
    except TimeoutError:
        raise Unreachable(f"the supervisor at {path} doesn't answer within {ANSWER_TIME:g} s") from None
    except (OSError, BootError) as error:
        raise Unreachable(f"no supervisor at {path} ({error}): is it running, and is --state-dir the same?") from None
    answer = json.loads(line) if line.endswith(b"\n") else None
    if not isinstance(answer, dict):
        raise Unreachable(f"the supervisor at {path} has gone away without an answer")
    if not answer.get("ok"):
        raise CommandRefused(str(answer.get("error", "refused without a reason")))
    return answer


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
