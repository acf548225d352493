"""Times of a queue, on its page: how long jobs waited and ran today, and on the days before."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from lowkiq.admin.past.history import SPANS
from lowkiq.admin.past.incidents import Incident, read_incidents
from lowkiq.admin.past.statistics import (
    DAY,
    KEPT_DAYS,
    Lengths,
    Statistics,
    date_of,
    day_of,
    number_of,
    read_statistics,
    statistics_of,
)
from lowkiq.admin.words import short_seconds
from lowkiq.web.pages.live import Visit
from lowkiq.web.render.bars import Bars
from lowkiq.web.render.charts import Chart, Line, round_seconds
from lowkiq.web.view import View

#: Incidents that a chart marks, the newest.
MOST_MARKS: Final = 50
#: Days that charts look back on, by the parameter of the address.
DAYS: Final[Mapping[str, int]] = {"7": 7, "30": 30, "365": 365}


def numbers(view: View, visit: Visit, queue: str) -> dict[str, Any]:
    """The section's values. A day is read every few seconds; the charts only when a person opens the page."""
    wanted = visit.query.get("days", "")
    days = wanted if wanted in DAYS else "30"
    if not visit.reads:
        return {"times": None, "days": days, "all_days": DAYS}
    caller, namespace, today = view.backend.caller, view.backend.namespace, day_of(visit.snapshot.at)
    number = _day(visit.query.get("day", ""), today)
    one = statistics_of(caller, namespace, queue, number)
    charts: Sequence[Chart] = ()
    if visit.is_whole:
        past = read_statistics(caller, namespace, queue, DAYS[days], until=today)
        charts = _charts(past, DAYS[days], today, _marks(view, float((today + 1 - DAYS[days]) * DAY), queue))
    return {
        "times": [("waited", one.wait, Bars.of("Waited", one.wait)), ("ran", one.run, Bars.of("Ran", one.run))],
        "times_day": one.day if number < today else None,
        "day_before": date_of(number - 1) if number > today - KEPT_DAYS else None,
        "day_after": date_of(number + 1) if number < today - 1 else None,
        "time_charts": charts,
        "days": days,
        "all_days": DAYS,
    }


def marked(view: View, visit: Visit, span: str, queue: str | None = None) -> Sequence[Incident]:
    """Incidents that charts of that span mark: of a queue's page, its own and those of no queue."""
    return _marks(view, visit.snapshot.at - SPANS[span].seconds, queue) if visit.reads else ()


def _marks(view: View, since: float, queue: str | None) -> Sequence[Incident]:
    found = read_incidents(view.backend.caller, view.backend.namespace, since=since, limit=MOST_MARKS)
    return [one for one in found if queue is None or one.queue in {"", queue}]


def _day(text: str, today: int) -> int:
    """The number of the day that the address asks for: today, unless it is one of which something may be kept."""
    with suppress(ValueError):
        number = number_of(datetime.date.fromisoformat(text))
        return number if today - KEPT_DAYS <= number <= today else today
    return today


def _charts(past: Sequence[Statistics], days: int, today: int, incidents: Sequence[Incident]) -> list[Chart]:
    """Waits and runs by day, each drawn at its end; none of nothing."""
    if not past:
        return []
    by_day = {number_of(one.day): one for one in past}
    numbers = range(today - days + 1, today + 1)
    start = float((today + 1 - days) * DAY)

    def chart(title: str, lengths: Sequence[Lengths | None]) -> Chart:
        lines = [
            Line("p50", "c1", [one.p50 if one else None for one in lengths]),
            Line("p95", "c3", [one.p95 if one else None for one in lengths]),
        ]
        times = [float((number + 1) * DAY) for number in numbers]
        return Chart(title, lines, times, start, days * DAY, DAY, short_seconds, _mark, _top, incidents)

    found = [by_day.get(number) for number in numbers]
    return [
        chart("Waited, by day", [one.wait if one else None for one in found]),
        chart("Ran, by day", [one.run if one else None for one in found]),
    ]


def _mark(value: float) -> str:
    return short_seconds(value) if value else "0"


def _top(value: float) -> float:
    """A round length at or above it: of under a second one of 1, 2 and 4 with zeros."""
    if value >= 1:
        return round_seconds(value)
    size = 1e-6
    while size * 10 <= value:
        size *= 10
    return next(part * size for part in (1, 2, 4, 10) if part * size >= value or part == 10)  # noqa: PLR2004
