"""
Last resort: the failures that end the whole supervisor, so that its service manager, or a person, may do better.

- At the first boot every node refuses to start, for what only a person can change; or the embedded Redis fails:
  exit 3.
- A node fails, and for a minute none has been ready; or the same of the embedded Redis: exit 4. A node that waits for
  Redis has not failed, and jobs that kill their node show that it works.
- With --strict, one slot has failed too often: exit 4.

The web view ends nobody: no job needs it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.slots import Slot, Slots
from lowkiq_supervisor.restart_policy import Kind

#: Seconds without a ready node after a failure.
PATIENCE = 60.0

log = get_logger("supervisor")


@dataclass(slots=True)
class LastResort:
    """Sees every failure, and the time since the last ready node."""

    slots: Slots
    shutdown: Shutdown
    embedded: EmbeddedRedis | None
    #: End with the first slot that has failed too often.
    strict: bool
    #: Since when none of a group works after a failure: of nodes, and of Redis.
    _without: dict[str, float] = field(default_factory=dict)

    def failed(self, slot: Slot) -> None:
        """A slot's process has ended by itself, as it should not."""
        if slot is self.slots.web:
            return
        is_redis = slot is self.slots.redis
        if is_redis and self.embedded is not None:
            log.error("redis_failed", last_lines=self.embedded.last_lines())
        if self._is_refused(slot, is_redis=is_redis):
            what = "redis failed" if is_redis else "every node was refused"
            self.shutdown.drain(f"{what} at its first boot", ExitCode.BOOT)
        elif slot.given_up and self.strict:
            log.error("crash_loop", slot=slot.title, failures=slot.failures, last=slot.why)
            self.shutdown.drain(f"crash loop of {slot.title}", ExitCode.CRASH_LOOP)
        self._count("redis" if is_redis else "node", slot)

    def look(self) -> None:
        """Forget the time without a ready node when there is one, or one that waits for Redis."""
        for name in list(self._without):
            if any(slot.works or slot.waits for slot in self._group(name)):
                del self._without[name]

    def _count(self, name: str, slot: Slot) -> None:
        """End everything with a failure after which nothing has worked for too long; a long boot is waited for."""
        now = time.monotonic()
        if slot.last_kind is Kind.JOB:  # it worked: the jobs are bad
            self._without.pop(name, None)
        self.look()
        lasts = now - self._without.setdefault(name, now)
        if lasts >= PATIENCE and not self.shutdown.draining:
            reasons = {slot.title: slot.why or slot.state.value for slot in self._group(name)}
            log.error(f"no_{name}_was_ready", seconds=round(lasts, 1), slots=reasons)
            self.shutdown.drain(f"no {name} was ready for {lasts:.0f} s", ExitCode.CRASH_LOOP)

    def _group(self, name: str) -> list[Slot]:
        slots = self.slots.nodes if name == "node" else [self.slots.redis]
        return [slot for slot in slots if slot is not None and not slot.is_over]

    def _is_refused(self, slot: Slot, *, is_redis: bool) -> bool:
        if is_redis:
            return not slot.ever_ready and slot.last_kind is not Kind.KILLED
        return all(not other.ever_ready and other.last_kind is Kind.REFUSED for other in self.slots.nodes)
