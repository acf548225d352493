"""
Succession: what follows when a slot's process has ended.

Decides between a successor now, one later, and none; and whether what happened ends the whole supervisor.
"""

from __future__ import annotations

import time

import structlog

from lowkiq.environment import ExitCode
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.rolling_restart import Turnover
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.slot import Slot
from lowkiq_supervisor.processes.slots import Fleet
from lowkiq_supervisor.restart_policy import Action, RestartMode

log = structlog.stdlib.get_logger("supervisor")


class Succession:
    """Acts on each end of a process."""

    def __init__(
        self,
        options: Options,
        fleet: Fleet,
        embedded: EmbeddedRedis | None,
        shutdown: Shutdown,
        turnover: Turnover,
    ) -> None:
        self._options = options
        self._fleet = fleet
        self._embedded = embedded
        self._shutdown = shutdown
        self._turnover = turnover

    def ended(self, slot: Slot, code: int, child: Child | None) -> None:
        """The slot is empty."""
        facts: dict[str, object] = {"slot": slot.title, "pid": child.pid if child else None, "reason": slot.last_exit}
        if slot.leaving:
            slot.exit()
            self._shutdown.ended(slot, code)
            log.info("ended", **facts)
        elif slot.replaced_for:
            why, slot.replaced_for = slot.replaced_for, ""
            slot.replacements += 1
            slot.schedule(time.monotonic())
            log.info("ended for its successor", **facts, why=why)
        else:
            self._decide(slot, code, facts)

    def _decide(self, slot: Slot, code: int, facts: dict[str, object]) -> None:
        """A slot is empty that nobody told to be: fill it again, or not."""
        verdict = slot.history.ended(code)
        match verdict.action:
            case Action.FINISH:
                slot.ever_ready = True
                slot.exit()
                self._turnover.became_ready(slot)
                log.info("finished", **facts)
                return
            case Action.REPLACE:
                slot.replacements += 1
                slot.schedule(time.monotonic())
                log.info("recycled", **facts)
                return
            case Action.RESTART:
                slot.schedule(time.monotonic() + verdict.delay)
                log.warning("died, will be restarted", **facts, restart_in=round(verdict.delay, 2))
            case Action.GIVE_UP:
                slot.exit(given_up=True)
                log.error("died, won't be restarted", **facts)
        slot.failures += 1
        self._turnover.failed(slot)
        if slot is not self._fleet.web:  # no job needs it: it is tried again for ever, and takes nobody down
            self._react_to_failure(slot)

    def _react_to_failure(self, slot: Slot) -> None:
        is_redis = slot is self._fleet.redis
        if is_redis and self._embedded is not None:
            log.error("redis failed", last_lines=self._embedded.last_lines())
        if all(other.failures and not other.ever_ready for other in ([slot] if is_redis else self._fleet.nodes)):
            self._shutdown.drain(f"{'redis' if is_redis else 'every node'} failed at its first boot", ExitCode.BOOT)
        elif slot.given_up and (is_redis or self._options.restart is not RestartMode.NEVER):
            log.error("crash loop", slot=slot.title, failures=slot.failures, last=slot.last_exit)
            if is_redis or not self._options.degraded:
                self._shutdown.drain(f"crash loop of {slot.title}", ExitCode.CRASH_LOOP)
