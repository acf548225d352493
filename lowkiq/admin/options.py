"""Options: what the numbers of a worker may be, in its code and as live settings of its queue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypedDict

from lowkiq.environment import MOST_WEIGHT
from lowkiq.errors import SettingsError, short, unknown_option
from lowkiq.policies import MOST_RETRIES, check_retry
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.rate import Rate, parse_rate

#: Option → the least and the most that it may be.
RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "shards_count": (1, MOST_SHARDS),
    "batch_size": (1, 1_000),
    "concurrency": (1, 1_000),
    "max_running": (1, 10_000),
    "max_payloads": (1, 1_000),
    "max_retry_count": (0, MOST_RETRIES),
}
#: Options that may be None.
OPTIONAL: Final = ("concurrency", "max_running", "max_payloads", "perform_timeout", "rate", "weight")
#: Seconds that a perform_timeout may be: a day.
LONGEST_PERFORM: Final = 86_400
#: The lowest level that is logged by nodes of a queue.
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
#: Fates of a job after its last try.
FATES: Final = ("bury", "block", "discard")


class LiveOptions(TypedDict, total=False):
    """What can be set while nodes run. The last two no worker has: nodes are told their weights."""

    concurrency: int | None
    max_running: int | None
    batch_size: int
    max_retry_count: int
    when_exhausted: Literal["bury", "block", "discard"]
    perform_timeout: float | None
    #: Jobs and seconds: 100/60.
    rate: str | None
    weight: int | None
    log_level: Literal["debug", "info", "warning", "error"]


LIVE: Final = tuple(LiveOptions.__annotations__)


class Settable(LiveOptions, total=False):
    """All that can be set of a queue: beside those, for no node, limits of its alerts, as settings of these names."""

    alert_lag: float
    alert_failing: float
    alert_morgue: float
    alert_long: float


#: Limit of alerts → the most that it may be.
ALERT_LIMITS: Final[Mapping[str, float]] = {
    "alert_lag": 31_536_000, "alert_failing": 1, "alert_morgue": 1_000_000_000, "alert_long": 1_000_000,
}  # fmt: skip
SETTABLE: Final = (*LIVE, *ALERT_LIMITS)


def check_option(label: str, name: str, value: Any) -> None:
    """Raises SettingsError for a value that an option can't have, with what it may be."""
    if value is None and name in OPTIONAL:
        return
    if check := _CHECKS.get(name):
        check(label, value)
    else:
        low, high = (1, MOST_WEIGHT) if name == "weight" else RANGES[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise SettingsError(f"{label}: {name} is {value!r}, it must be an integer from {low:,} to {high:,}")


def _check_timeout(label: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value <= LONGEST_PERFORM):
        raise SettingsError(
            f"{label}: perform_timeout is {short(value)}, it must be a number of seconds above 0 and up to "
            f"{LONGEST_PERFORM:,}, or None"
        )


def _check_rate(label: str, value: Any) -> None:
    if not isinstance(value, Rate):
        raise SettingsError(f"{label}: rate is {short(value)}, it must be such as Rate(100, per=60), or None")


def _check_fate(label: str, value: Any) -> None:
    if value not in FATES:
        raise SettingsError(f'{label}: when_exhausted is {short(value)}, it must be "bury", "block" or "discard"')


def _check_level(label: str, value: Any) -> None:
    if value not in LOG_LEVELS:
        raise SettingsError(f"{label}: log_level is {short(value)}, it must be one of {', '.join(LOG_LEVELS)}")


#: Checks of what is no integer.
_CHECKS: Final[Mapping[str, Callable[[str, Any], None]]] = {
    "perform_timeout": _check_timeout, "rate": _check_rate, "retry": check_retry, "when_exhausted": _check_fate,
    "log_level": _check_level,
}  # fmt: skip


def check_live(queue: str, name: str, value: Any) -> None:
    """Raises SettingsError for what can't be set, or can't have that value; it names what was meant perhaps."""
    if name not in SETTABLE:
        raise unknown_option("live setting", name, SETTABLE)
    if name in ALERT_LIMITS:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= ALERT_LIMITS[name]):
            most = f"{ALERT_LIMITS[name]:,}"
            raise SettingsError(f"queue {queue}: {name} is {short(value)}, it must be a number from 0 (off) to {most}")
        return
    if name == "rate" and value is not None:
        value = parse_rate(f"queue {queue}", value)
    check_option(f"queue {queue}", name, value)


def parse_live(text: str) -> tuple[str, Any]:
    """A setting as people type it: `concurrency=10`, `perform_timeout=none`. Raises SettingsError."""
    name, is_set, value = text.partition("=")
    if not is_set:
        raise SettingsError(f"{short(text)} sets nothing: say {name or 'name'}=VALUE")
    if value.lower() in {"none", "null"}:
        return name, None
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed
