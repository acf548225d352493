"""Recurrence: has ids recur from the start of a run to its end, and records which of their times were to be fired."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from lowkiq import Lowkiq
from lowkiq.admin.recurring import RecurringJob
from lowkiq.errors import LowkiqError
from tests.chaos.journal import Journal, now
from tests.chaos.world.queues import RECURRING, RECURS
from tests.support import wait_until

#: Runs that are made up for: more than come due while all nodes are away.
BACKLOG: Final = 1_000
#: Seconds between looks.
TICK: Final = 0.2


class Recurrence:
    def __init__(self, app: Lowkiq, directory: Path) -> None:
        self._app = app
        self._journal = Journal(directory / "recurring.jsonl")

    def begin(self) -> None:
        """Before any fault."""
        for id, recurs in RECURS.items():
            payload = {"due": 0} if recurs.missed == "all" else {}
            self._app.recurring.set(
                RECURRING, id, recurs.every, payload=payload, missed=recurs.missed, backlog=BACKLOG, who="the tests"
            )
        # One that fires meanwhile is told of with its next time; that it has fired then is sure all the same.
        for id, job in self._jobs().items():
            self._journal.write("first", id=id, at=job.next_at, ahead=time.time() - now())

    def end(self, within: float) -> None:
        """Once all is healed: each of them must fire once more. Then they are paused, so that queues can run dry."""
        left, healed_at = set(RECURS), time.time()
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self._pause_what_has_fired(left, healed_at), within=within, every=TICK)
        with contextlib.suppress(RedisError, LowkiqError):
            for id, job in self._jobs().items():
                self._journal.write("last", id=id, at=job.last_at, goes_on=id not in left)

    def _pause_what_has_fired(self, left: set[str], since: float) -> bool:
        """Takes away the ids that have fired since then. True: none is left."""
        with contextlib.suppress(RedisError, LowkiqError):
            for id, job in self._jobs().items():
                if id in left and (job.last_at or 0.0) > since:
                    self._app.recurring.pause(RECURRING, id, who="the tests")
                    left.remove(id)
        return not left

    def _jobs(self) -> dict[str, RecurringJob]:
        return {job.id: job for job in self._app.recurring.list(RECURRING)}
