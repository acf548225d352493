"""Burials: the thread of a node that has the application hear of jobs which deaths have buried (letters.lua)."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from lowkiq.errors import CheckpointFailed, LowkiqError, ProcessDied
from lowkiq.handlers.context import Progress, begin
from lowkiq.handlers.performer import Performer
from lowkiq.job import KEPT_BYTES, Job, parse_tags
from lowkiq.node.leases.lease import Lease
from lowkiq.node.mishaps import LastingThread
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import Call
from lowkiq.queue.claims import load_all
from lowkiq.queue.letters import Letter, Outbox
from lowkiq.queue.shard import Shard
from lowkiq.worker import Worker

#: Seconds after which what Redis would not answer for is looked at again.
AGAIN: Final = 1.0


class Burial(NamedTuple):
    """A job that deaths have buried, as a letter of a shard tells."""

    lease: Lease
    outbox: Outbox
    letter: Letter


class Burials(LastingThread):
    """
    Calls what there is for them, one after the other, in a helper where the node has such: what has killed processes
    may do so again. No job waits for it. The letter tells once a call has begun, so none is made twice.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__("lowkiq-burials", runtime.mishaps)
        self._runtime = runtime
        self._lock = threading.Lock()
        self._noted: SimpleQueue[Burial | None] = SimpleQueue()
        #: A call has begun, and has not ended.
        self.is_calling = False
        #: The letters that it has noted, and not yet acted on.
        self._names: set[bytes] = set()

    @property
    def is_busy(self) -> bool:
        """True while it has something to do."""
        return bool(self._names)

    def note(self, burial: Burial) -> None:
        """Has it act on a letter, which may be known to it already."""
        with self._lock:
            if burial.letter.name not in self._names:
                self._names.add(burial.letter.name)
                self._noted.put(burial)

    def stop(self) -> None:
        """Ends it once the application has heard of what was noted."""
        self._is_over.set()
        self._noted.put(None)

    def _work(self) -> None:
        while (burial := self._noted.get()) is not None:
            is_over = False
            try:
                is_over = self._act(burial)
            except RedisError as error:
                self._runtime.outage.met(error)
            except LowkiqError:  # it is another node's shard by now, and that one's to do
                is_over = True
            finally:
                if not is_over:
                    self._is_over.wait(AGAIN)
                self.is_calling = False
                with self._lock:
                    self._names.discard(burial.letter.name)
                self._runtime.letters.note(burial.lease)

    def _act(self, burial: Burial) -> bool:
        """Returns whether that is done with; else it is for later, or for the next owner of the shard."""
        lease, outbox, letter = burial
        performer = lease.suspects
        if letter.kind == b"buried" and performer.hears_of_burials:
            job = self._read(lease, letter.words[0])
            if job and not load_all(job, performer.load, performer.check_id):
                run = _Run(burial, self._runtime, performer.worker, [job], self._begin)
                if not lease.variables.copy().run(_tell, performer, run):
                    return False
        self._runtime.caller.run(outbox.become(letter, b""))
        return True

    def _begin(self) -> bool:
        self.is_calling = not self._is_over.is_set()
        return self.is_calling

    def _read(self, lease: Lease, id: bytes) -> Job | None:
        """The job, with payloads that are still to be loaded; None if somebody has taken it out of the morgue."""
        most = lease.performer.max_payloads
        (found,) = self._runtime.caller.run(
            Call("fetch", [lease.shard.prefix], ["morgue", most, "", id], list[list[Any] | None])
        )
        if not isinstance(found, list):
            return None
        at, _, error, _, _, tags, count, *rows = found
        scores = tuple(map(float, rows[1::3]))
        text = error.decode("utf-8", "replace")
        return Job(
            id.decode("utf-8", KEPT_BYTES), rows[::3], scores, float(at), -1, text, int(count), tags=parse_tags(tags)
        )


def _tell(performer: Performer, run: _Run) -> bool:
    """Returns whether that is done with; else it is for the next owner of the shard to do."""
    context = begin(run)
    try:
        return performer.buried(list(run.running), ProcessDied(run.running[0].error or ""))
    finally:
        context.end(None)


class _Run:
    """What is called for one burial, as a batch that runs (context.py, Run)."""

    def __init__(
        self, burial: Burial, runtime: Runtime, worker: Worker, jobs: Sequence[Job], begin: Callable[[], bool]
    ) -> None:
        self._burial, self._runtime, self._begin = burial, runtime, begin
        self.worker, self.running = worker, jobs
        self.node, self.epoch = runtime.node, burial.outbox.owner[1]

    @property
    def shard(self) -> Shard:
        return self._burial.lease.shard

    @property
    def is_lost(self) -> bool:
        return not self._burial.outbox.holds()

    @property
    def is_cancelled(self) -> bool:
        return self.is_lost

    def may_start(self) -> bool:
        """
        Notes in Redis that it begins; then nobody begins it again, so that is repeated until there is an answer. Raises
        LowkiqError.
        """
        outbox, letter = self._burial.outbox, self._burial.letter
        while self._begin() and not self.is_lost:
            try:
                self._runtime.caller.run(outbox.become(letter, letter.following))
            except RedisError as error:
                self._runtime.outage.met(error)
                time.sleep(AGAIN)
            else:
                return True
        return False

    def report(self, _progress: Progress) -> None:
        """Nobody is told: it is no run."""

    def keep(self, _id: str, _checkpoint: bytes) -> Awaitable[None]:
        raise CheckpointFailed("this run is over")
