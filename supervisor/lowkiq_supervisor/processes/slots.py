"""
The fleet: every slot of the supervisor, by what its process is there for.

Responsible for who belongs where, and for the order in which they go. It starts, stops and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowkiq_supervisor.processes.slot import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The nodes do the work; the web view shows it, and the embedded Redis keeps it, where they are wanted."""

    nodes: list[Slot]
    web: Slot | None = None
    redis: Slot | None = None

    @property
    def all(self) -> list[Slot]:
        """Everybody, in the order in which they go."""
        return [*self.nodes, *self.companions]

    @property
    def companions(self) -> list[Slot]:
        """
        Who goes after the nodes, one after the other: people look on while nodes drain, and all need Redis to the end.
        """
        return [slot for slot in (self.web, self.redis) if slot is not None]

    @property
    def clients(self) -> list[Slot]:
        """Who runs the application's code: they start when Redis answers, they beat, and a restart renews them."""
        return [*self.nodes, *([self.web] if self.web is not None else [])]

    @property
    def vital(self) -> list[Slot]:
        """Those without whom jobs aren't done."""
        return [*self.nodes, *([self.redis] if self.redis is not None else [])]
