"""Performer: hands a batch to its worker, inside the middlewares, and turns what happens into outcomes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from lowkiq.codec import MAX_ERROR_CHARS, encodable, error_text
from lowkiq.errors import PartialFailure
from lowkiq.hooks import wrap
from lowkiq.job import Job
from lowkiq.node.claim_in_hand import Failures
from lowkiq.node.claim_size import ClaimSize
from lowkiq.queue.shard import Exhausted, Failure
from lowkiq.worker import Worker

if TYPE_CHECKING:
    from lowkiq.settings import Settings

logger = structlog.get_logger("lowkiq")

#: Characters of an error, and ids of a batch, in one line of the log.
LOGGED_CHARS = 200
LOGGED_IDS = 10
#: Seconds until the next try, at most: a hundred years, so that times stay such that everybody can read them.
LONGEST_DELAY = 3.2e9


class Performer:
    """
    Runs batches of one worker. Its threads share it.

    Args:
        fatal: called with what stops the node: a BaseException that is not an Exception.
    """

    def __init__(self, worker: Worker, settings: Settings, fatal: Callable[[BaseException], None]) -> None:
        self.worker = worker
        #: Of all shards alike: with thousands of them, one that learned by itself would ask for its few jobs in vain.
        self.claim_size = ClaimSize(settings.claim_window, worker.batch_size)
        self._settings = settings
        self._middlewares = tuple(settings.server_middlewares)
        self._fatal = fatal

    def perform(self, batch: list[Job]) -> Failures | None:
        """Performs a batch. Returns what failed of it, None when all is done; raises nothing."""
        try:
            payloads_by_id = {job.id: job.payloads for job in batch}
            if self._middlewares:
                wrap(self._middlewares, self.worker, list(batch), partial(self.worker.perform, payloads_by_id))()
            else:
                self.worker.perform(payloads_by_id)
        except PartialFailure as error:
            return self._partly(batch, error.errors)
        except Exception as error:  # noqa: BLE001 (whatever user code raises fails its batch, and only that)
            return self._failed(batch, dict.fromkeys((job.id for job in batch), error))
        except BaseException as error:  # noqa: BLE001 (reaches last_words, by way of the main thread)
            self._fatal(error)
            return self._failed(batch, dict.fromkeys((job.id for job in batch), error))
        return None

    def _partly(self, batch: list[Job], errors: dict[str, BaseException | str]) -> Failures:
        errors = {str(id): error for id, error in errors.items()}
        strangers = errors.keys() - {job.id for job in batch}
        if strangers:
            logger.warning("partial_failure_of_unknown_ids", queue=self.worker.queue_name, ids=_some(sorted(strangers)))
        if errors and len(strangers) == len(errors):
            # Something failed, and none of it is known here: better to run all again than to lose what it was.
            errors = dict.fromkeys((job.id for job in batch), next(iter(errors.values())))
        return self._failed(batch, errors)

    def _failed(self, batch: list[Job], errors: Mapping[str, BaseException | str]) -> Failures:
        failed: list[Failure] = []
        exhausted: list[Job] = []
        for job in batch:
            if job.id in errors:
                text = self._text(errors[job.id])
                retry_count = job.retry_count + 1
                if retry_count >= self.worker.max_retry_count:
                    exhausted.append(_oldest(job, retry_count, text))
                else:
                    failed.append(Failure(job.id, retry_count, self._retry_in(retry_count), self._dump(text)))
        self._log_failure(batch, errors, len(failed), len(exhausted))
        if exhausted:
            self._retries_exhausted(exhausted)
        return Failures(failed, [Exhausted(job.id, self._dump(job.error or "")) for job in exhausted])

    def _retry_in(self, retry_count: int) -> float:
        try:
            delay = float(self.worker.retry_in(retry_count))
        except Exception:
            logger.exception("retry_in_failed", queue=self.worker.queue_name, retry_count=retry_count)
            return Worker.retry_in(self.worker, retry_count)
        except BaseException as error:  # noqa: BLE001 (as of perform)
            self._fatal(error)
            return Worker.retry_in(self.worker, retry_count)
        if not math.isfinite(delay):
            return Worker.retry_in(self.worker, retry_count)
        return min(max(delay, 0.0), LONGEST_DELAY)

    def _retries_exhausted(self, jobs: list[Job]) -> None:
        """Before the settle: if the node dies in between it is called again, which beats never."""
        try:
            self.worker.retries_exhausted(jobs)
        except Exception:
            logger.exception("retries_exhausted_failed", queue=self.worker.queue_name, ids=_some([j.id for j in jobs]))
        except BaseException as error:  # noqa: BLE001 (as of perform)
            self._fatal(error)

    def _text(self, error: BaseException | str) -> str:
        if isinstance(error, str):
            return encodable(error[:MAX_ERROR_CHARS])
        return error_text(error, self._settings.format_error)

    def _dump(self, text: str) -> str:
        try:
            return encodable(str(self._settings.dump_error(text)))
        except Exception:
            logger.exception("dump_error_failed", queue=self.worker.queue_name)
            return text

    def _log_failure(self, batch: list[Job], errors: Mapping[str, Any], failed: int, exhausted: int) -> None:
        first = next((errors[job.id] for job in batch if job.id in errors), None)
        if first is None:
            return
        with contextlib.suppress(OSError, UnicodeError):  # a log that can't be written must not cost an outcome
            logger.warning(
                "jobs_failed",
                queue=self.worker.queue_name,
                ids=_some([job.id for job in batch if job.id in errors]),
                failed=failed,
                buried=exhausted,
                error=self._text(first)[:LOGGED_CHARS],
            )


def _oldest(job: Job, retry_count: int, error: str) -> Job:
    """The part of a job that goes to the morgue: its lowest-scored payload."""
    return Job(job.id, job.payloads[:1], job.scores[:1], job.perform_in, retry_count, error, 1)


def _some(ids: Sequence[str]) -> list[str]:
    return [encodable(id[:LOGGED_CHARS]) for id in ids[:LOGGED_IDS]]
