"""
Values as people write them. Every error names the value, where it came from, and what would do. Threads
may go by the cores that a process may keep busy: by its affinity, and the quotas of its control groups.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from lowkiq.environment import Found

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


#: Nodes of one supervisor: more names than that the file of names doesn't hold.
MOST_NODES: Final = 1000

#: Bytes that Python takes in any case; less is a number whose unit is missing.
LEAST_MEMORY: Final = 1 << 20

_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(found: Found) -> float:
    """Seconds; 0 is allowed."""
    try:
        number = float(found.text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise found.refusal("give seconds, 0 or more")
    return number


def duration(found: Found) -> float:
    """Seconds, minutes, hours or days."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", found.text.strip())
    if match is None or float(match[1]) == 0:
        raise found.refusal("give a time such as 90s, 30m, 6h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def size(found: Found) -> int:
    """Bytes; K, M and G are powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", found.text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise found.refusal("give a size such as 512M or 2G")
    return int(float(match[1]) * _BYTES[match[2].upper()])


def memory(found: Found) -> int:
    """A size that a process can have."""
    number = size(found)
    if number < LEAST_MEMORY:
        given = re.sub(r"\D+$", "", found.text.strip())
        raise found.refusal(f"no node is as small as {number:,} bytes: did you mean {given}M?")
    return number


def count(found: Found) -> int:
    """A number from 1."""
    if not re.fullmatch(r"[0-9]{1,18}", found.text.strip()) or int(found.text) < 1:
        raise found.refusal("give a number from 1")
    return int(found.text)


class NodeCount(NamedTuple):
    """How many nodes are to run here, as it was asked for: at least and at most so many."""

    text: str
    least: int
    most: int

    @property
    def is_range(self) -> bool:
        return ".." in self.text

    @property
    def is_number(self) -> bool:
        """True unless this machine decides it, by its cores or its load."""
        return self.text.isdecimal()


def nodes(found: Found) -> NodeCount:
    """A number of nodes, `auto` for one a core, or a range of numbers."""
    text = found.text.strip()
    if text == "auto":
        return NodeCount(text, cores := min(usable_cores(), MOST_NODES), cores)
    match = re.fullmatch(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?", text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most <= MOST_NODES:
        raise found.refusal(
            f"give a number from 1 to {MOST_NODES:,}, auto for one a core, or a range such as 2..8, lower number first"
        )
    return NodeCount(text, least, most)


def path(found: Found) -> Path:
    """A path, from where the command runs."""
    return Path(found.text).absolute()
