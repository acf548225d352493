"""Alerts of what somebody else has written into Redis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowkiq.admin.alerts.alert import NAMED, Alert
from lowkiq.queue.unreadable import Unreadable


def of_unreadable(found: Sequence[Unreadable]) -> Iterator[Alert]:
    """An alert a value, for the first ones."""
    for one in found[:NAMED]:
        says = f"Redis holds something under {one.key} that Lowkiq can't read: {one.why}"
        do = f"See whether another version of Lowkiq wrote it; else remove it: {one.remedy}"
        yield Alert("unreadable", "bad", "", says, do, command=f"redis-cli {one.remedy}", mark=one.key)
    if len(found) > NAMED:
        says = f"Redis holds {len(found) - NAMED:,} more values that Lowkiq can't read"
        yield Alert("unreadable", "bad", "", says, "See what else writes into this namespace")
