"""Undo: deletions that can be taken back for a minute. What is deleted is kept in its shard, and forgets itself."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from redis.exceptions import OutOfMemoryError

from lowkiq.admin.jobs.actions import ACTIONS, CHUNK, Actions, as_list, check_action
from lowkiq.admin.jobs.deeds import DEEDS
from lowkiq.job import listed_ids
from lowkiq.queue.call import Argument, Call, chunked, raise_first
from lowkiq.queue.homes import act_at
from lowkiq.queue.shard import Shard

#: Seconds for which a deletion can be undone, and about how many bytes of payloads one may have for that.
KEPT_SECONDS: Final = 60
MOST_BYTES: Final = 8 << 20
#: Ids of one deletion: a selection has no more.
MOST_IDS: Final = 1_000


class Deleted(msgspec.Struct, frozen=True):
    """A deletion that was done."""

    moved: int
    #: What `undo` takes; None if it can't be undone.
    undo: str | None


class UndoableActions(Actions):
    """Deletes jobs of one queue, or of its morgue, and puts them back."""

    def can_keep(self, view: str, ids: Iterable[str | int]) -> bool:
        """True if a deletion of these could be undone; else they are too many, or too large."""
        place, by_shard = _place(view), self._by_shard(ids)
        if sum(len(some) for _, some in by_shard) > MOST_IDS:
            return False
        calls = [Call("weigh", [shard.prefix], [place, *some], int) for shard, some in by_shard]
        return int(sum(raise_first(self._caller.run_all(calls)))) <= MOST_BYTES

    def do_or_keep(
        self, action: str, ids: Iterable[str | int], view: str = "", *, who: str = "", why: str = ""
    ) -> Deleted:
        """As `do`; a deletion is one that can be undone."""
        ids = listed_ids(ids)
        if action != "delete":
            return Deleted(self.do(action, ids, view, who=who, why=why), None)
        deleted = self.delete_and_keep(view or DEEDS[action].view, ids)
        self.note(action, len(ids), deleted.moved, who)
        return deleted

    def delete_and_keep(self, view: str, ids: Iterable[str | int]) -> Deleted:
        """
        Deletes jobs of a view, so that it can be undone for a minute, unless they are too many, or Redis's memory is
        full. Raises ValueError as `act` does.
        """
        check_action("delete", view)
        ids = listed_ids(ids)
        if not self.can_keep(view, ids):
            return Deleted(self.act("delete", view, ids), None)
        place, name, kept = _place(view), secrets.token_hex(8), dict[Shard, int]()
        try:
            for shard, some in self._by_shard(ids):
                words: list[Argument] = [shard.layout, place, name, KEPT_SECONDS, *some]
                # What is kept, not what this call has deleted: its first reply may have been lost, and it was repeated.
                _, kept[shard] = act_at(self._caller, shard, Call("put_away", [shard.prefix], words, list))
            beside = 0
        except OutOfMemoryError:
            beside = self.act("delete", view, ids)
        moved = sum(kept.values())
        return Deleted(moved + beside, name if moved else None)

    def undo(self, name: str, *, who: str = "") -> int:
        """What somebody does: `put_back`, kept among the incidents."""
        back = self.put_back(name)
        self.note("undo", back, back, who)
        return back

    def put_back(self, name: str) -> int:
        """
        Undoes a deletion; returns how many jobs came back. Where an id has been pushed again since, payloads merge.
        Raises ValueError for what is no name of one.
        """
        if not is_deletion(name):
            raise ValueError(f"{name[:40]!r} is no deletion: take what it was answered with")
        shards = self._shards
        keys = [f"{shard.prefix}undo:{name}" for shard in shards]
        # It had no more ids than a scan of this count gives of a small hash, and a few of them twice.
        pages = self._caller.read([("HSCAN", key, 0, "COUNT", 2 * MOST_IDS) for key in keys], (0, {}))
        return sum(
            self._put_back(shard, name, some)
            for shard, (_, page) in zip(shards, pages, strict=True)
            for some in chunked(page if isinstance(page, dict) else page[::2], CHUNK)
        )

    def _put_back(self, shard: Shard, name: str, ids: Sequence[bytes]) -> int:
        """Puts ids of a shard back; again and again those of which payloads are left, as they are many."""
        back = 0
        while ids:
            call = Call("put_back", [shard.prefix], [shard.layout, name, *ids], as_list)
            count, *ids = act_at(self._caller, shard, call)
            back += int(count)
        return back


def _place(view: str) -> str:
    """The place that a deletion of a view is from."""
    _, *words = ACTIONS[view]["delete"]
    return str(words[0])


def is_deletion(name: str) -> bool:
    """True for what can be the name of a deletion."""
    return re.fullmatch(r"[0-9a-f]{16}", name) is not None
