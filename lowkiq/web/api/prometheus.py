"""Metrics for Prometheus, from the snapshot that all dashboards share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response

from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.beats.nodes import Group
from lowkiq.admin.past.durations import BOUNDS, PER_DOUBLING, Durations
from lowkiq.admin.past.statistics import Times, read_totals
from lowkiq.settings import QUEUE_NAME
from lowkiq.web.api.operation import ApiCall, operation
from lowkiq.web.snapshot import Snapshot

#: Name, help, and which number of a queue it is.
QUEUE_GAUGES: Final[Sequence[tuple[str, str, str]]] = (
    ("lowkiq_queue_length", "Queued jobs: fresh ones and retries.", "length"),
    ("lowkiq_queue_fresh", "Queued jobs that have not failed.", "fresh"),
    ("lowkiq_queue_retries", "Queued jobs that have failed and wait for their next try.", "retries"),
    ("lowkiq_queue_waiting", "Queued jobs that wait for the end of their own run.", "waiting"),
    ("lowkiq_queue_blocked", "Queued jobs that wait for a person.", "blocked"),
    ("lowkiq_queue_busy", "Jobs in the hands of nodes.", "busy"),
    ("lowkiq_queue_claims", "Claims that hold these jobs; a shard can have several.", "claims"),
    ("lowkiq_queue_morgue_length", "Jobs in the morgue.", "morgue_length"),
    ("lowkiq_queue_lag_seconds", "Seconds by which the oldest due job is late, unless its own run is not over.", "lag"),
    ("lowkiq_queue_held", "Ids that somebody keeps from running.", "held"),
    ("lowkiq_queue_paused_shards", "Shards that somebody has paused.", "paused"),
)
QUEUE_COUNTERS: Final[Sequence[tuple[str, str, str]]] = (
    ("lowkiq_jobs_processed", "Jobs done.", "processed"),
    ("lowkiq_jobs_failed", "Tries of jobs that failed.", "failed"),
    ("lowkiq_payloads_pushed", "Payloads pushed.", "pushed"),
    ("lowkiq_payloads_merged", "Payloads pushed that joined a job queued already.", "merged"),
    ("lowkiq_payloads_superseded", "Payloads dropped, as another one of their id was to be kept.", "superseded"),
)
NODE_GAUGES: Final[Sequence[tuple[str, str, Callable[[NodeHealth], float | None]]]] = (
    ("lowkiq_node_up", "1 if the node beats, 0 if two beats were lost.", lambda node: not node.is_late),
    ("lowkiq_node_threads", "Worker threads of the node.", lambda node: len(node.threads)),
    (
        "lowkiq_node_threads_busy",
        "Worker threads that perform a job.",
        lambda node: sum(thread.jobs > 0 for thread in node.threads),
    ),
    ("lowkiq_node_tasks", "Batches that run on the node's event loop.", lambda node: node.tasks),
    (
        "lowkiq_node_loop_lag_seconds",
        "Seconds by which the node's event loop is late, as something blocks it.",
        lambda node: None if node.tasks is None else node.loop_lag,
    ),
    (
        "lowkiq_node_running_on",
        "Batches that were cancelled, or are over their perform_timeout, and have not stopped within a beat.",
        lambda node: sum(running.runs_on for running in node.batches),
    ),
    ("lowkiq_node_rss_bytes", "Resident memory of the node.", lambda node: node.rss),
    ("lowkiq_node_cpu_percent", "CPU of the node; 100 is one core.", lambda node: node.cpu_percent),
    ("lowkiq_node_beat_age_seconds", "Seconds since the node's last beat.", lambda node: node.beat_age),
    (
        "lowkiq_node_redis_round_trip_seconds",
        "Seconds that the node's last beat took.",
        lambda node: node.redis_round_trip,
    ),
)
HISTOGRAMS: Final[Sequence[tuple[str, str, Callable[[Times], Durations]]]] = (
    ("lowkiq_wait_seconds", "From when each try of a job was due until it began.", lambda times: times.waits),
    ("lowkiq_perform_seconds", "Time in perform of each try of a job.", lambda times: times.runs),
)
#: Numbers of their bounds, each four times the one before: from 0.25 ms to 4.7 hours.
LE: Final = range(BOUNDS.index(0.00025), BOUNDS.index(16_777.216) + 1, 2 * PER_DOUBLING)
NODE_RESTARTS: Final = ("lowkiq_node_restarts", "Restarts of the node by its supervisor.")
TOTALS: Final[Sequence[tuple[str, str, Callable[[Snapshot], float]]]] = (
    ("lowkiq_nodes_missing", "Numbers of nodes from which no beat comes.", lambda found: len(found.nodes.missing)),
    ("lowkiq_nodes_late", "Nodes of which two beats were lost.", lambda found: len(found.nodes.late)),
    ("lowkiq_nodes_doubled", "Numbers that several nodes have.", lambda found: len(found.nodes.doubled)),
    (
        "lowkiq_shards_unowned",
        "Shards with due jobs whose lease no node has.",
        lambda found: len(found.nodes.unowned),
    ),
    ("lowkiq_redis_memory_bytes", "Memory that Redis uses.", lambda found: found.server.memory),
    (
        "lowkiq_redis_max_memory_bytes",
        "Memory that Redis may use, 0 for no limit.",
        lambda found: found.server.max_memory,
    ),
    ("lowkiq_redis_clients", "Connections to Redis.", lambda found: found.server.clients),
)
ALERTS: Final = ("lowkiq_alerts", "Alerts of nodes, queues and Redis; bad ones mean that jobs do not run, or are lost.")
ALERT: Final = ("lowkiq_alert", "1 for each alert; its subject is a queue, node, host or part of Redis.")
ALERT_SINCE: Final = ("lowkiq_alert_since_seconds", "Unix time at which the alert began, if it is known.")
ALERT_LABELS: Final = ("kind", "severity", "subject")
#: Characters of a host in a label: DNS allows no more; and of the queues of a group.
HOST_CHARS: Final = 253
GROUP_CHARS: Final = 200
#: The last one where nodes are in groups of different queues.
NODE_LABELS: Final = ("node_number", "host", "queues")


@operation("GET", "/metrics", replies={200: [str]}, media_type="text/plain")
def metrics(call: ApiCall, snapshot: Snapshot) -> Response:
    """Metrics for Prometheus, as text or OpenMetrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    times = read_totals(call.backend.caller, call.backend.namespace, list(snapshot.queues))
    registry.register(TimesCollector(times))
    encode, content_type = _encoder(call.request.headers.get("accept", ""))
    return Response(encode(registry), headers={"Content-Type": content_type})


class SnapshotCollector(Collector):
    """One snapshot's metrics. It takes none itself, so that a scrape costs Redis nothing beside an open dashboard."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """The families, each with all its samples."""
        yield from self._of_queues()
        yield from self._of_nodes()
        yield from self._alerts()
        for name, help, value in TOTALS:
            yield GaugeMetricFamily(name, help, value=value(self._snapshot))

    def _alerts(self) -> Iterator[Metric]:
        counts = GaugeMetricFamily(*ALERTS, labels=["severity"])
        for severity in ("bad", "warn"):
            counts.add_metric([severity], sum(alert.severity == severity for alert in self._snapshot.alerts))
        each, since = (GaugeMetricFamily(*told, labels=ALERT_LABELS) for told in (ALERT, ALERT_SINCE))
        # The same labels stand for several alerts at times, such as jobs of one queue that run on: the first counts.
        rows = {
            (one.kind, one.severity, _label(one.subject)): one
            for one in sorted(self._snapshot.alerts, key=lambda one: one.since or self._snapshot.at, reverse=True)
        }
        for labels, alert in sorted(rows.items()):
            each.add_metric(labels, 1)
            if alert.since is not None:
                since.add_metric(labels, alert.since)
        yield from (counts, each, since)

    def _of_queues(self) -> Iterator[Metric]:
        for kind, families in ((GaugeMetricFamily, QUEUE_GAUGES), (CounterMetricFamily, QUEUE_COUNTERS)):
            for name, help, number in families:
                family = kind(name, help, labels=["queue"])
                for queue, metrics in self._snapshot.queues.items():
                    family.add_metric([queue], getattr(metrics, number))
                yield family

    def _of_nodes(self) -> Iterator[Metric]:
        groups = self._snapshot.nodes.groups
        nodes, labels = _by_labels(groups), NODE_LABELS[: 3 if len(groups) > 1 else 2]
        for name, help, value in NODE_GAUGES:
            family = GaugeMetricFamily(name, help, labels=labels)
            for texts, node in nodes.items():
                if (number := value(node)) is not None:
                    family.add_metric(texts, number)
            yield family
        restarts = CounterMetricFamily(*NODE_RESTARTS, labels=labels)
        for texts, node in nodes.items():
            restarts.add_metric(texts, node.restarts)
        yield restarts


class TimesCollector(Collector):
    """How long jobs waited and ran, since Redis keeps it. It is read with each scrape, one short string a queue."""

    def __init__(self, times: Mapping[str, Times]) -> None:
        self._times = times

    def collect(self) -> Iterator[Metric]:
        """Both families."""
        for name, help, of in HISTOGRAMS:
            family = HistogramMetricFamily(name, help, labels=["queue"])
            for queue, times in self._times.items():
                durations = of(times)
                bounds = [(str(BOUNDS[number]), durations.at_most(number)) for number in LE]
                family.add_metric([queue], [*bounds, ("+Inf", durations.count)], durations.total)
            yield family


def _by_labels(groups: Sequence[Group]) -> dict[tuple[str, ...], NodeHealth]:
    """Nodes by labels; of two with one number on one host, the last heartbeat: a series can't be there twice."""
    by_labels: dict[tuple[str, ...], NodeHealth] = {}
    for group in groups:
        queues = [",".join(filter(QUEUE_NAME.fullmatch, group.queues))[:GROUP_CHARS]] if len(groups) > 1 else []
        for node in sorted(group.nodes, key=lambda node: node.beat_age, reverse=True):
            by_labels[str(node.node_number), _label(node.host), *queues] = node
    return dict(sorted(by_labels.items()))


def _label(name: str) -> str:
    """A name as a label. It comes from a heartbeat, and so from whoever can write to Redis."""
    return re.sub(r"[^A-Za-z0-9_.: -]", "_", name[:HOST_CHARS])


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is none
        return choose_encoder("")
