"""What is absent in a shard to which jobs are still being moved may be on its way: nothing is decided by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest

from lowkiq import Lowkiq
from lowkiq.errors import BeingResharded
from lowkiq.job import EncodedJob, shard_of
from lowkiq.queue import resharding, scripts
from lowkiq.queue.call import Call
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import Owned, Shard
from tests.queue.stamps import once

ID: Final = "17"
LETTER: Final = [b"q:1", b"push", b"17", b"1", *[b""] * 6]

#: Script → what it is called with, behind the layout, of a shard that is still coming: it is refused, changing nothing.
GUARDED: Final[Mapping[str, Sequence[Any]]] = {
    "bury": [1_000, "any", ID],
    "cancel": [ID],
    "drop": ["queue", ID],
    "hold": [b"{}", ID],
    "let_go": [ID],
    "perform_now": [ID],
    "put_away": ["queue", "0" * 16, 60, ID],
    "put_back": ["0" * 16, ID],
    "receive": ["lowkiq:{q:0}:", "1", "1", *LETTER],
    "recur": [ID, "", "entry", "1.0"],
    "revive": [1_000, ID],
    "stop_waiting": [ID],
    "track": [1, 1_000, ID],
    "unblock": ["retry", ID],
    "wait": [ID, 1],
}
#: The same of those that the shard's owner alone calls: its name and epoch come before the layout.
GUARDED_OF_OWNERS: Final[Mapping[str, Sequence[Any]]] = {
    "ask_again": ["0", 0, 100],
    "look_at_parked": ["0", 100],
    "fire": [ID, "1.0", "2.0", 1, "payload", "1"],
}

_MOVES = "it is the move"
_CLAIMED = "it is about a claim, of which a shard that is still coming has none"
_READS = "it reads, for people who see beside it that the queue is being resharded"
_OTHER = "it is about no shard"
#: Those that need no guard, and why.
UNGUARDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("adopt", "close_moved", "drop_moved", "end_feed", "feed", "mark_moved", "note_step", "pack", "relayout",
         "home"), _MOVES
    ),
    **dict.fromkeys(
        (
            "cancels", "checkpoint", "finish", "isolate", "release", "settle", "abandon", "rest", "renew", "renew_away",
            "restore_away",
        ),
        _CLAIMED,
    ),
    **dict.fromkeys(("fetch", "heads", "lengths", "newer", "peek", "stats", "weigh"), _READS),
    **dict.fromkeys(
        (
            "add_times", "ask_hand", "beat", "end_incidents", "end_session", "incidents", "keep_dump", "keep_places",
            "lay_out", "members", "note_alerts", "note_failures", "note_incidents", "placements", "places", "rate",
            "declare", "record", "register", "take_hands", "tell_hand", "turn", "version",
        ),
        _OTHER,
    ),
    "acquire": "its owner may have it, and claims nothing",
    "claim": "nothing is claimed: it says PAUSED",
    "firing": "it says that nothing fires",
    "relay": "it says that there are no letters",
    "push": "adopt merges what was pushed with what comes (SIDES in sides.lua)",
    "push_apart": "as push",
    "pause": "it is about the shard; feed tells it of the pause that comes",
    "resume": "it is about the shard; feed tells it of the pause that comes",
    **dict.fromkeys(("renew_away", "restore_away"), "it is about claims that another node has in hand"),
    "watch": "it is about the shard",
}  # fmt: skip


class Coming(NamedTuple):
    """A new shard, from which something is still missing."""

    shard: Shard
    node: str
    epoch: str
    old: Shard
    rest: Iterator[int]


@pytest.fixture
def coming(app: Lowkiq) -> Coming:
    caller, namespace = app.caller, app.settings.namespace
    opened(caller, namespace, {"q": 1})
    caller.run(push_call(Shard(namespace, "q", 0, Layout(2, 1)), [EncodedJob(ID.encode(), b"1")], once()))
    layout = resharding.begin(caller, namespace, "q", 2)
    route = Route.of(namespace, "q", layout, 0)
    mover = caller.run(route.acquire("mover", 600, 9, [], is_marked=False))
    assert isinstance(mover, Owned)
    steps = resharding.steps(caller, route, "mover", mover.epoch)
    next(steps), next(steps)
    shard = Shard(namespace, "q", shard_of(ID.encode(), 2), layout.own)
    owned = caller.run(shard.acquire("node", 600, 9))
    assert isinstance(owned, Owned)
    return Coming(shard, "node", owned.epoch, route.old, steps)


def test_each_script_is_guarded_or_needs_no_guard() -> None:
    """A new script gets a line in one of the tables."""
    known = [*GUARDED, *GUARDED_OF_OWNERS, *UNGUARDED]
    assert sorted(known) == sorted(scripts.load(flags=False))


@pytest.mark.parametrize("name", [*GUARDED, *GUARDED_OF_OWNERS])
def test_nothing_is_decided_while_a_shard_is_still_coming(app: Lowkiq, coming: Coming, name: str) -> None:
    words = [coming.shard.layout, *GUARDED[name]] if name in GUARDED else []
    if name in GUARDED_OF_OWNERS:
        own, rest = [coming.node, coming.epoch, coming.shard.layout], GUARDED_OF_OWNERS[name]
        words = [*own, *rest]
    before = dump(app)
    (result,) = app.caller.run_all([Call(name, [coming.shard.prefix], words, lambda reply: reply)])
    assert isinstance(result, BeingResharded), result
    assert str(result) == (
        f"queue q is being resharded, its shard {coming.shard.index} just now: try again in some seconds"
    )
    assert dump(app) == before


@pytest.mark.parametrize("name", [*GUARDED, *GUARDED_OF_OWNERS])
def test_each_is_accepted_once_all_has_come(app: Lowkiq, coming: Coming, name: str) -> None:
    """So the refusal above is for that alone."""
    list(coming.rest)
    words = [coming.shard.layout, *GUARDED[name]] if name in GUARDED else []
    if name in GUARDED_OF_OWNERS:
        epoch = app.redis().hget(f"{coming.shard.prefix}owner", "epoch")
        words = [coming.node, epoch, coming.shard.layout, *GUARDED_OF_OWNERS[name]]
    app.caller.run(Call(name, [coming.shard.prefix], words, lambda reply: reply))


def dump(app: Lowkiq) -> dict[bytes, Any]:
    redis: Any = app.redis()
    return {key: redis.dump(key) for key in redis.keys("*")}
