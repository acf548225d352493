"""Retries: decides whether a job that failed is tried again, after how long, and what is kept of its error."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from lowkiq.codec import encodable
from lowkiq.failure import kept_text, main_line, parts_of, place_of
from lowkiq.handlers.ledger import Ledger
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.hooks import Fatal
from lowkiq.job import Job
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Exhausted, Failure
from lowkiq.settings import Settings
from lowkiq.worker import Worker

logger = structlog.get_logger("lowkiq")

#: Characters of an error, and ids of a batch, in one line of the log.
LOGGED_CHARS = 200
LOGGED_IDS = 10
#: Seconds until the next try, at most: a hundred years, so that times stay such that everybody can read them.
LONGEST_DELAY = 3.2e9


class Failures(NamedTuple):
    """Jobs of a batch that are not done; those that are not named are."""

    failed: Sequence[Failure] = ()
    exhausted: Sequence[Exhausted] = ()
    #: Ids that go back to the queue as they were.
    released: Sequence[str] = ()
    #: Payloads that were loaded only now, and can't be; what else their ids hold goes back.
    spoiled: Sequence[Spoiled] = ()


class Retries:
    """
    The rule of one worker: `retry_in` and `max_retry_count`. Its hooks are user code, and may fail: that changes no
    outcome, but `fatal` is called with what stops the node, a BaseException that is not an Exception. What fails is
    counted in `ledger`.
    """

    def __init__(
        self, worker: Worker, settings: Settings, fatal: Fatal, loop: LoopThread, ledger: Ledger | None = None
    ) -> None:
        #: Whose rule it is.
        self.worker = worker
        self._settings = settings
        self._fatal = fatal
        self._loop = loop
        self._ledger = ledger or Ledger()

    def decide(self, batch: list[Job], errors: Mapping[str, BaseException | str]) -> Failures:
        """Decides what becomes of the jobs of a batch that have an error, by their ids."""
        failed: list[Failure] = []
        exhausted: list[Job] = []
        buried: list[Exhausted] = []
        jobs = [job for job in batch if job.id in errors]
        texts = self._texts([errors[job.id] for job in jobs])
        for job in jobs:
            text, stored = texts[id(errors[job.id])]
            retry_count = job.retry_count + 1
            if retry_count >= self.worker.max_retry_count:
                exhausted.append(_oldest(job, retry_count, text))
                buried.append(Exhausted(job.id, stored))
            else:
                failed.append(Failure(job.id, retry_count, self._delay(retry_count), stored))
        if jobs:
            first = errors[jobs[0].id]
            self._log(jobs, texts[id(first)][0], first, failed=len(failed), buried=len(buried))
        if exhausted:
            self._call_retries_exhausted(exhausted)
        return Failures(failed, buried)

    def _texts(self, errors: list[BaseException | str]) -> dict[int, tuple[str, str]]:
        """The text that is kept of each error, and as it is stored. Mostly all jobs of a batch share one."""
        texts: dict[int, tuple[str, str]] = {}
        settings, counts = self._settings, Counter(map(id, errors))
        for error in errors:
            if id(error) not in texts:
                text = kept_text(error, settings.format_error, settings.traceback_frames)
                texts[id(error)] = text, self._dump(text)
                self._ledger.add(self.worker.queue_name, parts_of(text)[0], counts[id(error)])
        return texts

    def _delay(self, retry_count: int) -> float:
        """Seconds until the next try: what `retry_in` says, or the usual formula if that is of no use."""
        try:
            delay = float(self.worker.retry_in(retry_count))
        except Exception:
            logger.exception("retry_in_failed", queue=self.worker.queue_name, retry_count=retry_count)
            delay = math.nan
        except BaseException as error:  # noqa: BLE001 (as of perform)
            self._fatal(error)
            delay = math.nan
        return (
            min(max(delay, 0.0), LONGEST_DELAY) if math.isfinite(delay) else Worker.retry_in(self.worker, retry_count)
        )

    def _call_retries_exhausted(self, jobs: list[Job]) -> None:
        """Comes before the settle: if the node dies in between it is called again, which is better than never."""
        try:
            hook: Callable[[list[Job]], object] = self.worker.retries_exhausted
            self._loop.finish(hook(jobs))
        except Exception:
            logger.exception(
                "retries_exhausted_failed", queue=self.worker.queue_name, ids=loggable(job.id for job in jobs)
            )
        except BaseException as error:  # noqa: BLE001 (as of perform)
            self._fatal(error)

    def _dump(self, text: str) -> str:
        try:
            return encodable(str(self._settings.dump_error(text)))
        except Exception:
            logger.exception("dump_error_failed", queue=self.worker.queue_name)
            return text

    def _log(self, jobs: list[Job], text: str, error: BaseException | str, **counts: int) -> None:
        place = "" if isinstance(error, str) else place_of(error)
        with contextlib.suppress(OSError, UnicodeError):  # a log that can't be written must not cost an outcome
            logger.warning(
                "jobs_failed",
                queue=self.worker.queue_name,
                ids=loggable(job.id for job in jobs),
                **counts,
                error=main_line(parts_of(text)[0])[:LOGGED_CHARS],
                **({"at": place} if place else {}),
            )


def loggable(ids: Iterable[str]) -> list[str]:
    """The first ids of several, as the log names them."""
    return [encodable(id[:LOGGED_CHARS]) for id in list(ids)[:LOGGED_IDS]]


def _oldest(job: Job, retry_count: int, text: str) -> Job:
    """The part of a job that goes to the morgue: its lowest-scored payload."""
    error, frames = parts_of(text)
    payload, score = job.payloads[:1], job.scores[:1]
    return Job(job.id, payload, score, job.perform_in, retry_count, error, 1, traceback=frames, tags=job.tags)
