"""Tally: what is known of a push."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis.exceptions import RedisError, ResponseError

from lowkiq.errors import PushFailed
from lowkiq.job import Pushed
from lowkiq.queue.call import raise_first
from lowkiq.transport.errors import advice, explained


class Tally:
    """The number of payloads, `of` so many, that Redis is known to have taken."""

    def __init__(self, of: int) -> None:
        self._of = of
        self._new = self._merged = 0

    @property
    def pushed(self) -> Pushed:
        """The result of the push so far."""
        return Pushed(self._new, self._merged)

    def add(self, results: Iterable[Any]) -> None:
        """Counts what calls have given; raises the first error among it."""
        errors: list[Exception] = []
        for result in results:
            if isinstance(result, Exception):
                errors.append(result)
            else:
                self._new, self._merged = self._new + result[0], self._merged + result[1]
                errors += result[2:]
        raise_first(errors)

    def failed(self, error: RedisError, *, was_sent: bool = True) -> PushFailed:
        """The error of the push, with what is known of its payloads."""
        taken = self._new + self._merged
        if not was_sent:
            known = f"none of {self._of} payloads was sent to Redis"
        elif isinstance(error, ResponseError):
            known = f"Redis took {taken} of {self._of} payloads for sure, then"
        else:
            known = f"Redis took {taken} of {self._of} payloads for sure, of the others nobody knows"
        again = "push all of them again: equal payloads merge" if was_sent else "push them again"
        if isinstance(error, ResponseError) and advice(error):
            again = f"then {again}"  # before that it would be refused again
        return PushFailed(f"{known}: {explained(error)}; {again}", new=self._new, merged=self._merged)
