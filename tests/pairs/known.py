"""Faults that are known and not mended yet: where they show, and how. It is to be empty."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """Failures of every pair that has all of these capabilities, and whose error begins so."""

    capabilities: frozenset[str]
    begins: str
    why: str


def _known(capabilities: str, begins: str, why: str) -> Known:
    return Known(frozenset(capabilities.split()), begins, why)


LOST_CHUNK = "a failover loses what a new shard has just adopted, and the mover goes on to drop it from the old one"

KNOWN: tuple[Known, ...] = (
    _known("failover reshard", "I3:", LOST_CHUNK),
    _known("failover reshard", "I6:", LOST_CHUNK),
    _known("failover reshard", "the move does not end", "found last, with reshards that take claims along"),
    _known("failover reshard", "I2:", "an epoch falls when a failover loses the moment in which a reshard ended"),
)


def known(pair: tuple[str, ...], error: str) -> Known | None:
    """The fault that this failure is of, if it is a known one."""
    return next((one for one in KNOWN if one.capabilities <= set(pair) and error.startswith(one.begins)), None)
