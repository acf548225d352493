"""Page of incidents: what has happened, and what people did, the newest first."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from starlette.exceptions import HTTPException

from lowkiq.admin.alerts.noted import INCIDENTS
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.admin.words import date_of
from lowkiq.web.pages.live import Visit
from lowkiq.web.view import View

#: Incidents of a page.
PAGE: Final = 100
#: Name of a length of time → its words, and its seconds.
LENGTHS: Final[Mapping[str, tuple[str, int]]] = {
    "1h": ("hour", 3_600), "1d": ("day", 86_400), "7d": ("week", 7 * 86_400), "30d": ("30 days", 30 * 86_400),
}  # fmt: skip
FILTERS: Final = ("kind", "queue", "node", "who")


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """The timeline, as far as the filters let it through."""
    query = {name: value for name, value in visit.query.items() if value}
    over = query.get("over", "30d") if query.get("over", "30d") in LENGTHS else "30d"
    until = _time(query.get("until", ""))
    since = (until or visit.snapshot.at) - LENGTHS[over][1]
    wanted = {name: query.get(name) for name in FILTERS}
    found = []
    if visit.is_whole or (visit.reads and "cursor" not in query):
        backend = view.backend
        found = read_incidents(
            backend.caller, backend.namespace, since=since, until=until, limit=PAGE + 1,
            cursor=query.get("cursor", ""), **wanted,
        )  # fmt: skip
    chosen = {**wanted, "over": over, "until": query.get("until")}
    return {
        "days": [(day, list(rows)) for day, rows in groupby(found[:PAGE], lambda row: _day(row.at))],
        "older": dict(chosen, cursor=found[PAGE - 1].key) if len(found) > PAGE else None,
        "is_later_page": "cursor" in query,
        "kinds": INCIDENTS,
        "lengths": {name: words for name, (words, _) in LENGTHS.items()},
        "chosen": chosen,
        "is_filtered": any(wanted.values()) or until is not None or over != "30d",
    }


def _day(at: float) -> str:
    date = date_of(at)
    return date.strftime("%A, %d %B %Y") if date else "Some day"


def _time(text: str) -> float | None:
    """A time as its field sends it, in UTC."""
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise HTTPException(400, f"{text[:40]} is no time: write it as 2026-11-23T22:10.") from None
