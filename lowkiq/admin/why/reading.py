"""Reading: the facts about jobs, in a few round trips for up to a hundred of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from lowkiq.admin.beats.health import NodeHealth, read_health, running_batches
from lowkiq.admin.beats.members import Placement, read_placements
from lowkiq.admin.beats.owners import owners_of
from lowkiq.admin.jobs.holding import read_holds_of
from lowkiq.admin.jobs.reader import JobPreview, JobReader
from lowkiq.admin.limits import Limit, read_limits
from lowkiq.admin.live import LiveSetting, read_live
from lowkiq.admin.metrics import read_shards
from lowkiq.admin.resharding import Resharding, read_moving
from lowkiq.admin.why.facts import Facts, RatePlace, Turn
from lowkiq.admin.why.reasons import Reason, why
from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, chunked, pairs, raise_first, redis_time
from lowkiq.queue.homes import JOBS, homes_in
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
        return self._reasons(list(zip(self._homes(asked), asked, strict=True)))

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
        is_held = [(home, one.id) for home, one in rows if one.job.is_held]
        holds = dict(zip(is_held, read_holds_of(self._caller, is_held), strict=True))
        rates = self._rates([one for _, one in rows if one.job.where == "queue" and one.job.at > at], at)
        tenants = [
            (home, row.tenant, one.id)
            for (home, one), row in zip(rows, told, strict=True)
            if row.tenant and one.job.where == "queue" and one.job.at <= at
        ]
        turns = self._turns(tenants, at)
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
                hold=holds.get((home, id)),
                ahead=row.ahead or 0,
                crowds=int(row.crowds) if is_queued and row.crowds and row.crowds[:9].isdigit() else 0,
                spaced_until=None if row.spaced_until is None else float(row.spaced_until),
                debounced_until=_debounced_until(row.debounced, job),
                rate=rates.get((queue, id)),
                turn=turns.get((home, id)),
                limit=limits.get(queue),
                reshard=self._around.reshards.get(queue) if is_old or row.has_feeders else None,
                concurrency=self._concurrency(queue),
                is_async=queue in self._workers and self._workers[queue].shape.is_async,
            )

    def _homes(self, asked: Sequence[_Asked]) -> list[Shard]:
        """The shard that has each of them (home_of)."""
        homes = [homes_in(self._namespace, one.queue, self._around.layouts[one.queue], one.id) for one in asked]
        rows = [(found[0], one.id) for found, one in zip(homes, asked, strict=True) if len(found) > 1]
        calls = [Call("home", [old.prefix], [id, *JOBS], bool) for old, id in rows]
        has = iter(raise_first(self._caller.run_all(calls)))
        return [found[0] if len(found) == 1 or next(has) else found[-1] for found in homes]

    def _told(self, rows: Sequence[tuple[Shard, bytes]]) -> list[_Told]:
        words: list[Command] = []
        for home, id in rows:
            prefix = home.prefix
            words += (("HGET", f"{prefix}crowds", id), ("ZSCORE", f"{prefix}spaced", id))
            words += (("HGET", f"{prefix}debounced", id), ("HGET", f"{prefix}tenants", id))
            words += (("ZRANK", f"{prefix}due", id), ("EXISTS", f"{prefix}feeders"))
        replies = iter(self._caller.read(words, None))
        return [_Told(*islice(replies, len(_Told._fields))) for _ in rows]

    def _rates(self, asked: Sequence[_Asked], at: float) -> dict[tuple[str, bytes], RatePlace]:
        """The place in the line of each that waits there: a job is due then, or a moment later."""
        near = self._lines((one.queue, one.job.at - BESIDE, one.job.at + BESIDE) for one in asked)
        found = {
            (one.queue, id): (key, float(place))
            for one, places in zip(asked, near, strict=True)
            for key, id, place in reversed(places)  # the first of its places counts
            if id == one.id
        }
        before = self._lines((queue, f"({at:.6f}", f"({place:.6f}") for (queue, _), (_, place) in found.items())
        return {
            one: RatePlace(key.decode("utf-8", "replace"), place, sum(other == key for other, _, _ in first))
            for (one, (key, place)), first in zip(found.items(), before, strict=True)
        }

    def _lines(self, parts: Iterable[tuple[str, float | str, float | str]]) -> list[list[tuple[bytes, bytes, Any]]]:
        """Keys, ids and times of parts of the lines of queues."""
        words: list[Command] = [
            ("ZRANGEBYSCORE", f"{keys.rate(self._namespace, queue)}{line}", *ends, "WITHSCORES", "LIMIT", 0, LOOKED_AT)
            for queue, *ends in parts
            for line in ("delayed", "planned")
        ]
        pages = iter(self._caller.read(words, []))
        return [
            [(*row, place) for page in both for member, place in pairs(page) if (row := _parted(member))]
            for both in zip(pages, pages, strict=True)
        ]

    def _turns(self, rows: Sequence[tuple[Shard, bytes, bytes]], at: float) -> dict[tuple[Shard, bytes], Turn]:
        """What each of these ids, with its shard and its tenant, has to share with others."""
        words: list[Command] = []
        for home, tenant, id in rows:
            prefix = home.prefix.encode()
            words += (("ZRANK", prefix + b"lane:" + tenant, id), ("ZCARD", prefix + b"lanes"))
            words.append(("ZCOUNT", prefix + b"lanes_later", "-inf", f"{at:.6f}"))
        replies = iter(self._caller.read(words, 0))
        return {
            (home, id): Turn(tenant.decode("utf-8", "replace"), rank or 0, lanes + later)
            for (home, tenant, id), rank, lanes, later in zip(rows, replies, replies, replies, strict=True)
        }

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
