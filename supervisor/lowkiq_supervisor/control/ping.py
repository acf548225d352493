"""
Ping: asks whether the supervisor's loop turns, for a few milliseconds of CPU: probes ask several times a minute.

It imports as little as it can, and nothing of the rest of the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from lowkiq.process.place import CONTROL_SOCKET, find_state_directory

#: Seconds for connecting and for the answer; the loop turns in milliseconds.
ANSWER_TIME = 5.0
#: Exit codes, as of `status`.
OK, NOT_READY, UNREACHABLE = 0, 1, 2


def ping(state_dir: str | None, *, ready: bool) -> int:
    """
    Ask once; say the state, or on stderr what is wrong.

    Returns:
        OK: it answers, and with `ready` nothing is missing. NOT_READY: something is. UNREACHABLE: no answer.
    """
    path = find_state_directory(os.environ, state_dir) + CONTROL_SOCKET
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_TIME)
            connection.connect(path)
            with contextlib.suppress(BrokenPipeError):  # too many clients: it has answered already
                connection.sendall(b'{"command": "ping"}\n')
            # One line, in one write: see the server.
            answer = connection.recv(4096).decode(errors="replace")
    except OSError as error:
        print(f"lowkiq-supervisor: no supervisor answers at {path}: {error}", file=sys.stderr)
        return UNREACHABLE
    if not answer:
        print(f"lowkiq-supervisor: the supervisor at {path} has gone away without an answer", file=sys.stderr)
        return UNREACHABLE
    print(answer.strip())
    return NOT_READY if ready and '"healthy": true' not in answer else OK


def asked_plainly(arguments: list[str]) -> tuple[str | None, bool] | None:
    """The state directory and --ready of `ping` alone on a command line; None: the whole command line must read it."""
    if arguments[:1] != ["ping"]:
        return None
    state_dir, ready, rest = None, False, arguments[1:]
    while rest:
        word = rest.pop(0)
        if word == "--ready":
            ready = True
        elif word == "--state-dir" and rest:
            state_dir = rest.pop(0)
        elif word.startswith("--state-dir="):
            state_dir = word.partition("=")[2]
        else:
            return None
    return state_dir, ready
