"""
Noted: since when alerts have lasted. One that begins or ends becomes an incident.

The node whose turn of housekeeping it is notes them, and a web view where no node does. Each has its own list, and yet
all tell the same times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lowkiq.admin.alerts.alert import KINDS, Alert
from lowkiq.admin.beats.health import BEAT_INTERVAL
from lowkiq.admin.jobs.deeds import DEEDS, kind_of
from lowkiq.admin.past.incidents import KINDS as HAPPENINGS
from lowkiq.admin.past.incidents import NewIncident, end, note
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, pairs
from lowkiq.queue.unreadable import finite

#: Kinds of incidents: of what has happened or was done, and of alerts.
INCIDENTS: Final = tuple(dict.fromkeys((*HAPPENINGS, *map(kind_of, DEEDS), *KINDS)))
#: Alerts that are noted.
MOST: Final = 500
#: Seconds for which an alert may be away and be the same: nodes that take turns see things at different moments.
AWAY: Final = 3 * BEAT_INTERVAL
#: Seconds after which what nobody has noted since is forgotten.
KEPT: Final = 86_400
#: Seconds after which somebody else should note.
STALE: Final = 2.5 * BEAT_INTERVAL
#: The field that tells when anything was noted last.
LAST: Final = ""


class Noted(NamedTuple):
    #: Key of an alert → since when.
    since: Mapping[str, float]
    #: When, by Redis's clock; 0: never.
    at: float


def reading(namespace: str) -> tuple[str, str, int, str, int]:
    """The command whose reply `parse_noted` takes; mostly all are in its first page."""
    return "HSCAN", keys.alerts(namespace), 0, "COUNT", MOST * 2


def parse_noted(reply: Any) -> Noted:
    """What can't be read is left out: the next one who notes writes it anew."""
    page = reply[1] if reply else {}
    rows = page.items() if isinstance(page, Mapping) else pairs(page)
    times: dict[str, float] = {}
    for key, value in list(rows)[: MOST * 2]:
        try:
            times[key.decode()] = finite(value[:100].split()[0])
        except (ValueError, IndexError):
            continue
    return Noted(times, times.pop(LAST, 0.0))


class Notes:
    """Notes alerts; each that begins or ends, once."""

    def __init__(self, caller: Caller, namespace: str) -> None:
        self._caller, self._namespace = caller, namespace
        #: Key of an alert → its incident, and when anybody told of it last, of those that this process has told.
        self._told: dict[str, tuple[str, float]] = {}

    def __call__(self, every: Sequence[Alert], shown: Sequence[Alert]) -> Mapping[str, float]:
        """
        Notes that these are there now, and returns since when.

        Args:
            every: also those that are only consequences of others.
            shown: those that become incidents.
        """
        rows = [word for one in every[:MOST] for word in (one.key, "" if one.since is None else f"{one.since:.6f}")]
        call = Call("note_alerts", [keys.alerts(self._namespace)], [MOST, AWAY, KEPT, *rows], list)
        there, over = (_times(row) for row in self._caller.run(call))
        self._end(over, there)
        since = {key: times.since for key, times in there.items()}
        self._tell({one.key: one for one in shown if one.key in there}, since)
        self._told = {key: (name, there[key].told) for key, (name, _) in self._told.items()}
        return since

    def _tell(self, shown: Mapping[str, Alert], since: Mapping[str, float]) -> None:
        news = {key: _incident_key(key, since[key]) for key in shown if key not in self._told}
        incidents = [
            NewIncident(
                key=news[key], kind=shown[key].kind, severity=shown[key].severity, says=shown[key].says, lasts=True,
                queue=shown[key].queue, at=since[key],
            )
            for key in news
        ]  # fmt: skip
        if incidents:
            note(self._caller, self._namespace, incidents)
            self._told |= {key: (name, 0.0) for key, name in news.items()}

    def _end(self, over: Mapping[str, _Times], there: Mapping[str, _Times]) -> None:
        """
        Ends them as of when they were told of last. Also those that another has removed, or a call of ours whose reply
        was lost: as of when this process knew of them last.
        """
        lasting = {_incident_key(key, times.since) for key, times in there.items()}
        gone = {key: row for key, row in self._told.items() if row[0] not in lasting}
        ended = dict(gone.values()) | {_incident_key(key, times.since): times.told for key, times in over.items()}
        if ended:
            end(self._caller, self._namespace, ended)
        self._told = {key: row for key, row in self._told.items() if key not in gone}


class _Times(NamedTuple):
    since: float
    #: When anybody told of it last.
    told: float


def _times(row: Sequence[bytes]) -> dict[str, _Times]:
    triples = zip(row[::3], row[1::3], row[2::3], strict=True)
    return {key.decode("utf-8", "backslashreplace"): _Times(float(since), float(told)) for key, since, told in triples}


def _incident_key(key: str, since: float) -> str:
    return f"alert:{since:.6f}:{key}"
