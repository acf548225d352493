"""ShardRows: the shards of a queue as its table shows them, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lowkiq.admin.metrics import ShardMetrics
from lowkiq.web.owners import Owners
from lowkiq.web.snapshot import Snapshot

#: Shards that are shown unless all are asked for.
WORST: Final = 50


@dataclass(frozen=True)
class ShardRow:
    """A shard in the table."""

    metrics: ShardMetrics
    owner: str

    @property
    def lag(self) -> float:
        """Seconds by which its oldest job is late."""
        return max(-(self.metrics.due_in or 0.0), 0.0)

    @property
    def is_unowned(self) -> bool:
        """Whether nobody has its lease."""
        return not self.metrics.lease_rest

    @property
    def is_stuck(self) -> bool:
        """Whether there are jobs due that nobody will run."""
        return self.is_unowned and self.lag > 0


def shard_rows(snapshot: Snapshot, owners: Owners, queue: str) -> Sequence[ShardRow]:
    """All shards of a queue: those that are stuck, then those that are late, then the fullest."""
    rows = [
        ShardRow(shard, owners.name(shard.owner) if shard.lease_rest else "nobody")
        for shard in snapshot.shards
        if shard.queue == queue
    ]
    # Whole seconds of lag: what changes by a hair at each look must not make the table jump.
    return sorted(
        rows,
        key=lambda row: (not row.is_stuck, -int(row.lag), -row.metrics.busy, -row.metrics.length, row.metrics.shard),
    )
