"""BulkRunner: runs bulks in threads of this process. Their progress is in Redis, for every process to show and stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import msgspec
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.jobs import bulks
from lowkiq.admin.jobs.actions import check_action
from lowkiq.admin.jobs.bulks import Bulk
from lowkiq.admin.jobs.search import Match
from lowkiq.errors import LowkiqError
from lowkiq.log import get_logger
from lowkiq.web.backend import Backend

logger = get_logger()

#: Seconds between two writings of a bulk's progress, which is also how soon it notices that it should stop.
TELL_INTERVAL: Final = 0.5
#: Bulks that run at a time: each keeps Redis busy in small steps.
MOST: Final = 4
#: Seconds between tries while Redis is away, and how often.
RETRY_AFTER, RETRIES = 1.0, 30


class TooManyBulks(LowkiqError):
    """So many run already that another would only slow the jobs down."""


class BulkRunner:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._places = threading.BoundedSemaphore(MOST)

    def start(self, queue: str, action: str, match: Match, total: int, who: str = "", why: str = "") -> Bulk:
        """
        Starts an action on all that match, in the background; it acts on at most `total` jobs.

        Raises:
            ValueError: the view has no such action. TooManyBulks: some have to end first.
        """
        check_action(action, match.view)
        if not self._places.acquire(blocking=False):
            raise TooManyBulks(f"{MOST} bulks run here already: wait for one to end, or stop one")
        try:
            bulk = bulks.new_bulk(self._backend.caller, self._backend.namespace, queue, action, match, total, why)
            bulks.note_begin(self._backend.caller, self._backend.namespace, bulk, who)
            # A daemon: what it has not done when the process ends, nobody has been told was done.
            threading.Thread(target=self._run, args=(bulk, who), name=f"lowkiq-bulk-{bulk.id}", daemon=True).start()
        except BaseException:
            self._places.release()
            raise
        logger.info("bulk_started", bulk=bulk.id, queue=queue, action=action, view=match.view, total=total)
        return bulk

    def _run(self, bulk: Bulk, who: str) -> None:
        try:
            for state in self._sweep(bulk, who):
                bulk = state  # kept also for an error: it has how far the bulk has come
        except (RedisError, LowkiqError, ValueError) as error:
            bulk = msgspec.structs.replace(bulk, state="failed", error=f"{type(error).__name__}: {error}"[:200])
        except Exception as error:
            logger.exception("bulk_failed", bulk=bulk.id)
            bulk = msgspec.structs.replace(bulk, state="failed", error=type(error).__name__)
        finally:
            self._places.release()
        self._tell_the_end(bulk)

    def _sweep(self, bulk: Bulk, who: str) -> Iterator[Bulk]:
        """The bulk after each step, until the end, or until somebody stops it."""
        backend = self._backend
        told_at = clock.monotonic()
        for progress in backend.sweep(bulk, who):
            bulk = msgspec.structs.replace(bulk, seen=progress.seen, moved=progress.moved)
            yield bulk
            if clock.monotonic() - told_at < TELL_INTERVAL:
                continue
            told_at = clock.monotonic()
            if bulks.is_to_stop(backend.caller, backend.namespace, bulk.id):
                yield msgspec.structs.replace(bulk, state="stopped")
                return
            bulk = bulks.save(backend.caller, backend.namespace, bulk)
        yield msgspec.structs.replace(bulk, state="done")

    def _tell_the_end(self, bulk: Bulk) -> None:
        logger.info("bulk_ended", bulk=bulk.id, state=bulk.state, moved=bulk.moved, error=bulk.error)
        for _ in range(RETRIES):
            try:
                bulks.save(self._backend.caller, self._backend.namespace, bulk)
                bulks.note_end(self._backend.caller, self._backend.namespace, bulk)
            except RedisError:
                threading.Event().wait(RETRY_AFTER)
            else:
                return
