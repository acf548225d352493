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


KNOWN: tuple[Known, ...] = ()


def known(pair: tuple[str, ...], error: str) -> Known | None:
    """The fault that this failure is of, if it is a known one."""
    return next((one for one in KNOWN if one.capabilities <= set(pair) and error.startswith(one.begins)), None)
