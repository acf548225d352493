"""Cores: how many of the machine's a process may keep busy, by its affinity and the quotas of its control groups."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

#: The control groups of this process, and where they are mounted.
MEMBERSHIP: Final = Path("/proc/self/cgroup")
MOUNTED: Final = Path("/sys/fs/cgroup")

_Read: TypeAlias = Callable[[Path], float | None]


def usable_cores(membership: Path = MEMBERSHIP, mounted: Path = MOUNTED) -> int:
    """At least 1. A part of a core counts as one: jobs mostly wait, and it would be left idle otherwise."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([here, *(math.ceil(quota) for quota in _quotas(membership, mounted))]))


def _quotas(membership: Path, mounted: Path) -> Iterator[float]:
    """The quotas that hold for this process, in cores: its group's, and those of the groups around that."""
    lines = _read(membership).splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if not controllers:
            yield from _up(mounted, path, _of_version_2)
        elif "cpu" in controllers.split(","):
            for name in dict.fromkeys((controllers, "cpu")):
                yield from _up(mounted / name, path, _of_version_1)


def _up(root: Path, path: str, read: _Read) -> Iterator[float]:
    """A container may see the host's path, and has only its own part of the tree: so all that is there counts."""
    parts = [part for part in path.split("/") if part not in {"", ".."}]
    for depth in range(len(parts), -1, -1):
        if (quota := read(root.joinpath(*parts[:depth]))) is not None:
            yield quota


def _of_version_2(group: Path) -> float | None:
    return _ratio(*(_read(group / "cpu.max").split() or ["max"]))


def _of_version_1(group: Path) -> float | None:
    return _ratio(_read(group / "cpu.cfs_quota_us").strip(), _read(group / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str = "100000", *_: str) -> float | None:
    """Microseconds of CPU in each period, as cores; None: "max" or -1, which is no limit, or nothing of the kind."""
    if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
        return int(quota) / int(period)
    return None


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("ascii", errors="replace")
    return ""
