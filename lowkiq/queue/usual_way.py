"""UsualWay: calls of awaited pushes that a thread sends, unless nobody waits for them any more by then."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from lowkiq.queue.call import Call
from lowkiq.queue.push import Producer


class UsualWay:
    """
    The loop gives it up, a thread sends it: whichever comes first counts. So a push that has failed as "none was sent"
    is not sent later, however long the thread has waited for the queue to be known, or for its turn.
    """

    def __init__(self, producer: Producer, calls: Sequence[Call[Any]], until: float) -> None:
        self._producer, self._calls, self._until = producer, calls, until
        self._lock = threading.Lock()
        self._is_given_up = self._is_sent = False

    def run(self) -> tuple[list[Any], bool]:
        """As Producer.run."""
        return self._producer.run(self._calls, self._until, self._may_send)

    def give_up(self) -> bool:
        """Has nothing of it be sent. False: that is too late."""
        with self._lock:
            self._is_given_up = not self._is_sent
            return self._is_given_up

    def _may_send(self) -> bool:
        with self._lock:
            self._is_sent = not self._is_given_up
            return self._is_sent
