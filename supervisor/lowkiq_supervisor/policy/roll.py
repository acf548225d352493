"""Roll: how far a rolling restart has come, and the replacement of one slot's process that is under way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from lowkiq_supervisor.processes.slots import Slot


class Phase(Enum):
    """A replacement's step that is under way."""

    ENDING = "ending"  # of the web view only: its port must be free for the successor
    BOOTING = "booting"
    HANDING_OVER = "handing over"
    SOAKING = "soaking"


@dataclass(slots=True)
class Step:
    """The replacement of one slot's process."""

    slot: Slot
    why: str
    phase: Phase
    is_recycling: bool = False
    #: Holds the successor, and after the hand-over the predecessor.
    beside: Slot | None = None
    tries: int = 1
    #: End of the soak.
    until: float = 0.0


@dataclass(slots=True)
class Roll:
    """A rolling restart, and how far it has come."""

    number: int
    why: str
    left: deque[Slot]
    done: list[Slot] = field(default_factory=list)
    #: Why it doesn't go on.
    stopped: str = ""
    is_over: bool = False

    @property
    def is_running(self) -> bool:
        return not (self.is_over or self.stopped)
