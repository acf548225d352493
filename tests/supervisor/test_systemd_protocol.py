"""The service manager's variables and messages, without a manager."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lowkiq_supervisor.systemd import ServiceManager


def test_the_variables_are_taken_out_of_the_environment() -> None:
    environment = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1", "PATH": "/bin"}
    ServiceManager.from_environment(environment).close()
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("environment", "feeds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
        ({}, False),
    ],
)
def test_the_watchdog_is_fed_only_when_meant(environment: dict[str, str], feeds: bool) -> None:
    manager = ServiceManager.from_environment({"NOTIFY_SOCKET": "/nowhere"} | environment)
    assert bool(manager.deadlines()) is feeds
    manager.close()


def test_a_manager_that_is_gone_is_no_error_and_without_one_nothing_is_sent() -> None:
    for address in ("/nowhere/notify", None):
        manager = ServiceManager(address, watchdog=30)
        manager.ready()
        manager.status("running")
        manager.watchdog(True)
        manager.stopping(25)
        manager.close()


def test_each_thing_is_told_once_and_no_reload_before_ready(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        manager = ServiceManager(str(tmp_path / "notify"))
        manager.reloading(True)
        for _ in range(2):
            manager.ready()
            manager.status("running")
        assert [receiver.recv(100) for _ in range(2)] == [b"READY=1", b"STATUS=running"]
        with pytest.raises(BlockingIOError):
            receiver.recv(100)
        manager.close()
