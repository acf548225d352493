"""Checks of nodes, by their heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lowkiq.admin.alerts.nodes import RULES
from lowkiq.admin.words import plural, printable, times
from lowkiq.doctor.subject import Level, Subject, Verdict, note, of_alerts, ok, problem, warning
from lowkiq.node.lease_keeper import RENEWALS_A_TTL
from lowkiq.version import VERSION

#: Seconds after which a batch is worth a word.
LONG: Final = 3600.0
#: The level of alerts of nodes: others do their work.
OTHERS_STAND_IN: Final[Level] = "warning"
#: Alerts of jobs that take long, and of what keeps them from going on.
LONG_RUNNING: Final = frozenset({"event loop", "runs on", "long job"})


def present(subject: Subject) -> Iterator[Verdict]:
    """Nodes that live, and those that have not been heard of."""
    found = subject.nodes
    if not found.nodes:
        yield note("no node has been heard of for half a minute")
        return
    yield ok(f"{len(found.nodes) - len(found.late)} nodes live")
    yield from of_alerts(subject, "late", "vanished", "trouble", "memory", *RULES, level=OTHERS_STAND_IN)


def numbers(subject: Subject) -> Iterator[Verdict]:
    """NODE_NUMBER and NUMBER_OF_NODES."""
    found = subject.nodes
    yield from of_alerts(subject, "missing", "doubled", level=OTHERS_STAND_IN)
    for group in found.groups:
        totals = sorted({node.number_of_nodes for node in group.numbered})
        sharing = sum(node.is_elastic for node in group.nodes)
        if sharing and totals:
            do = "give all nodes of these queues numbers, or none; while an older version is replaced this passes"
            says = f"{plural(sharing, 'node')} without a number beside {len(group.numbered)} with one"
            yield warning(f"{says}: no job is lost, but the shards are not spread evenly", do)
        elif sharing:
            yield ok(f"{sharing} nodes share the shards by themselves")
        elif len(totals) > 1:
            do = "give all the same NUMBER_OF_NODES; during a rolling update this passes"
            yield warning(f"nodes disagree how many there are: {', '.join(map(str, totals))}", do)
        elif not group.missing and not group.doubled:
            of = f" for {', '.join(map(printable, group.queues))}" if len(found.groups) > 1 else ""
            yield ok(f"numbers 0 to {totals[0] - 1}{of} are there, each once")


def versions(subject: Subject) -> Iterator[Verdict]:
    """Versions side by side are fine for the time of an upgrade."""
    others = sorted({node.version for node in subject.nodes.nodes} - {VERSION})
    if others:
        yield note(f"nodes run Lowkiq {', '.join(map(printable, others))}; this is {VERSION}")
    elif subject.nodes.nodes:
        yield ok(f"nodes run Lowkiq {VERSION}, as this is")


def trips(subject: Subject) -> Iterator[Verdict]:
    """A lease that can't be renewed in time is lost, and its jobs may run twice."""
    limit = subject.settings.lease_ttl / RENEWALS_A_TTL
    for node in subject.nodes.nodes:
        trip = node.redis_round_trip or 0.0
        if trip > limit:
            says = f"the last beat of {printable(node.node)} took {trip:.1f} s, longer than the {limit:g} s between"
            do = "find what holds up Redis or that machine; or raise lease_ttl"
            yield problem(f"{says} renewals of its leases: it may lose them", do)


def long_jobs(subject: Subject) -> Iterator[Verdict]:
    """A job may run for hours. One that hangs looks the same, unless it was asked to stop, or blocks an event loop."""
    yield from of_alerts(subject, *LONG_RUNNING)
    for node in subject.nodes.nodes:
        for _, thread in node.batches:
            if thread.seconds > LONG:
                name, queue, ids = printable(node.node), printable(thread.queue or ""), map(printable, thread.ids[:3])
                hours = f"{thread.seconds / 3600:.1f} h"
                yield note(f"{name} has been at shard {thread.shard} of {queue} for {hours}: {', '.join(ids)}")


def restarts(subject: Subject) -> Iterator[Verdict]:
    """Nodes that had to be started again."""
    for node in subject.nodes.nodes:
        if node.restarts:
            last = printable(node.last_exit or "unknown")
            yield note(f"node {node.node_number} has been restarted {times(node.restarts)}; last exit: {last}")
