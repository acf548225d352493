"""Actions: what an operator does to the jobs of a queue. Those on many jobs work in bounded chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Unpack, get_args

from lowkiq.admin.jobs import pausing
from lowkiq.admin.jobs.deeds import DEEDS, TOLD, Script, kind_of
from lowkiq.admin.jobs.holding import read_waited_for
from lowkiq.admin.jobs.pausing import WAIT, PauseReply
from lowkiq.admin.jobs.search import Match, Search, View
from lowkiq.admin.jobs.tracking import track
from lowkiq.admin.live import set_live, unset_live
from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.pauses import MOST_WHY, pause_text
from lowkiq.admin.resharding import Resharding, reshard, shards_in_force
from lowkiq.admin.words import plural, printable
from lowkiq.job import KEPT_BYTES, encode_id, listed_ids
from lowkiq.options import Settable
from lowkiq.queue.call import Call, Caller, chunked, grouped, raise_first, redis_time
from lowkiq.queue.homes import act_at, home_of
from lowkiq.queue.keys import NEVER
from lowkiq.queue.shard import Shard

#: Ids in one script: with tags, tenants and notes, so many take some milliseconds of Redis.
CHUNK = 30
if TYPE_CHECKING:
    ActionName = str
else:
    #: A name in the table, for types that are checked as they are read.
    ActionName = Literal[tuple(DEEDS)]

#: View → what can be done to its jobs, in the order of the buttons → the script, and its words before the ids.
ACTIONS: Final[Mapping[str, Mapping[str, Script]]] = {
    view: {name: deed.scripts[view] for name, deed in DEEDS.items() if view in deed.scripts} for view in get_args(View)
}
#: What is told where nobody says who and why.
NOBODY: Final = pause_text("", "")


class Progress(NamedTuple):
    """The progress of an action on all that match."""

    #: Matching jobs that it has met, and those of them that were moved or deleted.
    seen: int
    moved: int


def actions_of(view: str) -> tuple[str, ...]:
    """The names of what can be done to jobs of a view, in the order of the buttons."""
    return tuple(ACTIONS.get(view, ()))


def check_action(action: str, view: str) -> None:
    """Raises ValueError for what can't be done in a view."""
    if view not in ACTIONS:
        raise ValueError(f"no view {view!r}: there are {', '.join(ACTIONS)}")
    if action not in ACTIONS[view]:
        raise ValueError(f"can't do {action!r} in {view}: there are {', '.join(actions_of(view))}")


class Actions:
    """
    Acts on one queue and its morgue. Methods that act on jobs return how many they moved or deleted. Ids come in a
    list, be it one: TypeError for a text, whose letters would be ids.

    Jobs in the hands of a node are touched by `cancel` only: they are neither queued nor in the morgue. What is queued
    behind them, and waits for their run, can be buried and deleted; that run goes on.
    """

    def __init__(self, caller: Caller, shards: Sequence[Shard], *, max_id_bytes: int) -> None:
        self._caller = caller
        self._given = shards
        self._max_id_bytes = max_id_bytes

    @property
    def _shards(self) -> Sequence[Shard]:
        return shards_in_force(self._caller, self._given)

    def perform_all_jobs_now(self) -> int:
        """
        Makes every queued job due, in the order of their times. Those due already keep their place, as do those that
        wait for their own run.
        """
        return self._all("perform_now", "due")

    def kill_all_failed_jobs(self) -> int:
        """Moves every queued job that has failed to the morgue."""
        return self._all("bury", "retries")

    def delete_all_failed_jobs(self) -> int:
        """Deletes every queued job that has failed."""
        return self._all("delete", "retries")

    def delete(self, ids: Iterable[str | int]) -> int:
        """Deletes queued jobs."""
        return self.act("delete", "due", ids)

    def bury(self, ids: Iterable[str | int]) -> int:
        """Moves queued jobs to the morgue."""
        return self.act("bury", "due", ids)

    def perform_now(self, ids: Iterable[str | int]) -> int:
        """
        Makes queued jobs due, in this order. Those due already, and those that wait for their own run, are not counted.
        """
        return self.act("perform_now", "due", ids)

    def retry(self, ids: Iterable[str | int]) -> int:
        """Has blocked jobs go on, as fresh ones that are due now, in this order."""
        return self.act("retry", "blocked", ids)

    def retry_all(self) -> int:
        """The same of all blocked jobs, those that have waited longest first."""
        return self._all("retry", "blocked")

    def skip(self, ids: Iterable[str | int]) -> int:
        """Deletes the oldest payload of blocked jobs, and has them go on with the others, in this order."""
        return self.act("skip", "blocked", ids)

    def morgue_queue_up(self, ids: Iterable[str | int]) -> int:
        """
        Returns jobs from the morgue to the queue, as fresh ones that are due now, in this order. Their errors are told
        of until their next run. `behind_newer` tells which of them would run out of order.
        """
        return self.act("revive", "morgue", ids)

    def morgue_queue_up_all_jobs(self) -> int:
        """Returns all jobs from the morgue to the queue."""
        return self._all("revive", "morgue")

    def behind_newer(self, ids: Iterable[str | int]) -> list[str]:
        """
        Tells which of these dead jobs would run out of order if they were revived now: newer payloads of their ids run
        just now, or were there when they died and have gone on since. What was pushed only after that is not known.
        """
        calls = [Call("newer", [shard.prefix], some, list) for shard, some in self._by_shard(ids)]
        replies: list[list[bytes]] = raise_first(self._caller.run_all(calls))
        return [id.decode("utf-8", KEPT_BYTES) for reply in replies for id in reply]

    def waited_for(self, ids: Iterable[str | int]) -> list[str]:
        """Tells for which of these ids other jobs wait (`after`): those run once nothing is left of them."""
        return [id for shard, some in self._by_shard(ids) for id in read_waited_for(self._caller, shard, some)]

    def all_behind_newer(self) -> int:
        """Counts such jobs in the whole morgue."""
        found = 0
        for shard in self._shards:
            at = 0
            while dead := self._caller.command("ZRANGE", f"{shard.prefix}morgue", at, at + CHUNK - 1):
                found += len(self._caller.run(Call("newer", [shard.prefix], dead, list)))
                at += CHUNK
        return found

    def morgue_delete(self, ids: Iterable[str | int]) -> int:
        """Deletes jobs from the morgue."""
        return self.act("delete", "morgue", ids)

    def morgue_delete_all_jobs(self) -> int:
        """Empties the morgue."""
        return self._all("delete", "morgue")

    def cancel(self, ids: Iterable[str | int]) -> int:
        """
        Cancels jobs, queued or running: what is queued of them is deleted, and their runs are asked to stop. A run that
        is not done does not come back, also after its node's death. What is pushed from now on runs after it.
        """
        return self.act("cancel", "due", ids)

    def hold(self, ids: Iterable[str | int], reason: str = "", *, who: str = "") -> int:
        """
        Keeps ids from being run until they are released, be they queued or not; a run of one is finished. Pushes merge.
        Returns how many were not held before.
        """
        return self.do("hold", ids, who=who, why=reason)

    def release(self, ids: Iterable[str | int], *, who: str = "") -> int:
        """
        Ends that: what is queued of them is due at its own time, or now. Returns how many were held. One that waits for
        others (`after`) goes on waiting, held or not: `stop_waiting` ends that.
        """
        return self.do("release", ids, who=who)

    #: The same, by the names of before.
    kill, let_go = bury, release

    def stop_waiting(self, ids: Iterable[str | int], *, who: str = "") -> int:
        """
        Has jobs that wait for others (`after`) run without them, unless somebody holds them as well. Returns how many
        have waited.
        """
        return self.do("stop_waiting", ids, who=who)

    def do(self, action: str, ids: Iterable[str | int], view: str = "", *, who: str = "", why: str = "") -> int:
        """What somebody does to jobs, of the usual view of that or another: `act`, kept among the incidents."""
        ids = listed_ids(ids)
        moved = self.act(action, view or DEEDS[action].view, ids, pause_text(who, why))
        self.note(action, len(ids), moved, who, why)
        return moved

    def do_all(self, action: str, who: str = "", view: str = "") -> int:
        """The same to all jobs of a view that are there."""
        moved = self._all(action, view or DEEDS[action].view)
        self.note(action, moved, moved, who)
        return moved

    def note(self, action: str, ids: int, moved: int, who: str, why: str = "") -> None:
        """
        Keeps a deed among the incidents, if it was one on several jobs: programs may do more of those on one than
        anybody wants to read. Holds last.
        """
        deed = DEEDS.get(action)
        if self._given and (ids > 1 or (deed and deed.lasts)):
            queue, kind = self._given[0].queue, kind_of(action)
            did = (deed and deed.noted) or kind.capitalize()
            of = f"{moved:,} of {plural(ids, 'job')}" if moved != ids else plural(ids, "job")
            says = f"{did}: {of} of {printable(queue, 60)}{f': {printable(why, MOST_WHY)}' if why else ''}"
            note_deed(self._caller, self._given[0].namespace, queue, kind, says, who)

    def pause(self, reason: str = "", *, who: str = "", wait: float = WAIT) -> PauseReply:
        """
        Pauses the queue: nothing is claimed until `resume`; pushes go on, and what runs is finished. What nodes had
        claimed and not started goes back: it waits for so many seconds until they all say that nothing starts any more,
        and the reply tells of which that is not known. Repeating it changes who and why, and looks again.
        """
        return pausing.pause(self._caller, self._shards, reason, who, wait)

    def resume(self, *, who: str = "") -> int:
        """Ends the pause. Returns how many shards were paused."""
        return pausing.resume(self._caller, self._shards, who)

    def reshard(self, shards_count: int, *, who: str = "") -> Resharding:
        """
        Gives the queue another number of shards, while it is in use. Its nodes move all that it holds, and follow, as
        producers do; `queries.resharding()` tells how far that is. Repeating it changes nothing. Raises SettingsError
        for a number that it can't have, BeingResharded while it is being given another one.
        """
        return reshard(self._caller, self._given[0].namespace, self._given[0].queue, shards_count, who)

    def set(self, *, who: str = "", **options: Unpack[Settable]) -> None:
        """
        Sets options of the queue (`lowkiq.options.SETTABLE` has them) in place of those of its worker's code. Its
        nodes follow within a second or two. Raises SettingsError for what can't be.
        """
        set_live(self._caller, self._given[0].namespace, self._given[0].queue, options, who)

    def unset(self, *names: str, who: str = "") -> int:
        """Has options be those of the code again. Returns how many were set."""
        return unset_live(self._caller, self._given[0].namespace, self._given[0].queue, names, who)

    def track(self, ids: Iterable[str | int]) -> int:
        """
        Keeps what happens to ids from now on, be they queued or not, until they are untracked; at most 1,000 of a
        queue. Returns how many were not tracked before. Raises Refused when there are too many.
        """
        return track(self._caller, self._by_shard(ids), self._shards, on=True)

    def untrack(self, ids: Iterable[str | int]) -> int:
        """Forgets what has happened to ids, and keeps it no longer. Returns how many were tracked."""
        return track(self._caller, self._by_shard(ids), self._shards, on=False)

    def act(self, action: str, view: str, ids: Iterable[str | int], told: bytes = NOBODY) -> int:
        """
        Does what the table says to jobs of a view. Those named among retries are meant also if they are fresh by now.
        Raises ValueError if the view has no such action, or there can't be such an id, and TypeError for a text in
        place of a list.
        """
        check_action(action, view)
        view = "due" if view == "retries" else view
        return sum(self.act_in(shard, action, view, some, told) for shard, some in self._by_shard(ids))

    def sweep(self, search: Search, action: str, match: Match, most: int, told: bytes = NOBODY) -> Iterator[Progress]:
        """
        Acts on all jobs that match, a bounded step at a time; whoever takes the steps may stop between any two.

        It acts on no more than `most`, the number counted when it was asked for, nor on jobs that got into the morgue
        since: what an operator has not seen is not touched. Raises ValueError as `act` does.
        """
        check_action(action, match.view)
        started_at = redis_time(self._caller)
        seen = moved = 0
        for step in search.steps(match):
            known = [id for id, score in step.found if match.view != "morgue" or score <= started_at]
            for ids in chunked(known[: most - seen], CHUNK):
                moved += self.act_in(step.shard, action, match.view, ids, told)
                seen += len(ids)
                yield Progress(seen, moved)
            if seen >= most:
                return
            yield Progress(seen, moved)

    def act_in(self, shard: Shard, action: str, view: str, ids: Sequence[bytes], told: bytes = NOBODY) -> int:
        """Acts on ids of a shard, at most CHUNK. A script that merges gives back those that it has moved in part."""
        script, *words = ACTIONS[view][action]
        words = [told if word == TOLD else word for word in words]
        moved = 0
        while ids:
            call = Call(script, [shard.prefix], [shard.layout, *words, *ids], as_list)
            count, *ids = act_at(self._caller, shard, call)
            moved += int(count)
        return moved

    def _by_shard(self, ids: Iterable[str | int]) -> list[tuple[Shard, list[bytes]]]:
        """
        Each id once, in chunks of a shard. Raises ValueError or TypeError, before anything is done, for what can't be
        an id, or is no list of them.
        """
        shards = self._shards
        once = dict.fromkeys([encode_id(id, self._max_id_bytes, errors=KEPT_BYTES) for id in listed_ids(ids)])
        by_shard = grouped((home_of(self._caller, shards, id), id) for id in once)
        return [(shard, some) for shard, found in by_shard.items() for some in chunked(found, CHUNK)]

    def _all(self, action: str, view: str) -> int:
        """Acts on the first jobs of a view, until as many as there were have been seen: it ends while others push."""
        moved = 0
        for shard in self._shards:
            left = int(self._caller.command("ZCARD", f"{shard.prefix}{view}"))
            while left > 0 and (ids := self._first(f"{shard.prefix}{view}", only_later=action == "perform_now")):
                moved += self.act_in(shard, action, view, ids)
                left -= len(ids)
        return moved

    def _first(self, key: str, *, only_later: bool) -> list[bytes]:
        if not only_later:
            return list(self._caller.command("ZRANGE", key, 0, CHUNK - 1))
        # A second later than Redis's clock, whose decimals this drops: what is due by then needs no help.
        now, _ = self._caller.command("TIME")
        # Later are those that are blocked, and those that wait for their own run: they go on doing so.
        return list(self._caller.command("ZRANGEBYSCORE", key, now + 1, f"({NEVER}", "LIMIT", 0, CHUNK))


def as_list(reply: Any) -> list[Any]:
    """The reply of a script that tells of ids which are to be given to it again, if there are any."""
    return reply if isinstance(reply, list) else [reply]
