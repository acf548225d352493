"""Following: what follows in a fake from jobs that are done, and those that wait for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lowkiq.after import OPEN, names_in, part_name
from lowkiq.job import KEPT_BYTES, EncodedJob
from lowkiq.queue.letters import Letter
from lowkiq.testing.queues import FakeQueue, Waiting


class Following:
    """
    Args:
        push: queues a validated job, of the worker with that queue.
    """

    def __init__(self, queues: Mapping[str, FakeQueue], push: Callable[[str, EncodedJob], object]) -> None:
        self._queues, self._push = queues, push

    def follow(self, letters: Iterable[tuple[str, bytes]]) -> None:
        """Pushes what follows from jobs that are done."""
        for _, record in letters:
            letter = Letter.parse(b"", b"", record)
            self._push(letter.queue, letter.job)

    def note(self, queue: FakeQueue, job: EncodedJob) -> None:
        """Notes a pushed job that waits for others, if it does, and holds it."""
        if names := names_in(job.after):
            queue.wait(job.id.decode("utf-8", KEPT_BYTES), Waiting(dict.fromkeys(names)))

    def wait(self, queue: str, job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool) -> bool:
        """As Producer.wait."""
        known = self._queues.get(queue)
        waiting = known and known.waits.get(job.id.decode("utf-8", KEPT_BYTES))
        if not waiting or batch not in waiting.names:
            return False
        waiting.names.update(dict.fromkeys(others))
        if is_all:
            del waiting.names[batch]
        return True

    def let_go(self) -> None:
        """Has those run that wait for nothing any more."""
        for queue in [*self._queues.values()]:
            queue.let_go(self._is_here)

    def _is_here(self, name: str) -> bool:
        """True while something of an id is queued, runs or is in the morgue; of a batch, while it is open."""
        if name.startswith(OPEN):
            return True
        queue, id = part_name(name)
        return queue in self._queues and self._queues[queue].has(id)
