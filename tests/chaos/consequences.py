"""
Checks of what follows, waits and recurs, from outside. A job that waits for others starts after all of theirs that was
acknowledged before it is written, unless somebody has let it go. One that recurs starts at none but its own times, not
before they come, and goes on until it is stopped; that each time is done once is what all payloads are checked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from tests.chaos.causes import Causes
from tests.chaos.history import History, Payload, Row, is_cancelled
from tests.chaos.world.queues import RECURS

#: Milliseconds by which a start may be stamped before its time: stamps are rounded.
ROUNDED: Final = 2


def too_soon(
    row: Row, records: list[dict[str, Any]], history: History, written_at: Mapping[Payload, float],
    gone: Collection[Payload], causes: Causes,
) -> Iterator[str]:  # fmt: skip
    """Starts of a job before one that it waits for is done. `gone` need not run."""
    begun = next((record for record in records if record["k"] == "begin" and record["a"]), None)
    if begun is None or row in history.let_go or causes.is_after_failover(begun["t"]):
        return
    for wait in history.waits.get(row, ()):
        for payload in ((wait.queue, wait.id, number) for number in itertools.count(1)):
            push = history.pushes.get(payload)
            if push is None:
                break
            is_owed = push.acked_at is not None and push.acked_at <= wait.since
            if not is_owed or payload in gone or is_cancelled(history, payload):
                continue
            if written_at.get(payload, begun["t"]) >= begun["t"]:
                yield f"{row}: {begun['r']} began before {payload} was done"


def out_of_time(row: Row, records: list[dict[str, Any]]) -> Iterator[str]:
    """Starts of an id that recurs before their time, or at another one."""
    every = round(RECURS[row[1]].every * 1_000)
    for record in records:
        if record["k"] == "begin":
            for number in record["n"]:
                if number % every:
                    yield f"{row}: {record['r']} is for {number}, not for one of its times, each {every} ms"
                elif number > record["wall"] * 1_000 + ROUNDED:
                    yield f"{row}: {record['r']} began {number - record['wall'] * 1_000:.0f} ms before its time"
