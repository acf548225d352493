"""Batch: its last job runs once all that was pushed in it is done, and it is known what that is."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from lowkiq.after import names_in
from lowkiq.batch import Batch as RealBatch
from lowkiq.errors import BeingResharded, LowkiqError, Moved
from lowkiq.job import EncodedJob, NewJob, Pushed
from tests.pairs.jobs import QUEUE, SHARDS, Row
from tests.pairs.waiting import Waiting

LAST = "e"
OTHERS = ("a", "b", "c", "d")


class Batch(Waiting):
    name = "batch"
    queue_name = QUEUE  # of the worker, which it stands for as well
    steps = {"batch": 2, "open": 1, "push_in": 3, "close": 2, "relay": 3, "relay_all": 2, "ask_again": 1}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        super().begin(random)
        #: The batch that is open, and the ids that were pushed in it.
        self.open_one: RealBatch | None = None
        self.ids: set[str] = set()
        #: Its block has ended, and Redis has not been told so yet.
        self.is_closing = False
        self.random = random

    def batch(self, random: Random) -> None:
        """All of it in one step."""
        self.open(random)
        for _ in range(random.randint(1, 3)):
            self.push_in(random)
        self.close(random)

    def open(self, random: Random) -> None:
        if self.open_one is not None:
            return
        self.row = self.world.new_row(random, LAST)
        self.ids, self.is_closing = set(), False
        self.open_one = RealBatch(self, self, self, self.row.job, None)  # type: ignore[arg-type]
        try:
            self.open_one.__enter__()
        except LowkiqError as error:
            self.world.tell(f"no batch: {error}")
            self.open_one = None

    def push_in(self, random: Random) -> None:
        if self.open_one is not None and not self.is_closing:
            self.rows = [self.world.new_row(random, random.choice(OTHERS))]
            self.open_one.push(self, [{"id": row.id} for row in self.rows])  # type: ignore[arg-type]

    def close(self, random: Random) -> None:
        if self.open_one is not None:
            batch, self.open_one, self.is_closing = self.open_one, None, True
            for others in self._waiting(batch):
                others.update(self.ids)
            try:
                batch.__exit__(None, None, None)
            except (BeingResharded, Moved) as error:
                self.world.tell(f"close: {error}")
                self.open_one = batch
                return
            except LowkiqError as error:
                self.world.tell(f"close: {error}")
                assert not self._waiting(batch), f"batch: {LAST} waits for it, and it is refused"
                return
            self.world.tell(f"close {sorted(self.ids)}")
            for others in self._waiting(batch):
                others.discard(batch._name)
            self.look()

    def _waiting(self, batch: RealBatch) -> list[set[str]]:
        """What the last job waits for, queued or dead, if that is this batch among others."""
        kept = [self.state["kept"].get((name, LAST, "revived"), set()) for name in ("waits", "named")]
        every = [self.state[name].get(LAST, set()) for name in ("waits", "named")] + kept
        return [others for others in every if batch._name in others]

    def heal(self) -> None:
        for _ in range(3):
            self.close(Random(0))

    def free(self) -> None:
        """Somebody has it run which was put away as its batch ended, and is back: nobody else knows of it any more."""
        super().free()
        if any(one.startswith(":") for one in self.state["waits"].get(LAST, ())):
            self.world.act("stop_waiting", "held", [LAST])
            del self.state["waits"][LAST]

    # ── what the batch asks of the application ──────────────────────────────────────────────────────────────────────

    def push(self, *args: Any) -> Pushed:
        """Of the application a worker and jobs; of a producer the last job."""
        if len(args) == 1:
            (jobs,) = args
            self._queue_last(jobs[0])
        else:
            self.world.push_rows(self.rows)
            self.ids |= {row.id for row in self.rows}
        return Pushed(1, 0)

    def _queue_last(self, job: EncodedJob) -> None:
        self.world.producer.push([job])
        self.world.tell(f"open a batch: {LAST}={self.row.payload!r}, after {names_in(job.after)}")
        self.world.accept([self.row])
        self.wait_for(LAST, set(names_in(job.after)))

    def wait(self, job: EncodedJob, batch: str, others: list[str], *, is_all: bool) -> bool:
        found = self.world.producer._wait(job, batch, others, is_all=is_all)  # once: its patience is the real clock's
        self.world.tell(f"wait {others} {is_all=}: {found}")
        return found

    def name_of(self, worker: Any, id: Any) -> str:
        return f"{QUEUE} {SHARDS} {id}"

    def on_pushed(self, row: Row) -> None:
        """The world's own pushes of the last job wait with it."""

    def jobs(self, jobs: Iterable[NewJob]) -> list[NewJob]:
        return list(jobs)
