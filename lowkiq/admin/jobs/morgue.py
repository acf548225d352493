"""Morgue: the dead letters of a queue, as `Worker.morgue` has them: what is found there, and what is done to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lowkiq.admin.jobs.actions import Actions
from lowkiq.admin.jobs.queries import Queries
from lowkiq.job import Job


class Morgue:
    """
    The jobs of a queue that were buried. Ids come in a list, be it one; what is done to them returns how many jobs it
    moved or deleted. In Ruby these are `queries` and `actions` whose names begin with `morgue_`.
    """

    def __init__(self, queries: Queries, actions: Actions) -> None:
        self._queries, self._actions = queries, actions

    def fetch(self, ids: Iterable[str | int]) -> list[Job]:
        """Those of these ids, in the order of the ids."""
        return self._queries.morgue_fetch(ids)

    def find(self, pattern: str | None = None, *, tag: str | None = None) -> Iterator[Job]:
        """Those whose ids match a glob pattern, have a tag, or both."""
        return self._queries.morgue_find(pattern, tag=tag)

    def newest(self, limit: int = 10) -> list[Job]:
        """The last that were buried, the newest first."""
        return self._queries.morgue_rev_range_by_updated_at(limit=limit)

    def behind_newer(self, ids: Iterable[str | int]) -> list[str]:
        """Tells which of these would run out of order if they were revived now: see `Actions.behind_newer`."""
        return self._actions.behind_newer(ids)

    def revive(self, ids: Iterable[str | int]) -> int:
        """Returns jobs to the queue, as fresh ones that are due now, in this order."""
        return self._actions.morgue_queue_up(ids)

    def revive_all(self) -> int:
        """The same of all of them."""
        return self._actions.morgue_queue_up_all_jobs()

    def delete(self, ids: Iterable[str | int]) -> int:
        """Deletes jobs for good."""
        return self._actions.morgue_delete(ids)

    def delete_all(self) -> int:
        """Empties the morgue."""
        return self._actions.morgue_delete_all_jobs()
