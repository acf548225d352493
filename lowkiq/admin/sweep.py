"""
Sweep: an action on all jobs that match, a bounded step at a time. Who takes the steps may stop between any two.

It acts on no more jobs than were counted when it was asked for, nor on jobs that got into the morgue since: what an
operator has not seen is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from lowkiq.admin.actions import CHUNK, Actions
from lowkiq.admin.search import Match, Matches
from lowkiq.queue.call import Caller, chunked, redis_time
from lowkiq.queue.shard import Shard


class Progress(NamedTuple):
    """How far a sweep has come."""

    #: Matching jobs that it has met, and those of them that were moved or deleted.
    seen: int
    moved: int


Act = Callable[[Actions, Shard, list[bytes]], int]

#: View → what can be done there.
ACTIONS: Final[Mapping[str, Mapping[str, Act]]] = {
    "due": {
        "perform_now": lambda actions, shard, ids: actions.perform_now_in(shard, ids),
        "bury": lambda actions, shard, ids: actions.bury_in(shard, ids),
        "delete": lambda actions, shard, ids: actions.drop_in(shard, ids),
    },
    "retries": {
        "perform_now": lambda actions, shard, ids: actions.perform_now_in(shard, ids),
        "bury": lambda actions, shard, ids: actions.bury_in(shard, ids, "failed"),
        "delete": lambda actions, shard, ids: actions.drop_in(shard, ids, "failed"),
    },
    "morgue": {
        "revive": lambda actions, shard, ids: actions.revive_in(shard, ids),
        "delete": lambda actions, shard, ids: actions.drop_in(shard, ids, "morgue"),
    },
}


def check_action(action: str, view: str) -> None:
    """Raises ValueError for what can't be done in a view."""
    if view not in ACTIONS:
        raise ValueError(f"no view {view!r}: there are {', '.join(ACTIONS)}")
    if action not in ACTIONS[view]:
        raise ValueError(f"can't do {action!r} in {view}: there are {', '.join(ACTIONS[view])}")


def sweep(
    caller: Caller,
    matches: Matches,
    actions: Actions,
    action: str,
    match: Match,
    most: int,
) -> Iterator[Progress]:
    """Acts on at most that many matching jobs; each step tells how far it has come. Raises ValueError as above."""
    check_action(action, match.view)
    act = ACTIONS[match.view][action]
    started_at = redis_time(caller)
    seen = moved = 0
    for step in matches.steps(match):
        known = [id for id, score in step.found if match.view != "morgue" or score <= started_at]
        for ids in chunked(known[: most - seen], CHUNK):
            moved += act(actions, step.shard, ids)
            seen += len(ids)
            yield Progress(seen, moved)
        if seen >= most:
            return
        yield Progress(seen, moved)
