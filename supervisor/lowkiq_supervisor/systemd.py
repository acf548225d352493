"""
The service manager's protocol: tells systemd when all nodes are ready, that the loop turns, and what is going on.

Without NOTIFY_SOCKET all of it does nothing. Nodes never see the variables: only the supervisor may speak.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
#: Seconds that a stop may take beyond its deadline: kills, and what the kernel does with dead processes.
STOP_SPARE = 5.0


class ServiceManager:
    """Tells systemd each thing once."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        #: An abstract address is written with an @ for its zero byte.
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if address else None
        #: Seconds between signs of life: half the time after which systemd kills the service, as it asks for.
        self._interval = watchdog / 2 if watchdog and self._socket else None
        self._ping_at = time.monotonic()
        self._status = ""
        self._ready = self._is_reloading = False

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> ServiceManager:
        """Takes the variables out, so that no child inherits them."""
        address, watchdog, pid = (environ.pop(name, "") for name in VARIABLES)
        meant = not pid or pid == str(os.getpid())
        seconds = int(watchdog) / 1e6 if watchdog.isdecimal() and meant else None
        return cls(address or None, seconds)

    def ready(self) -> None:
        """Every node has been ready."""
        if not self._ready:
            self._ready = True
            self._send("READY=1")

    def status(self, text: str) -> None:
        """The line that `systemctl status` shows."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def reloading(self, begins: bool) -> None:
        """A rolling restart begins, or is over. Before everything is ready, systemd waits for that anyway."""
        if not self._ready:
            return
        self._is_reloading = begins
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}" if begins else "READY=1")

    def stopping(self, seconds: float) -> None:
        """Everything is draining, and may take so long; said at once, so that systemd doesn't cut it short."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int((seconds + STOP_SPARE) * 1e6)}")

    def watchdog(self, all_is_well: bool) -> None:
        """The loop turns: say so when it is due, unless a node is silent, for which a restart may be the cure."""
        if self._interval is None or time.monotonic() < self._ping_at:
            return
        if all_is_well:
            # A roll has deadlines of its own, a node's at a time; systemd would give it up after TimeoutStartSec.
            more = f"\nEXTEND_TIMEOUT_USEC={int(2e6 * self._interval)}" if self._is_reloading else ""
            self._send(f"WATCHDOG=1{more}")
        self._ping_at = time.monotonic() + (self._interval if all_is_well else min(1.0, self._interval))

    def deadlines(self) -> list[float]:
        """When the next sign of life is due."""
        return [] if self._interval is None else [self._ping_at]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is not None and self._address:
            # A service manager that isn't there, or doesn't read, is no reason to fail or to wait.
            with contextlib.suppress(OSError):
                self._socket.sendto(message.encode(), self._address)
