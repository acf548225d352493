"""
Previews: jobs as people see them, in pages, cut, with their places; `queries.py` gives programs whole ones. Each read
is bounded, however long the queue and however large its payloads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lowkiq.admin.jobs.failures import Groups, read_groups
from lowkiq.admin.jobs.paging import Bound, Cursor, narrowed, read_in_order
from lowkiq.admin.jobs.reader import Found, JobPreview, JobReader, following
from lowkiq.admin.jobs.search import Match, Place, Search, is_glob
from lowkiq.admin.jobs.states import INDEXED, STATES, State
from lowkiq.admin.metrics import read_hashes, read_lengths
from lowkiq.queue.call import Caller, redis_time
from lowkiq.queue.shard import Shard

#: Payloads of a job in a list, and alone; and bytes at which each is cut.
LISTED_PAYLOADS, SHOWN_PAYLOADS = 1, 100
LISTED_BYTES, SHOWN_BYTES = 200, 4_096
#: Ids scanned for one page of a search: about 2.5 ms of Redis, in steps.
SEARCHED_A_PAGE: Final = 3_000


class Page(msgspec.Struct, frozen=True):
    """Some jobs of a view."""

    jobs: list[JobPreview]
    #: What gives the page after this one; None: there is none.
    next: str | None
    #: Of a search, about how many ids were scanned.
    scanned: int | None = None


class Previews:
    """Reads one queue and its morgue for people."""

    def __init__(
        self, caller: Caller, shards: Sequence[Shard], *, load_error: Callable[[str], str], max_id_bytes: int
    ) -> None:
        self._caller = caller
        self._shards = shards
        self._reader = JobReader(caller, shards, load_error, max_id_bytes)
        self._search = Search(caller, shards, load_error)

    def page(
        self,
        view: str,
        *,
        cursor: str | None = None,
        limit: int = 25,
        pattern: str | None = None,
        error: str | None = None,
        retry_count: int | None = None,
        low: Bound | None = None,
        high: Bound | None = None,
        reverse: bool = False,
        tag: str | None = None,
    ) -> Page:
        """
        Jobs of a state that an index lists (states.py), in the order of that, or the other way round; with a pattern or
        a group of errors, in no order. Raises ValueError for no such view or no such cursor.

        Args:
            low: the lowest due time, retry_count or time in the morgue, by what the state's index orders.
            high: the highest.
        """
        if view not in INDEXED:
            raise ValueError(f"no view {view!r}: there are {', '.join(INDEXED)}")
        if pattern is not None and not is_glob(pattern) and error is None and tag is None:
            return self._only(view, pattern)
        match = Match(view, pattern, error, tag)
        if not match.is_all:
            return self._matching(match, cursor, limit)
        if retry_count is not None and view == "retries":
            low = high = retry_count
        return self._in_order(view, cursor, limit, (low, high), reverse=reverse)

    def job(self, id: str) -> list[JobPreview]:
        """The places of an id: it can be queued, in flight and in the morgue at once."""
        asked = [(where, *self._reader.find(id)) for where in ("queue", "claim", "morgue")]
        return following(self._reader.fetch(asked, SHOWN_PAYLOADS, SHOWN_BYTES))

    def ahead(self, id: str) -> int | None:
        """The number of queued jobs of its shard that come before it, None if it is not queued, or its own run does."""
        shard, encoded = self._reader.find(id)
        due, behind = f"{shard.prefix}due", f"{shard.prefix}behind"
        rank, waits = self._caller.read([("ZRANK", due, encoded), ("HEXISTS", behind, encoded)], None)
        return None if waits else rank

    def in_flight(self, limit: int = 100) -> list[JobPreview]:
        """Claimed jobs: those that run, and those that come next. Of a shard, the claims that last come first."""
        lengths = read_lengths(self._caller, self._shards, "claim")
        found: list[Found] = []
        for shard, length in zip(self._shards, lengths, strict=True):
            if len(found) >= limit:
                break
            if length:
                found += [(shard, id) for id in self._claimed(shard, limit - len(found))]
        return self._listed("in_flight", found)

    def _claimed(self, shard: Shard, most: int) -> list[bytes]:
        """Ids of all claims of a shard."""
        (asides,) = read_hashes(self._caller, [f"{shard.prefix}asides"], most)
        oldest_first = sorted(asides, key=lambda number: (len(number), number))
        lists = [*(f"aside:{number.decode('ascii', 'replace')}" for number in oldest_first), "claim"]
        claims = self._caller.read([("LRANGE", f"{shard.prefix}{one}", 0, 2 * most - 1) for one in lists], [])
        return [id for words in claims for id in words[::2]][:most]

    def errors(self, view: str = "retries") -> Groups:
        """Groups of errors of a view, from a sample."""
        return read_groups(self._search, view)

    def count(self, match: Match, most: int = 1_000_000) -> tuple[int, bool]:
        """The number of jobs that match; True when it stopped after `most` ids, and there may be more."""
        if match.is_all:
            return sum(self._search.lengths(match.view)), False
        if match.pattern is not None and match.error is None and match.tag is None and not is_glob(match.pattern):
            return len(self._only(match.view, match.pattern).jobs), False
        found = seen = 0
        for step in self._search.steps(match):
            found, seen = found + len(step.found), seen + step.seen
            if seen >= most:
                return found, step.next is not None
        return found, False

    def _in_order(
        self, view: str, cursor: str | None, limit: int, limits: tuple[Bound | None, Bound | None], *, reverse: bool
    ) -> Page:
        state, after = STATES[view], Cursor.parse(cursor) if cursor else None
        reverse = reverse != state.is_reverse
        now = redis_time(self._caller) if state.is_due is not None else 0.0
        bounds = narrowed(state.bounds(now), *limits)
        if after is not None and state.is_due is False and after.score <= now:
            # What the last page showed has come due since: it is Waiting now.
            if reverse:
                return Page([], None)
            after = None
        rows, following = read_in_order(
            self._caller, self._shards, state.index, bounds=bounds, after=after, limit=limit, reverse=reverse
        )
        return Page(self._listed(view, rows), following.text if following else None)

    def _matching(self, match: Match, cursor: str | None, limit: int) -> Page:
        found: list[Found] = []
        scanned = 0
        following: Place | None = None
        for step in self._search.steps(match, _place(cursor) if cursor else None):
            found += [(step.shard, id) for id, _ in step.found]
            scanned, following = scanned + step.seen, step.next
            if len(found) >= limit or scanned >= SEARCHED_A_PAGE:
                break
        jobs = self._listed(match.view, found)
        return Page(jobs, f"{following.shard}:{following.cursor}" if following else None, scanned)

    def _only(self, view: str, id: str) -> Page:
        """A search for one id needs none."""
        try:
            found = self._reader.find(id)
        except ValueError:  # too long, or empty: nothing has such an id
            return Page([], None)
        state, (shard, raw) = STATES[view], found
        (score,) = self._caller.read([("ZSCORE", f"{shard.prefix}{state.index}", raw)], None)
        if score is None:
            return Page([], None)
        now = redis_time(self._caller)
        return Page([job for job in self._listed(view, [found]) if _is_in(state, job, float(score), now)], None)

    def _listed(self, view: str, found: Sequence[Found]) -> list[JobPreview]:
        return self._reader.fetch([(STATES[view].where, *one) for one in found], LISTED_PAYLOADS, LISTED_BYTES)


def _is_in(state: State, job: JobPreview, score: float, now: float) -> bool:
    """Returns whether a job with that score in the state's index is in the state: a blocked one is never due."""
    return state.has(score, now) and not (job.is_blocked and state.is_due is not None)


def _place(cursor: str) -> Place:
    shard, _, rest = cursor.partition(":")
    if not re.fullmatch(r"[0-9]{1,9}:[0-9]{1,20}", cursor) or int(rest) >= 2**64:  # Redis's cursors have 64 bits
        raise ValueError(f"{cursor[:40]!r} is no cursor of a search: take the one that the last page gave")
    return Place(int(shard), int(rest))
