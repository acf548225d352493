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
        policy = self._policy
        since, self._ready_since = self._ready_since, None
        if since is not None and self._clock() - since >= policy.healthy_after:
            self._in_a_row = 0
        # At boot it is a failure like any other: it would be started again and again, at once.
        if code == NODE_RECYCLE and since is not None and policy.mode is not RestartMode.NEVER:
            return Verdict(Action.REPLACE)
        if code == 0 and (policy.burst or policy.mode is not RestartMode.ALWAYS):
            return Verdict(Action.FINISH)
        return self._failed(policy)

    def _failed(self, policy: RestartPolicy) -> Verdict:
        """An end with code 0 counts too, in mode `always`: a node that ends at once would spin otherwise."""
        self._recent.append(self._clock())
        full = len(self._recent) == policy.failures_allowed
        is_a_loop = full and self._recent[-1] - self._recent[0] <= policy.failure_window
        if policy.mode is RestartMode.NEVER or (policy.gives_up and is_a_loop):
            return Verdict(Action.GIVE_UP)
        delay = min(policy.longest_delay, policy.first_delay * 2 ** min(self._in_a_row, 32))
        self._in_a_row += 1
        return Verdict(Action.RESTART, delay * self._spread(1 - policy.jitter, 1 + policy.jitter))
