"""ShardView: a shard of a fake as Redis would show it: what its keys hold, its jobs, and its numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from lowkiq.admin.jobs.reader import BEHIND, BLOCKED, HELD
from lowkiq.errors import LowkiqError
from lowkiq.job import KEPT_BYTES
from lowkiq.queue.keys import NEVER
from lowkiq.telemetry.texts import MARK
from lowkiq.testing.model.shard_model import ShardModel
from lowkiq.testing.model.shard_state import SECOND, Entry, ShardState, Tags, lowest_first
from lowkiq.testing.queues import FakeQueue, Waiting, text_of


class ShardView(NamedTuple):
    """Made while nobody else changes the shard (`FakeQueue.locked`)."""

    queue: FakeQueue
    model: ShardModel

    def held(self, key: str) -> Mapping[bytes, Any]:
        """What a key of the shard holds: members and scores, or fields and values."""
        name, _, of = key.partition(":")
        if key in _KEYS:
            found = _KEYS[key](self, self.model.state)
        elif name in _KEYS_OF:
            found = _KEYS_OF[name](self, of)
        else:
            raise no_redis(key)
        return {member.encode("utf-8", KEPT_BYTES): value for member, value in found}

    def fetch(self, where: str, name: bytes, most: int, cut: int | None) -> list[Any] | None:
        """The row of a job, as fetch.lua gives it."""
        id, state = name.decode("utf-8", KEPT_BYTES), self.model.state
        if where == "morgue":
            if (grave := state.morgue.get(id)) is None:
                return None
            entry = Entry(grave.payloads, grave.at, tags=grave.tags)
            error, holder = grave.error, b"morgue:payloads"
        else:
            found = (state.queued if where == "queue" else state.claimed).get(id)
            if found is None:
                return None
            entry, error = found, state.errors.get(id, "")
            waits = HELD if where == "queue" and id in self.model.state.held else BEHIND if entry.waits else b"payloads"
            holder = b"claim" if where == "claim" else BLOCKED if entry.blocked else waits
        order = lowest_first(entry.payloads)[:most]
        return [
            text_of(entry.blocked or entry.due),
            b"" if where == "morgue" else b"%d" % entry.retry_count,
            error.encode(),
            b"%d" % state.crashes.get(id, 0),
            holder,
            "\n".join(entry.tags).encode(),
            len(entry.payloads),
            *(part for payload, score in order for part in (payload[:cut], text_of(score), len(payload))),
        ]

    def stats(self) -> list[Any]:
        """Its numbers, as stats.lua gives them."""
        state, now = self.model.state, self.model.now
        entries, waits = state.queued.values(), self.queue.waits
        blocked = [entry.blocked for entry in entries if entry.blocked]
        times = [entry.due for entry in entries if not (entry.blocked or entry.waits)]
        # Pushes of one call are due a little ahead of the clock, and the oldest is not late then.
        due_by = max(now, state.last_score)
        oldest = min(times, default=None)
        if oldest is not None and now < state.last_score and oldest <= state.last_score:
            oldest = now
        since = [state.held[id][0] for id in waits if id in state.held]
        count = state.counters
        return [
            len(entries),
            sum(entry.retry_count >= 0 for entry in entries),
            sum(entry.waits for entry in entries),
            len(state.claimed),
            len(state.claims),
            len(state.morgue),
            b"" if oldest is None else text_of(oldest),
            *(b"%d" % count[name] for name in ("processed", "failed", "pushed", "merged")),
            str(state.node).encode(),
            text_of(state.until - now),
            b"%d" % state.epoch,
            sum(due > due_by for due in times),
            b"%b %b" % (text_of(state.paused[0]), state.paused[1]) if state.paused else b"",
            int(state.paused is not None),
            len(state.held),
            len(blocked),
            text_of(min(blocked)) if blocked else b"",
            b"%d" % count["superseded"],
            b"",
            len(waits),
            text_of(min(since)) if since else b"",
            b"",
        ]

    def is_behind_newer(self, name: bytes) -> bool:
        """As newer.lua."""
        id = name.decode("utf-8", KEPT_BYTES)
        return id in self.model.state.morgue and self.model.behind_newer(id)

    def tags(self) -> Iterable[tuple[str, Tags]]:
        """The tags of each id, wherever it is."""
        state = self.model.state
        for id in dict.fromkeys([*state.queued, *state.claimed, *state.morgue]):
            places = (state.queued.get(id), state.claimed.get(id), state.morgue.get(id))
            yield id, tuple(dict.fromkeys(tag for place in places if place for tag in place.tags))


def no_redis(what: str) -> LowkiqError:
    """The error where a fake has no answer."""
    return LowkiqError(
        f"there is no Redis in lowkiq.testing to ask for {what}: a fake has the jobs, their queries and actions, and "
        "app.metrics(); for all else take a real one, as the fixture lowkiq_redis gives"
    )


def _score(entry: Entry) -> float:
    return math.inf if entry.waits else NEVER if entry.blocked else entry.due / SECOND


#: Key → what it holds.
_KEYS: Final[Mapping[str, Callable[[ShardView, ShardState], Iterable[tuple[str, Any]]]]] = {
    "due": lambda _, state: ((id, _score(job)) for id, job in state.queued.items()),
    "behind": lambda _, state: ((id, text_of(job.due)) for id, job in state.queued.items() if job.waits),
    "retries": lambda _, state: ((id, job.retry_count) for id, job in state.queued.items() if job.retry_count >= 0),
    "blocked": lambda _, state: ((id, job.blocked / SECOND) for id, job in state.queued.items() if job.blocked),
    "errors": lambda _, state: ((id, error.encode()) for id, error in state.errors.items()),
    "held": lambda _, state: ((id, since / SECOND) for id, (since, _) in state.held.items()),
    "holds": lambda view, _: view.queue.holds.items(),
    "waits": lambda view, _: ((id, b"%d" % waiting.done) for id, waiting in view.queue.waits.items()),
    "morgue": lambda _, state: ((id, grave.at / SECOND) for id, grave in state.morgue.items()),
    "morgue:errors": lambda _, state: ((id, grave.error.encode()) for id, grave in state.morgue.items()),
    "tag_counts": lambda view, _: Counter(tag for _, tags in view.tags() for tag in tags if tag[0] != MARK).items(),
    "tenants": lambda _, state: ((id, tenant.encode()) for id, tenant in state.tenants.items()),
}
#: The same of those that have the name of something behind a colon.
_KEYS_OF: Final[Mapping[str, Callable[[ShardView, str], Iterable[tuple[str, Any]]]]] = {
    "waits": lambda view, one: ((name, at) for at, name in enumerate(view.queue.waits.get(one, Waiting()).names)),
    "tagged": lambda view, tag: ((id, 0) for id, tags in view.tags() if tag in tags),
    "lane": lambda view, tenant: (
        (id, _score(job))
        for id, job in view.model.state.queued.items()
        if view.model.state.tenants.get(id) == tenant and not (job.waits or job.blocked)
    ),
}
