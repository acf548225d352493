"""On exit: a successor now, one later, or none, when a process has ended; and whether it ends the whole supervisor."""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog

from lowkiq.environment import ExitCode
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.rolling_restart import RollingRestart
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.slots import Slot, Slots
from lowkiq_supervisor.restart_policy import Action, RestartMode

log = structlog.stdlib.get_logger("supervisor")


@dataclass(frozen=True, slots=True)
class OnExit:
    """Acts on each end of a process."""

    options: Options
    slots: Slots
    embedded: EmbeddedRedis | None
    shutdown: Shutdown
    rolling_restart: RollingRestart

    def __call__(self, slot: Slot, code: int, child: Child | None) -> None:
        """The slot is empty."""
        facts: dict[str, object] = {"slot": slot.title, "pid": child.pid if child else None, "reason": slot.last_exit}
        if slot.leaving:
            slot.exit()
            self.shutdown.ended(slot, code)
            log.info("ended", **facts)
        elif slot.replaced_for:
            why, slot.replaced_for = slot.replaced_for, ""
            slot.replacements += 1
            slot.schedule(time.monotonic())
            log.info("ended_for_successor", **facts, why=why)
        else:
            self._decide(slot, code, facts)

    def _decide(self, slot: Slot, code: int, facts: dict[str, object]) -> None:
        """A process has ended by itself: fill the slot again, or not."""
        verdict = slot.history.ended(code)
        match verdict.action:
            case Action.FINISH:
                slot.ever_ready = True
                slot.exit()
                self.rolling_restart.became_ready(slot)
                log.info("finished", **facts)
                return
            case Action.REPLACE:
                slot.replacements += 1
                slot.schedule(time.monotonic())
                log.info("recycled", **facts)
                return
            case Action.RESTART:
                slot.schedule(time.monotonic() + verdict.delay)
                log.warning("died_will_restart", **facts, restart_in=round(verdict.delay, 2))
            case Action.GIVE_UP:
                slot.exit(given_up=True)
                log.error("died_wont_restart", **facts)
        slot.failures += 1
        self.rolling_restart.failed(slot)
        if slot is not self.slots.web:  # no job needs it: it is tried again for ever, and takes nobody down
            self._react_to_failure(slot)

    def _react_to_failure(self, slot: Slot) -> None:
        is_redis = slot is self.slots.redis
        if is_redis and self.embedded is not None:
            log.error("redis_failed", last_lines=self.embedded.last_lines())
        if all(other.failures and not other.ever_ready for other in ([slot] if is_redis else self.slots.nodes)):
            self.shutdown.drain(f"{'redis' if is_redis else 'every node'} failed at its first boot", ExitCode.BOOT)
        elif slot.given_up and (is_redis or self.options.restart is not RestartMode.NEVER):
            log.error("crash_loop", slot=slot.title, failures=slot.failures, last=slot.last_exit)
            if is_redis or not self.options.degraded:
                self.shutdown.drain(f"crash loop of {slot.title}", ExitCode.CRASH_LOOP)
