"""Row: one line of a table, with what is promised of it; printed for people or as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import redis
from rich.console import Console
from rich.table import Table

from benchmarks.contender import server


@dataclass(frozen=True)
class Row:
    """
    Args:
        values: one a round.
        form: how the median is written, e.g. "{:,.0f}/s".
        least: what is promised at least,
        most: or at most.
    """

    label: str
    values: Sequence[float]
    form: str = "{:,.0f}"
    least: float | None = None
    most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool | None:
        """True if the median is as promised; None without a promise."""
        if self.least is not None:
            return self.median >= self.least
        if self.most is not None:
            return self.median <= self.most
        return None

    @property
    def promise(self) -> str:
        """The promise in words."""
        if self.least is not None:
            return f"≥ {self.form.format(self.least)}"
        return f"≤ {self.form.format(self.most)}" if self.most is not None else ""


def ratios(values: Iterable[float], by: Iterable[float]) -> list[float]:
    """Round by round: what both had in common falls out."""
    return [value / other for value, other in zip(values, by, strict=True)]


def show(title: str, rows: Sequence[Row], *, as_json: bool = False) -> int:
    """Prints the rows; 1 when one of them breaks its promise, else 0."""
    if as_json:
        print(json.dumps({"machine": shape(), "rows": [_as_dict(row) for row in rows]}, indent=2))
    else:
        table = Table("what", "median", "promised", "", title=f"{title} on {shape()}")
        for row in rows:
            mark = {True: "[green]holds", False: "[red]missed", None: ""}[row.holds]
            table.add_row(row.label, row.form.format(row.median), row.promise, mark)
        console().print(table)
    return exit_code(rows)


def exit_code(rows: Sequence[Row]) -> int:
    """1 when one of the rows breaks its promise, else 0."""
    return int(any(row.holds is False for row in rows))


def console() -> Console:
    """Prints tables whole, also into files."""
    return Console(width=None if sys.stdout.isatty() else 160)


def shape() -> str:
    """Machine, Python and Redis that the figures are of."""
    with server() as url, redis.Redis.from_url(url) as client:
        version = client.info("server")["redis_version"]
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, Redis {version}"


def _as_dict(row: Row) -> dict[str, object]:
    return {
        "what": row.label,
        "median": row.median,
        "rounds": list(row.values),
        "promised": row.promise,
        "holds": row.holds,
    }
