"""Plots for docs/performance.md: one look, on a ground of its own, readable in light and in dark themes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Where `make bench-*` leaves them.
IMAGES = Path(__file__).parent.parent / "docs" / "images"

GROUND, INK, FAINT, GRID = "#10151f", "#e8edf5", "#93a0b4", "#232c3b"
OURS, OTHERS = "#35d0a0", "#5b7ba8"
#: Of several lines or bars in one plot.
COLOURS = ("#35d0a0", "#f2b950", "#6fa8ff", "#ef7d95")

#: A label and its values, one a series; None where there is none.
Bar = tuple[str, Sequence[float | None]]


def bars(
    path: Path,
    title: str,
    note: str,
    rows: Sequence[Bar],
    *,
    form: str = "{:,.0f}",
    series: Sequence[str] = ("",),
    highlight: str = "Lowkiq",
) -> None:
    """Horizontal bars with their values, on a logarithmic scale: peers differ by orders of magnitude."""
    height = 1.6 + 0.36 * len(rows) * max(1.0, len(series) * 0.7)
    with _figure(path, title, note, height) as axes:
        thick = 0.74 / len(series)
        values = [value for _, row in rows for value in row if value]
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 3, max(values) * 4)
        for number, name in enumerate(series):
            for place, (label, row) in enumerate(rows):
                value = row[number]
                if not value:
                    continue
                at = place + (number - (len(series) - 1) / 2) * thick
                colour = (OURS if label == highlight else OTHERS) if len(series) == 1 else COLOURS[number]
                axes.barh(at, value, thick * 0.9, color=colour, label=name if place == 0 else "")
                axes.text(value * 1.08, at, form.format(value), va="center", color=INK, fontsize=9)
        axes.set_yticks(range(len(rows)), [label for label, _ in rows])
        axes.invert_yaxis()
        for text, (label, _) in zip(axes.get_yticklabels(), rows, strict=True):
            text.set(color=OURS if label == highlight else INK, fontweight="bold" if label == highlight else "normal")
        axes.grid(visible=False, axis="y")
        if len(series) > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(series), frameon=False, labelcolor=INK)


def lines(path: Path, title: str, note: str, panels: Sequence[tuple[str, Sequence[str], Sequence[float]]]) -> None:
    """Small plots side by side, each with its own steps: flat is good."""
    from matplotlib.ticker import FormatStrFormatter  # noqa: PLC0415 (only plots need it)

    with _figure(path, title, note, 3.4, len(panels)) as all_axes:
        for axes, (name, steps, values) in zip(all_axes, panels, strict=True):
            axes.plot(range(len(steps)), values, color=OURS, marker="o", linewidth=2)
            axes.set_ylim(0, max(values) * 1.35)
            axes.set_title(name, color=INK, fontsize=10)
            axes.set_xticks(range(len(steps)), steps)
            axes.yaxis.set_major_formatter(FormatStrFormatter("%.3g"))
            for place, value in enumerate(values):
                axes.annotate(
                    f"{value:,.3g}",
                    (place, value),
                    (0, 7),
                    textcoords="offset points",
                    ha="center",
                    color=INK,
                    fontsize=8,
                )


@contextmanager
def _figure(path: Path, title: str, note: str, height: float, panels: int = 1) -> Iterator[Any]:
    import matplotlib as mpl  # noqa: PLC0415 (only plots need it)

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, made = pyplot.subplots(1, panels, figsize=(max(8.6, 3.1 * panels), height), dpi=160, facecolor=GROUND)
    for axes in [made] if panels == 1 else made:
        axes.set_facecolor(GROUND)
        axes.tick_params(colors=FAINT, length=0, labelsize=9)
        axes.grid(visible=True, color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
    yield made
    figure.suptitle(title, x=0.02, ha="left", color=INK, fontsize=13, fontweight="bold")
    figure.text(0.02, 0.02, note, color=FAINT, fontsize=8)
    figure.tight_layout(rect=(0, 0.05, 1, 0.99))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor=GROUND)
    pyplot.close(figure)
