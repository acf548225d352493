"""Actions: what an operator does to the jobs of a queue. Bulk ones work in bounded chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lowkiq.job import KEPT_BYTES, encode_id, shard_of
from lowkiq.queue.call import Argument, Call, Caller, chunked
from lowkiq.queue.shard import Shard

#: Ids in one script.
CHUNK = 100
#: Payloads of an id that a script merges at a time; the rest follows in the next.
MERGE = 1_000


class Actions:
    """
    Acts on one queue and its morgue. Every method returns how many jobs it moved or deleted.

    Jobs in the hands of a node are not touched: they are neither queued nor in the morgue.
    """

    def __init__(self, caller: Caller, shards: Sequence[Shard], *, max_id_bytes: int) -> None:
        self._caller = caller
        self._shards = shards
        self._max_id_bytes = max_id_bytes

    def perform_all_jobs_now(self) -> int:
        """Makes every queued job due. Those due already keep their place."""

        def later(shard: Shard) -> list[bytes]:
            # A second later than Redis's clock, whose decimals this drops: what is due by then needs no help.
            now, _ = self._caller.command("TIME")
            later = self._caller.command("ZRANGEBYSCORE", f"{shard.prefix}due", now + 1, "+inf", "LIMIT", 0, CHUNK)
            return list(later)

        return self._all("due", later, self.perform_now_in)

    def kill_all_failed_jobs(self) -> int:
        """Moves every queued job that has failed to the morgue."""
        return self._all("retries", self._first("retries"), lambda shard, ids: self.bury_in(shard, ids, "failed"))

    def delete_all_failed_jobs(self) -> int:
        """Deletes every queued job that has failed."""
        return self._all("retries", self._first("retries"), lambda shard, ids: self.drop_in(shard, ids, "failed"))

    def delete(self, ids: Iterable[str | int]) -> int:
        """Deletes queued jobs."""
        return self._these(ids, lambda shard, some: self.drop_in(shard, some, "queue"))

    def kill(self, ids: Iterable[str | int]) -> int:
        """Moves queued jobs to the morgue."""
        return self._these(ids, lambda shard, some: self.bury_in(shard, some, "any"))

    def perform_now(self, ids: Iterable[str | int]) -> int:
        """Makes queued jobs due."""
        return self._these(ids, self.perform_now_in)

    def morgue_queue_up(self, ids: Iterable[str | int]) -> int:
        """Returns jobs from the morgue to the queue, as fresh ones that are due now."""
        return self._these(ids, self.revive_in)

    def morgue_queue_up_all_jobs(self) -> int:
        """Returns all jobs from the morgue to the queue."""
        return self._all("morgue", self._first("morgue"), self.revive_in)

    def morgue_delete(self, ids: Iterable[str | int]) -> int:
        """Deletes jobs from the morgue."""
        return self._these(ids, lambda shard, some: self.drop_in(shard, some, "morgue"))

    def morgue_delete_all_jobs(self) -> int:
        """Empties the morgue."""
        return self._all("morgue", self._first("morgue"), lambda shard, ids: self.drop_in(shard, ids, "morgue"))

    def _these(self, ids: Iterable[str | int], act: Callable[[Shard, Sequence[bytes]], int]) -> int:
        by_shard: dict[int, list[bytes]] = {}
        for id in [encode_id(id, self._max_id_bytes, errors=KEPT_BYTES) for id in ids]:
            by_shard.setdefault(shard_of(id, len(self._shards)), []).append(id)
        return sum(
            act(self._shards[index], some) for index, found in by_shard.items() for some in chunked(found, CHUNK)
        )

    def _all(
        self,
        index: str,
        list_some: Callable[[Shard], list[bytes]],
        act: Callable[[Shard, Sequence[bytes]], int],
    ) -> int:
        """Acts on what is listed, until as many jobs as there were have been seen: it ends while others push."""
        moved = 0
        for shard in self._shards:
            left = int(self._caller.command("ZCARD", f"{shard.prefix}{index}"))
            while left > 0 and (ids := list_some(shard)):
                moved += act(shard, ids)
                left -= len(ids)
        return moved

    def _first(self, index: str) -> Callable[[Shard], list[bytes]]:
        return lambda shard: list(self._caller.command("ZRANGE", f"{shard.prefix}{index}", 0, CHUNK - 1))

    # Of ids that are known to be of one shard, at most CHUNK of them.

    def perform_now_in(self, shard: Shard, ids: Sequence[bytes]) -> int:
        """Makes queued jobs of a shard due."""
        return self._caller.run(Call("perform_now", [shard.prefix], [shard.layout, *ids], int))

    def drop_in(self, shard: Shard, ids: Sequence[bytes], which: str = "queue") -> int:
        """Deletes jobs of a shard: of the "queue", those "failed" in it, or of the "morgue"."""
        return self._caller.run(Call("drop", [shard.prefix], [shard.layout, which, *ids], int))

    def bury_in(self, shard: Shard, ids: Sequence[bytes], which: str = "any") -> int:
        """Moves queued jobs of a shard to the morgue: "any", or only those "failed"."""
        return self._until_moved("bury", shard, [MERGE, which], ids)

    def revive_in(self, shard: Shard, ids: Sequence[bytes]) -> int:
        """Returns jobs of a shard from the morgue to the queue."""
        return self._until_moved("revive", shard, [MERGE], ids)

    def _until_moved(self, script: str, shard: Shard, options: list[Argument], ids: Sequence[bytes]) -> int:
        """The script gives back the ids of which it has moved only a part."""
        moved = 0
        while ids:
            reply: list[Any] = self._caller.run(Call(script, [shard.prefix], [shard.layout, *options, *ids], list))
            count, *ids = reply
            moved += int(count)
        return moved
