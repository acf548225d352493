"""The process of a helper: performs batches one after the other, and asks its node what only that knows."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import Context as Variables
from typing import Final

from lowkiq import clock, telemetry
from lowkiq.codec import error_text
from lowkiq.errors import CheckpointFailed
from lowkiq.handlers import clean, forks
from lowkiq.handlers.context import Done, Progress, begin
from lowkiq.handlers.log_fields import bind_shard
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Failures, Limited
from lowkiq.job import Job
from lowkiq.log import get_logger
from lowkiq.node.helpers.frames import (
    Answer,
    BadPayload,
    Buried,
    Channel,
    Ended,
    Failed,
    Follows,
    FromNode,
    IsLost,
    Keep,
    MayStart,
    Ready,
    Report,
    Slept,
    Work,
)  # fmt: skip
from lowkiq.node.hook_calls import call_hook
from lowkiq.process.ending import run_exit_functions
from lowkiq.process.signals import outlast
from lowkiq.process.title import set_title
from lowkiq.queue.claims import Spoiled, load_all
from lowkiq.queue.shard import Shard
from lowkiq.settings import Settings
from lowkiq.worker import Worker

logger = get_logger()

#: Seconds for which the node's word that a batch may start holds.
SOON: Final = 0.02


def run(end: socket.socket, *, workers: Mapping[str, type[Worker]], settings: Settings, node: int) -> int:
    """Performs what comes from the node until it closes its end. Returns the exit code."""
    helper = HelperProcess(end, workers, settings, node)
    if not helper.begin():
        return 1
    code = helper.run()
    helper.end(code)
    return code


class HelperProcess:
    """Its main thread performs. Any thread of a job may ask the node, one at a time."""

    def __init__(self, end: socket.socket, workers: Mapping[str, type[Worker]], settings: Settings, node: int) -> None:
        self.channel: Channel[FromNode] = Channel(end, FromNode)
        self.asking = threading.Lock()
        self.settings = settings
        self._workers = workers
        self._performers: dict[str, Performer] = {}
        self._loop = LoopThread("lowkiq-helper-loop")
        #: The context variables that each batch begins with, and timers that it may use and leave behind.
        self._variables = Variables()
        self._timers: list[int] = []
        self._title = f"lowkiq: helper of node {node}"
        self._is_to_end = False

    def begin(self) -> bool:
        """Gets ready, and says so. False: it can't."""
        outlast()
        set_title(self._title)
        try:
            clean.call_init(self.settings.on_server_init, self._loop, self._variables)
        except Exception as error:  # noqa: BLE001 (it is the user's)
            self._refuse("on_server_init", error)
            return False
        self._timers = clean.stopped_timers()
        outlast()  # whatever the hook has set up: the node says when this ends
        self.channel.send(Ready())
        return True

    def _refuse(self, what: str, error: Exception) -> None:
        logger.exception("helper_refused", what=what)
        self.channel.send(Ready(f"{what}: {error_text(error, self.settings.format_error)}"))

    def run(self) -> int:
        """Performs until the node has no more for it."""
        while not self._is_to_end:
            try:
                work = self.channel.receive()
            except (EOFError, ConnectionResetError):
                return 0
            if isinstance(work, Work):
                heard_at = clock.monotonic()
                try:
                    performer = forks.run(self._performer, work.queue)
                except Exception as error:  # noqa: BLE001 (so is the worker)
                    self._refuse(f"worker {self._workers[work.queue].__name__}", error)
                    return 1
                performer.override(work.live)
                try:
                    ended = self._variables.copy().run(forks.run, self._perform, work, performer, heard_at)
                finally:
                    clean.stop_timers(self._timers)
                self._flush()
                self.channel.send(ended)
                telemetry.flush(self.settings.telemetry, 0)  # the node may kill this process when it likes
        return 0

    def end(self, code: int) -> None:
        """
        Has the application clean up, before this process ends with that code. Its node waits for that as long as it
        can, and then kills it.
        """
        hook = self.settings.on_server_stop
        call_hook("on_server_stop", hook and (lambda: self._loop.finish(hook())))
        self._loop.close()
        run_exit_functions(code, self.settings.drain_timeout)

    def _perform(self, work: Work, performer: Performer, heard_at: float) -> Ended:
        outlast()  # whatever a job before has set up
        set_title(f"{self._title}: {work.queue}")
        jobs = [row.job() for row in work.jobs]
        places = {job.id: place for place, job in enumerate(jobs)}
        spoiled = [row for job in jobs for row in load_all(job, performer.load, performer.check_id)]
        bad = {row.id for row in spoiled}
        batch = [job for job in jobs if job.id not in bad]
        failures: Failures | None = None
        if batch:
            here = HelperRun(self, work, performer.worker, batch, places, heard_at)
            bind_shard(here.shard, here.node)
            context = begin(here)
            if work.error and work.is_buried:
                performer.buried(batch, work.error.error())
            else:
                failures = performer.failures(batch, work.error.error()) if work.error else performer.perform(batch)
            context.end(None)
            here.end()
        set_title(self._title)
        counted = dict(performer.ledger.take().get(work.queue, {}))
        return _ended(work, failures or Failures(), spoiled, places, counted, is_last=self._is_to_end)

    def _performer(self, queue: str) -> Performer:
        if queue not in self._performers:
            self._performers[queue] = Performer(self._workers[queue](), self.settings, self._fatal, self._loop)
        return self._performers[queue]

    def _fatal(self, error: BaseException) -> None:
        """Ends this process, where another would end its node, once the batch is told of."""
        logger.warning("helper_stopped_by", error=error_text(error)[:300])
        self._is_to_end = True

    @staticmethod
    def _flush() -> None:
        """Flushes what jobs have printed: a process that is killed flushes nothing."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):  # there is none, or a job has closed it
                continue


class HelperRun:
    """A batch that runs here (context.py, Run): its node knows what this process can't."""

    def __init__(
        self,
        helper: HelperProcess,
        work: Work,
        worker: Worker,
        jobs: Sequence[Job],
        places: Mapping[str, int],
        heard_at: float,
    ) -> None:
        self._helper = helper
        self._places = places
        self.epoch = work.epoch
        self.node = work.node
        self.worker = worker
        self.shard = Shard(helper.settings.namespace, work.queue, work.shard, worker.shards_count)
        self.running = jobs
        self._heard_at = heard_at
        self._is_over = False

    def end(self) -> None:
        """Threads that outlive the batch can ask and tell nothing more."""
        with self._helper.asking:
            self._is_over = True

    @property
    def is_lost(self) -> bool:
        answer = self._ask(IsLost())
        return answer is None or answer.is_so

    def may_start(self) -> bool:
        """Asks the node, unless that has just said so: a worker, its payloads and its loop may have taken any time."""
        if clock.monotonic() - self._heard_at < SOON:
            return True
        answer = self._ask(MayStart())
        return answer is not None and answer.is_so

    @property
    def is_cancelled(self) -> bool:
        """Never: what is to stop is killed."""
        return False

    def report(self, progress: Progress) -> None:
        with self._helper.asking:
            if not self._is_over:
                self._helper.channel.send(Report(progress.share, progress.note))

    def keep(self, id: str, checkpoint: bytes) -> Awaitable[None]:
        answer = self._ask(Keep(self._places[id], checkpoint))
        if answer is None:
            raise CheckpointFailed("this run is over")
        if answer.error:
            raise answer.error.error()
        return Done()

    def _ask(self, question: IsLost | MayStart | Keep) -> Answer | None:
        with self._helper.asking:
            if self._is_over:
                return None
            self._helper.channel.send(question)
            answer = self._helper.channel.receive()
        return answer if isinstance(answer, Answer) else None


def _ended(
    work: Work,
    failures: Failures,
    spoiled: Sequence[Spoiled],
    places: Mapping[str, int],
    counted: dict[str, int],
    *,
    is_last: bool,
) -> Ended:
    limited = {row.id: row for row in failures.limited}
    return Ended(
        failed=[Failed(places[row.id], row.retry_count, row.delay, row.error) for row in failures.failed],
        buried=[Buried(places[row.id], row.error, row.fate) for row in failures.exhausted],
        spoiled=[
            BadPayload(places[row.id], work.jobs[places[row.id]].payloads.index(row.payload), row.error)
            for row in spoiled
        ],
        snoozed=[_slept(places[row.id], row.delay, limited.get(row.id)) for row in failures.snoozed],
        counted=counted,
        is_last=is_last,
        letters=[Follows(places[of], record) for of, record in failures.letters],
        is_unstarted=bool(failures.unstarted),
    )


def _slept(place: int, delay: float, limited: Limited | None) -> Slept:
    return Slept(place, delay, is_limited=limited is not None, key=limited.key if limited else None)
