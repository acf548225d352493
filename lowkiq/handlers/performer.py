"""Performer: calls a worker's `perform` with a batch, inside the middlewares, and catches whatever it raises."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lowkiq.codec import error_text
from lowkiq.errors import Decision, PartialFailure, PerformTimeout
from lowkiq.handlers import forks, middlewares
from lowkiq.handlers.context import in_hooks, shard_here, start_here, with_letters
from lowkiq.handlers.ledger import Ledger
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.retries import Failures, Retries, loggable
from lowkiq.handlers.start import NotStarted, Start
from lowkiq.handlers.stop import Stop
from lowkiq.hooks import Fatal
from lowkiq.job import Job
from lowkiq.log import get_logger
from lowkiq.options import LIVE
from lowkiq.policies import fewest_retries, without_limits
from lowkiq.rate import Rate, parse_rate
from lowkiq.settings import Settings
from lowkiq.telemetry import make_telemetry
from lowkiq.worker import Worker

logger = get_logger()

_UNTOLD: Final = contextlib.nullcontext()
#: Options that can be others than the code's while it runs.
OVERRIDDEN: Final = tuple(name for name in LIVE if hasattr(Worker, name))


class Performer:
    """
    Runs batches of one worker, for all threads and tasks. It calls `fatal` with what stops the node, which is no
    Exception. On `loop` run coroutines: those of an async worker, and of async middlewares around any.
    """

    def __init__(
        self, worker: Worker, settings: Settings, fatal: Fatal, loop: LoopThread, ledger: Ledger | None = None
    ) -> None:
        self.worker = worker
        self._call = worker.shape.bind(worker)
        #: Its perform takes an id at a time.
        self.takes_one = worker.shape.is_one
        #: Its batches run as tasks on the loop.
        self.is_async = worker.shape.is_async
        self._middlewares = tuple(settings.server_middlewares)
        self._telemetry = make_telemetry(settings.telemetry)
        #: Where what fails of it is counted.
        self.ledger = ledger or Ledger()
        self._retries = Retries(worker, settings, fatal, loop, self.ledger)
        #: Its options as the code has them.
        self._own = {name: getattr(worker, name) for name in (*OVERRIDDEN, "retry")}
        #: What people have set of what decides on failures.
        self.live: dict[str, Any] = {}
        self._fatal = fatal
        #: Where its coroutines run.
        self.loop = loop
        #: Payloads of an id that it gets at most.
        self.max_payloads = min(worker.max_payloads or settings.max_payloads, settings.max_payloads)
        #: Bytes → payload.
        self.load = worker.codec.load
        #: Raises for an id that is not of the worker's type; None where ids stay texts.
        self.check_id = worker.codec.check_id
        #: To load a payload runs code of the user's, which may kill the node.
        self.is_loaded_by_user = worker.codec.runs_user_code
        self._fewest_retries = fewest_retries(worker.retry, worker.max_retry_count)
        self._has_hook = type(worker).retries_exhausted is not Worker.retries_exhausted
        self._has_slow_hooks = self._has_hook or type(worker).retry_in is not Worker.retry_in
        # Somebody looks at jobs after perform, which may do with its lists what it likes: it gets copies then.
        is_watched = self._has_hook or bool(self._middlewares) or settings.telemetry
        #: The worker's perform itself where nobody watches: to call it is then all there is to do.
        self.plain = None if is_watched or self.is_async else worker.shape.bind_plain(worker)
        #: It is performed in the process of the node, which may die of it.
        self.is_in_node = True

    def override(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Has the worker have these options, and all others as its code says. Returns those that it can't have."""
        ignored = {"batch_size": options["batch_size"]} if self.takes_one and "batch_size" in options else {}
        live = dict(options)
        if options.get("rate"):
            own: Rate | None = self._own["rate"]
            live["rate"] = replace(parse_rate("live", options["rate"]), by=own.by if own else None)
        if "max_retry_count" in options:
            live["retry"] = without_limits(self._own["retry"])
        for worker in (self.worker, self._retries.worker):
            for name, value in self._own.items():
                setattr(worker, name, value if name in ignored else live.get(name, value))
        self.live = {name: live[name] for name in ("max_retry_count", "when_exhausted") if name in live}
        self._fewest_retries = fewest_retries(self.worker.retry, self.worker.max_retry_count)
        return ignored

    def perform(self, batch: list[Job]) -> Failures | None:
        """
        Performs a batch inside the middlewares. Returns what failed of it, and what follows from the rest; None when
        all is done, and nothing follows. Raises nothing.
        """
        return with_letters(self._perform(batch))

    def _perform(self, batch: list[Job]) -> Failures | None:
        try:
            if self.is_async:
                return self.loop.call(asyncio.wait_for(self._perform_async(batch), self.worker.perform_timeout))
            call = partial(self._call_and_check, self._payloads(batch))
            with self._told_of(batch):
                middlewares.around(self._middlewares, self.worker, list(batch), call, self.loop, start_here())()
        except NotStarted:
            return Failures(unstarted=[job.id for job in batch])
        except TimeoutError as error:
            return self.failures(batch, self.timed_out() if self.is_async else error)
        except BaseException as error:  # noqa: BLE001 (whatever user code raises fails its batch)
            return self.failures(batch, error)
        return None

    def judge(self, batch: list[Job], result: object) -> Failures | None:
        """Outcome of a batch for which `plain` has returned something: mostly it is done."""
        try:
            _require_no_coroutine(result)
        except TypeError as error:
            return self.failures(batch, error)
        return None

    async def perform_async(self, batch: list[Job]) -> Failures | None:
        """Performs a batch of an async worker, on the event loop. Raises only what cancels it."""
        return with_letters(await self._perform_async(batch))

    async def _perform_async(self, batch: list[Job]) -> Failures | None:
        fork = forks.number
        try:
            call = partial(self._call, self._payloads(batch))
            with self._told_of(batch):
                await middlewares.around_async(self._middlewares, self.worker, list(batch), call, start_here())()
        except NotStarted:
            return Failures(unstarted=[job.id for job in batch])
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if forks.is_thrown_away(error):
                raise
            forks.check(fork, error)
            return await self.failures_async(batch, error)
        return None

    async def failures_async(self, batch: list[Job], error: BaseException) -> Failures:
        """As `failures`, on the event loop: hooks of the user's, which may block, run in a thread."""
        if self._has_slow_hooks:
            return await asyncio.to_thread(self.failures, batch, error)
        return self.failures(batch, error)

    def failures(self, batch: list[Job], error: BaseException) -> Failures:
        """The jobs of a batch that have failed when perform raises this. What is no Exception also stops the node."""
        with in_hooks():
            try:
                return self._failures(batch, error)
            except BaseException as broken:  # noqa: BLE001 (an error, and the ids that it names, may be anything)
                told = f"{error_text(error)} (and what becomes of that could not be told: {error_text(broken)})"
                return self._failed(batch, told)

    def _failures(self, batch: list[Job], error: BaseException) -> Failures:
        if isinstance(error, PartialFailure):
            return self._partly_failed(batch, error.errors)
        if not isinstance(error, Exception | asyncio.CancelledError):
            self._fatal(error)  # reaches last_words, by way of the main thread
        return self._failed(batch, error)

    def timed_out(self) -> PerformTimeout:
        """The error of a batch that was stopped because of its worker's perform_timeout."""
        return PerformTimeout(f"took longer than {self.worker.perform_timeout:g} s")

    def stopped(self, batch: list[Job], reason: Stop, cancelled: Collection[str]) -> Failures:
        """The jobs of a batch that are not done when it was stopped. Those that were cancelled are done with."""
        if reason is Stop.TIMED_OUT:
            return self.failures(batch, self.timed_out())
        going_back = [job.id for job in batch if job.id not in cancelled]
        if reason is Stop.CANCELLED:
            ids = [job.id for job in batch if job.id in cancelled]
            logger.info("jobs_cancelled", queue=self.worker.queue_name, ids=loggable(ids), released=len(going_back))
        return Failures(released=going_back)

    @property
    def hears_of_burials(self) -> bool:
        """Something of the application's is to be called for jobs that deaths have buried."""
        return self._has_hook or bool(self._middlewares)

    def buried(self, batch: list[Job], error: Exception) -> bool:
        """
        Has the application hear of jobs that deaths have buried: middlewares see the error in place of a `perform`,
        which is not called, and `retries_exhausted` is called as ever. False: the run that begins here may not start.
        """
        start = start_here()
        try:
            start()
        except NotStarted:
            return False
        for job in batch:
            job.error = str(error)
        with in_hooks():
            self._raise_through_middlewares(batch, error, start)
            self._retries.call_retries_exhausted(batch)
        return True

    def _raise_through_middlewares(self, batch: list[Job], error: Exception, start: Start) -> None:
        try:
            if self.is_async:
                fails = partial(_raise_async, error)
                self.loop.finish(middlewares.around_async(self._middlewares, self.worker, batch, fails, start)())
            else:
                raises = partial(_raise, error)
                middlewares.around(self._middlewares, self.worker, batch, raises, self.loop, start)()
        except BaseException as raised:  # noqa: BLE001 (mostly the error itself)
            if not isinstance(raised, Exception | asyncio.CancelledError):
                self._fatal(raised)

    def _told_of(self, batch: list[Job]) -> AbstractContextManager[None]:
        """The span of a batch, where somebody wants it."""
        if self._telemetry is None:
            return _UNTOLD
        return self._telemetry.perform(self.worker.queue_name, batch, shard_here())

    def _call_and_check(self, payloads_by_id: dict[str, list[Any]]) -> Any:
        result = self._call(payloads_by_id)
        _require_no_coroutine(result)
        return result

    def _payloads(self, batch: list[Job]) -> dict[str, list[Any]]:
        return {job.id: self._copy(job) for job in batch}

    def _copy(self, job: Job) -> list[Any]:
        """The payloads of a job; if `retries_exhausted` may be next to see them, with all that is in them."""
        if self._has_hook and job.retry_count + 1 >= self._fewest_retries:
            with contextlib.suppress(Exception):  # load_payload may make what can't be copied
                return copy.deepcopy(job.payloads)
        return job.payloads.copy()

    def _text(self, id: Any) -> str:
        """An id, as perform was given it, as Redis has it."""
        with contextlib.suppress(Exception):  # it may be anything
            if self.worker.codec.dump_id:
                return self.worker.codec.dump_id(id)
        return str(id)

    def _failed(self, batch: list[Job], error: BaseException | str) -> Failures:
        return self._retries.decide(batch, dict.fromkeys((job.id for job in batch), error))

    def _partly_failed(self, batch: list[Job], errors: dict[str, BaseException | str]) -> Failures:
        errors = {self._text(id): error for id, error in errors.items()}
        strangers = errors.keys() - {job.id for job in batch}
        if strangers:
            logger.warning(
                "partial_failure_of_unknown_ids", queue=self.worker.queue_name, ids=loggable(sorted(strangers))
            )
        if errors and len(strangers) == len(errors):
            # Something failed, and none of it is known here: better to run all again than to lose what it was.
            first = next(iter(errors.values()))
            return self._failed(batch, str(first) if isinstance(first, Decision) else first)
        return self._retries.decide(batch, errors)


def _raise(error: Exception) -> None:
    raise error


async def _raise_async(error: Exception) -> None:
    raise error


def _require_no_coroutine(result: object) -> None:
    """Raises TypeError for a coroutine that nobody runs: it must not be taken for work done."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("perform returned a coroutine, which nobody awaits: make it `async def`")
