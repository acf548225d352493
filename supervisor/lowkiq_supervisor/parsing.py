"""
Options as people write them: which of option and variable counts, and what its text means.

Every error names the value, where it came from, and what would do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from lowkiq_supervisor.errors import UsageError

#: A value and where it came from, for messages.
Sourced = tuple[str, str] | None

#: An ordinal, or a name that ends in one, such as a StatefulSet's pod: `jobs-3`.
_ORDINAL = re.compile(r"(?:.+-)?(\d{1,9})")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")

_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def given(option: str, value: str | None, environ: Mapping[str, str], plain: str | None = None) -> Sourced:
    """The option, else LOWKIQ_<NAME>, else the plain name; an empty variable counts as unset."""
    if value is not None:
        return value, option
    own = "LOWKIQ_" + option.removeprefix("--").replace("-", "_").upper()
    for name in (own, plain):
        if name and environ.get(name):
            return environ[name], name
    return None


def ordinal(found: Sourced) -> tuple[int, str] | None:
    """This machine's number, with what to call it in messages."""
    if found is None:
        return None
    value, source = found
    match = _ORDINAL.fullmatch(value.strip())
    if match is None:
        raise UsageError(
            f"{source} is {value!r}: this machine's number is an integer from 0, or a name that ends in one, "
            "such as jobs-3"
        )
    return int(match[1]), f"{source}={value}"


def total(found: Sourced) -> tuple[int, str] | None:
    """The number of all nodes, with what to call it in messages."""
    if found is None:
        return None
    value, source = found
    if not re.fullmatch(r"[0-9]{1,9}", value.strip()) or int(value) < 1:
        raise UsageError(f"{source} is {value!r}: the number of all nodes is an integer from 1")
    return int(value), f"{source}={value}"


def seconds(found: Sourced, default: float) -> float:
    """Seconds; 0 is allowed."""
    if found is None:
        return default
    value, source = found
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{source} is {value!r}: give seconds, 0 or more")
    return number


def duration(found: Sourced) -> float | None:
    """Seconds, minutes, hours or days; None: without a limit."""
    if found is None:
        return None
    value, source = found
    match = _DURATION.fullmatch(value.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{source} is {value!r}: give a time such as 90s, 30m, 6h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def size(found: Sourced) -> int | None:
    """Bytes; K, M and G are powers of 1024. None: without a limit."""
    if found is None:
        return None
    value, source = found
    match = _SIZE.fullmatch(value.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{source} is {value!r}: give a size such as 512M or 2G")
    return int(float(match[1]) * _BYTES[match[2].upper()])


def count(found: Sourced) -> int | None:
    """A number from 1. None: without a limit."""
    if found is None:
        return None
    value, source = found
    if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or int(value) < 1:
        raise UsageError(f"{source} is {value!r}: give a number from 1")
    return int(value)
