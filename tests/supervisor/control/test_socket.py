"""The control socket itself: who gets in, and what nonsense, crowds and slow clients do to it."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from lowkiq_supervisor.control.server import CLIENT_TIME, LONGEST_REQUEST, MOST_CLIENTS
from lowkiq_supervisor.errors import CommandRefused, Unreachable
from tests.harness import Supervised, state_dir, status
from tests.support import wait_until


def connected(directory: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(state_dir(directory) / "control.sock"))
    return connection


def test_only_its_user_gets_in(tmp_path: Path) -> None:
    os.umask(0)
    with Supervised.doing("obedient", tmp_path) as supervisor:
        os.umask(0o022)
        supervisor.until_ready(1)
        assert stat.S_IMODE((state_dir(tmp_path) / "control.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE(state_dir(tmp_path).stat().st_mode) == 0o700


def test_a_second_supervisor_of_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path) as first:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        with Supervised.doing("obedient", elsewhere, state_dir=str(state_dir(tmp_path))) as second:
            assert second.exit_code() == 3
            error = second.events("cannot_start")[0]["error"]
            assert f"another supervisor (process {first.process.pid}) runs in {state_dir(tmp_path)}" in error
        assert status(tmp_path)["supervisor"]["pid"] == first.process.pid


def test_a_path_too_long_and_a_file_in_the_way_are_named(tmp_path: Path) -> None:
    with Supervised.doing("obedient", tmp_path, state_dir="d" * 100) as supervisor:
        assert supervisor.exit_code() == 3
        assert "too long for a unix socket" in supervisor.events("cannot_start")[0]["error"]
    state_dir(tmp_path).mkdir()
    (state_dir(tmp_path) / "control.sock").write_text("somebody's")
    with Supervised.doing("obedient", tmp_path) as supervisor:
        assert supervisor.exit_code() == 3
        assert "is in the way and is no socket" in supervisor.events("cannot_start")[0]["error"]
    assert (state_dir(tmp_path) / "control.sock").read_text() == "somebody's"


GARBAGE = {
    "no JSON": b"\x00\xff\xfe garbage\n",
    "no object": b"[1, 2]\n",
    "empty": b"\n",
    "deep": b"[" * 4000 + b"\n",
    "no command": b"{}\n",
    "odd slot": b'{"command": "restart", "slot": {"a": []}}\n',
    "a true slot": b'{"command": "restart", "slot": true}\n',
    "endless": b"x" * (LONGEST_REQUEST + 1),
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE.keys())
def test_nonsense_is_answered_with_an_error_and_harms_nothing(nonsense_target: Callable[[], Path], sent: bytes) -> None:
    directory = nonsense_target()
    with connected(directory) as connection:
        connection.sendall(sent)
        answer = json.loads(connection.makefile().readline())
        assert answer["ok"] is False
        assert answer["error"]
    assert status(directory)["supervisor"]["state"] == "running"


@pytest.fixture(scope="module")
def nonsense_target(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One supervisor for all of it: that it survives is the point."""
    directory = tmp_path_factory.mktemp("nonsense")
    with Supervised.running("obedient", directory) as supervisor:
        yield lambda: directory
        assert supervisor.process.poll() is None


def test_too_many_clients_are_told_so_and_silent_ones_make_room_again(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, constants={"control.server.CLIENT_TIME": 1}):
        silent = [connected(tmp_path) for _ in range(MOST_CLIENTS)]
        with connected(tmp_path) as late:
            assert "too many clients" in late.makefile().readline()
        assert all(client.recv(1) == b"" for client in silent), f"closed after {CLIENT_TIME} s at most"
        for client in silent:
            client.close()
        assert status(tmp_path)["ok"]


def test_silent_clients_keep_nobody_out_for_as_long_as_they_may_stay(tmp_path: Path) -> None:
    with (
        Supervised.running("obedient", tmp_path, constants={"control.server.CLIENT_TIME": 3_600}),
        ExitStack() as stack,
    ):
        silent = [stack.enter_context(connected(tmp_path)) for _ in range(MOST_CLIENTS)]

        def is_answered() -> bool:
            with suppress(CommandRefused, Unreachable):
                return bool(status(tmp_path)["ok"])
            return False

        wait_until(is_answered, "an answer")
        assert silent[0].recv(1) == b"", "the oldest has gone"
        silent[-1].sendall(b'{"command": "status"}\n')
        assert json.loads(silent[-1].makefile().readline())["ok"], "and no other"


def test_slow_and_unreading_clients_delay_nobody(tmp_path: Path) -> None:
    running = Supervised.running("obedient", tmp_path, constants={"control.server.CLIENT_TIME": 60})
    with running, connected(tmp_path) as slow, connected(tmp_path) as greedy:
        slow.sendall(b'{"comm')
        greedy.settimeout(0.5)
        with pytest.raises((TimeoutError, ConnectionError, BrokenPipeError)):
            while True:
                greedy.sendall(b'{"command": "status"}\n' * 500)
        began = time.monotonic()
        assert status(tmp_path)["ok"]
        assert time.monotonic() - began < 30, "the others' time is not waited for"
        slow.sendall(b'and": "status"}\n')
        assert json.loads(slow.makefile().readline())["ok"]
