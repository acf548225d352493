"""Mishaps: what went wrong in a node's own threads, which go on all the same; and threads that do."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, Final

from lowkiq import clock
from lowkiq.admin import words
from lowkiq.codec import error_text
from lowkiq.errors import class_name
from lowkiq.log import get_logger
from lowkiq.node.counts.incident_notes import IncidentNotes

logger = get_logger()

#: Seconds after which the same is logged again, and noted again as an incident.
LOG_AGAIN, NOTE_AGAIN = 60.0, 3_600.0
#: Mishaps that are known apart; of more, all are told anew.
MOST: Final = 1_000
#: Characters of an error, and of a fact, that are told.
ERROR_CHARS, FACT_CHARS = 300, 200
#: Seconds until a thread goes on whose round has failed: at first, and at most.
AGAIN_FROM, AGAIN_TO = 1.0, 30.0


class Mishaps:
    """
    Tells of errors that come from what is stored, or from code of the user's that a thread of the node has called: in
    the log, and as an incident, each of them once in a while. Any thread may call it.
    """

    def __init__(self, incidents: IncidentNotes) -> None:
        self._incidents = incidents
        self._lock = threading.Lock()
        self._logged_at: dict[str, float] = {}
        self._noted_at: dict[str, float] = {}

    def met(self, event: str, error: BaseException, advice: str, **facts: Any) -> None:
        """Tells of one. `facts` say what it was met at; none of them is a payload."""
        text = words.printable(error_text(error), ERROR_CHARS)
        told = {name: words.printable(str(value), FACT_CHARS) for name, value in facts.items()}
        what = " ".join((event, class_name(error), *told.values()))
        if self._is_news(self._logged_at, what, LOG_AGAIN):
            logger.error(event, **told, error=text, advice=advice, exc_info=error)
        if self._is_news(self._noted_at, what, NOTE_AGAIN):
            named = "".join(f", {name} {value}" for name, value in told.items())
            self._incidents.note("mishap", f"{event.replace('_', ' ')}{named}: {text}: {advice}", "warn")

    def _is_news(self, told_at: dict[str, float], what: str, seconds: float) -> bool:
        now = clock.monotonic()
        with self._lock:
            if now - told_at.get(what, -seconds) < seconds:
                return False
            if len(told_at) >= MOST:
                told_at.clear()
            told_at[what] = now
        return True


class LastingThread(threading.Thread, ABC):
    """A thread of the node that no round ends: what it raises is told, and the thread goes on a little later."""

    def __init__(self, name: str, mishaps: Mishaps) -> None:
        super().__init__(name=name, daemon=True)
        self._mishaps = mishaps
        #: Set once the thread is to end.
        self._is_over = threading.Event()

    def run(self) -> None:
        pause = AGAIN_FROM
        while True:
            began = clock.monotonic()
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 (nothing that it meets may end the thread, nor the node)
                self._mishaps.met("thread_failed", error, "it goes on, and tries again", thread_name=self.name)
            else:
                return
            if clock.monotonic() - began > AGAIN_TO:
                pause = AGAIN_FROM
            self._is_over.wait(pause)
            pause = min(2 * pause, AGAIN_TO)

    @abstractmethod
    def _work(self) -> None:
        """Works until the thread is told to end. It may be begun anew."""
