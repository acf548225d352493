"""LiveSettings: has a node follow the options of its queues that people set in Redis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from lowkiq import log
from lowkiq.admin.live import read_live
from lowkiq.log import get_logger
from lowkiq.node.leases.lease import Lease
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.options import LIVE, LOG_LEVELS
from lowkiq.queue.call import grouped

logger = get_logger()

ADVICE: Final = "it is tried again with each beat: set its options anew, or unset them (lowkiq settings)"


class LiveSettings:
    """
    Called before anything runs, and with each beat: whoever sets something rings for one. `pools` are those of threads,
    which weights share out; `beat_soon` is called when beats have others to tell.
    """

    def __init__(
        self,
        runtime: Runtime,
        leases: Iterable[Lease],
        pools: Collection[Pool] = (),
        beat_soon: Callable[[], None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._pools = pools
        self._beat_soon = beat_soon
        self.follow(leases)
        #: Weights that the node was told as it was started.
        self._weights = dict(runtime.weights)
        self._warn_of_async(self._weights)
        #: Queue → what it follows.
        self._known: Mapping[str, Mapping[str, Any]] = {}
        self._level = log.DEFAULT_LEVEL

    def follow(self, leases: Iterable[Lease]) -> None:
        """Tells these from here on."""
        self._leases = grouped((lease.shard.queue, lease) for lease in leases)

    def __call__(self) -> None:
        """Raises RedisError."""
        live = read_live(self._runtime.caller, self._runtime.namespace)
        found = {
            queue: {name: setting.value for name, setting in live[queue].items() if name in LIVE}
            for queue in self._leases.keys() & live.keys()
        }
        if found == self._known:
            return
        levels = {str(options["log_level"]) for options in found.values() if "log_level" in options}
        # The lowest level of all its queues, as they share one log. That of the change is the lower of both.
        level = min(levels, key=LOG_LEVELS.index, default=log.DEFAULT_LEVEL)
        self._log_by(min(level, self._level, key=LOG_LEVELS.index))
        failed: list[str] = []
        for queue in sorted(found.keys() | self._known.keys()):
            if found.get(queue) != self._known.get(queue):
                try:
                    self._apply(queue, found.get(queue, {}))
                except Exception as error:  # noqa: BLE001 (the other queues have theirs)
                    failed.append(queue)
                    self._runtime.mishaps.met("settings_failed", error, ADVICE, queue=queue)
        self._weigh({queue: options["weight"] for queue, options in found.items() if "weight" in options})
        self._known = {queue: options for queue, options in found.items() if queue not in failed}
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

    def _weigh(self, live: Mapping[str, Any]) -> None:
        weights = {queue: weight for queue, weight in {**self._weights, **live}.items() if weight is not None}
        if weights == self._runtime.weights:
            return
        if self._runtime.settings.build_scheduler:
            advice = "the application has a build_scheduler, which knows no weights"
            logger.warning("setting_ignored", settings={"weight": weights}, advice=advice)
            return
        self._warn_of_async(live)
        for pool in self._pools:
            pool.weigh(weights)
        self._runtime.weights.clear()
        self._runtime.weights.update(weights)
        self._beat_soon()

    def _warn_of_async(self, weights: Mapping[str, Any]) -> None:
        for queue, weight in weights.items():
            if weight is not None and self._leases[queue][0].performer.is_async:
                advice = "its batches run beside the threads, on the event loop: its concurrency says how many"
                logger.warning("setting_ignored", queue=queue, settings={"weight": weight}, advice=advice)

    def _log_by(self, level: str) -> None:
        if level != self._level:
            self._level = level
            log.set_level(level)
