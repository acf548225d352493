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


LOST_BEGINNING = (
    "the mover of a reshard whose beginning a failover has lost gives new shards its layout, and the next reshard, to "
    "another number, meets it there"
)

KNOWN: tuple[Known, ...] = (_known("failover reshard", "ShardsCountMismatch:", LOST_BEGINNING),)


def known(pair: tuple[str, ...], error: str) -> Known | None:
    """The fault that this failure is of, if it is a known one."""
    return next((one for one in KNOWN if one.capabilities <= set(pair) and error.startswith(one.begins)), None)
