"""Following: what follows in a fake from jobs that are done, and those that wait for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lowkiq.after import OPEN, names_in, part_name
from lowkiq.job import KEPT_BYTES, EncodedJob
from lowkiq.queue.letters import Letter
from lowkiq.testing.queues import FakeQueue


class Following:
    """
    Args:
        push: queues a validated job, of the worker with that queue.
    """

    def __init__(self, queues: Mapping[str, FakeQueue], push: Callable[[str, EncodedJob], object]) -> None:
        self._queues, self._push = queues, push
        #: A queue and an id that waits → "queue shards_count id" of those that it waits for.
        self._waits: dict[tuple[str, str], dict[str, None]] = {}

    def follow(self, letters: Iterable[tuple[str, bytes]]) -> None:
        """Pushes what follows from jobs that are done."""
        for _, record in letters:
            letter = Letter.parse(b"", b"", record)
            self._push(letter.queue, letter.job)

    def note(self, queue: FakeQueue, job: EncodedJob) -> None:
        """Notes a pushed job that waits for others, if it does, and holds it."""
        names = names_in(job.after)
        if names:
            id = job.id.decode("utf-8", KEPT_BYTES)
            self._waits.setdefault((queue.worker.queue_name, id), {}).update(dict.fromkeys(names))
            queue.hold(id)

    def wait(self, queue: str, job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool) -> bool:
        """As Producer.wait."""
        names = self._waits.get((queue, job.id.decode("utf-8", KEPT_BYTES)))
        if names is None or batch not in names:
            return False
        names.update(dict.fromkeys(others))
        if is_all:
            del names[batch]
        return True

    def let_go(self) -> None:
        """Has those run that wait for nothing any more."""
        for (queue, id), names in list(self._waits.items()):
            for name in [name for name in names if not self._is_here(name)]:
                del names[name]
            if not names:
                del self._waits[queue, id]
                self._queues[queue].let_go(id)

    def _is_here(self, name: str) -> bool:
        """True while something of an id is queued, runs or is in the morgue; of a batch, while it is open."""
        if name.startswith(OPEN):
            return True
        queue, id = part_name(name)
        return queue in self._queues and self._queues[queue].has(id)
