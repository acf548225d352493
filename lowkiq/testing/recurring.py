"""FakeEntries: the recurring jobs of a fake, those of the code among them, and what fires of them as time goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lowkiq.admin.pauses import parse_pause
from lowkiq.admin.recurring import Change, RecurringJob
from lowkiq.errors import unknown_queue
from lowkiq.job import KEPT_BYTES, EncodedJob
from lowkiq.queue.recurring import Entry
from lowkiq.recurring import Declared
from lowkiq.testing.clock import Clock
from lowkiq.testing.model.shard_state import SECOND
from lowkiq.worker import Worker


@dataclass(slots=True)
class _Kept:
    """An entry. `next_at` is in microseconds; None: it is paused."""

    entry: Entry
    next_at: int | None
    last_at: float | None = None


class FakeEntries:
    """
    Args:
        push: queues a validated job, of the worker with that queue.
        workers: those of the application, by queue.
        declared: the jobs that recur, as the code has them.
    """

    def __init__(
        self,
        push: Callable[[str, EncodedJob], object],
        workers: dict[str, type[Worker[Any]]],
        declared: Sequence[Declared],
        clock: Clock,
    ) -> None:
        self._push, self._workers, self._clock = push, workers, clock
        self._declared, self._began = declared, clock.now
        #: How many of the declared ones are here: more may be declared while the test runs.
        self._taken = 0
        self._entries: dict[tuple[str, bytes], _Kept] = {}

    def now(self) -> float:
        return self._clock.tick() / SECOND

    def open(self, worker: type[Worker[Any]]) -> None:
        """Has no queues to make known."""

    def read(self, queue: str, id: bytes) -> Entry | None:
        self._check(queue)
        kept = self._all().get((queue, id))
        return kept.entry if kept else None

    def change(self, queue: str, id: bytes, change: Change) -> bool:
        known = self.read(queue, id)
        made = change(known)
        if made == known:
            return False
        if made is None:
            del self._entries[queue, id]
            return True
        last_at = self._entries[queue, id].last_at if known else None
        next_at = None if made.paused else _microseconds(made.rule.after(self.now()))
        self._entries[queue, id] = _Kept(made, next_at, last_at)
        return True

    def note(self, queue: str, id: bytes, what: str, who: str) -> None:
        """Does nothing: nobody looks."""

    def list(self, queue: str | None) -> Iterable[RecurringJob]:
        if queue is not None:
            self._check(queue)
        return [_shown(name, id, kept) for (name, id), kept in self._all().items() if queue in {None, name}]

    def fire(self, until: int) -> int | None:
        """Pushes the job that is due first, if it is due by then. Returns when it was."""
        found = [
            (kept.next_at, queue, id) for (queue, id), kept in self._all().items() if kept.next_at is not None
        ]  # fmt: skip
        at, queue, id = min(found, default=(until + 1, "", b""))
        if at > until:
            return None
        kept, seconds = self._entries[queue, id], at / SECOND
        worker = self._workers[queue]
        kept.next_at, kept.last_at = _microseconds(kept.entry.rule.after(seconds)), seconds
        self._push(queue, kept.entry.job(id, seconds, worker.codec, worker.fewer))
        return at

    def _check(self, queue: str) -> None:
        if queue not in self._workers:
            raise unknown_queue(queue, self._workers)

    def _all(self) -> dict[tuple[str, bytes], _Kept]:
        """The entries, with what has been declared by now."""
        for row in self._declared[self._taken :]:
            entry = Entry(row.rule, row.job.payload, "code", tenant=row.job.tenant)
            first = _microseconds(row.rule.after(self._began / SECOND))
            self._entries[row.worker.queue_name, row.job.id] = _Kept(entry, first)
        self._taken = len(self._declared)
        return self._entries


def _microseconds(at: float) -> int:
    return round(at * SECOND)


def _shown(queue: str, id: bytes, kept: _Kept) -> RecurringJob:
    entry = kept.entry
    return RecurringJob(
        queue,
        id.decode("utf-8", KEPT_BYTES),
        entry.rule,
        entry.origin,
        None if kept.next_at is None else kept.next_at / SECOND,
        kept.last_at,
        parse_pause([], "", entry.paused) if entry.paused else None,
        entry.payload,
    )
