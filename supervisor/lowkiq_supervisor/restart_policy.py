"""
When a process that ended is started again. Pure: the clock and the jitter come from outside.

Responsible for delays and for recognising a crash loop, slot by slot. What happens then is the arbiter's business.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum

#: Exit code of a node that asks to be replaced (recycling): not a failure.
NODE_RECYCLE = 75


class RestartMode(StrEnum):
    """The ends after which a node is started again."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class Action(Enum):
    """The next step of a slot whose process has ended."""

    RESTART = "restart"
    REPLACE = "replace"  # it asked for a successor, and has not failed
    FINISH = "finish"  # it ended as it should
    GIVE_UP = "give up"  # it failed, and won't be started again


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, with the seconds to wait before a restart."""

    action: Action
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The numbers of the policy; the same for every slot."""

    mode: RestartMode = RestartMode.ALWAYS
    #: Exit code 0 means that the work is done, whatever the mode.
    burst: bool = False
    #: Seconds before the first restart; doubles with each failure, so that a broken app doesn't eat the machine.
    first_delay: float = 0.5
    #: Seconds a restart waits at most: after an outage, no slot waits longer than this.
    longest_delay: float = 30.0
    #: Share of the delay that is random, so that slots that died together don't return together.
    jitter: float = 0.2
    #: Seconds of being ready after which earlier failures are forgotten.
    healthy_after: float = 60.0
    #: So many failures of one slot …
    failures_allowed: int = 5
    #: … within so many seconds are a crash loop.
    failure_window: float = 60.0
    #: A slot in a crash loop isn't filled again; else it is tried for ever, at the longest delay in the end.
    gives_up: bool = True

    def ends_well(self, code: int) -> bool:
        """True if this exit code means that the slot has nothing more to do."""
        return code == 0 and (self.burst or self.mode is not RestartMode.ALWAYS)

    def delay(self, failures: int) -> float:
        """Seconds before the restart that follows this many earlier failures in a row, without jitter."""
        return float(min(self.longest_delay, self.first_delay * 2 ** min(failures, 32)))


class RestartHistory:
    """One slot's failures, and the verdict on each end of its process."""

    def __init__(
        self,
        policy: RestartPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._spread = spread
        self._in_a_row = 0
        self._recent: deque[float] = deque(maxlen=policy.failures_allowed)
        self._ready_since: float | None = None

    def ready(self) -> None:
        """The slot's process became ready."""
        if self._ready_since is None:
            self._ready_since = self._clock()

    def forget(self) -> None:
        """Begin anew: a person asked for it."""
        self._in_a_row = 0
        self._recent.clear()
        self._ready_since = None

    def ended(self, code: int) -> Verdict:
        """The slot's process ended with this code, by itself."""
        was_ready = self._ready_since is not None
        self._forget_if_it_was_healthy()
        # At boot it is a failure like any other: it would be started again and again, at once.
        if code == NODE_RECYCLE and was_ready and self._policy.mode is not RestartMode.NEVER:
            return Verdict(Action.REPLACE)
        if self._policy.ends_well(code):
            return Verdict(Action.FINISH)
        return self._failed()

    def _failed(self) -> Verdict:
        """An end with code 0 counts too, in mode `always`: a node that ends at once would spin otherwise."""
        self._recent.append(self._clock())
        if self._policy.mode is RestartMode.NEVER or (self._policy.gives_up and self._is_a_loop()):
            return Verdict(Action.GIVE_UP)
        delay = self._policy.delay(self._in_a_row)
        self._in_a_row += 1
        return Verdict(Action.RESTART, delay * self._spread(1 - self._policy.jitter, 1 + self._policy.jitter))

    def _is_a_loop(self) -> bool:
        full = len(self._recent) == self._policy.failures_allowed
        return full and self._recent[-1] - self._recent[0] <= self._policy.failure_window

    def _forget_if_it_was_healthy(self) -> None:
        since, self._ready_since = self._ready_since, None
        if since is not None and self._clock() - since >= self._policy.healthy_after:
            self._in_a_row = 0
