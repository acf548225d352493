"""The places that a supervisor has on its machine, which somebody may take away while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lowkiq_supervisor.control.server import Control
from lowkiq_supervisor.state_dir import StateDir
from lowkiq_supervisor.terminal import Terminal

#: Seconds between two looks.
INTERVAL = 2.0


@dataclass(slots=True)
class Places:
    """The state directory, the socket in it, and the terminal."""

    state_dir: StateDir
    control: Control
    terminal: Terminal
    _look_at: float = 0.0

    def keep(self) -> None:
        """Look now and then whether they are still there; what can be made again, is."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + INTERVAL
        self.terminal.look()
        if self.state_dir.keep():
            self.control.keep()

    def deadlines(self) -> list[float]:
        """When to look again."""
        return [self._look_at]
