"""Values as people write them. Every error names the value, where it came from, and what would do."""

from __future__ import annotations

import math
import re
from pathlib import Path

from lowkiq.environment import Found

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


def count(found: Found) -> int:
    """A number from 1."""
    if not re.fullmatch(r"[0-9]{1,18}", found.text.strip()) or int(found.text) < 1:
        raise found.refusal("give a number from 1")
    return int(found.text)


def path(found: Found) -> Path:
    """A path, from where the command runs."""
    return Path(found.text).absolute()
