"""Who uses Redis: each goes on for ever, and notes when it has worked, and when it has not."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final

import httpx
from redis.exceptions import RedisError

from lowkiq import PushFailed
from tests.transport.kinds.load import PUSHED_AT_ONCE, Load

#: Seconds for which something that works may have nothing to show: the view reads its numbers once a second.
STOP: Final = 2.0
#: What may happen to who uses Redis while the network is bad.
EXPECTED: Final = (RedisError, OSError, PushFailed, httpx.HTTPError)


class Marks:
    """When something has worked, and when it has not."""

    def __init__(self) -> None:
        self.worked: list[float] = []
        self.failed: list[float] = []
        self.errors: list[str] = []

    def works(self) -> None:
        self.worked.append(time.monotonic())

    def fails(self, error: str) -> None:
        self.errors.append(error)
        self.failed.append(time.monotonic())

    def took(self, since: float, until: float) -> float | None:
        """Seconds after `since` from which on it has worked, without a stop or an error; None: it does not yet."""
        found: float | None = None
        last = since
        failed = self.failed[bisect_right(self.failed, since) :]
        for at in self.worked[bisect_right(self.worked, since) :]:
            if found is None or at - last > STOP or (failed and failed[0] <= at):
                found = at - since
                failed = failed[bisect_right(failed, at) :]
            last = at
        return None if failed or until - last > STOP else found


class User:
    """A thread that does something again and again; what returns False shows neither that it works nor that not."""

    def __init__(self, work: Callable[[], object], pause: float, surprises: list[str]) -> None:
        self.marks = Marks()
        self._work, self._pause, self._surprises, self._is_over = work, pause, surprises, threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while not self._is_over.wait(self._pause):
            try:
                does_work = self._work()
            except Exception as error:  # noqa: BLE001 (those that are not expected are told)
                self.marks.fails(told := f"{type(error).__name__}: {error}")
                if not isinstance(error, EXPECTED):
                    self._surprises.append(told)
            else:
                if does_work is not False:
                    self.marks.works()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(60)


class Named(Load):
    """Its nodes resolve the name as this process does. It works as long as one push after the other has been run."""

    begin = "import tests.transport.names\n"
    pause = 0.1

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.producer, self._run_whole = Marks(), 0
        self._watcher: User | None = None

    @property
    def nodes_marks(self) -> Marks:
        """Of what nodes do: each push has jobs of a third of all ids, so of nearly all shards."""
        if self._watcher is None:
            self._watcher = User(self._has_run_more, 0.02, [])
        return self._watcher.marks

    def push(self, jobs: Any) -> bool:
        is_accepted = super().push(jobs)
        if is_accepted:
            self.producer.works()
        else:
            self.producer.fails(self.refused[-1])
        return is_accepted

    def finish(self, within: float = 60) -> Any:
        if self._watcher:
            self._watcher.end()
        return super().finish(within)

    def _has_run_more(self) -> bool:
        self._read_on()
        before = self._run_whole
        while self._ran.issuperset(range(self._run_whole, self._run_whole + PUSHED_AT_ONCE)):
            self._run_whole += PUSHED_AT_ONCE
        return self._run_whole > before
