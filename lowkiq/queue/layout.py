"""
Layout: which keys a shard has and what is in them, told by a number, so that an older Lowkiq never writes into what a
newer one keeps otherwise than it knows.

The text of a layout is in `ns:queues` for each queue, and in `meta` of each shard. push, acquire, claim and the actions
of operators compare it with their own in the script that writes. settle, renew, release and abandon need not: they are
refused to whoever has lost the lease, and a shard changes its layout only when a newer node acquires it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lowkiq.errors import NewerLayout
from lowkiq.version import VERSION

#: What this Lowkiq writes. A change that an older one could not work with raises it by one.
LAYOUT_VERSION: Final = 1


class Layout(NamedTuple):
    """The layout of a queue, or of one of its shards."""

    version: int
    shards_count: int


def text(shards_count: int) -> str:
    """Version 1 is "24"; later ones name theirs, "2:24", which to any older writer is a mismatch by itself."""
    return str(shards_count) if LAYOUT_VERSION == 1 else f"{LAYOUT_VERSION}:{shards_count}"


def parse(told: bytes) -> Layout:
    """What a text says. Later versions may say more behind another colon."""
    first, *more = told.split(b":")
    return Layout(int(first), int(more[0])) if more else Layout(1, int(first))


def newer(queue: str, version: int | str) -> NewerLayout:
    """The refusal to write into a queue of a later version."""
    return NewerLayout(
        f"queue {queue} has layout {version}, this Lowkiq {VERSION} writes layout {LAYOUT_VERSION}: upgrade it"
    )
