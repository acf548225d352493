"""The ways into lowkiq.testing: fake, inline and perform."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lowkiq.app import Lowkiq
from lowkiq.errors import short
from lowkiq.job import encode_jobs
from lowkiq.testing.clock import Clock
from lowkiq.testing.fake import Fake, Inline
from lowkiq.testing.outcome import Outcome
from lowkiq.testing.standing_in import standing_in
from lowkiq.worker import Target, worker_of


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
