"""Alerts of supervisors: what they have told their nodes to tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from lowkiq.admin.alerts.alert import Alert, Severity
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.words import printable


class _Rule(NamedTuple):
    severity: Severity
    do: str
    command: str = "lowkiq-supervisor status"


#: Kind → what follows. A notice begins with its kind and a colon (the supervisor's notices.py); a peer of an older
#: version tells none, or shows it as the beginning of the sentence.
RULES: Final[Mapping[str, _Rule]] = {
    "crash loop": _Rule("bad", "See its log there and mend the cause: it is started again by itself"),
    "roll stopped": _Rule(
        "warn", "Mend the cause, then go on with the rest there", "lowkiq-supervisor restart --resume"
    ),
    "recycling": _Rule("warn", "Give its jobs more time (--drain-timeout), or make them shorter; see the log there"),
    "supervisor": _Rule("warn", "See `lowkiq-supervisor status` there, and its log"),
}


def of_supervisors(now: Situation) -> Iterator[Alert]:
    """Each notice once, though all nodes of a supervisor carry it."""
    told = {(node.host, notice) for node in now.nodes.nodes for notice in node.notices}
    for host, notice in sorted(told):
        kind, _, text = notice.partition(": ")
        if kind not in RULES:
            kind, text = "supervisor", notice
        rule, on = RULES[kind], printable(host, 60)
        says = f"On {on}, {printable(text, 900)}"
        yield Alert(kind, rule.severity, on, says, rule.do, None, "/nodes", rule.command, text.partition(" since ")[0])
