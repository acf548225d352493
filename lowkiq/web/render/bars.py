"""Bars: a histogram of lengths of time as SVG, with its numbers in words, so that it is readable without a script."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from markupsafe import Markup

from lowkiq.admin.past.statistics import Lengths
from lowkiq.admin.words import short_seconds

#: The drawing's own units; it is stretched to its place.
WIDTH, HEIGHT = 600, 70
#: A bar stands for so many times the seconds that the one before it ends with.
RATIO: Final = 2
#: Units of height by which even one job can be seen.
LEAST_HEIGHT: Final = 1.5


@dataclass(frozen=True)
class Bar:
    """How many were at least, and less than, so many seconds."""

    low: float
    high: float
    count: int


class Bars(NamedTuple):
    """A histogram, from the shortest bar that holds something to the longest."""

    title: str
    bars: list[Bar]

    @classmethod
    def of(cls, title: str, lengths: Lengths) -> Self:
        """Puts together what lies within one doubling of a millisecond."""
        counts: dict[int, int] = {}
        for bucket in lengths.buckets:
            middle = math.sqrt(bucket.low * bucket.high) if bucket.low else bucket.high / RATIO
            power = math.floor(math.log2(middle * 1000))
            counts[power] = counts.get(power, 0) + bucket.count
        powers = range(min(counts), max(counts) + 1) if counts else range(0)
        return cls(title, [Bar(2.0**at / 1000, 2.0 ** (at + 1) / 1000, counts.get(at, 0)) for at in powers])

    @property
    def marks(self) -> list[str]:
        """Words of the axis, from left to right."""
        return [short_seconds(self.bars[0].low), short_seconds(self.bars[-1].high)] if self.bars else []

    @property
    def description(self) -> str:
        """Its numbers in words."""
        return "; ".join(map(_words, (bar for bar in self.bars if bar.count)))

    @property
    def svg(self) -> Markup:
        label = Markup("<title>{}</title><desc>{}</desc>").format(self.title, self.description)
        most, width = max((bar.count for bar in self.bars), default=1), WIDTH / max(len(self.bars), 1)
        drawn = Markup("").join(self._drawn(at, bar, width, most) for at, bar in enumerate(self.bars))
        return Markup(
            '<svg class="bars" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img">{label}{drawn}</svg>'
        ).format(w=WIDTH, h=HEIGHT, label=label, drawn=drawn)

    def _drawn(self, at: int, bar: Bar, width: float, most: int) -> Markup:
        height = max(bar.count / most * HEIGHT, LEAST_HEIGHT) if bar.count else 0
        return Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>').format(
            at * width + 1, HEIGHT - height, max(width - 2, 1), height, _words(bar)
        )


def _words(bar: Bar) -> str:
    return f"{bar.count:,} from {short_seconds(bar.low)} to {short_seconds(bar.high)}"
