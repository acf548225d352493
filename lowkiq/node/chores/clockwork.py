"""Clockwork: the thread of a node that fires jobs that recur, of the shards that it owns (queue/recurring.py)."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import Fenced, LowkiqError
from lowkiq.log import get_logger
from lowkiq.node.chores.declarations import Declarations
from lowkiq.node.mishaps import LastingThread
from lowkiq.node.noted import Owned
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import chunked
from lowkiq.queue.recurring import Due, Entry, Fired, Firing, fire, firing, later
from lowkiq.recurring import Declared

logger = get_logger()

#: Shards that are looked at in one round trip.
TOGETHER: Final = 100
#: Payloads that one call pushes, unless those of a single entry are more.
MOST_PUSHED: Final = 1_000
#: Seconds after which a shard is looked at again that could not be.
AGAIN: Final = 1.0
#: Seconds after which it is logged again that what the code has could not be set.
REMIND: Final = 30.0
ADVICE: Final = "it is tried again in an hour: set it anew, or remove it (app.recurring), or mend what can't load it"
#: Seconds after which a shard in which anything recurs is looked at, at the latest: Redis's clock may be set back.
LOOK: Final = 2.0
#: Entries of a shard of which it is looked at a time whether they lie too far ahead; and seconds between.
AHEAD: Final = 50
LOOK_AHEAD: Final = 3.0
#: Seconds until an entry that can't be read, or fired, is tried again.
UNREADABLE: Final = 3_600.0


class Clockwork(LastingThread):
    """
    Sleeps until the next entry of any shard is due. It learns of shards that are acquired, and of entries that are set,
    by its box; one whose message was lost, when the lease is renewed.
    """

    def __init__(self, runtime: Runtime, rows: Sequence[Declared]) -> None:
        super().__init__("lowkiq-recurring", runtime.mishaps)
        self._runtime, self._caller, self._node = runtime, runtime.caller, runtime.node
        self._box = runtime.recurring
        #: What the code has of each queue, and when that is to be looked at next (monotonic).
        self._declared = {
            queue: Declarations(runtime, queue, [row for row in rows if row.worker.queue_name == queue])
            for queue in runtime.workers
        }
        self._declare_at = dict.fromkeys(self._declared, 0.0)
        self._has_lost = False
        #: When it is logged again that it could not be set (monotonic).
        self._remind_at: dict[str, float] = {}
        #: When shards are to be looked at (monotonic).
        self._look_at: WeakKeyDictionary[Owned, float] = WeakKeyDictionary()
        #: When it is looked at next which of their entries lie too far ahead (monotonic), and from which on.
        self._ahead: WeakKeyDictionary[Owned, tuple[float, int]] = WeakKeyDictionary()
        #: What can't be fired, and was put off: the shard, the id, and the entry.
        self._put_off: dict[tuple[str, bytes], bytes] = {}

    def declare_again(self) -> None:
        """Has what the code has be set anew, as Redis has lost everything."""
        self._has_lost = True
        self._box.wake()

    def stop(self) -> None:
        """Ends it soon: whoever has its shards next goes on."""
        self._is_over.set()
        self._box.wake()

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._declare()
            wait = min([*self._look_at.values(), *self._declare_at.values()], default=math.inf) - clock.monotonic()
            taken = self._box.take(min(max(wait, 0.0), threading.TIMEOUT_MAX))
            now = clock.monotonic()
            due = taken | {lease for lease, at in self._look_at.items() if at <= now}
            for some in chunked(due, TOGETHER):
                self._look(some)
            self._box.is_busy = False
        self._leave()

    def _declare(self) -> None:
        """Sets what the code has. What is refused, as its queue is being resharded, is tried until it is set."""
        if self._has_lost:
            self._has_lost = False
            self._declare_at = dict.fromkeys(self._declared, 0.0)
        for queue in [queue for queue, at in self._declare_at.items() if at <= clock.monotonic()]:
            self._declare_at[queue] = clock.monotonic() + AGAIN
            try:
                at = self._declared[queue].look()
            except RedisError as error:
                self._runtime.outage.met(error)
                return
            except LowkiqError as error:
                if clock.monotonic() >= self._remind_at.get(queue, 0.0):
                    self._remind_at[queue] = clock.monotonic() + REMIND
                    logger.warning("recurring_not_set", queue=queue, error=str(error)[:300])
                continue
            except BaseException as error:  # noqa: BLE001 (what is there already may be anything; the others have theirs)
                self._mishaps.met("recurring_not_set", error, "it is tried again each second", queue=queue)
                continue
            if at is None:
                del self._declare_at[queue]
            else:
                self._declare_at[queue] = at

    def _leave(self) -> None:
        """Has what only this node's code has be removed by others soon. Where Redis is away, that lapses."""
        with contextlib.suppress(RedisError):
            for queue in () if self._runtime.outage.is_on else self._declare_at:
                self._declared[queue].leave()

    def _look(self, leases: Sequence[Owned]) -> None:
        """Fires what is due of some shards, and notes when to look again."""
        owned = [lease for lease in leases if lease.epoch is not None]
        for lease in leases:
            self._look_at.pop(lease, None)
        asked_at = clock.monotonic()
        try:
            found = self._caller.run_all([firing(lease.shard) for lease in owned])
            calls = {}
            for lease, result in zip(owned, found, strict=True):
                if isinstance(result, Firing) and result.due and lease.epoch is not None:
                    calls[lease] = fire(lease.shard, self._node, lease.epoch, self._all_fired(lease, result))
            fired = dict(zip(calls, self._caller.run_all(list(calls.values())), strict=True))
            for lease, result in zip(owned, found, strict=True):
                if isinstance(result, Firing) and result.next_at is not None:
                    self._bring_back(lease, result.now)
            self._runtime.outage.over()
        except RedisError as error:
            self._runtime.outage.met(error)
            self._look_at.update(dict.fromkeys(owned, asked_at + AGAIN))
            return
        for lease, result in zip(owned, found, strict=True):
            self._note(lease, fired.get(lease, result), asked_at)

    def _note(self, lease: Owned, result: Any, asked_at: float) -> None:
        if isinstance(result, Firing):
            if result.next_at is not None:
                self._look_at[lease] = asked_at + min(result.next_at - result.now, LOOK)
        elif not isinstance(result, Fenced):  # then it is another node's to fire
            logger.warning(
                "recurring_failed", queue=lease.shard.queue, shard=lease.shard.index, error=str(result)[:300]
            )
            self._look_at[lease] = asked_at + AGAIN

    def _bring_back(self, lease: Owned, now: float) -> None:
        """
        Has entries that lie farther ahead than their rules say be due in time: they were set, or fired, by a clock that
        was ahead. Some at a time; all of them, one look after the other.
        """
        at, rank = self._ahead.get(lease, (0.0, 0))
        if clock.monotonic() < at or lease.epoch is None:
            return
        entries = later(self._caller, lease.shard, rank, AHEAD)
        self._ahead[lease] = clock.monotonic() + LOOK_AHEAD, rank + AHEAD if len(entries) == AHEAD else 0
        moved = [
            Fired(entry, following, ())
            for entry in entries
            if (following := self._right_time(lease, entry, now)) and following < float(entry.expected)
        ]
        if moved:
            self._caller.run_all([fire(lease.shard, self._node, lease.epoch, moved)])

    def _right_time(self, lease: Owned, due: Due, now: float) -> float | None:
        """When an entry is to fire next, by its rule; None: nobody knows, or it was put off."""
        if self._put_off.get((lease.shard.prefix, due.id)) == due.text:
            return None
        try:
            return _following(Entry.parse(due.text), now)
        except Exception:  # noqa: BLE001 (anybody may have written it; it is told of when it is due)
            return None

    def _all_fired(self, lease: Owned, found: Firing) -> list[Fired]:
        """What a call fires. With large backlogs those are several: what is left is due when it has been done."""
        fired, pushes = list[Fired](), 0
        for due in found.due:
            entry = self._fired(lease.shard.queue, due, found.now)
            self._put_off.pop((lease.shard.prefix, due.id), None)
            if not entry.payloads and entry.following == found.now + UNREADABLE:
                self._put_off[lease.shard.prefix, due.id] = due.text
            pushes += len(entry.payloads)
            if fired and pushes > MOST_PUSHED:
                break
            fired.append(entry)
        return fired

    def _fired(self, queue: str, due: Due, now: float) -> Fired:
        """What an entry pushes. One that nobody can read, or whose package is not here, is told of and tried later."""
        try:
            entry = Entry.parse(due.text)
            worker, times = self._runtime.workers[queue], entry.rule.due(float(due.expected), now)
            jobs = [entry.job(due.id, at, worker.codec, worker.fewer) for at in times]
            payloads = [(job.payload, at) for job, at in zip(jobs, times, strict=True)]
            return Fired(due, _following(entry, now), payloads, entry.tenant, worker.fewer.word_of({}))
        except BaseException as error:  # noqa: BLE001 (anybody's text, the user's codec, and a package of others)
            self._mishaps.met("recurring_unreadable", error, ADVICE, queue=queue, id=due.id.decode(errors="replace"))
            return Fired(due, now + UNREADABLE, ())


def _following(entry: Entry, now: float) -> float:
    """When an entry fires next. Raises ValueError if that is no time to come: it would be fired for ever."""
    found = entry.rule.after(now)
    if not now < found < math.inf:
        raise ValueError(f"its next time would be {found}")
    return found
