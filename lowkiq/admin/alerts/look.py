"""The one list of alerts: what is wrong, the worst first, each since when; without what is a consequence of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Final, NamedTuple

import msgspec
from redis.exceptions import ResponseError

from lowkiq import clock
from lowkiq.admin.alerts.acknowledging import parse_acknowledged, seen_by_all, with_acknowledged
from lowkiq.admin.alerts.acknowledging import reading as reading_acknowledged
from lowkiq.admin.alerts.alert import KINDS, NAMED, Alert, Severity, Thresholds
from lowkiq.admin.alerts.emptied import Loss, Marker, of_emptied
from lowkiq.admin.alerts.folding import folded
from lowkiq.admin.alerts.following import of_following, of_reshards
from lowkiq.admin.alerts.nodes import of_nodes, of_supervisors
from lowkiq.admin.alerts.noted import STALE, Noted, Notes, parse_noted, reading
from lowkiq.admin.alerts.queues import ENDS_BELOW, LONG_FLOOR, is_passing, of_queues
from lowkiq.admin.alerts.redis import RedisHealth, of_unreadable, read_redis_health, read_server_config
from lowkiq.admin.alerts.situation import Line, Situation
from lowkiq.admin.alerts.vanished import Gone, of_vanished
from lowkiq.admin.beats.health import BEAT_INTERVAL, BEAT_TTL, MOST_BEATS, read_health
from lowkiq.admin.beats.members import read_placements
from lowkiq.admin.beats.nodes import Nodes, judge
from lowkiq.admin.jobs.holding import read_gathered
from lowkiq.admin.live import LiveSetting, read_live
from lowkiq.admin.metrics import QueueMetrics, ShardMetrics, by_queue, read_shards
from lowkiq.admin.past.history import SAMPLE_INTERVAL, Point, read_milestones
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.admin.past.statistics import usual
from lowkiq.admin.pauses import Hold
from lowkiq.admin.resharding import Resharding, read_moving
from lowkiq.admin.why.reading import Around, Reader
from lowkiq.admin.why.reasons import Reason
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, pairs
from lowkiq.queue.keys import Layout
from lowkiq.queue.rates import Waiting, read_waiting
from lowkiq.queue.shard import Shard, shards_of

#: Seconds between two looks at the server's configuration, and at the usual times of a queue's jobs.
CONFIG_EVERY, USUAL_EVERY = 60.0, 60.0
#: Seconds over which the line of a rate has grown; and queues whose lines are looked at.
GROWS_OVER, MOST_LINES = 60.0, 200
#: Seconds without a look after which nodes may have been unable to beat; and for which they are waited for then.
UNWATCHED, RETURNING = 2.5, 2 * BEAT_INTERVAL
#: Shards, and ids in all, of which a look asks since when somebody holds them.
MOST_HOLDING, MOST_HELD = 50, 500
#: Late queues of which a look asks why: one that is not told alone need not say so.
MOST_REASONS: Final = 2 * NAMED


class Found(NamedTuple):
    """A look at everything."""

    #: Redis's time.
    at: float
    server: RedisHealth
    #: All alerts, also those that are only consequences of others.
    every: list[Alert]
    #: The list that people get.
    alerts: list[Alert]
    noted: Noted
    #: Queue → what people have set of it.
    live: Mapping[str, Mapping[str, LiveSetting]]


class State(Nodes, frozen=True, kw_only=True):
    """All nodes of a namespace, and the one list of what is wrong, with queues and Redis too."""

    alerts: list[Alert]

    @property
    def is_well(self) -> bool:
        """True when there is no alert that nobody has acknowledged."""
        return all(alert.acknowledged for alert in self.alerts)


class Look:
    """
    Looks for alerts, again and again: beside what its caller has read it costs four round trips.

    Args:
        marks: it marks a Redis as one that was seen (emptied.py). Who looks once writes nothing.
    """

    def __init__(self, caller: Caller, namespace: str, thresholds: Thresholds, *, marks: bool = False) -> None:
        self._caller, self._namespace, self._thresholds = caller, namespace, thresholds
        self._limits, self._live = thresholds, dict[str, dict[str, LiveSetting]]()
        self._notes = Notes(caller, namespace)
        self._gone = Gone(caller, namespace)
        self._lines_at = float("-inf")
        self._waiting: Mapping[str, Waiting] = {}
        #: Queue → how far away the end of its rate's line was, of the last minutes (monotonic).
        self._ends: dict[str, list[tuple[float, float]]] = {}
        self._marker = Marker(caller, namespace, is_writer=marks)
        #: When this looked last, when any node was there then, and when Redis was back (monotonic).
        self._looked_at = self._had_nodes_at = self._back_at = float("-inf")
        self._config: Mapping[str, str | None] = {}
        self._config_at = self._past_at = float("-inf")
        self._past: Mapping[str, Sequence[Point]] = {}
        #: Queue → when its usual time was read, and that, if enough jobs have run.
        self._usual: dict[str, tuple[float, float | None]] = {}
        #: Key of an alert of which nothing else tells when it began → when this look saw it first.
        self._seen: dict[str, float] = {}

    def __call__(
        self,
        nodes: Nodes,
        shards: Sequence[ShardMetrics],
        queues: Mapping[str, QueueMetrics],
        reshards: Mapping[str, Resharding] | None = None,
    ) -> Found:
        """
        Finds all alerts.

        Args:
            nodes, shards, queues, reshards: as they were just read.
        """
        beats = keys.nodes(self._namespace)
        words = [("TIME",), reading(self._namespace), ("ZREVRANGE", beats, 0, MOST_BEATS - 1, "WITHSCORES")]
        words += [reading_acknowledged(self._namespace)]
        time, noted, last_beats, seen, marker, told = self._caller.read([*words, *self._marker.reading], [])
        at = time[0] + time[1] / 1e6
        beats_at = {name: float(beat) for name, beat in pairs(last_beats)}
        server = self._read_server()
        self._live = read_live(self._caller, self._namespace)
        self._limits = replace(self._thresholds, live=self._live)
        found = parse_noted(noted)
        now = Situation(
            nodes=nodes,
            thresholds=self._limits,
            at=at,
            shards=shards,
            queues=queues,
            reshards=reshards or {},
            past=self._read_past(queues),
            lines=self._read_lines(queues, at),
            holds=self._read_holds(shards),
            is_back=self._is_back(nodes, marker or None),
            loss=self._read_loss(marker or None, told or b"", queues, at),
            stopped_at=None if nodes.nodes else self._read_stop(),
            reasons=self._read_reasons(nodes, shards, queues, reshards or {}),
            usual=self._read_usual(nodes),
            noted=found.since,
            gone=[beat for beat in beats_at.values() if beat < at - BEAT_TTL],
            vanished=self._gone(beats_at, at),
        )
        every = list(with_acknowledged(alerts_of(now, server.alerts), parse_acknowledged(seen), at))
        every = self._begun(every, at)
        return Found(at, server, every, shown(every, now), found, self._live)

    def note(self, found: Found) -> Found:
        """Notes since when the alerts last, and returns them with that."""
        since = self._notes(found.every, found.alerts)
        every, alerts = (list(_since(some, since)) for some in (found.every, found.alerts))
        return found._replace(every=every, alerts=alerts)

    def note_if_nobody_does(self, found: Found) -> Found:
        """The same, where no node has for a while."""
        return self.note(found) if abs(found.at - found.noted.at) > STALE else found

    def _begun(self, every: Sequence[Alert], at: float) -> list[Alert]:
        """These alerts with when they began: what nobody has noted yet, when it was seen first."""
        self._seen = {alert.key: self._seen.get(alert.key, at) for alert in every if alert.since is None}
        return list(_since(every, self._seen))

    def has_lost(self) -> bool:
        """True if Redis has lost what it held since the last look or question. Raises RedisError."""
        return self._marker.is_gone()

    def _read_loss(
        self, marker: bytes | None, told: bytes, queues: Mapping[str, QueueMetrics], at: float
    ) -> Loss | None:
        try:
            return self._marker.look(marker, told, queues, at)
        except ResponseError:  # who may only read
            return None

    def _is_back(self, nodes: Nodes, marker: bytes | None) -> bool:
        """
        True where Redis has lost everything, or nodes were there when this looked last, which is a while ago: they get
        a moment to beat.
        """
        now = clock.monotonic()
        if nodes.nodes:
            self._had_nodes_at = now
        elif self._looked_at - self._had_nodes_at < UNWATCHED and (
            now - self._looked_at > UNWATCHED or self._marker.is_other(marker)
        ):
            self._back_at = now
        self._looked_at = now
        return now - self._back_at < RETURNING

    def _read_stop(self) -> float | None:
        found = read_incidents(self._caller, self._namespace, kind="stopped", limit=1)
        return found[0].at if found else None

    def _read_server(self) -> RedisHealth:
        if clock.monotonic() - self._config_at >= CONFIG_EVERY:
            self._config, self._config_at = read_server_config(self._caller), clock.monotonic()
        return read_redis_health(self._caller, self._thresholds, self._config)

    def _read_usual(self, nodes: Nodes) -> Mapping[str, float]:
        """Of the few queues that have a job which has run for long."""
        now, batches = clock.monotonic(), [batch for node in nodes.nodes for batch in node.batches]
        queues = {batch.thread.queue or "" for batch in batches if batch.seconds >= LONG_FLOOR}
        queues = {queue for queue in queues if self._limits.long_of(queue)}
        kept = {queue: row for queue, row in self._usual.items() if queue in queues and now - row[0] < USUAL_EVERY}
        if due := sorted(queues - kept.keys()):
            found = usual(self._caller, self._namespace, due)
            kept |= {queue: (now, found.get(queue)) for queue in due}
        self._usual = kept
        return {queue: seconds for queue, (_, seconds) in kept.items() if seconds is not None}

    def _read_reasons(
        self,
        nodes: Nodes,
        shards: Sequence[ShardMetrics],
        queues: Mapping[str, QueueMetrics],
        reshards: Mapping[str, Resharding],
    ) -> Mapping[str, Reason]:
        """Of the queues that are late, the latest first: why the first job of their latest shard waits."""
        limit_of = self._limits.lag_of
        late = {queue for queue, row in queues.items() if limit_of(queue) and row.lag >= limit_of(queue) * ENDS_BELOW}
        if not late:
            return {}
        latest: dict[str, ShardMetrics] = {}
        for shard in sorted(shards, key=lambda shard: -shard.lag):
            if shard.queue in late and not shard.pause:
                latest.setdefault(shard.queue, shard)
        homes = [self._home(one) for one in islice(latest.values(), MOST_REASONS)]
        placements = read_placements(self._caller, self._namespace)
        around = Around(nodes.nodes, {}, self._live, placements, reshards)
        return Reader(self._caller, self._namespace, around, {}).firsts(homes)

    def _home(self, one: ShardMetrics) -> Shard:
        """The shard of these numbers. Which shards its queue has beside it, no key of a shard says."""
        return Shard(self._namespace, one.queue, one.shard, keys.Layout(keys.LAYOUT_VERSION, 1, one.generation))

    def _read_holds(self, shards: Sequence[ShardMetrics]) -> Mapping[str, Sequence[tuple[Hold, int]]]:
        """Of the shards that have most of them: somebody may hold thousands."""
        some = sorted((one for one in shards if one.held), key=lambda one: -one.held)[:MOST_HOLDING]
        return read_gathered(self._caller, list(map(self._home, some)), MOST_HELD // len(some)) if some else {}

    def _read_lines(self, queues: Mapping[str, QueueMetrics], at: float) -> Mapping[str, Line]:
        """Of the queues that have jobs for later: these may wait for their rate."""
        now = clock.monotonic()
        if now - self._lines_at >= SAMPLE_INTERVAL:
            named = [queue for queue, row in queues.items() if row.scheduled][:MOST_LINES]
            self._waiting, self._lines_at = read_waiting(self._caller, self._namespace, named, at), now
            kept = {
                queue: [one for one in self._ends.get(queue, []) if now - one[0] <= 2 * GROWS_OVER]
                for queue in self._waiting
            }
            self._ends = {queue: [*kept[queue], (now, row.until - at)] for queue, row in self._waiting.items()}
        return {
            queue: Line(
                row.jobs,
                row.until,
                any(now - told >= GROWS_OVER and wait < row.until - at for told, wait in self._ends[queue]),
            )
            for queue, row in self._waiting.items()
        }

    def _read_past(self, queues: Iterable[str]) -> Mapping[str, Sequence[Point]]:
        """As often as it changes."""
        if clock.monotonic() - self._past_at >= SAMPLE_INTERVAL:
            self._past, self._past_at = read_milestones(self._caller, self._namespace, queues), clock.monotonic()
        return self._past


def read_state(caller: Caller, namespace: str, thresholds: Thresholds, queues: Mapping[str, int | Layout]) -> State:
    """All nodes that have beaten lately, and all alerts of these queues, each with its layout."""
    shards = read_shards(caller, shards_of(namespace, queues))
    nodes = judge(read_health(caller, namespace), shards, caller.met.now())
    reshards = read_moving(caller, namespace, queues)
    found = Look(caller, namespace, thresholds)(nodes, shards, by_queue(queues, shards), reshards)
    return State(**msgspec.structs.asdict(nodes), alerts=found.alerts)


def alerts_of(now: Situation, of_redis: Iterable[Alert] = ()) -> list[Alert]:
    """All alerts, those that cause others first."""
    of_machines = [*of_nodes(now), *of_vanished(now), *of_supervisors(now)]
    found = [*of_emptied(now.loss), *of_redis, *of_machines, *of_queues(now), *of_following(now), *of_reshards(now)]
    found += of_unreadable(now.nodes.unreadable)
    once = {alert.key: alert for alert in reversed(found)}
    return sorted(_since(reversed(once.values()), now.noted), key=_order)


def shown(every: Sequence[Alert], now: Situation) -> list[Alert]:
    """The list for people: causes without their consequences, and of many of one kind the first."""
    causes = {alert.kind for alert in every}
    told = [alert for alert in folded(every, now) if not _is_consequence(alert, now, causes)]
    return sorted(_bounded(told), key=_order)


def _is_consequence(alert: Alert, now: Situation, causes: set[str]) -> bool:
    """Shards are without a node for some seconds after one is lost, which its own alert tells of."""
    return alert.kind == "unowned" and bool(causes & {"missing", "late"}) and is_passing(now, alert.subject)


def _bounded(alerts: Iterable[Alert]) -> Iterator[Alert]:
    """Ten of a kind, and how many more there are."""
    for name, some in groupby(sorted(alerts, key=_rank), key=lambda alert: alert.kind):
        rows = list(some)
        # What its own room has counted already ends with that count.
        most = NAMED + 1 if rows[-1].subject == "" and name in {"runs on", "unreadable"} else NAMED
        yield from rows[:most]
        if left := rows[most:]:
            severity: Severity = "bad" if any(row.severity == "bad" for row in left) else "warn"
            says, where = f"{len(left):,} more {KINDS[name].more}", "/" if KINDS[name].subject == "queue" else "/nodes"
            since = min((row.since for row in left if row.since is not None), default=None)
            do, seen = "See `lowkiq nodes` and `lowkiq stats`", seen_by_all(left)
            yield Alert(name, severity, "", says, do, since, where, mark="more", acknowledged=seen)


def _since(alerts: Iterable[Alert], noted: Mapping[str, float]) -> Iterator[Alert]:
    for alert in alerts:
        since = noted.get(alert.key, alert.since)
        yield alert if since == alert.since else msgspec.structs.replace(alert, since=since)


def _rank(alert: Alert) -> int:
    return _RANKS[alert.kind]


def _order(alert: Alert) -> tuple[bool, bool, int]:
    return alert.acknowledged is not None, alert.severity != "bad", _rank(alert)


_RANKS: Final[Mapping[str, int]] = {name: rank for rank, name in enumerate(KINDS)}
