"""The client of the control socket."""

from __future__ import annotations

import json
import socket
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
