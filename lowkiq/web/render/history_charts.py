"""HistoryCharts: which charts are drawn of a history, and of which numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lowkiq.admin.history import SPANS, Point
from lowkiq.web.render import words
from lowkiq.web.render.charts import Chart, Line, rates, round_count, round_seconds

#: What the tabs of spans say.
SPAN_WORDS: Final = {"5m": "5 min", "1h": "1 h", "1d": "1 d", "30d": "30 d"}
DEFAULT_SPAN: Final = "5m"

#: How values are said, how they are said where there is little room, and where the axis ends.
Say = tuple[Callable[[float], str], Callable[[float], str], Callable[[float], float]]


def span_of(text: str | None) -> str:
    """The span that was asked for, or the usual one."""
    return text if text is not None and text in SPANS else DEFAULT_SPAN


def charts_of(points: Sequence[Point], span: str, now: float) -> list[Chart]:
    """Jobs, speed, lag and morgue; nothing before there are points."""
    if not points:
        return []
    counts = (words.number, words.compact, round_count)
    speeds = (_a_second, words.compact, round_count)
    lags = (words.seconds, words.in_one_unit, round_seconds)
    step = SPANS[span].step
    # Of a step we know the end of its counters and the highest of its gauges: both stand at its end.
    times = [min(point.at + step, now) for point in points]
    return [
        _chart(span, times, now, "Jobs", counts, _jobs(points)),
        _chart(span, times, now, "Jobs a second", speeds, _speeds(points, step)),
        _chart(span, times, now, "Lag", lags, [Line("lag", "c1", [point.lag for point in points])]),
        _chart(span, times, now, "Morgue", counts, [Line("morgue", "c4", [point.morgue_length for point in points])]),
    ]


def _chart(
    span: str,
    times: Sequence[float],
    now: float,
    title: str,
    say: Say,
    lines: Sequence[Line],
) -> Chart:
    seconds, step = SPANS[span]
    return Chart(title, lines, times, now - seconds, seconds, step, *say)


def _jobs(points: Sequence[Point]) -> list[Line]:
    return [
        Line("enqueued", "c1", [point.length for point in points]),
        Line("busy", "c2", [point.busy for point in points]),
        Line("retries", "c3", [point.retries for point in points]),
    ]


def _speeds(points: Sequence[Point], step: float) -> list[Line]:
    times = [point.at for point in points]
    return [
        Line("processed", "c2", rates(times, [point.processed for point in points], step)),
        Line("failed", "c4", rates(times, [point.failed for point in points], step)),
    ]


def _a_second(value: float) -> str:
    return f"{words.rate(value)} a second"
