"""
Acknowledging: somebody has seen an alert. It is told last from then on, and wakes nobody, for as long as it lasts; with
a time until then, also when it ends and begins again: so it is muted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from lowkiq.admin.alerts.alert import Acknowledged, Alert
from lowkiq.admin.alerts.emptied import acknowledge as acknowledge_loss
from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.pauses import MOST_WHO, MOST_WHY
from lowkiq.admin.words import moment, printable
from lowkiq.codec import encodable
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, pairs, redis_time

#: Alerts that are acknowledged at a time; seconds after which one without a time is forgotten, as incidents are.
MOST, KEPT_SECONDS = 500, 30 * 86_400.0
#: Seconds for which an alert can be muted.
MUTED_AT_MOST: Final = 365 * 86_400.0


def reading(namespace: str) -> tuple[str, str, int, str, int]:
    """The command whose reply `parse_acknowledged` takes."""
    return "HSCAN", keys.acknowledged(namespace), 0, "COUNT", MOST * 2


def parse_acknowledged(reply: Any) -> dict[str, Acknowledged]:
    """Key of an alert → who has seen it. What can't be read is left out: the alert is told of then."""
    page = reply[1] if reply else {}
    rows = page.items() if isinstance(page, Mapping) else pairs(page)
    found: dict[str, Acknowledged] = {}
    for key, text in list(rows)[: MOST * 2]:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            found[key.decode()] = _ACKNOWLEDGED.decode(text)
    return found


def with_acknowledged(alerts: Sequence[Alert], known: Mapping[str, Acknowledged], at: float) -> Iterator[Alert]:
    """The alerts, those that somebody has seen with that."""
    for alert in alerts:
        seen = known.get(alert.key)
        yield msgspec.structs.replace(alert, acknowledged=seen) if seen and _counts(seen, alert, at) else alert


def seen_by_all(alerts: Sequence[Alert]) -> Acknowledged | None:
    """Who has seen alerts that are told as one; None: of one of them nobody has."""
    return alerts[0].acknowledged if all(alert.acknowledged for alert in alerts) else None


def acknowledge(
    caller: Caller, namespace: str, alerts: Sequence[Alert], who: str, *, until: float | None = None, note: str = ""
) -> int:
    """
    Acknowledges alerts, in somebody's name; that of an emptied Redis ends with it.

    Args:
        until: a Unix time; None: for as long as each lasts.
        note: for people.

    Returns:
        how many there were.
    """
    at, key = redis_time(caller), keys.acknowledged(namespace)
    seen = Acknowledged(encodable(who)[:MOST_WHO], at, until, encodable(note)[:MOST_WHY])
    (page,) = caller.read([reading(namespace)], None)
    known = parse_acknowledged(page)
    over = [name for name, one in known.items() if (one.at + KEPT_SECONDS if one.until is None else one.until) < at]
    if over:
        caller.commands([("HDEL", key, *over)])
    room = MOST - len(known) + len(over)
    stay = [alert for alert in alerts if alert.kind != "emptied"][: max(room, 0)]
    if stay:
        text = msgspec.json.encode(seen)
        caller.commands([("HSET", key, *(word for alert in stay for word in (alert.key, text)))])
    more = f" until {moment(until)}" if until is not None else ""
    for alert in stay:
        says = f"Seen{more}{f' ({note})' if note else ''}: {alert.says}"
        note_deed(caller, namespace, alert.queue, "acknowledged", says, who)
    return len(stay) + any(acknowledge_loss(caller, namespace, who) for alert in alerts if alert.kind == "emptied")


def by_whom(alert: Alert) -> str:
    """Who has acknowledged an alert, until when and why."""
    seen = alert.acknowledged
    if seen is None:
        return ""
    until = f" until {moment(seen.until)}" if seen.until is not None else ""
    return f" by {printable(seen.who, 80)}{until}{f': {printable(seen.note, 200)}' if seen.note else ''}"


def _counts(seen: Acknowledged, alert: Alert, at: float) -> bool:
    """Returns whether this alert is meant. Of one of which nobody knows yet when it began that can't be said."""
    if seen.until is not None:
        return at < seen.until
    return alert.since is None or alert.since <= seen.at


_ACKNOWLEDGED: Final = msgspec.json.Decoder(Acknowledged)
