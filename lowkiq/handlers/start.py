"""Start: the last look before code of the user's begins with a batch, whatever that has waited for until then."""

from __future__ import annotations

from collections.abc import Callable


class NotStarted(BaseException):
    """A batch may not start any more: its jobs go back. No code of the user's has begun that could see this."""


class Start:
    """
    Called right before the first code of the user's that runs for a batch, be it a middleware or `perform`, and there
    on the thread or in the task that runs it: up to then the batch may have waited for a loop, a thread or a process.
    To call it again says nothing more.
    """

    __slots__ = ("_has_begun", "_may_start")

    def __init__(self, may_start: Callable[[], bool]) -> None:
        self._may_start = may_start
        self._has_begun = False

    def __call__(self) -> None:
        """Raises NotStarted."""
        if not self._has_begun:
            if not self._may_start():
                raise NotStarted
            self._has_begun = True
