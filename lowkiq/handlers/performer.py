"""Performer: calls a worker's `perform` with a batch, inside the middlewares, and catches whatever it raises."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from lowkiq.errors import PartialFailure
from lowkiq.handlers.retries import Failures, Retries, loggable
from lowkiq.hooks import wrap
from lowkiq.job import Job
from lowkiq.settings import Settings
from lowkiq.worker import Worker

logger = structlog.get_logger("lowkiq")


class Performer:
    """Runs batches of one worker, for all threads. It calls `fatal` with what stops the node, which is no Exception."""

    def __init__(self, worker: Worker, settings: Settings, fatal: Callable[[BaseException], None]) -> None:
        self.worker = worker
        self._middlewares = tuple(settings.server_middlewares)
        self._retries = Retries(worker, settings, fatal)
        self._fatal = fatal
        self._has_hook = type(worker).retries_exhausted is not Worker.retries_exhausted
        # Somebody looks at jobs after perform, which may do with its lists what it likes: it gets copies then.
        is_watched = self._has_hook or bool(self._middlewares)
        #: The worker's perform itself where nobody watches: to call it is then all there is to do.
        self.plain = None if is_watched else worker.perform

    def perform(self, batch: list[Job]) -> Failures | None:
        """Performs a batch inside the middlewares. Returns what failed of it, None when all is done; raises nothing."""
        payloads_by_id = {job.id: self._copy(job) for job in batch}
        try:
            wrap(self._middlewares, self.worker, list(batch), partial(self.worker.perform, payloads_by_id))()
        except BaseException as error:  # noqa: BLE001 (whatever user code raises fails its batch)
            return self.failures(batch, error)
        return None

    def failures(self, batch: list[Job], error: BaseException) -> Failures:
        """The jobs of a batch that have failed when perform raises this. What is no Exception also stops the node."""
        if isinstance(error, PartialFailure):
            return self._partly_failed(batch, error.errors)
        if not isinstance(error, Exception):
            self._fatal(error)  # reaches last_words, by way of the main thread
        return self._failed(batch, error)

    def _copy(self, job: Job) -> list[Any]:
        """The payloads of a job; if `retries_exhausted` may be next to see them, with all that is in them."""
        if self._has_hook and job.retry_count + 1 >= self.worker.max_retry_count:
            with contextlib.suppress(Exception):  # load_payload may make what can't be copied
                return copy.deepcopy(job.payloads)
        return job.payloads.copy()

    def _failed(self, batch: list[Job], error: BaseException | str) -> Failures:
        return self._retries.decide(batch, dict.fromkeys((job.id for job in batch), error))

    def _partly_failed(self, batch: list[Job], errors: dict[str, BaseException | str]) -> Failures:
        errors = {str(id): error for id, error in errors.items()}
        strangers = errors.keys() - {job.id for job in batch}
        if strangers:
            logger.warning(
                "partial_failure_of_unknown_ids", queue=self.worker.queue_name, ids=loggable(sorted(strangers))
            )
        if errors and len(strangers) == len(errors):
            # Something failed, and none of it is known here: better to run all again than to lose what it was.
            return self._failed(batch, next(iter(errors.values())))
        return self._retries.decide(batch, errors)
