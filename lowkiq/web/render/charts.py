"""
Charts: lines over time as SVG, rendered on the server and readable without a script. The words of the axes stand
beside the drawing as text, so that they are readable at every width. Colours are the style sheet's, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

from markupsafe import Markup

from lowkiq.admin.past.history import SPANS, Point
from lowkiq.admin.past.incidents import Incident
from lowkiq.admin.words import printable, seconds
from lowkiq.web.render import formatting, times

#: The drawing's own units; it is stretched to its place.
WIDTH, HEIGHT = 600, 120
#: Units above the highest value, lest its line is cut in half.
HEADROOM: Final = 4
#: A gap of more than so many steps is shown as one: a sample may come a little late.
PATIENCE: Final = 1.9
#: From so long steps on, people are told the day.
DAY: Final = 86_400
#: Columns that show their values when pointed at.
MOST_COLUMNS: Final = 60

#: Incidents that one column names.
MOST_MARKED: Final = 3

Value = float | None

#: Labels of the tabs of spans.
SPAN_WORDS: Final = {"5m": "5 min", "1h": "1 h", "1d": "1 d", "30d": "30 d", "365d": "365 d"}
DEFAULT_SPAN: Final = "5m"

#: Formats a value, formats it where there is little room, and rounds up to where the axis ends.
Say = tuple[Callable[[float], str], Callable[[float], str], Callable[[float], float]]

_ROUND_SECONDS: Final = (1, 2, 4, 10, 20, 60, 120, 240, 600, 1_200, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400)


@dataclass(frozen=True)
class Line:
    """One line of a chart; None where nothing is known."""

    name: str
    #: Class that the style sheet colours it by.
    kind: str
    values: Sequence[Value]

    @property
    def known(self) -> list[float]:
        """The values that are there."""
        return [value for value in self.values if value is not None]


@dataclass(frozen=True)
class Chart:
    """
    Lines over one stretch of time.

    Args:
        times: when each value was taken, rising.
        start: where the axis begins; it is `length` long.
        step: seconds between values.
        words_of: a value with its unit, for people.
        marks_of: the same where there is little room.
        top_of: a round number at or above a value, where the axis ends.
        incidents: what is marked.
    """

    title: str
    lines: Sequence[Line]
    times: Sequence[float]
    start: float
    length: float
    step: float
    words_of: Callable[[float], str]
    marks_of: Callable[[float], str]
    top_of: Callable[[float], float]
    incidents: Sequence[Incident] = ()

    @property
    def top(self) -> float:
        """The highest value of the axis."""
        return self.top_of(max((value for line in self.lines for value in line.known), default=0.0))

    @property
    def marks(self) -> list[str]:
        """Words of the vertical axis, from top to bottom."""
        return [self.marks_of(self.top), self.marks_of(self.top / 2), self.marks_of(0)]

    @property
    def time_marks(self) -> list[Markup]:
        """Words of the horizontal axis, from left to right."""
        return [times.on_axis(self.start + self.length * part, self.length, is_last=part == 1) for part in (0, 0.5, 1)]

    @property
    def description(self) -> str:
        """The chart in words, for readers who can't see it."""
        return ". ".join(self._described(line) for line in self.lines)

    @property
    def svg(self) -> Markup:
        label = Markup("<title>{}</title><desc>{}</desc>").format(self.title, self.description)
        parts = [*self._grid(), *self._marks(), *map(self._drawn, reversed(self.lines)), *self._columns()]
        return Markup(
            '<svg class="plot" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img">{label}{parts}</svg>'
        ).format(w=WIDTH, h=HEIGHT, label=label, parts=Markup("").join(parts))

    def _described(self, line: Line) -> str:
        if not line.known:
            return f"{line.name}: nothing known"
        last = "unknown" if line.values[-1] is None else self.words_of(line.values[-1])
        low, high = self.words_of(min(line.known)), self.words_of(max(line.known))
        return f"{line.name}: at the end {last}, lowest {low}, highest {high}"

    def _grid(self) -> Iterator[Markup]:
        for share in (0.0, 0.5, 1.0):
            y = self._y(share * self.top)
            yield Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, y, y)

    def _marks(self) -> Iterator[Markup]:
        for incident in self.incidents:
            if self.start <= incident.at <= self.start + self.length:
                x = round(self._x(incident.at), 1)
                yield Markup('<line class="incident {}" x1="{}" x2="{}" y1="0" y2="{}"/>').format(
                    incident.severity, x, x, HEIGHT
                )

    def _drawn(self, line: Line) -> Markup:
        path = "".join(map(_path, self._stretches(line)))
        return Markup('<path class="line {}" d="{}"/>').format(line.kind, path)

    def _stretches(self, line: Line) -> Iterator[list[tuple[float, float]]]:
        """The points of each stretch without a gap."""
        stretch: list[tuple[float, float]] = []
        last = float("-inf")
        for at, value in zip(self.times, line.values, strict=True):
            if stretch and (value is None or at - last > PATIENCE * self.step):
                yield stretch
                stretch = []
            if value is not None:
                stretch.append((self._x(at), self._y(value)))
                last = at
        if stretch:
            yield stretch

    def _columns(self) -> Iterator[Markup]:
        """Invisible columns with the values as tooltips; in a long chart, a column has the highest of several steps."""
        together = -(-len(self.times) // MOST_COLUMNS) or 1
        half = self.step / self.length * WIDTH / 2
        for start in range(0, len(self.times), together):
            some = range(start, min(start + together, len(self.times)))
            x, end = self._x(self.times[start]), self._x(self.times[some[-1]] + self.step)
            yield Markup(
                '<rect class="column" x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{}</title></rect>'
            ).format(x - half, max(end - x, 1), HEIGHT, self._tooltip(some))

    def _tooltip(self, some: range) -> str:
        begun, last = self.times[some[0]], self.times[some[-1]]
        first = begun - self.step
        # A step's values are drawn at its end, which is the next day already.
        lines = [formatting.days(begun - 1, last - 1) if self.step >= DAY else formatting.moment(last)]
        for line in self.lines:
            values = [value for value in (line.values[index] for index in some) if value is not None]
            lines.append(f"{line.name} {self.words_of(max(values)) if values else 'unknown'}")
        met = (one for one in reversed(self.incidents) if first < one.at <= last)
        lines += [f"! {formatting.moment(one.at)} {printable(one.says)}" for one in islice(met, MOST_MARKED)]
        return "\n".join(lines)

    def _x(self, at: float) -> float:
        return max((at - self.start) / self.length * WIDTH, 0.0)

    def _y(self, value: float) -> float:
        return round(HEIGHT - 1 - value / self.top * (HEIGHT - 1 - HEADROOM), 1)


def _path(points: Sequence[tuple[float, float]]) -> str:
    x, y = points[0]
    if len(points) == 1:  # a point alone is drawn as a short dash, or nobody would see it
        return f"M{x - 2:.1f} {y:g}h4"
    return f"M{x:.1f} {y:g}" + "".join(f"L{x:.1f} {y:g}" for x, y in points[1:])


def round_count(value: float) -> float:
    """The next of 2, 4, 10, 20, 40, 100 … at or above it: half of it is a number of jobs, too."""
    size = 10.0
    while size < value:
        size *= 10
    return next(size * part for part in (0.2, 0.4, 1.0) if size * part >= value)


def round_seconds(value: float) -> float:
    """The next length of time at or above it whose half is round as well."""
    known = next((known for known in _ROUND_SECONDS if known >= value), None)
    return known or _ROUND_SECONDS[-1] * round_count(value / _ROUND_SECONDS[-1])


def rates(times: Sequence[float], counts: Sequence[float], step: float) -> list[Value]:
    """
    Rise of a counter per second, at each of its times. Unknown at the first, where it fell (a queue is gone, or
    began anew), and after a gap.
    """
    found: list[Value] = [None] if times else []
    for (before, low), (at, high) in pairwise(zip(times, counts, strict=True)):
        is_known = high >= low and 0 < at - before <= PATIENCE * step
        found.append((high - low) / (at - before) if is_known else None)
    return found


def sparkline(values: Sequence[float], label: str, *, base: float = 0.0, least_top: float = 0.0) -> Markup:
    """A small line without axes, from `base` up; the newest value is at the right."""
    if len(values) < 2:  # noqa: PLR2004 (a line needs two ends)
        return Markup('<svg class="spark" viewBox="0 0 60 16" role="img"><title>{}</title></svg>').format(label)
    height = max(*values, least_top) - base or 1.0
    step = 60 / (len(values) - 1)
    points = [(step * index, round(15 - (value - base) / height * 13, 1)) for index, value in enumerate(values)]
    return Markup(
        '<svg class="spark" viewBox="0 0 60 16" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<path class="under" d="{}L60 16L0 16z"/><path class="line" d="{}"/></svg>'
    ).format(label, _path(points), _path(points))


def span_of(text: str | None) -> str:
    """The span that was asked for, or the default."""
    return text if text is not None and text in SPANS else DEFAULT_SPAN


_COUNTS: Final[Say] = (formatting.number, formatting.compact, round_count)
_SPEEDS: Final[Say] = (lambda value: f"{formatting.rate(value)} a second", formatting.compact, round_count)
_LAGS: Final[Say] = (seconds, formatting.in_one_unit, round_seconds)


def charts_of(points: Sequence[Point], span: str, now: float, incidents: Sequence[Incident] = ()) -> list[Chart]:
    """Charts of jobs, speed, lag and morgue; none without points."""
    if not points:
        return []
    length, step = SPANS[span]

    def gauge(name: str, kind: str, field: str = "") -> Line:
        return Line(name, kind, [getattr(point, field or name) for point in points])

    def speed(name: str, kind: str) -> Line:
        counts = [getattr(point, name) for point in points]
        return Line(name, kind, rates([point.at for point in points], counts, step))

    jobs = [gauge("queued", "c1", "length"), gauge("running", "c2", "busy"), gauge("retrying", "c3", "retries")]
    charts = (
        ("Jobs", _COUNTS, jobs),
        ("Jobs a second", _SPEEDS, [speed("processed", "c2"), speed("failed", "c4")]),
        ("Lag", _LAGS, [gauge("lag", "c1")]),
        ("Morgue", _COUNTS, [gauge("morgue", "c4", "morgue_length")]),
    )
    # A step's counters are as of its end, its gauges are the highest within it: both are drawn at its end.
    times = [min(point.at + step, now) for point in points]
    return [
        Chart(title, lines, times, now - length, length, step, *say, incidents=incidents)
        for title, say, lines in charts
    ]
