"""
The restart policy: what the end of a process is, and what follows from it. Pure: clock and jitter come from outside.

| kind | an end is of this kind if | tried again after |
|---|---|---|
| recycled | a node that was ready exits with 75 | 0 s: no failure |
| finished | exit code 0, with --burst or --restart on-failure or never | not at all: it is over |
| job | jobs ran as it died | 0.1 s, 0.5, 1, 2, 2 …: the rule for jobs that kill their node bounds how often |
| killed | ended from outside, by a signal or told by one; nothing is known to have run | 0.1 s, 0.5, 1, 2, 2 … |
| refused | before it was ready, exit code 2 or 3: app, settings or Redis must be changed | 0.5 s, 1, 2 … 30, 30 … |
| boot | before it was ready, else: a database is away, say | 0.5 s, 1, 2 … 30, 30 … |
| crash | after it was ready, by itself | 0.5 s, 1, 2 … 30, 30 … |

Each delay is ± 20 %, and doubles by kind; a minute of being ready forgets all failures. A slot is tried for ever, and
its end never ends another slot's process: what does end the supervisor is in policy/last_resort.py. With --restart
never nothing is tried again; with --strict nor is a slot that has failed five times within a minute.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from lowkiq.environment import ExitCode
from lowkiq.process.held_signals import FAULTS

#: Exit codes of a process whose next try would end likewise, unless a person changes something.
REFUSALS = frozenset({ExitCode.USAGE, ExitCode.BOOT})
#: Exit codes of a node that was told to end, by somebody else than its supervisor.
TOLD = frozenset({ExitCode.DRAINED, ExitCode.FORCED_KILL, ExitCode.ABANDONED})


class RestartMode(StrEnum):
    """The ends after which a node is started again."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class Kind(StrEnum):
    RECYCLED = "recycled"
    FINISHED = "finished"
    JOB = "job"
    KILLED = "killed"
    REFUSED = "refused"
    BOOT = "boot"
    CRASH = "crash"


#: What people are told of an end, beside its exit code or signal.
WORDS: Mapping[Kind, str] = {
    Kind.RECYCLED: "asked for a successor",
    Kind.FINISHED: "had done its work",
    Kind.JOB: "died while jobs ran",
    Kind.KILLED: "ended from outside",
    Kind.REFUSED: "refused to start: app, settings or Redis must be changed",
    Kind.BOOT: "failed before it was ready",
    Kind.CRASH: "failed after it was ready",
}

#: Kinds that don't show a fault of the process: the next try is soon, however many there were.
TRIED_SOON = frozenset({Kind.JOB, Kind.KILLED})
#: Share of the first delay that these wait before their first try: jobs wait for its shards, a second at most.
AT_FIRST = 0.2


@dataclass(frozen=True, slots=True)
class End:
    """The end of a process, as the supervisor has seen it."""

    #: Negative: a signal.
    code: int
    #: Seconds since it became ready; None: it never did.
    ready_for: float | None = None
    #: Jobs ran as it died.
    ran_jobs: bool = False
    #: The supervisor has ended it, because it hung.
    is_ours: bool = False


class Action(Enum):
    """The next step of a slot whose process has ended."""

    RESTART = "restart"
    REPLACE = "replace"  # it asked for a successor, and has not failed
    FINISH = "finish"  # it ended as it should
    GIVE_UP = "give up"  # it failed, and won't be started again


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, with the seconds to wait before a restart."""

    kind: Kind
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
    #: The same after an end that shows no fault of the process.
    longest_soon: float = 2.0
    #: Share of the delay that is random, so that slots that died together don't return together.
    jitter: float = 0.2
    #: Seconds of being ready after which earlier failures are forgotten.
    healthy_after: float = 60.0
    #: A slot in a crash loop isn't filled again; else it is tried for ever, at the longest delay in the end.
    strict: bool = False
    #: With `strict`, so many failures of one slot …
    failures_allowed: int = 5
    #: … within so many seconds are a crash loop.
    failure_window: float = 60.0

    def kind(self, end: End) -> Kind:
        """The first kind that fits."""
        was_ready = end.ready_for is not None
        if end.code == ExitCode.RECYCLED and was_ready and self.mode is not RestartMode.NEVER:
            return Kind.RECYCLED
        if end.code == 0 and (self.burst or self.mode is not RestartMode.ALWAYS):
            return Kind.FINISHED
        if end.ran_jobs:
            return Kind.JOB
        if end.code < 0 and -end.code not in FAULTS and not end.is_ours:
            return Kind.KILLED
        if was_ready:
            return Kind.KILLED if end.code in TOLD else Kind.CRASH
        return Kind.REFUSED if end.code in REFUSALS else Kind.BOOT


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
        self._failures: Counter[Kind] = Counter()
        self._recent: deque[float] = deque(maxlen=policy.failures_allowed)

    @property
    def healthy_after(self) -> float:
        """Seconds of being ready after which failures are forgotten."""
        return self._policy.healthy_after

    @property
    def failures(self) -> int:
        """How many there were since the process was last ready for long."""
        return self._failures.total()

    def forget(self) -> None:
        """Begin anew: a person asked for it."""
        self._failures.clear()
        self._recent.clear()

    def ended(self, end: End) -> Verdict:
        """The slot's process has ended, by itself."""
        policy = self._policy
        kind = policy.kind(end)
        if end.ready_for is not None and end.ready_for >= policy.healthy_after:
            self._failures.clear()
        if kind is Kind.RECYCLED:
            return Verdict(kind, Action.REPLACE)
        if kind is Kind.FINISHED:
            return Verdict(kind, Action.FINISH)
        self._recent.append(self._clock())
        if policy.mode is RestartMode.NEVER or (policy.strict and self._is_in_a_loop()):
            return Verdict(kind, Action.GIVE_UP)
        return Verdict(kind, Action.RESTART, self.delay(kind))

    def delay(self, kind: Kind) -> float:
        """Seconds to wait after one more failure of this kind."""
        policy = self._policy
        longest, before = policy.longest_delay, self._failures[kind]
        times = 2 ** min(before, 32)
        if kind in TRIED_SOON:
            longest, times = min(policy.longest_soon, longest), times / 2 if before else AT_FIRST
        self._failures[kind] += 1
        return float(min(longest, policy.first_delay * times) * self._spread(1 - policy.jitter, 1 + policy.jitter))

    def _is_in_a_loop(self) -> bool:
        full = len(self._recent) == self._policy.failures_allowed
        return full and self._recent[-1] - self._recent[0] <= self._policy.failure_window
