"""LiveSettings: has a node follow the options of its queues that people set in Redis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from lowkiq import log
from lowkiq.admin.live import read_live
from lowkiq.admin.options import LOG_LEVELS
from lowkiq.node.leases.lease import Lease
from lowkiq.node.runtime import Runtime

logger = structlog.get_logger("lowkiq")


class LiveSettings:
    """Called before anything runs, and with each beat: whoever sets something rings for one."""

    def __init__(self, runtime: Runtime, leases: Iterable[Lease]) -> None:
        self._runtime = runtime
        self.follow(leases)
        #: Queue → what it follows.
        self._known: Mapping[str, Mapping[str, Any]] = {}
        self._level = log.DEFAULT_LEVEL

    def follow(self, leases: Iterable[Lease]) -> None:
        """Tells these from here on."""
        self._leases: dict[str, list[Lease]] = {}
        for lease in leases:
            self._leases.setdefault(lease.shard.queue, []).append(lease)

    def __call__(self) -> None:
        """Raises RedisError."""
        live = read_live(self._runtime.caller, self._runtime.namespace)
        found = {
            queue: {name: setting.value for name, setting in live[queue].items()}
            for queue in self._leases.keys() & live.keys()
        }
        if found == self._known:
            return
        levels = {str(options["log_level"]) for options in found.values() if "log_level" in options}
        # The lowest level of all its queues, as they share one log. That of the change is the lower of both.
        level = min(levels, key=LOG_LEVELS.index, default=log.DEFAULT_LEVEL)
        self._log_by(min(level, self._level, key=LOG_LEVELS.index))
        for queue in sorted(found.keys() | self._known.keys()):
            if found.get(queue) != self._known.get(queue):
                self._apply(queue, found.get(queue, {}))
        self._known = found
        self._log_by(level)

    def _apply(self, queue: str, options: Mapping[str, Any]) -> None:
        leases = self._leases[queue]
        performer = leases[0].performer
        ignored = performer.override(options)
        for lease in leases:
            lease.follow_worker()
        logger.info("settings_changed", queue=queue, settings=dict(options))
        if ignored:
            advice = "it takes an id at a time"
            logger.warning("setting_ignored", queue=queue, settings=ignored, advice=advice)

    def _log_by(self, level: str) -> None:
        if level != self._level:
            self._level = level
            log.set_level(level)
