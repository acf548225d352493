"""Relay: pushes what is in an outbox, batch by batch, on the thread that runs it or on one of its own."""

from __future__ import annotations

import threading
from collections import defaultdict
from types import TracebackType
from typing import Final

from lowkiq import clock
from lowkiq.app import Lowkiq
from lowkiq.codec import error_text
from lowkiq.log import get_logger
from lowkiq.outbox.rows import Row
from lowkiq.outbox.sending import MAX_ERROR_CHARS, Outcome, retry_in, send
from lowkiq.outbox.store import OutboxStore, Turn

logger = get_logger()

#: Rows of a turn, at most: one script of a push, and a transaction of a few milliseconds.
BATCH: Final = 500
#: Seconds between two looks at the table: the safety net for a commit that nobody has told of.
EVERY: Final = 1.0
#: Seconds of rest after an error of Redis or the database, twice as long each time.
FIRST_REST: Final = 0.1
LONGEST_REST: Final = 10.0


class Rest:
    """The pauses of a relay: none while there is more, then until somebody tells of rows, and longer after errors."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._errors = 0

    def after(self, taken: int | None) -> float:
        """Seconds to wait after a turn that has taken so many rows out of the way; None: another relay has the lock."""
        self._errors = 0
        return 0.0 if taken else self._every

    def after_error(self, error: Exception) -> float:
        """The same after a turn that has failed; the log says so."""
        seconds = min(FIRST_REST * 2.0 ** min(self._errors, 20), LONGEST_REST)
        self._errors += 1
        logger.error("outbox_relay_failed", error=error_text(error), again_in=seconds)
        return seconds


class Relay:
    """
    Pushes the rows of an outbox and deletes those that Redis has taken: each at least once, those of a job id in the
    order of their row ids. Any number of relays may run: one sends at a time, and the others stand by.

    Args:
        batch: rows that are sent at once, at most.
        every: seconds between two looks at the table, where no `wake` comes first.
    """

    def __init__(self, app: Lowkiq, store: OutboxStore, *, batch: int = BATCH, every: float = EVERY) -> None:
        self.app, self.store = app, store
        self._batch, self._rest = batch, Rest(every)
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> int | None:
        """
        One turn.

        Returns:
            how many rows were sent or refused: 0 when there is none to send. None: another relay has the lock.

        Raises:
            PushFailed: Redis is away, or not well; nothing is lost, and nothing was deleted.
            Exception: of the database.
        """
        with self.store.turn() as turn:
            if turn is None:
                return None
            rows = turn.oldest(self._batch, clock.real())
            return settle(turn, send(self.app, rows)) if rows else 0

    def run(self) -> None:
        """Relays until `stop` is called, whatever fails meanwhile: the log tells, and it tries again."""
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                seconds = self._rest.after(self.run_once())
            except Exception as error:  # noqa: BLE001 (of any database's driver; the rows are there still)
                seconds = self._rest.after_error(error)
                self._stopped.wait(seconds)
                continue
            if seconds and not self._stopped.is_set():
                self._woken.wait(seconds)

    def wake(self) -> None:
        """Says that rows were committed, so that they need not wait for the next look; from any thread."""
        self._woken.set()

    def start(self) -> Relay:
        """Runs it on a thread of its own."""
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self.run, name="lowkiq-outbox-relay", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends `run` after the turn that it is in, and waits for the thread, if it has one. From any thread."""
        self._stopped.set()
        self._woken.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def __enter__(self) -> Relay:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def settle(turn: Turn, outcome: Outcome) -> int:
    """Deletes what was sent, and notes what was refused. Returns how many rows that are."""
    if outcome.sent:
        turn.delete([row.id for row in outcome.sent])
    notes: dict[tuple[str, float], list[Row]] = defaultdict(list)
    now = clock.real()
    for row, error in outcome.rejected:
        notes[error_text(error)[:MAX_ERROR_CHARS].replace("\0", ""), now + retry_in(row)].append(row)
    for (text, retry_at), rows in notes.items():
        turn.refuse([row.id for row in rows], text, retry_at)
    return len(outcome.sent) + len(outcome.rejected)
