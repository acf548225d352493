"""Fake: what an application has pushed while a test runs, what of it is queued, and what becomes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from lowkiq.admin.jobs.queries import Queries
from lowkiq.app import Lowkiq
from lowkiq.errors import LowkiqError, short
from lowkiq.job import EncodedJob, Job, Pushed, due_word, encode_id
from lowkiq.testing.caller import FakeCaller
from lowkiq.testing.clock import Clock, Moment
from lowkiq.testing.following import Following
from lowkiq.testing.model.shard_state import SECOND
from lowkiq.testing.node import FakeNode
from lowkiq.testing.outcome import Outcome
from lowkiq.testing.queues import FakeQueue, Push
from lowkiq.testing.recurring import FakeEntries
from lowkiq.worker import Target, Worker, worker_of

_ANY: Final[Any] = object()
#: More than there can be.
_ALL: Final = 2**63 - 1
#: Pushes that a failed assertion shows.
_SHOWN: Final = 10


class Fake:
    """Takes the pushes of one application. Made by `fake` and `inline`."""

    def __init__(self, app: Lowkiq, clock: Clock) -> None:
        if not isinstance(app, Lowkiq):
            raise LowkiqError(f"{short(app)} is no application: give the Lowkiq(…) that workers are registered with")
        self._app, self._clock = app, clock
        self._queues: dict[str, FakeQueue] = {}
        self._following = Following(self._queues, self._follow)
        self._recurring = FakeEntries(self._follow, app.workers, app._declared, clock)
        self._caller = FakeCaller(app, clock, self._queues, self._queue_of, self._acted)
        self._node = FakeNode(app.settings, clock, self._queues, self._following, self._recurring)

    @property
    def now(self) -> float:
        """The time, as a Unix time: by a clock of its own, which `drain` moves on."""
        return self._clock.now / SECOND

    def pushed(self, worker: Target) -> list[Push]:
        """Payloads that were pushed to a worker, the first first, whatever has become of them."""
        return [push for _, push in self._queue_of(worker).pushed()]

    def pending(self, worker: Target) -> list[Job]:
        """The jobs that are queued, as `queries` would find them: the one that is due first is first."""
        return self._queries(worker).range_by_perform_in(limit=_ALL)

    def morgue(self, worker: Target) -> list[Job]:
        """The jobs that were buried, the first first."""
        return self._queries(worker).morgue_range_by_updated_at(limit=_ALL)

    def assert_pushed(
        self,
        worker: Target,
        *,
        id: Any = _ANY,
        payload: Any = _ANY,
        at: Any = _ANY,
        delay: Any = _ANY,
        times: int | None = None,
    ) -> None:
        """
        Asserts that something was pushed to a worker.

        Args:
            id: to this id.
            payload: equal to this one, as it would be stored.
            at, delay: due then, as the push has said; None: it has not said so.
            times: exactly so often. None: at least once.

        Raises:
            AssertionError: it was not; it shows what was.
        """
        found = self._found(worker, id, payload, at=at, delay=delay)
        if len(found) != times if times is not None else not found:
            raise AssertionError(self._unlike(worker, found, times, id=id, payload=payload, at=at, delay=delay))

    def assert_not_pushed(
        self, worker: Target, *, id: Any = _ANY, payload: Any = _ANY, at: Any = _ANY, delay: Any = _ANY
    ) -> None:
        """Asserts that no such push was made, as `assert_pushed` tells it. Raises AssertionError."""
        self.assert_pushed(worker, id=id, payload=payload, at=at, delay=delay, times=0)

    def drain(self, until: Moment | None = None, *, only: Iterable[Target | str] | None = None) -> list[Outcome]:
        """
        Runs what is due, and what comes to be due while it does: in order of time, retries included.

        Args:
            until: the moment to which time goes on: "+1h30m", a timedelta, a datetime or a Unix time. None: it stands
                still.
            only: workers, or names of queues, whose jobs run; those of others stay queued, while time goes on for all.
                None: every worker.

        Returns:
            what became of each job that ran, in order.

        Raises:
            ValueError: `until` is no moment, or is over.
            LowkiqError: it finds no end: a job pushes itself, say; or `only` has what is no worker of the application.
            BaseException: what would have stopped a node: pytest.fail, say, is no Exception.
        """
        return list(self._node.drain(self._clock.moment(until), self._names(only)))

    async def adrain(self, until: Moment | None = None, *, only: Iterable[Target | str] | None = None) -> list[Outcome]:
        """The same, awaited: coroutines of workers run on the event loop of the test."""
        return await self._node.adrain(self._clock.moment(until), self._names(only))

    def _names(self, only: Iterable[Target | str] | None) -> Collection[str] | None:
        if only is None:
            return None
        if isinstance(only, type | str | bytes) or not isinstance(only, Iterable):
            raise LowkiqError(f"only is {short(only)}, it is a list of workers: only=[…]")
        workers = self._app.workers
        found: list[Any] = [workers.get(one, one) if isinstance(one, str) else one for one in only]
        return {self._queue_of(one).worker.queue_name for one in found}

    def _acted(self) -> None:
        """Somebody has acted on jobs."""

    def _queries(self, target: Target) -> Queries:
        """With payloads as perform is given them, and all of them."""
        queue, settings = self._queue_of(target), self._app.settings
        return Queries(
            self._caller,
            queue.shards,
            load_payload=queue.worker.codec.load,
            load_error=settings.load_error,
            max_id_bytes=settings.max_id_bytes,
            max_payloads=_ALL,
        )

    def _push(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> Pushed:
        """Takes validated jobs."""
        queue = self._queue_of(worker)
        pushed = queue.push(jobs)
        for job in jobs:
            self._following.note(queue, job)
        return pushed

    async def _apush(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> Pushed:
        return Fake._push(self, worker, jobs)

    def _wait(
        self, worker: type[Worker[Any]], job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool
    ) -> bool:
        """As Producer.wait."""
        return self._following.wait(worker.queue_name, job, batch, others, is_all=is_all)

    def _follow(self, queue: str, job: EncodedJob) -> None:
        """Takes a job that follows from another one, or recurs."""
        Fake._push(self, self._app.workers[queue], [job])

    def _close(self) -> None:
        self._node.close()

    def _queue_of(self, target: Target) -> FakeQueue:
        worker = worker_of(target)
        if self._app.workers.get(worker.queue_name) is not worker:
            raise LowkiqError(f"{worker.__name__} is a worker of another application than this fake's")
        known = self._queues.get(worker.queue_name)
        # Of two threads that make it at once both get the same.
        return known or self._queues.setdefault(
            worker.queue_name, FakeQueue(worker, self._app.settings, self._clock)
        )  # fmt: skip

    def _found(self, target: Target, id: Any, payload: Any, **due: Any) -> list[Push]:
        worker, settings = worker_of(target), self._app.settings
        dump_id = worker.codec.dump_id
        known = None if id is _ANY else encode_id(dump_id(id) if dump_id else id, settings.max_id_bytes)
        dumped = None if payload is _ANY else worker.codec.dump(payload)
        data = dumped.encode() if isinstance(dumped, str) else dumped
        return [
            push
            for job, push in self._queue_of(worker).pushed()
            if known in {None, job.id} and data in {None, job.payload} and _is_due(job, push, due)
        ]

    def _unlike(self, target: Target, found: Sequence[Push], times: int | None, **wanted: Any) -> str:
        told = ", ".join(f"{name}={short(value, 200)}" for name, value in wanted.items() if value is not _ANY)
        pushes = self.pushed(target)
        lines = [
            f"  id={push.id!r}, payload={short(push.payload, 200)}"
            + "".join(f", {key}={value:.15g}" for key in ("at", "delay") if (value := getattr(push, key)))
            for push in pushes[:_SHOWN]
        ]
        more = [f"  and {len(pushes) - _SHOWN:,} more"] if len(pushes) > _SHOWN else []
        often = "" if times is None else f", {times} times" if times else ", never"
        queue = worker_of(target).queue_name
        head = f"{queue}: expected a push of {told or 'anything'}{often}, and there were {len(found)}"
        return "\n".join([head, *(["all pushes:", *lines, *more] if lines else ["nothing was pushed to it"])])


class Inline(Fake):
    """Performs what is pushed at once. A job that fails raises its error out of the push."""

    def _push(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> Pushed:
        pushed = super()._push(worker, jobs)
        _raise_first_error([*self._node.drain(self._due_now(worker, jobs))])
        return pushed

    async def _apush(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> Pushed:
        pushed = await super()._apush(worker, jobs)
        _raise_first_error(await self._node.adrain(self._due_now(worker, jobs)))
        return pushed

    def _wait(
        self, worker: type[Worker[Any]], job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool
    ) -> bool:
        waits = super()._wait(worker, job, batch, others, is_all=is_all)
        if is_all:  # the end of the batch's block: what was pushed in it has run
            self._following.let_go()
            _raise_first_error([*self._node.drain(self._due_now(worker, [job]))])
        return waits

    def _acted(self) -> None:
        _raise_first_error([*self._node.drain(self._clock.now)])

    def _follow(self, queue: str, job: EncodedJob) -> None:
        super()._follow(queue, job)
        self._due_now(self._app.workers[queue], [job])

    def _due_now(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> int:
        """Has jobs with a time of their own be due at once, too: nothing here waits."""
        queue = self._queue_of(worker)
        for id in dict.fromkeys(job.id for job in jobs):
            queue.perform_now(id)
        return self._clock.now


def _is_due(job: EncodedJob, push: Push, due: dict[str, Any]) -> bool:
    """Returns whether a push has said that it is due then; None: that it has not."""
    return all(
        value is _ANY or (getattr(push, key) is None if value is None else job.perform_in == due_word({key: value}))
        for key, value in due.items()
    )


def _raise_first_error(outcomes: Sequence[Outcome]) -> None:
    """Raises the error of the first job that has failed, once all have run."""
    for outcome in outcomes:
        if outcome.failed:
            error = outcome.error
            raise error if isinstance(error, BaseException) else LowkiqError(f"job {short(outcome.id)} failed: {error}")
