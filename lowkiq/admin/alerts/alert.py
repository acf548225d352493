"""Alert: one thing that is wrong, in the words of the page, the API, the command line, the doctor and /metrics."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal, NamedTuple, Self

import msgspec

from lowkiq.admin.live import LiveSetting
from lowkiq.settings import Settings

#: Alerts of one kind that are told; of more, only how many they are.
NAMED: Final = 10
#: Characters of a key that is kept as it is; a longer one is kept as its digest.
MOST_KEY: Final = 160

SEE_STACK: Final = "`lowkiq-supervisor dump` (TTIN) shows where it is"
START_NODES: Final = "Start nodes: lowkiq-supervisor --nodes N -r MODULE"

#: "bad": jobs do not run, or are lost. "warn": they may, later.
Severity = Literal["bad", "warn"]


class Kind(NamedTuple):
    #: The thing that a subject names.
    subject: Literal["", "queue", "node", "host", "part of Redis"]
    #: The end of "12 more …", where there are too many to tell each.
    more: str = "alerts of this kind"


#: Kinds, what causes others first: of one severity they are told in this order.
KINDS: Final[Mapping[str, Kind]] = {
    "emptied": Kind(""),
    "Redis": Kind("part of Redis"),
    "no nodes": Kind(""),
    "missing": Kind("", "groups lack nodes"),
    "late": Kind("node", "nodes have not been heard of"),
    "vanished": Kind("host", "machines went away without saying goodbye"),
    "crash loop": Kind("host", "hosts have nodes that keep failing"),
    "roll stopped": Kind("host"),
    "unowned": Kind("queue", "queues have shards with jobs due and no node"),
    "refused": Kind("queue", "queues are refused"),
    "trouble": Kind("node", "nodes can't use Redis"),
    "event loop": Kind("node", "nodes have a blocked event loop"),
    "late queue": Kind("queue", "queues are late"),
    "rate": Kind("queue", "queues have a growing line for their rate"),
    "failing queue": Kind("queue", "queues fail"),
    "blocked": Kind("queue", "queues have blocked jobs"),
    "growing morgue": Kind("queue", "queues have a growing morgue"),
    "paused": Kind("queue", "queues are paused"),
    "held": Kind("queue", "queues have ids that are held for long"),
    "unsent": Kind("queue", "queues have jobs of which what follows is not sent"),
    "recurring": Kind("queue", "queues have recurring jobs that are late"),
    "dependent": Kind("queue", "queues have jobs that wait for others for long"),
    "reshard": Kind("queue", "queues are not resharded any further"),
    "unreadable": Kind(""),
    "doubled": Kind("", "numbers are doubled"),
    "recycling": Kind("host"),
    "memory": Kind("node", "nodes hold more memory than they may"),
    "supervisor": Kind("host"),
    "runs on": Kind("queue"),
    "long job": Kind("queue", "jobs run far over their usual time"),
}


class Acknowledged(msgspec.Struct, frozen=True):
    """That somebody has seen an alert."""

    who: str = ""
    #: When, by Redis's clock.
    at: float = 0.0
    #: Until when it is muted, also if it ends and begins again; None: for as long as it lasts.
    until: float | None = None
    note: str = ""


class Alert(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    #: One of KINDS.
    kind: str
    severity: Severity
    #: The queue, node, host or part of Redis ("version", "role", "persistence", "memory" or "replicas"), as its kind
    #: says; "" where it is about several.
    subject: str
    #: A sentence without its full stop.
    says: str
    #: The next step, likewise.
    do: str
    #: When it began, by Redis's clock; None: nobody knows.
    since: float | None = None
    #: Where to look: a path of the web view, perhaps with a query or a fragment.
    where: str = ""
    #: The next step as a command line, if it is one.
    command: str = ""
    #: Tells it from others of its kind and subject.
    mark: str = ""
    #: Queues that are late by it only, and so have no alert of that.
    queues: tuple[str, ...] = ()
    #: Who has seen it, if somebody has: then it is told last, and wakes nobody.
    acknowledged: Acknowledged | None = None

    @property
    def text(self) -> str:
        """Both sentences."""
        return f"{self.says}. {self.do}."

    @property
    def key(self) -> str:
        """A name that stays the same for as long as it lasts."""
        key = ":".join(filter(None, [self.kind, self.subject, self.mark]))
        if len(key) <= MOST_KEY and key.isascii() and key.isprintable():
            return key
        return f"{self.kind}:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def is_about(self, queue: str) -> bool:
        """Returns whether a queue is what it is about, or late by it."""
        return queue == self.queue or queue in self.queues or self.kind == "no nodes"

    @property
    def queue(self) -> str:
        """The queue that it is about, if it is about one."""
        return self.subject if self.kind in KINDS and KINDS[self.kind].subject == "queue" else ""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits above which something is an alert: settings of the same names. 0 turns an alert off."""

    lag: float = Settings.alert_lag
    failing: float = Settings.alert_failing
    morgue: int = Settings.alert_morgue
    long: float = Settings.alert_long
    memory: float = Settings.alert_memory
    persistence: int = Settings.alert_persistence
    #: Replicas that pushes wait for.
    replicas: int = 0
    #: Queue → its own `lag`; and queue → live settings of it, which come first.
    lags: Mapping[str, float] = field(default_factory=dict)
    live: Mapping[str, Mapping[str, LiveSetting]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The thresholds that an application has set."""
        told = {one.name: getattr(settings, f"alert_{one.name}", None) for one in fields(cls)}
        return cls(
            **{name: value for name, value in told.items() if value is not None}, replicas=settings.wait_replicas
        )

    def lag_of(self, queue: str) -> float:
        """Seconds by which jobs of a queue may be late; 0: any."""
        return self._of(queue, "lag", self.lags.get(queue, self.lag))

    def failing_of(self, queue: str) -> float:
        """Share of tries of a queue that may fail; 0: any."""
        return self._of(queue, "failing", self.failing)

    def morgue_of(self, queue: str) -> float:
        """Jobs of a queue that may die in an hour, but for one; 0: any number."""
        return self._of(queue, "morgue", self.morgue)

    def long_of(self, queue: str) -> float:
        """Times as long as 99 of 100 take that a job of a queue may take; 0: any time."""
        return self._of(queue, "long", self.long)

    def _of(self, queue: str, name: str, otherwise: float) -> float:
        setting = self.live.get(queue, {}).get(f"alert_{name}")
        return setting.value if setting and isinstance(setting.value, int | float) else otherwise


def command_on(queue: str, words: str) -> str:
    """A command line on a queue: the shell runs nothing that its name contains. "" where nobody could type that."""
    return f"{words} {shlex.quote(queue)}" if queue.isprintable() else ""
