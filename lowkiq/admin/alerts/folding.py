"""
Folding: a queue whose late jobs are all where a node is away is told of by the alert of that node. One that has any
late job elsewhere, or was late before, keeps its own: the node may not be why. And queues that are late of one cause,
such as that all threads are busy, are told of by one alert, that of the one that was late first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from lowkiq.admin.alerts.acknowledging import seen_by_all
from lowkiq.admin.alerts.alert import Alert, Severity
from lowkiq.admin.alerts.nodes import mark_of_missing
from lowkiq.admin.alerts.queues import late_shards, why_late
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.beats.nodes import Group
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.words import age, first_of, plural, printable
from lowkiq.queue.call import grouped

#: Queues that the alert of a node names.
NAMED: Final = 3
#: A node in the notice of a crash loop, as the supervisor titles it.
_NODE: Final = re.compile(r"\bnode (\d+)/\d+")


class _Cause(NamedTuple):
    """An alert of nodes that are away, or die again and again."""

    alert: Alert
    #: The group that they belong to.
    group: Group
    #: Nodes that have beaten lately, and yet do not work.
    nodes: Sequence[NodeHealth]


def folded(every: Sequence[Alert], now: Situation) -> list[Alert]:
    """The alerts, without those of queues that are late by another one only; that one names them instead."""
    causes = [cause for alert in every for cause in _causes(alert, now)]
    late: dict[str, list[str]] = {}
    told = list[Alert]()
    for alert in every:
        cause = _cause_of(alert, causes, now) if causes and alert.kind == "late queue" else None
        if cause is None:
            told.append(alert)
        else:
            late.setdefault(cause.alert.key, []).append(alert.subject)
    return _of_one_cause([_with(alert, late[alert.key], now) if alert.key in late else alert for alert in told], now)


def _of_one_cause(alerts: Sequence[Alert], now: Situation) -> list[Alert]:
    late = [alert for alert in alerts if alert.kind == "late queue"]
    causes = grouped((why_late(now, alert.subject)[0], alert) for alert in late)
    shared = {one.key: (cause, some) for cause, some in causes.items() if len(some) > 1 for one in some}
    return [
        _together(*shared[alert.key], now) if alert.key in shared else alert
        for alert in alerts
        if alert.key not in shared or alert is _first(shared[alert.key][1])
    ]


def _first(late: Sequence[Alert]) -> Alert:
    return min(late, key=lambda alert: (alert.since or 0.0, alert.subject))


def _together(cause: str, late: Sequence[Alert], now: Situation) -> Alert:
    first, queues = _first(late), [alert.subject for alert in late]
    lag = age(max(now.queues[queue].lag for queue in queues))
    says = f"{len(late):,} queues are up to {lag} late: {_named(queues)}; {cause}"
    severity: Severity = "bad" if any(alert.severity == "bad" for alert in late) else "warn"
    others = tuple(queue for queue in queues if queue != first.subject)
    seen = seen_by_all(late)
    return msgspec.structs.replace(
        first, says=says, severity=severity, queues=others, where="/nodes", acknowledged=seen
    )


def _named(queues: Sequence[str]) -> str:
    return first_of(queues, NAMED, lambda queue: printable(queue, 60))


def _causes(alert: Alert, now: Situation) -> Iterator[_Cause]:
    groups = now.nodes.groups
    if alert.kind == "late":
        for group in groups:
            if nodes := [node for node in group.nodes if node.node == alert.mark]:
                yield _Cause(alert, group, nodes)
    elif alert.kind == "missing":
        meant = [group for group in groups if group.missing and alert.mark == mark_of_missing(group, groups)]
        yield from (_Cause(alert, group, []) for group in meant)
    elif alert.kind == "crash loop" and (found := _NODE.search(alert.says)):
        for group in groups:
            there = [node for node in group.nodes if printable(node.host, 60) == alert.subject]
            if there:
                yield _Cause(alert, group, [node for node in there if node.node_number == int(found[1])])


def _cause_of(late: Alert, causes: Sequence[_Cause], now: Situation) -> _Cause | None:
    """The cause in whose nodes' places all late jobs of a queue are, if none was late before."""
    shards, since = late_shards(now, late.subject), late.since
    for cause in causes:
        is_later = since is not None and cause.alert.since is not None and since >= cause.alert.since
        if is_later and cause.group.runs(late.subject) and all(_is_away(cause, shard, now) for shard in shards):
            return cause
    return None


def _is_away(cause: _Cause, shard: ShardMetrics, now: Situation) -> bool:
    """True if a shard is of such a node, or of one that is gone; or somebody stands in, who has no thread for it."""
    holder = now.beating.get(shard.owner or "")
    if shard.is_unowned or holder is None or holder in cause.nodes:
        return True
    is_fostered = holder in cause.group.nodes and shard.shard in holder.fostered.get(shard.queue, ())
    return is_fostered and all(thread.queue is not None for thread in holder.threads)


def _with(alert: Alert, queues: Sequence[str], now: Situation) -> Alert:
    """The alert, with the queues that are late by it."""
    lag = age(max(now.queues[queue].lag for queue in queues))
    by = f"is {lag}" if len(queues) == 1 else f"are up to {lag}"
    says = f"{alert.says}; {plural(len(queues), 'queue')} {by} late with it: {_named(queues)}"
    return msgspec.structs.replace(alert, says=says, queues=tuple(queues))
