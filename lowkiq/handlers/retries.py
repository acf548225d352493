"""Retries: decides whether a job that failed is tried again, after how long, and what is kept of its error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from lowkiq.codec import encodable
from lowkiq.errors import LONGEST_DELAY, Bury, Decision, Discard, RateLimited, RetryIn, Snooze
from lowkiq.failure import kept_text, main_line, parts_of, place_of
from lowkiq.handlers import forks
from lowkiq.handlers.ledger import Ledger
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.hooks import Fatal
from lowkiq.job import Job
from lowkiq.log import get_logger
from lowkiq.policies import Policy, rule_for
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Crashed, Exhausted, Failure, Fate, Snoozed
from lowkiq.settings import Settings
from lowkiq.worker import Worker

logger = get_logger()

#: Characters of an error, and ids of a batch, in one line of the log.
LOGGED_CHARS = 200
LOGGED_IDS = 10
#: Fate of a job → how the log counts it.
_FATES: Final[Mapping[Fate, str]] = {
    "bury": "buried", "bury_all": "buried", "block": "blocked", "discard": "discarded",
}  # fmt: skip


class Limited(NamedTuple):
    """A job whose far side has had enough: what shares its rate is to rest."""

    id: str
    seconds: float
    #: What is to rest; None: the job's own key.
    key: str | None


class Failures(NamedTuple):
    """Jobs of a batch that are not done; those that are not named are."""

    failed: Sequence[Failure] = ()
    exhausted: Sequence[Exhausted] = ()
    snoozed: Sequence[Snoozed] = ()
    #: Ids that go back to the queue as they were.
    released: Sequence[str] = ()
    #: The same, of such that have not begun: no code of the user's has run for them.
    unstarted: Sequence[str] = ()
    #: Payloads that were loaded only now, and can't be; what else their ids hold goes back.
    spoiled: Sequence[Spoiled] = ()
    #: Of those that are snoozed, what is to rest meanwhile.
    limited: Sequence[Limited] = ()
    #: What follows from those that are done: the id that each letter is of, and its record (queue/letters.py).
    letters: Sequence[tuple[str, bytes]] = ()
    #: What has killed its own process.
    crashed: Sequence[Crashed] = ()

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all that is not done."""
        rows: tuple[Failure | Exhausted | Snoozed | Spoiled | Crashed, ...] = (
            *self.failed, *self.exhausted, *self.snoozed, *self.spoiled, *self.crashed,
        )  # fmt: skip
        return frozenset([*(row.id for row in rows), *self.released, *self.unstarted])


class Retries:
    """
    The rule of one worker: `retry`, `retry_in` and `max_retry_count`. Hooks are user code, and may fail: that changes
    no outcome, but `fatal` is called with what stops the node, a BaseException that is not an Exception. What fails is
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
        """Decides what becomes of the jobs of a batch that have an error, by their ids. A discarded one is done."""
        snoozed: list[Snoozed] = []
        limited: list[Limited] = []
        discarded: list[Job] = []
        failing: list[Job] = []
        for job in batch:
            if (error := errors.get(job.id)) is None:
                continue
            if isinstance(error, Snooze):
                snoozed.append(Snoozed(job.id, error.seconds))
                if isinstance(error, RateLimited):
                    limited.append(Limited(job.id, error.seconds, error.key))
            elif isinstance(self._rule(error), Discard):
                discarded.append(job)
            else:
                failing.append(job)
        if discarded:
            self._log_discarded(discarded, errors[discarded[0].id])
        failed, ended = self._fail(failing, errors) if failing else ([], [])
        return Failures(failed, ended, snoozed, limited=tuple(limited))

    def _fail(
        self, jobs: list[Job], errors: Mapping[str, BaseException | str]
    ) -> tuple[list[Failure], list[Exhausted]]:
        """Jobs that are tried again, and those that are not."""
        failed: list[Failure] = []
        ended: list[Exhausted] = []
        going: list[Job] = []
        kept = {job.id: _kept(errors[job.id]) for job in jobs}
        texts = self._texts(list(kept.values()))
        for job in jobs:
            error = errors[job.id]
            text, stored = texts[id(kept[job.id])]
            retry_count = job.retry_count + 1
            if fate := self._fate(retry_count, error):
                going.append(_going(job, retry_count, text, fate))
                ended.append(Exhausted(job.id, stored, fate))
            else:
                failed.append(Failure(job.id, retry_count, self._delay(retry_count, error), stored))
        first = kept[jobs[0].id]
        fates = Counter(_FATES[row.fate] for row in ended)
        self._log(jobs, texts[id(first)][0], first, failed=len(failed), buried=fates.pop("buried", 0), **fates)
        if going:
            self.call_retries_exhausted(going)
        return failed, ended

    def _rule(self, error: BaseException | str) -> Policy | Decision | None:
        """What the job itself has decided, or else its worker's `retry`."""
        return error if isinstance(error, Decision) else rule_for(self.worker.retry, error)

    def _fate(self, retry_count: int, error: BaseException | str) -> Fate | None:
        """None: it is tried again."""
        if isinstance(self._rule(error), Bury):
            return "bury_all"
        policy = rule_for(self.worker.retry, _kept(error))
        limit = policy.limit if isinstance(policy, Policy) else None
        is_last = retry_count >= (self.worker.max_retry_count if limit is None else limit)
        return self.worker.when_exhausted if is_last else None

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

    def _delay(self, retry_count: int, error: BaseException | str) -> float:
        """Seconds until the next try: what `retry_in` says, or the usual formula if that is of no use."""
        match self._rule(error):
            case RetryIn(seconds=seconds):
                return seconds
            case Policy() as policy:
                return policy.delay(retry_count)
        offered = (error,) if self.worker.shape.gives_error else ()
        try:
            delay = float(forks.run(self.worker.retry_in, retry_count, *offered))
        except Exception:
            logger.exception("retry_in_failed", queue=self.worker.queue_name, retry_count=retry_count)
            delay = math.nan
        except BaseException as fatal:  # noqa: BLE001 (as of perform)
            self._fatal(fatal)
            delay = math.nan
        return (
            min(max(delay, 0.0), LONGEST_DELAY) if math.isfinite(delay) else Worker.retry_in(self.worker, retry_count)
        )

    def call_retries_exhausted(self, jobs: list[Job]) -> None:
        """
        Calls the hook. Of what has failed that comes before the settle: if the node dies in between it is called again,
        which is better than never.
        """
        try:
            hook: Callable[[list[Job]], object] = self.worker.retries_exhausted
            self._loop.finish(forks.run(hook, jobs))
        except Exception:
            logger.exception(
                "retries_exhausted_failed", queue=self.worker.queue_name, ids=loggable(job.id for job in jobs)
            )
        except BaseException as error:  # noqa: BLE001 (as of perform)
            self._fatal(error)

    def _log_discarded(self, jobs: list[Job], error: BaseException | str) -> None:
        rule = self._rule(error)
        reason = rule.reason if isinstance(rule, Discard) else ""
        known = {} if error is rule else {"error": main_line(kept_text(error, self._settings.format_error, 0))}
        logger.info(
            "jobs_discarded",
            queue=self.worker.queue_name,
            ids=loggable(job.id for job in jobs),
            jobs=len(jobs),
            reason=encodable(main_line(str(reason))[:LOGGED_CHARS]),
            **{name: text[:LOGGED_CHARS] for name, text in known.items()},
        )

    def _dump(self, text: str) -> str:
        try:
            return encodable(str(self._settings.dump_error(text)))
        except BaseException:  # (it is the user's, and an error's text is kept all the same)
            logger.exception("dump_error_failed", queue=self.worker.queue_name)
            return text

    def _log(self, jobs: list[Job], text: str, error: BaseException | str, **counts: int) -> None:
        place = "" if isinstance(error, str) else place_of(error)
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


def _kept(error: BaseException | str) -> BaseException | str:
    """The error that is kept."""
    return error.__cause__ or error if isinstance(error, RetryIn) else error


def _going(job: Job, retry_count: int, text: str, fate: Fate) -> Job:
    """The part of a job that goes to the morgue: its lowest-scored payload, or all of them."""
    error, frames = parts_of(text)
    count = len(job.payloads) if fate == "bury_all" else 1
    payloads, scores = job.payloads[:count], job.scores[:count]
    return Job(job.id, payloads, scores, job.perform_in, retry_count, error, count, traceback=frames, tags=job.tags)
