"""Facts: all that decides why a job does not run just now, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lowkiq.admin.beats.health import NodeHealth, Running, owner_name
from lowkiq.admin.beats.owners import Owner
from lowkiq.admin.jobs.reader import JobPreview
from lowkiq.admin.limits import Limit
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.pauses import Hold
from lowkiq.admin.resharding import Resharding


class RatePlace(NamedTuple):
    #: "": the queue has the rate as a whole.
    key: str
    at: float
    #: Jobs of its key that come before it.
    ahead: int


class Turn(NamedTuple):
    """What a job's tenant has to share with others (`fair_by`)."""

    tenant: str
    #: Jobs of the tenant in its shard that come before it, and tenants there that have jobs due.
    ahead: int
    tenants: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a job and of all that may keep it from running."""

    queue: str
    job: JobPreview
    #: Redis's time, no earlier than the job was read.
    at: float
    shard: ShardMetrics
    #: Those that have beaten lately, by name.
    nodes: Mapping[str, NodeHealth]
    #: What is performed of its shard, the longest first.
    batches: Sequence[Running] = ()
    #: Who has the shard, and who is to have it.
    owner: Owner
    hold: Hold | None = None
    #: Queued jobs of its shard that come before it.
    ahead: int = 0
    #: Deaths of nodes that had it and others in hand: it may be why.
    crowds: int = 0
    #: Until when its throttle keeps it; and the latest time to which further pushes move it, if it is debounced.
    spaced_until: float | None = None
    debounced_until: float | None = None
    rate: RatePlace | None = None
    turn: Turn | None = None
    #: The places of its queue, if that has a `max_running`.
    limit: Limit | None = None
    reshard: Resharding | None = None
    #: Of its worker, as far as that is known: batches of a shard at a time, and whether jobs are tasks.
    concurrency: int | None = None
    is_async: bool = False

    @property
    def is_due(self) -> bool:
        """True if its time has come."""
        return self.job.at <= self.at

    @property
    def node(self) -> NodeHealth | None:
        """The node that has the shard, if it has beaten lately."""
        return self.nodes.get(self.shard.owner or "")

    def name_of(self, owner: str | None) -> str:
        """An owner in few words."""
        return owner_name(self.nodes, owner)
