"""HelperPerformer: has helper processes perform the batches of a worker with isolation="process"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from lowkiq.errors import CheckpointFailed, ProcessDied
from lowkiq.handlers.context import NOTE_CHARS, Progress, Run, running_here, start_here
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Failures, Limited, Retries, loggable
from lowkiq.handlers.start import NotStarted, Start
from lowkiq.handlers.stop import Stop
from lowkiq.job import Job
from lowkiq.log import get_logger
from lowkiq.node.helpers.fork_server import ForkServer
from lowkiq.node.helpers.frames import (
    Answer,
    Channel,
    Ended,
    FromHelper,
    IsLost,
    Keep,
    MayStart,
    RawJob,
    Report,
    Rubbish,
    Told,
    Work,
)
from lowkiq.node.helpers.helper import HelperEnded
from lowkiq.node.helpers.server_process import FORKED, SPAWNED
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.runtime import Runtime
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Crashed, Exhausted, Failure, Snoozed
from lowkiq.worker import Worker

logger = get_logger()


class HelperPerformer(Performer):
    """
    Performs inside claims of worker threads, each of which has a helper.

    No code of the worker's runs in the node: its payloads stay bytes here, and its hooks are called in the helper; of
    a batch whose helper has died, in the next one. If that dies too, or is stopped, the usual rule decides alone.
    """

    def __init__(self, worker: type[Worker], runtime: Runtime, server: ForkServer) -> None:
        made: Worker = object.__new__(worker)  # its __init__ is for helpers
        super().__init__(made, runtime.settings, runtime.fatal, runtime.loop, runtime.ledger)
        self.is_async, self.plain, self.is_in_node = False, None, False
        self.load, self.check_id, self.is_loaded_by_user = bytes, None, False
        self._retries = Retries(_without_hooks(made), runtime.settings, runtime.fatal, runtime.loop, runtime.ledger)
        self._server = server
        self._kind = SPAWNED if worker.isolation == "spawn" else FORKED
        self._max_crashes = runtime.settings.max_crashes

    def perform(self, batch: list[Job]) -> Failures | None:
        """Performs a batch in the thread's helper. Returns what failed of it, None when all is done; raises nothing."""
        claim = claim_here()
        try:
            return self._run(batch, claim)
        except NotStarted:
            return Failures(unstarted=[job.id for job in batch])
        except HelperEnded as ended:
            if ended.stopped_for is not None:
                return self.stopped(batch, ended.stopped_for, claim.cancelled)
            return self._after(batch, ended)

    def _after(self, batch: list[Job], ended: HelperEnded) -> Failures | None:
        """What becomes of a batch whose helper has ended, without having been stopped."""
        return self._orphaned(batch, ended) if ended.error is None else self.failures(batch, ended.error)

    def _orphaned(self, batch: list[Job], ended: HelperEnded) -> Failures:
        """The fork server has died; of those that have begun one may have done it."""
        if ended.has_begun and ended.is_unasked:
            return Failures(crashed=[Crashed(job.id, self._max_crashes, "crowd") for job in batch])
        return Failures(released=[job.id for job in batch])

    def failures(self, batch: list[Job], error: BaseException) -> Failures:
        """The jobs of a batch that have failed so."""
        if self._has_slow_hooks:
            try:
                return self._run(batch, claim_here(), error) or Failures()
            except HelperEnded as ended:
                ids = loggable(job.id for job in batch)
                logger.error("hooks_not_called", queue=self.worker.queue_name, ids=ids, reason=str(ended))
        return self._failed(batch, error)

    def buried(self, batch: list[Job], error: Exception) -> bool:
        """As Performer.buried, in a helper of the calling thread that is only for this, and may die of it."""
        try:
            self._run_buried(batch, error)
        except NotStarted:
            return False
        except HelperEnded as ended:
            if not ended.has_begun and ended.error is None:
                return False  # the fork server has died, and the node ends
            return self._unheard(batch, ended)
        return True

    def _run_buried(self, batch: list[Job], error: Exception) -> None:
        """Raises NotStarted or HelperEnded."""
        run, shard = running_here(), running_here().shard
        jobs, told = [RawJob.of(job) for job in batch], Told.of(error)
        work = Work(shard.queue, shard.index, run.epoch, run.node, jobs, told, self.live, is_buried=True)
        helper = self._server.mine(self._kind)
        helper.begin()
        try:
            helper.run(work, self.worker.perform_timeout, partial(_hear_of_burial, run, batch), start_here())
        finally:
            self._server.retire(helper)

    def _unheard(self, batch: list[Job], ended: HelperEnded) -> bool:
        """What becomes of a burial for which no helper could begin, or that has killed it. As `buried`."""
        ids = loggable(job.id for job in batch)
        logger.error("hooks_not_called", queue=self.worker.queue_name, ids=ids, reason=str(ended))
        return True

    def _run(self, batch: list[Job], claim: ThreadClaim, error: BaseException | None = None) -> Failures | None:
        """Has a helper perform the batch, or say what becomes of one that has failed so. Raises HelperEnded."""
        told = None if error is None else Told.of(error)
        start = Start(claim.may_start if error is None else lambda: True)
        jobs = [RawJob.of(job) for job in batch]
        work = Work(claim.shard.queue, claim.shard.index, claim.epoch, claim.node, jobs, told, self.live)
        helper = self._server.mine(self._kind)
        helper.begin()
        claim.stopper, claim.read_pid = helper.stop, lambda: helper.pid
        try:
            if claim.has_cancelled(batch) and told is None:
                helper.stop(Stop.CANCELLED)  # it was cancelled before anything could stop it
            ended = helper.run(work, self.worker.perform_timeout, partial(_hear, claim, batch), start)
            failures = _failures(batch, ended)
            for group, count in ended.counted.items():
                self.ledger.add(claim.shard.queue, group, count)
        except Rubbish as rubbish:
            self._server.drop(helper)
            raise HelperEnded(ProcessDied(f"killed, as it sent rubbish: {rubbish}")) from None
        except HelperEnded as end:
            self._server.drop(helper)
            logger.warning("helper_ended", pid=helper.pid, queue=claim.shard.queue, reason=str(end))
            raise
        finally:
            claim.stopper, claim.read_pid = None, lambda: 0
        if helper.stopped_for is not None:
            self._server.drop(helper)
        elif ended.is_last:
            self._server.retire(helper)
        return failures


def claim_here() -> ThreadClaim:
    """The claim of which a batch is performed."""
    claim = running_here()
    if not isinstance(claim, ThreadClaim):
        raise TypeError(f"a helper runs batches of threads, not of a {type(claim).__name__}")
    return claim


def _hear(run: Run, batch: Sequence[Job], channel: Channel[FromHelper], heard: Any) -> None:
    """Acts on what a helper tells or asks while it runs a batch."""
    match heard:
        case IsLost():
            channel.send(Answer(is_so=run.is_lost))
        case MayStart():
            channel.send(Answer(is_so=run.may_start()))
        case Report():
            run.report(Progress(heard.share, heard.note[:NOTE_CHARS]))
        case Keep():
            channel.send(Answer(error=_keep(run, batch, heard)))


def _hear_of_burial(run: Run, batch: Sequence[Job], channel: Channel[FromHelper], heard: Any) -> None:
    """The same, of a call that has begun, as Redis knows, and is not begun again."""
    if isinstance(heard, MayStart):
        channel.send(Answer())
    else:
        _hear(run, batch, channel, heard)


def _keep(run: Run, batch: Sequence[Job], asked: Keep) -> Told | None:
    if asked.job >= len(batch):
        raise Rubbish("a checkpoint of no job")
    try:
        run.keep(batch[asked.job].id, asked.checkpoint)
    except (CheckpointFailed, ValueError) as error:
        return Told.of(error)
    return None


def _failures(batch: Sequence[Job], ended: Ended) -> Failures | None:
    """A helper's word on a batch, by ids; None if all of it is done. Raises Rubbish."""
    if ended.is_unstarted:
        return Failures(unstarted=[job.id for job in batch])
    if not (ended.failed or ended.buried or ended.spoiled or ended.snoozed or ended.letters):
        return None
    try:
        failed = [Failure(batch[row.job].id, row.retry_count, row.delay, row.error) for row in ended.failed]
        buried = [Exhausted(batch[row.job].id, row.error, row.fate) for row in ended.buried]
        snoozed = [Snoozed(batch[row.job].id, row.delay) for row in ended.snoozed]
        limited = [Limited(batch[row.job].id, row.delay, row.key) for row in ended.snoozed if row.is_limited]
        spoiled = [Spoiled(batch[row.job].id, batch[row.job].payloads[row.payload], row.error) for row in ended.spoiled]
        letters = [(batch[row.job].id, row.record) for row in ended.letters]
    except IndexError:
        raise Rubbish("the outcome of no job") from None
    ids = [*(row[0] for row in (*failed, *buried, *snoozed)), *{row.id for row in spoiled}]
    delays = [*(row.delay for row in failed), *(row.delay for row in snoozed)]
    if len(set(ids)) < len(ids) or not all(map(math.isfinite, delays)):
        raise Rubbish("an outcome that can't be")
    return Failures(failed, buried, snoozed, spoiled=spoiled, limited=limited, letters=letters)


def _without_hooks(worker: Worker) -> Worker:
    """A worker with the same options, and the usual hooks."""
    names = ("queue_name", "max_retry_count", "retry", "when_exhausted")
    options = {name: getattr(worker, name) for name in names}
    plain: Worker = type(type(worker).__name__, (Worker,), options)()
    return plain
