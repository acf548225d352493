"""A service manager for tests: listens where systemd would."""

from __future__ import annotations

import contextlib
import socket

from tests.support import wait_until


class Manager:
    """Receives and keeps what it is told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)
        self._told: list[str] = []

    def told(self) -> list[str]:
        """All messages so far; each may have several lines."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._told.append(self.socket.recv(4096).decode())
        return self._told

    def last(self) -> str:
        """The last message that is no sign of life: those come at any moment."""
        return [message for message in self.told() if message != "WATCHDOG=1"][-1]

    def until_told(self, start: str, times: int = 1) -> str:
        """Wait for messages that start so; the last of them."""

        def matching() -> list[str]:
            return [message for message in self.told() if message.startswith(start)]

        wait_until(lambda: len(matching()) >= times, f"{start} ({times} times)")
        return matching()[-1]

    def environment(self, **more: str) -> dict[str, str]:
        """The variables by which a service finds it."""
        return {"NOTIFY_SOCKET": self.address, **more}
