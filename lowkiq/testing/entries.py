"""The ways into lowkiq.testing: fake, inline and perform. A fake stands in for Redis until a test is over."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from lowkiq.app import Lowkiq
from lowkiq.errors import short
from lowkiq.job import EncodedJob, Pushed, encode_jobs
from lowkiq.recurring import Recurring
from lowkiq.testing.clock import Clock
from lowkiq.testing.fake import Fake, Inline
from lowkiq.testing.outcome import Outcome
from lowkiq.worker import Target, Worker, worker_of

_ABSENT: Final = object()


@contextmanager
def standing_in(app: Lowkiq, fake: Fake) -> Iterator[None]:
    """Has the application push to the fake, after its middlewares and its validation, and reach no Redis."""
    instead = {
        "_producers": _Producers(app, fake),
        "_awaited": _Awaited(),
        "caller": fake._caller,
        "recurring": Recurring(app, fake._recurring),
    }
    attributes = vars(app)
    before = {name: attributes.get(name, _ABSENT) for name in instead}
    attributes.update(instead)
    try:
        yield
    finally:
        for name, value in before.items():
            attributes.pop(name) if value is _ABSENT else attributes.update({name: value})


class _Producer:
    """Stands in for a queue's Producer."""

    def __init__(self, fake: Fake, worker: type[Worker[Any]]) -> None:
        self._fake, self._worker = fake, worker

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed:
        return self._fake._push(self._worker, jobs)

    def wait(self, job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool) -> bool:
        return self._fake._wait(self._worker, job, batch, others, is_all=is_all)

    async def apush(self, jobs: Sequence[EncodedJob]) -> Pushed:
        return await self._fake._apush(self._worker, jobs)


class _Producers(dict[str, Any]):
    """Stands in for an application's producers, by queue."""

    def __init__(self, app: Lowkiq, fake: Fake) -> None:
        super().__init__()
        self._app, self._fake = app, fake

    def get(self, queue: str, default: Any = None) -> Any:  # noqa: ARG002 (as of a dict)
        return _Producer(self._fake, self._app.workers[queue])


class _Awaited:
    """Stands in for the awaited pushes of all event loops."""

    def current(self) -> _Awaited:
        return self

    async def push(
        self, producer: _Producer, jobs: Sequence[Any], encode: Callable[[Sequence[Any]], list[EncodedJob]]
    ) -> Pushed:
        return await producer.apush(encode(jobs))

    async def end(self) -> None:
        """Has nothing to wait for."""

    def close(self) -> None:
        """Has no connections to close."""


@contextmanager
def fake(app: Lowkiq, *, at: float | datetime.datetime | None = None) -> Iterator[Fake]:
    """
    Collects what an application's workers are pushed, without a Redis: `with testing.fake(app) as jobs:`. It is
    validated and merged as ever; `jobs.drain()` performs it.

    Args:
        at: the time at which its clock stands still, but for `drain`: a Unix time, or a datetime with a time zone.
            None: that of this machine, which it follows as jobs are pushed.
    """
    with _stood_in(app, Fake(app, Clock(at))) as jobs:
        yield jobs


@contextmanager
def inline(app: Lowkiq) -> Iterator[Fake]:
    """
    Performs what an application's workers are pushed at once, in the thread that pushes, without a Redis. What is
    awaited runs on the event loop that awaits it. Nothing waits: neither for a delay, nor for more pushes. A job that
    fails raises its error out of the push.
    """
    with _stood_in(app, Inline(app, Clock())) as jobs:
        yield jobs


def perform(
    worker: Target, id: str | int, payloads: Iterable[Any], *, attempt: int = 1, tags: Iterable[str] = ()
) -> Outcome:
    """
    Performs one job, as a node would, and tells what becomes of it: `testing.perform(sync, 17, [change]).retry_in`. It
    raises nothing that perform raises. What perform pushes goes where the application pushes to: that of a `fake`, if
    this is inside one.

    Args:
        payloads: one or more, from low to high score.
        attempt: 1 for the first run, 2 for the first retry, and so on.

    Raises:
        InvalidJob: no push would take this.
    """
    alone = _Alone(worker, id, payloads, attempt, tags)
    try:
        return next(iter(alone.jobs._node.drain(alone.jobs._clock.now)))
    finally:
        alone.jobs._close()


async def aperform(
    worker: Target, id: str | int, payloads: Iterable[Any], *, attempt: int = 1, tags: Iterable[str] = ()
) -> Outcome:
    """The same, awaited: a coroutine of a worker runs on the event loop of the test."""
    alone = _Alone(worker, id, payloads, attempt, tags)
    try:
        return (await alone.jobs.adrain())[0]
    finally:
        alone.jobs._close()


@contextmanager
def _stood_in(app: Lowkiq, jobs: Fake) -> Iterator[Fake]:
    try:
        with standing_in(app, jobs):
            yield jobs
    finally:
        jobs._close()


class _Alone:
    """A job that is due, in a fake that nobody pushes to."""

    def __init__(
        self, target: Target, id: str | int, payloads: Iterable[Any], attempt: int, tags: Iterable[str]
    ) -> None:
        worker = worker_of(target)
        app = worker.registered_app()
        assert isinstance(app, Lowkiq)  # noqa: S101 (no other kind registers workers)
        if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
            raise ValueError(f"attempt is {short(attempt)}, it must be 1 or more")
        more = {"tags": tags if isinstance(tags, str) else [*tags]} if tags else {}
        given = [{"id": id, "payload": payload, **more} for payload in _listed(payloads)]
        encoded = encode_jobs(
            given,
            worker.codec.dump,
            dump_id=worker.codec.dump_id,
            fair_by=worker.fair_by,
            max_id_bytes=app.settings.max_id_bytes,
            max_payload_bytes=app.settings.max_payload_bytes,
        )
        self.jobs = Fake(app, Clock())
        queue = self.jobs._queue_of(worker)
        queue.push(encoded)
        queue.note_attempt(encoded[0].id, attempt)


def _listed(payloads: Iterable[Any]) -> list[Any]:
    if isinstance(payloads, str | bytes) or not isinstance(payloads, Iterable):
        raise TypeError(f"payloads are a list, not {short(payloads)}: wrap it in [ ]")
    if not (found := [*payloads]):
        raise ValueError("payloads are none: a job has at least one")
    return found
