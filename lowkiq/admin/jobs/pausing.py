"""Pausing: has nothing be claimed of a queue until somebody resumes it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lowkiq import clock
from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.pauses import MOST_WHY, pause_text
from lowkiq.admin.words import plural, printable
from lowkiq.errors import Moved
from lowkiq.queue.call import Call, Caller, grouped, raise_first
from lowkiq.queue.shard import Shard

#: Seconds for which `pause` waits for nodes: a node that hears needs some milliseconds.
WAIT: Final = 5.0
#: Seconds between its looks: at first, and at most.
LOOK_FROM, LOOK_TO = 0.005, 0.2
#: Nodes that a sentence names.
NAMED: Final = 3


class PauseReply(msgspec.Struct, frozen=True):
    """The outcome of a pause. Nothing more is claimed, whatever it says."""

    #: Redis's time since when the queue is paused.
    since: float
    #: Node → shards of which it has not confirmed that it starts nothing more: what it had claimed may still start.
    unconfirmed: dict[str, list[int]]

    @property
    def is_confirmed(self) -> bool:
        """True if nothing of the queue starts any more, until it is resumed."""
        return not self.unconfirmed


def pause(caller: Caller, shards: Sequence[Shard], reason: str, who: str, wait: float) -> PauseReply:
    """
    Pauses a queue, and waits for its nodes.

    Args:
        reason: for people, who see it wherever the queue is shown.
        wait: seconds. A node that is silent is waited for until its lease has ended, if that is within them.
    """
    text = pause_text(who, reason)
    until, pace = clock.monotonic() + wait, LOOK_FROM
    # What is being moved is paused where it goes.
    found = zip(shards, caller.run_all([_call(shard, text) for shard in shards]), strict=True)
    told = [(shard, reply) for shard, reply in found if not isinstance(reply, Moved)]
    shards, replies = [shard for shard, _ in told], raise_first([reply for _, reply in told])
    since = min((float(start) for start, _ in replies), default=0.0)
    _note(caller, shards, "pause", f"paused{f': {printable(reason, MOST_WHY)}' if reason else ''}", who)
    while waiting := {shard: node for shard, (_, node) in zip(shards, replies, strict=True) if node}:
        if clock.monotonic() >= until:
            break
        time.sleep(pace)
        pace = min(pace * 2, LOOK_TO)
        shards = list(waiting)
        replies = caller.run_all([_call(shard, b"") for shard in shards])
        replies = raise_first([(b"", "") if isinstance(reply, Moved) else reply for reply in replies])
    return PauseReply(since, grouped((node, shard.index) for shard, node in waiting.items()))


def resume(caller: Caller, shards: Sequence[Shard], who: str) -> int:
    """Ends the pause of a queue. Returns how many of its shards were paused."""
    replies = _resume(caller, shards)
    if any(isinstance(reply, Moved) for reply in replies):
        # What has moved since may have told its pause to where it went, behind our back.
        replies += _resume(caller, shards)
    resumed = sum(raise_first([reply for reply in replies if not isinstance(reply, Moved)]))
    if resumed:
        _note(caller, shards, "resume", "resumed", who)
    return int(resumed)


def _resume(caller: Caller, shards: Sequence[Shard]) -> list[Any]:
    return caller.run_all([Call("resume", [shard.prefix], [shard.layout], int) for shard in shards])


def restless(unconfirmed: dict[str, list[int]]) -> str:
    """The nodes that have not confirmed a pause."""
    shards = sum(map(len, unconfirmed.values()))
    nodes = ", ".join(printable(node, 80) for node in list(unconfirmed)[:NAMED])
    more = f" and {len(unconfirmed) - NAMED} more" if len(unconfirmed) > NAMED else ""
    return f"{plural(shards, 'shard')} of {nodes}{more}"


def _call(shard: Shard, text: bytes) -> Call[tuple[bytes, str]]:
    return Call("pause", [shard.prefix], [shard.layout, text], _paused)


def _paused(reply: list[Any]) -> tuple[bytes, str]:
    since, node = reply
    return since or b"0", node.decode("utf-8", "backslashreplace")


def _note(caller: Caller, shards: Sequence[Shard], kind: str, says: str, who: str) -> None:
    if shards:
        queue = shards[0].queue
        note_deed(caller, shards[0].namespace, queue, kind, f"Queue {printable(queue, 60)} {says}", who)
