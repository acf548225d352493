"""Standing in: has a fake take the place of Redis in an application, until a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from lowkiq.app import Lowkiq
from lowkiq.job import EncodedJob, Pushed
from lowkiq.recurring import Recurring
from lowkiq.testing.fake import Fake
from lowkiq.worker import Worker

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
