"""Queries: whole jobs of a queue for programs, never all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lowkiq.admin.jobs.holding import read_holds
from lowkiq.admin.jobs.paging import Bound, read_in_order
from lowkiq.admin.jobs.reader import Found, JobReader
from lowkiq.admin.jobs.search import Match, Search
from lowkiq.admin.jobs.tags import TagCount, TenantBacklog, largest_backlogs, top_tags
from lowkiq.admin.jobs.tracking import Tracked, Transition, read_tracked, read_transitions
from lowkiq.admin.live import LiveSetting, read_live
from lowkiq.admin.pauses import Hold
from lowkiq.admin.resharding import Resharding, read_progress, shards_in_force
from lowkiq.job import Job, check_tag, listed_ids
from lowkiq.queue.call import Caller, chunked
from lowkiq.queue.shard import Shard

#: Ids that a scan gives at a time.
PAGE = 100


class Queries:
    """Reads one queue and its morgue."""

    def __init__(
        self,
        caller: Caller,
        shards: Sequence[Shard],
        *,
        load_payload: Callable[[bytes], Any],
        load_error: Callable[[str], str],
        max_id_bytes: int,
        max_payloads: int,
    ) -> None:
        self._caller = caller
        self._given = shards
        self._load_payload = load_payload
        self._load_error = load_error
        self._max_id_bytes = max_id_bytes
        self._max_payloads = max_payloads

    @property
    def _shards(self) -> Sequence[Shard]:
        return shards_in_force(self._caller, self._given)

    @property
    def _search(self) -> Search:
        return Search(self._caller, self._shards, self._load_error)

    @property
    def _reader(self) -> JobReader:
        return JobReader(self._caller, self._shards, self._load_error, self._max_id_bytes)

    def fetch(self, ids: Iterable[str | int]) -> list[Job]:
        """The queued jobs with these ids; ids that are not queued are left out."""
        return self._fetch("queue", list(map(self._reader.find, listed_ids(ids))))

    def morgue_fetch(self, ids: Iterable[str | int]) -> list[Job]:
        """The jobs of the morgue with these ids; `perform_in` is when the job got there."""
        return self._fetch("morgue", list(map(self._reader.find, listed_ids(ids))))

    def range_by_perform_in(self, min: Bound = "-inf", max: Bound = "+inf", limit: int = 10) -> list[Job]:
        """Jobs by due time, the first to come first."""
        return self._fetch("queue", self._range("due", min, max, limit))

    def rev_range_by_perform_in(self, max: Bound = "+inf", min: Bound = "-inf", limit: int = 10) -> list[Job]:
        """Jobs by due time, the last to come first."""
        return self._fetch("queue", self._range("due", min, max, limit, reverse=True))

    def range_by_retry_count(self, min: Bound = "-inf", max: Bound = "+inf", limit: int = 10) -> list[Job]:
        """Jobs by retry_count, fresh ones (-1) first."""
        found = self._fresh(limit) if _includes_fresh(min, max) else []
        found += self._range("retries", min, max, limit - len(found))
        return self._fetch("queue", found)

    def rev_range_by_retry_count(self, max: Bound = "+inf", min: Bound = "-inf", limit: int = 10) -> list[Job]:
        """Jobs by retry_count, those that failed most first."""
        found = self._range("retries", min, max, limit, reverse=True)
        if _includes_fresh(min, max):
            found += self._fresh(limit - len(found))
        return self._fetch("queue", found)

    def morgue_range_by_updated_at(self, min: Bound = "-inf", max: Bound = "+inf", limit: int = 10) -> list[Job]:
        """Jobs of the morgue, those that have been there longest first."""
        return self._fetch("morgue", self._range("morgue", min, max, limit))

    def morgue_rev_range_by_updated_at(self, max: Bound = "+inf", min: Bound = "-inf", limit: int = 10) -> list[Job]:
        """Jobs of the morgue, the newest first."""
        return self._fetch("morgue", self._range("morgue", min, max, limit, reverse=True))

    def blocked(self, limit: int = 10) -> list[Job]:
        """Jobs that wait for a person, those that have for longest first; `perform_in` is since when."""
        return self._fetch("queue", self._range("blocked", "-inf", "+inf", limit))

    def find(self, pattern: str | None = None, *, tag: str | None = None) -> Iterator[Job]:
        """
        Queued jobs whose id matches a glob such as `order-*`, or has a tag, or both, in no order; reads on only as they
        are taken.
        """
        return self._scan("queue", "due", pattern, tag)

    def morgue_find(self, pattern: str | None = None, *, tag: str | None = None) -> Iterator[Job]:
        """Jobs of the morgue whose id matches a glob, or has a tag, or both."""
        return self._scan("morgue", "morgue", pattern, tag)

    def top(self, limit: int = 10) -> list[TagCount]:
        """The tags of the queue and its morgue that most ids have, from a bounded read."""
        return top_tags(self._caller, self._shards, limit)

    def tenants(self, limit: int = 10) -> list[TenantBacklog]:
        """The tenants (`fair_by`) with the largest backlogs, from a bounded read."""
        return largest_backlogs(self._caller, self._shards, limit)

    def held(self, limit: int = 1_000) -> list[Hold]:
        """The ids that somebody holds (`actions.hold`), queued or not, the first held first: since when, who, why."""
        return read_holds(self._caller, self._shards, limit)

    def resharding(self) -> Resharding | None:
        """How far a reshard of the queue is (`actions.reshard`), or how the last one went; None: nothing is known."""
        return read_progress(self._caller, self._given[0].namespace, self._given[0].queue)

    def settings(self) -> dict[str, LiveSetting]:
        """The options that somebody has set in place of those of the code (`actions.set`), by name."""
        return read_live(self._caller, self._given[0].namespace).get(self._given[0].queue, {})

    def tracked(self) -> list[Tracked]:
        """The ids that somebody tracks (`actions.track`), each with what has happened to it since."""
        return read_tracked(self._caller, self._shards)

    def history(self, id: str | int) -> list[Transition]:
        """What has happened to an id since it is tracked: the first 99 transitions and the last."""
        return read_transitions(self._caller, *self._reader.find(id))

    def _scan(self, where: str, view: str, pattern: str | None, tag: str | None) -> Iterator[Job]:
        match = Match(view, pattern, tag=None if tag is None else check_tag(tag))
        if match.is_all:
            raise ValueError('find what? Say find("order-*"), or find(tag="eu")')
        shard, seen = None, set[bytes]()  # a scan may return an id twice while Redis resizes its table
        for step in self._search.steps(match):
            if step.shard is not shard:
                shard, seen = step.shard, set()
            ids = [id for id, _ in step.found if id not in seen]
            seen.update(ids)
            for some in chunked(ids, PAGE):
                yield from self._fetch(where, [(step.shard, id) for id in some])

    def _range(self, index: str, low: Bound, high: Bound, limit: int, *, reverse: bool = False) -> list[Found]:
        if limit <= 0:
            return []
        return read_in_order(self._caller, self._shards, index, bounds=(low, high), limit=limit, reverse=reverse)[0]

    def _fresh(self, limit: int) -> list[Found]:
        """
        Queued ids that have never failed (of `due`, without an entry in `retries`), by due time within a shard, those
        that wait for their own run last.
        """
        found: list[Found] = []
        for shard in self._shards:
            start = 0
            while len(found) < limit:
                page = self._caller.command("ZRANGE", f"{shard.prefix}due", start, start + PAGE - 1)
                if not page:
                    break
                scores = self._caller.command("ZMSCORE", f"{shard.prefix}retries", *page)
                found += [(shard, id) for id, score in zip(page, scores, strict=True) if score is None]
                start += PAGE
        return found[: max(limit, 0)]

    def _fetch(self, where: str, found: Sequence[Found]) -> list[Job]:
        return [
            Job(
                id=job.id,
                payloads=[self._payload(payload.data) for payload in job.payloads],
                scores=tuple(payload.score for payload in job.payloads),
                perform_in=job.at,
                retry_count=job.retry_count,
                error=job.error,
                payload_count=job.payload_count,
                waits_for_own_run=job.waits_for_own_run,
                is_blocked=job.is_blocked,
                traceback=job.traceback,
                tags=job.tags,
            )
            for job in self._reader.fetch([(where, *one) for one in found], self._max_payloads)
        ]

    def _payload(self, data: bytes) -> Any:
        """A payload that can't be decoded is given raw: a query must not break on a broken job."""
        try:
            return self._load_payload(data)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 (load_payload is the user's, and a look ends nobody)
            return data


def _includes_fresh(low: Bound, high: Bound) -> bool:
    """True if a range of retry_count holds -1; "(5" excludes 5 itself."""
    texts = str(low), str(high)
    lowest, highest = (float(text.removeprefix("(")) for text in texts)
    is_excluded = any(text.startswith("(") and float(text[1:]) == -1 for text in texts)
    return lowest <= -1 <= highest and not is_excluded
