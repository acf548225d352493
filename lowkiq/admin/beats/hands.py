"""
Hands: what people ask of one node, on whatever machine: to be quiet, to go on, to be restarted, to dump its threads.

A request lies in Redis until the node, rung by its doorbell, takes it: at most once, and only for so long. The node
then tells how far it is. Nobody can stop a node from here.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta
from redis.exceptions import ResponseError

from lowkiq.admin.beats.health import is_alive
from lowkiq.admin.past.incidents import NewIncident, note
from lowkiq.codec import encodable
from lowkiq.errors import LowkiqError
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, redis_time
from lowkiq.queue.unreadable import Unreadable, parsed, quoted

HandName = Literal["quiet", "resume", "restart", "dump"]


class Hand(NamedTuple):
    """Something that a node can be asked for, in words."""

    label: str
    #: What it does then, for the person who is asked back; and in short, as a command.
    will: str
    does: str


HANDS: Final[Mapping[HandName, Hand]] = {
    "quiet": Hand(
        "Quiet",
        "It takes no new jobs and goes on with those that run, until somebody resumes it. Its shards' jobs wait.",
        "Takes no new jobs, and goes on with those that run.",
    ),
    "resume": Hand("Resume", "It takes jobs again.", "Takes jobs again."),
    "restart": Hand(
        "Restart",
        "Its supervisor starts a successor beside it. Once that is ready this node hands its shards over and ends. No "
        "job is lost; one that takes longer than the drain timeout runs again.",
        "Makes room for a successor, which its supervisor starts first.",
    ),
    "dump": Hand(
        "Dump",
        "It tells what each of its threads and tasks is doing, without their variables. It goes on working.",
        "Tells what each of its threads does. It is kept for a week, and read with --wait or on the page.",
    ),
}
#: What rings a node's doorbell for a request.
HAND: Final = b"hand"
#: Seconds since the last beat of nodes that are rung together.
BEATEN_WITHIN: Final = 60.0
#: Seconds for which a request may wait for its node, and after which people are told that it has not heard.
HEARD_WITHIN, UNHEARD_AFTER = 60, 15.0
#: Seconds for which answers are kept.
KEPT_SECONDS: Final = 86_400
#: Requests of a node that wait.
MOST_WAITING: Final = 10
#: Bytes of a request.
MOST_BYTES: Final = 4_096

_Text = Annotated[str, Meta(max_length=500)]
_Name = Annotated[str, Meta(max_length=300)]
_Time = Annotated[float, Meta(ge=-1e11, le=1e11)]
#: "gone" is what whoever reads it finds out: nobody is left who could tell.
HandState = Literal["asked", "heard", "doing", "done", "refused", "gone"]
_OVER: Final = ("done", "refused")
GONE: Final = "the node is gone: it has ended, or was killed, before it told the outcome"
_ID: Final = re.compile(r"[0-9a-f]{16}")


class HandRefused(LowkiqError):
    """The request can't even be put to the node."""


class HandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and how far its node is with it."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    node: _Name
    action: HandName
    #: Who has asked.
    who: _Name
    state: HandState
    #: What the node has told beside.
    says: _Text = ""
    #: The dump that was made.
    dump: Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")] = ""
    #: By Redis's clock.
    asked_at: _Time = 0.0
    told_at: _Time = 0.0

    @property
    def is_over(self) -> bool:
        """True when nothing more will happen."""
        return self.state in (*_OVER, "gone")

    def is_unheard(self, now: float) -> bool:
        """True when the node should have heard it by now."""
        return self.state == "asked" and now - self.asked_at > UNHEARD_AFTER

    def is_too_old(self, now: float) -> bool:
        """True when nobody waits for it any more."""
        return not -1.0 <= now - self.asked_at <= HEARD_WITHIN


def ring_all(caller: Caller, namespace: str) -> None:
    """Has all nodes that have beaten lately look at once at what is asked of them, or was changed."""
    since = redis_time(caller) - BEATEN_WITHIN
    nodes: list[bytes] = caller.command("ZRANGEBYSCORE", keys.nodes(namespace), since, "+inf")
    for node in nodes:
        try:
            caller.command("PUBLISH", keys.doorbell(namespace, node.decode("utf-8", "replace")), HAND)
        except ResponseError:  # who may not publish has them look with their next beat
            return


def ask(caller: Caller, namespace: str, node: str, action: HandName, who: str) -> HandRequest:
    """
    Asks a node for something, which is kept among the incidents.

    Raises:
        HandRefused: so much waits for that node already that it can't be there.
    """
    request = HandRequest(
        id=secrets.token_hex(8), node=_cut(node), action=action, who=_cut(who), state="asked"
    )  # fmt: skip
    says = f"{action.capitalize()} was asked of node {request.node}"
    new = NewIncident(
        key=f"hand:{request.id}", kind=action, severity="note", says=says, node=node, host=host_of(node), who=who
    )
    note(caller, namespace, [new])  # first: nothing is asked that is not kept
    bell = keys.doorbell(namespace, node)
    asked_at: bytes = caller.run(
        Call(
            "ask_hand",
            [keys.hands_of(namespace, node), keys.hand(namespace, request.id)],
            [_head(request), int(HEARD_WITHIN), KEPT_SECONDS, MOST_WAITING, bell, HAND],
            bytes,
        )
    )
    if not asked_at:
        raise HandRefused(f"{MOST_WAITING} requests wait for node {request.node} already: it does not hear")
    return msgspec.structs.replace(request, asked_at=float(asked_at), told_at=float(asked_at))


def take(caller: Caller, namespace: str, node: str) -> tuple[float, list[HandRequest]]:
    """Redis's time, and what a node is asked for, which nobody will be given again."""
    reply: list[bytes] = caller.run(
        Call("take_hands", [keys.hands_of(namespace, node)], [MOST_WAITING, MOST_BYTES + 1], list)
    )
    met: list[Unreadable] = []
    where = quoted(keys.hands_of(namespace, node))
    found = [parsed(met, where, f"UNLINK {where}", _REQUEST.decode, text) for text in reply[1:]]
    caller.met.tell(where, met)
    return float(reply[0]), [request for request in found if request and request.node == _cut(node)]


def tell(caller: Caller, namespace: str, request: HandRequest) -> bool:
    """The node tells how far it is. False: it is over, or nobody knows of it any more."""
    request = msgspec.structs.replace(request, says=encodable(request.says)[:500])
    head = msgspec.json.encode(_without(request, "told_at"))[:-1]
    over = [f'"state":"{state}"' for state in _OVER]
    return caller.run(Call("tell_hand", [keys.hand(namespace, request.id)], [head, KEPT_SECONDS, *over], bool))


def read_hand(caller: Caller, namespace: str, id: str) -> tuple[float, HandRequest | None]:
    """Redis's time, and a request with its answer so far; None when there is no such one, or no longer."""
    if not _ID.fullmatch(id):
        return redis_time(caller), None
    now, request = _read(caller, namespace, id)
    if request and not request.is_over and not is_alive(caller, namespace, request.node):
        now, request = _read(caller, namespace, id)  # what it told before it was gone counts
        if request and not request.is_over:
            says = f"{GONE} (the last was: {request.says})" if request.says else GONE
            request = msgspec.structs.replace(request, state="gone", says=says)
    return now, request


def _read(caller: Caller, namespace: str, id: str) -> tuple[float, HandRequest | None]:
    key = keys.hand(namespace, id)
    time, text = caller.read([("TIME",), ("GETRANGE", key, 0, MOST_BYTES)], b"")
    request = caller.met.whole(key, _REQUEST.decode, text)
    return time[0] + time[1] / 1e6, request if request and request.id == id else None


def host_of(node: str) -> str:
    """The host in a node's name, HOST:PID:TOKEN."""
    return node.rsplit(":", 2)[0]


def _head(request: HandRequest) -> bytes:
    return msgspec.json.encode(_without(request, "asked_at", "told_at"))[:-1]


def _without(request: HandRequest, *names: str) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(request).items() if name not in names}


def _cut(text: str) -> str:
    return encodable(text)[:300]


_REQUEST: Final = msgspec.json.Decoder(HandRequest)
