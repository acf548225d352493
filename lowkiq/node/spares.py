"""Spares: threads of a node in place of those that are stuck in jobs which were to stop; and its end when all are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lowkiq import clock
from lowkiq.admin.words import plural
from lowkiq.errors import ThreadsStuck
from lowkiq.log import get_logger
from lowkiq.node.job_thread import JobThread
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.node.worker_thread import WorkerThread

logger = get_logger()

#: Spare threads of a node, at most.
MOST: Final = 4
#: Seconds that a thread has run a batch, until it is the node's no more: of a shard that is another node's by now; or
#: any batch, if all threads have.
AWAY_AFTER: Final = 60.0


class Spares:
    """
    Called by the main thread about each second. A thread can't be ended. So where all threads of a pool are stuck a
    spare one runs what else there is, until one of the others is back. Once MOST are stuck too, the node ends, since
    only another process has free threads.

    Args:
        workers: the node's threads; spare ones are at its end.
    """

    def __init__(self, runtime: Runtime, workers: list[JobThread]) -> None:
        self._runtime, self._workers = runtime, workers
        self._spares: list[WorkerThread] = []

    def __call__(self) -> None:
        now = clock.monotonic()
        for pool in dict.fromkeys(thread.pool for thread in _worker_threads(self._workers)):
            if all(thread.is_stuck(now) for thread in _worker_threads(pool.threads)):
                self._replace(pool)
        if self._spares:
            self._dismiss(self._spares[-1], now)

    def _replace(self, pool: Pool) -> None:
        says = f"All {plural(len(pool.threads), 'thread')} that share shards are stuck in jobs that were to stop"
        if len(self._spares) == MOST:
            self._runtime.incidents.note("hang", f"{says}, spare ones too: the node ends", "bad")
            self._runtime.fatal(ThreadsStuck(f"{says}, spare ones too: a new process has free ones"))
            return
        number = len(_worker_threads(self._workers))
        spare = WorkerThread(number, pool, self._runtime, self._workers[0].trials)
        spare.name = f"lowkiq-spare-{len(self._spares)}"
        self._spares.append(spare)
        self._workers.append(spare)
        spare.start()
        pool.poll_soon()
        logger.warning(
            "threads_stuck", node=self._runtime.node, threads=len(pool.threads) - 1, spares=len(self._spares),
            advice='have such jobs ask current().cancelled, or use isolation="process"; a dump shows where they are',
        )  # fmt: skip
        self._runtime.incidents.note("hang", f"{says}: a spare one runs what else there is", "warn")

    def _dismiss(self, last: WorkerThread, now: float) -> None:
        """Has the last spare end once another thread can run what there is; only once it has ended, it is no more."""
        if last.is_stopping and not last.is_alive():
            first = self._workers[0]
            with first.settling:
                first.processed += last.processed
                first.failed += last.failed
            self._spares.pop()
            self._workers.pop()
        elif not last.is_stopping and any(
            thread is not last and not thread.is_stuck(now) for thread in _worker_threads(last.pool.threads)
        ):
            last.pool.dismiss(last)


def free_threads(threads: Sequence[JobThread]) -> int | None:
    """
    Worker threads that run the node's shards, None if it has none: neither stuck, nor for long in a batch of a shard
    which is another node's by now. If all of them are in long batches, none does: a free node is to have the shards.
    """
    now, workers = clock.monotonic(), _worker_threads(threads)
    if workers and all(thread.is_inside(now, AWAY_AFTER) for thread in workers):
        return 0
    return sum(not (thread.is_stuck(now) or _is_away(thread, now)) for thread in workers) if workers else None


def _is_away(thread: WorkerThread, now: float) -> bool:
    away = [claim for claim in thread.in_hand if claim.is_away and claim.running]
    return any(now - claim.running_since > AWAY_AFTER for claim in away)


def _worker_threads(threads: Sequence[object]) -> list[WorkerThread]:
    return [thread for thread in threads if isinstance(thread, WorkerThread)]
