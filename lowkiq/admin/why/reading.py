"""Reading: the facts about jobs, in a few round trips for up to a hundred of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from lowkiq.admin.beats.health import NodeHealth, read_health, running_batches
from lowkiq.admin.beats.members import Placement, read_placements
from lowkiq.admin.beats.owners import owners_of
from lowkiq.admin.jobs.holding import read_hold
from lowkiq.admin.jobs.reader import JobPreview, JobReader
from lowkiq.admin.limits import Limit, read_limits
from lowkiq.admin.live import LiveSetting, read_live
from lowkiq.admin.metrics import read_shards
from lowkiq.admin.resharding import Resharding, read_moving
from lowkiq.admin.why.facts import Facts, RatePlace, Turn
from lowkiq.admin.why.reasons import Reason, why
from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, chunked, pairs, redis_time
from lowkiq.queue.homes import JOBS, home_of, homes_in
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard
from lowkiq.transport.server import Command

#: Jobs about which is asked at a time.
AT_ONCE: Final = 100
#: Seconds by which a job may be due beside its place in the line of a rate, and members of that that are looked at.
BESIDE, LOOKED_AT = 1.0, 1_000
#: Seconds within which two times that were told in microseconds are the same.
NEAR: Final = 0.000_002


class Around(NamedTuple):
    """What is known of nodes and queues."""

    nodes: Sequence[NodeHealth]
    layouts: Mapping[str, int | Layout]
    live: Mapping[str, Mapping[str, LiveSetting]]
    placements: Mapping[tuple[str, int], Placement]
    reshards: Mapping[str, Resharding]


def read_around(caller: Caller, namespace: str, layouts: Mapping[str, int | Layout]) -> Around:
    """Reads it, for who has no snapshot."""
    return Around(
        read_health(caller, namespace), layouts, read_live(caller, namespace), read_placements(caller, namespace),
        read_moving(caller, namespace, layouts),
    )  # fmt: skip


class _Told(NamedTuple):
    """What a shard's keys say of a queued id, as Redis has it."""

    crowds: bytes | None
    spaced_until: float | bytes | None
    debounced: bytes | None
    tenant: bytes | None
    ahead: int | None
    has_feeders: int


class _Asked(NamedTuple):
    queue: str
    job: JobPreview
    id: bytes


class Reader:
    """
    Tells why jobs do not run.

    Args:
        workers: queue → its worker, of those that are known.
    """

    def __init__(self, caller: Caller, namespace: str, around: Around, workers: Mapping[str, Any]) -> None:
        self._caller, self._namespace = caller, namespace
        self._around, self._workers = around, workers

    def reasons(self, jobs: Sequence[tuple[str, JobPreview]]) -> list[Reason]:
        """The reason of each of these jobs, each with its queue, which must be one of those around."""
        asked = [_Asked(queue, job, job.id.encode("utf-8", KEPT_BYTES)) for queue, job in jobs]
        return self._reasons([(self._home(one.queue, one.id), one) for one in asked])

    def firsts(self, shards: Sequence[Shard]) -> dict[str, Reason]:
        """Queue → why the first job of a shard of it does not run, of these shards, of each queue one."""
        found = self._caller.read([("ZRANGE", f"{shard.prefix}due", 0, 0) for shard in shards], [])
        ids = [("queue", shard, page[0]) for shard, page in zip(shards, found, strict=True) if page]
        jobs = JobReader(self._caller, (), str, 0).fetch_each(ids, 0)
        rows = [(shard, _Asked(shard.queue, job, id)) for (_, shard, id), job in jobs]
        return {one.queue: reason for (_, one), reason in zip(rows, self._reasons(rows), strict=True)}

    def _reasons(self, rows: Sequence[tuple[Shard, _Asked]]) -> list[Reason]:
        limits = read_limits(self._caller, self._namespace, {one.queue for _, one in rows}, self._around.live)
        return [why(facts) for some in chunked(rows, AT_ONCE) for facts in self._facts(some, limits)]

    def _facts(self, rows: Sequence[tuple[Shard, _Asked]], limits: Mapping[str, Limit]) -> Iterator[Facts]:
        once = {home.prefix: home for home, _ in rows}
        nodes = {node.node: node for node in self._around.nodes}
        batches = running_batches(self._around.nodes)
        shards = read_shards(self._caller, list(once.values()))
        told = self._told([(home, one.id) for home, one in rows])
        at = redis_time(self._caller)
        owners = owners_of(self._around.nodes, shards, self._around.placements, at)
        known = dict(zip(once, zip(shards, owners, strict=True), strict=True))
        for (home, (queue, job, id)), row in zip(rows, told, strict=True):
            shard, owner = known[home.prefix]
            is_queued, layout = job.where == "queue", self._around.layouts.get(queue)
            is_old = isinstance(layout, Layout) and layout.is_moving and home.generation == layout.old_generation
            yield Facts(
                queue=queue,
                job=job,
                at=at,
                shard=shard,
                nodes=nodes,
                batches=batches.get((queue, job.shard), ()),
                owner=owner,
                hold=read_hold(self._caller, home, id) if job.is_held else None,
                ahead=row.ahead or 0,
                crowds=int(row.crowds) if is_queued and row.crowds and row.crowds[:9].isdigit() else 0,
                spaced_until=None if row.spaced_until is None else float(row.spaced_until),
                debounced_until=_debounced_until(row.debounced, job),
                rate=self._rate(queue, id, job.at, at) if is_queued and job.at > at else None,
                turn=self._turn(home, row.tenant, id, at) if is_queued and row.tenant and job.at <= at else None,
                limit=limits.get(queue),
                reshard=self._around.reshards.get(queue) if is_old or row.has_feeders else None,
                concurrency=self._concurrency(queue),
                is_async=queue in self._workers and self._workers[queue].shape.is_async,
            )

    def _home(self, queue: str, id: bytes) -> Shard:
        homes = homes_in(self._namespace, queue, self._around.layouts[queue], id)
        return homes[0] if len(homes) == 1 else home_of(self._caller, homes, id, JOBS)

    def _told(self, rows: Sequence[tuple[Shard, bytes]]) -> list[_Told]:
        words: list[Command] = []
        for home, id in rows:
            prefix = home.prefix
            words += (("HGET", f"{prefix}crowds", id), ("ZSCORE", f"{prefix}spaced", id))
            words += (("HGET", f"{prefix}debounced", id), ("HGET", f"{prefix}tenants", id))
            words += (("ZRANK", f"{prefix}due", id), ("EXISTS", f"{prefix}feeders"))
        replies = iter(self._caller.read(words, None))
        return [_Told(*islice(replies, len(_Told._fields))) for _ in rows]

    def _rate(self, queue: str, id: bytes, due: float, at: float) -> RatePlace | None:
        """Its place in the line, if it waits there: a job is due then, or a moment later."""
        names = [f"{keys.rate(self._namespace, queue)}{line}" for line in ("delayed", "planned")]
        near = [
            ("ZRANGEBYSCORE", name, due - BESIDE, due + BESIDE, "WITHSCORES", "LIMIT", 0, LOOKED_AT) for name in names
        ]
        places = [
            (*row, place)
            for page in self._caller.read(near, [])
            for member, place in pairs(page)
            if (row := _parted(member))
        ]
        key, place = next(((key, float(place)) for key, one, place in places if one == id), (None, 0.0))
        if key is None:
            return None
        before = [("ZRANGEBYSCORE", name, f"({at:.6f}", f"({place:.6f}", "LIMIT", 0, LOOKED_AT) for name in names]
        first = [row for page in self._caller.read(before, []) for member in page if (row := _parted(member))]
        return RatePlace(key.decode("utf-8", "replace"), place, sum(one == key for one, _ in first))

    def _turn(self, home: Shard, tenant: bytes, id: bytes, at: float) -> Turn:
        prefix = home.prefix.encode()
        rank, lanes, later = self._caller.read(
            [("ZRANK", prefix + b"lane:" + tenant, id), ("ZCARD", prefix + b"lanes"),
             ("ZCOUNT", prefix + b"lanes_later", "-inf", f"{at:.6f}")], 0,
        )  # fmt: skip
        return Turn(tenant.decode("utf-8", "replace"), rank or 0, lanes + later)

    def _concurrency(self, queue: str) -> int | None:
        if setting := self._around.live.get(queue, {}).get("concurrency"):
            return setting.value if isinstance(setting.value, int) else None
        worker = self._workers.get(queue)
        return None if worker is None else worker.concurrency


def _debounced_until(text: bytes | None, job: JobPreview) -> float | None:
    """The latest time of a debounce. A mark of another due time counts no more (fewer.lua)."""
    due, _, latest = (text or b"").partition(b" ")
    try:
        return float(latest) if abs(float(due) - job.at) < NEAR else None
    except ValueError:
        return None


def _parted(member: bytes) -> tuple[bytes, bytes] | None:
    """The key and the id of a place in a rate's line (rate.lua)."""
    length, _, rest = member.partition(b":")
    if not length[:9].isdigit():
        return None
    return rest[: int(length)], rest[int(length) :]
