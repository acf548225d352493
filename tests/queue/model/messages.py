"""Messages: calls of scripts as the model's people send them. Each knows what it is for Redis, and for the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

from lowkiq.errors import LowkiqError, Unsettled
from lowkiq.job import EncodedJob
from lowkiq.queue import shard as store
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim
from lowkiq.queue.push_calls import push_apart_call, push_call
from lowkiq.queue.senders import Stamp
from lowkiq.queue.shard import Outcome, Shard
from lowkiq.shared_page import DeadNode, Running
from lowkiq.telemetry.texts import MARK
from lowkiq.testing.model.shard_model import ShardModel
from lowkiq.testing.model.shard_rules import Ran
from lowkiq.testing.model.shard_state import SECOND, Asked, Delay, Tags, TakenJob, all_asked

#: Those that only the owner of a shard may send; and those of them that who has a claim that is away may send, too.
FENCED = frozenset(
    {
        "renew", "renew_away", "restore_away", "claim", "isolate", "checkpoint", "settle", "finish", "rest", "release",
        "abandon",
    }
)  # fmt: skip
OF_CLAIMS = frozenset({"renew_away", "isolate", "checkpoint", "settle", "abandon"})


class Message(NamedTuple):
    """
    A call.

    Args:
        script: its name.
        details: what the people know of it: node, epoch …
        call: makes the call for Redis.
        on: does the same to the model.
    """

    script: str
    details: dict[str, Any]
    call: Callable[[Shard], Call[Any]]
    on: Callable[[ShardModel], Any]
    layout: str | None = None

    def __getattr__(self, name: str) -> Any:
        return self.details[name]

    def __repr__(self) -> str:
        return f"{self.script}({', '.join(f'{name}={value!r}' for name, value in self.details.items())})"


Row = tuple[str, bytes, "int | None", "int | None", Tags, str]


def push(layout: str, rows: Sequence[Row], stamp: tuple[str, int], asked: Sequence[Asked] = ()) -> Message:
    jobs = [
        EncodedJob(id.encode(), payload, _told(score), _told(due), "\n".join(tags), tenant, _word(fewer))
        for (id, payload, score, due, tags, tenant), fewer in zip(rows, all_asked(rows, asked), strict=True)
    ]
    return Message(
        "push",
        {"rows": rows, "asked": asked, "stamp": stamp},
        lambda shard: _with_layout(push_call(shard, jobs, _stamp(stamp)), layout, 0),
        lambda model: model.push(layout, rows, stamp, asked),
        layout,
    )


def _word(asked: Asked) -> str:
    times = ("", "") if asked.wait is None else (_told(asked.wait), _told(asked.at_most))
    words = (*times, "0" if asked.throttle == 0 else _told(asked.throttle), asked.keep)
    return ":".join(words) if any(words) else ""


def push_apart(layout: str, rows: Sequence[Row], stamp: tuple[str, int]) -> Message:
    """Of rows with the default score and due time."""
    jobs = [EncodedJob(id.encode(), payload, "", "") for id, payload, *_ in rows]

    def call(shard: Shard) -> Call[Any]:
        return _with_layout(push_apart_call([(shard, jobs)], _stamp(stamp)), layout, 0)

    details = {"rows": rows, "stamp": stamp}
    return Message("push_apart", details, call, lambda model: model.push_apart(layout, rows, stamp), layout)


def _stamp(stamp: tuple[str, int]) -> Stamp:
    return Stamp(stamp[0].encode(), stamp[1])


def acquire(
    layout: str,
    node: str,
    bell: str,
    ttl: int,
    max_crashes: int,
    dead: Mapping[str, Ran] = MappingProxyType({}),
    *,
    is_foster: bool = False,
) -> Message:
    return Message(
        "acquire",
        {"node": node, "max_crashes": max_crashes, "dead": dead},
        lambda shard: _with_layout(
            shard.acquire(node, ttl / SECOND, max_crashes, _dead(shard, dead), is_foster=is_foster, bell=bell),
            layout,
            1,
        ),
        lambda model: model.acquire(node, layout, ttl, max_crashes, dead, is_foster, bell),
        layout,
    )


def renew(node: str, epoch: int, ttl: int) -> Message:
    return Message(
        "renew",
        {"node": node, "epoch": epoch},
        lambda shard: store.renew([shard], node, [str(epoch)], ttl / SECOND),
        lambda model: model.renew(node, epoch, ttl),
    )


def release(node: str, epoch: int, number: int, what: Any, ttl: int = 0, away: Sequence[int] = ()) -> Message:
    return Message(
        "release",
        {"node": node, "epoch": epoch, "number": number, "what": what, "away": away},
        lambda shard: shard.release(node, str(epoch), number, what, ttl / SECOND, away),
        lambda model: model.release(node, epoch, number, what, ttl, away),
    )


def renew_away(node: str, epoch: int, number: int, ttl: int) -> Message:
    return Message(
        "renew_away",
        {"node": node, "epoch": epoch, "number": number},
        lambda shard: store.renew_away([(shard, str(epoch), number)], node, ttl / SECOND),
        lambda model: model.renew_away(node, epoch, number, ttl),
    )


def restore_away(node: str, epoch: int, max_crashes: int, dead: Mapping[str, Ran]) -> Message:
    return Message(
        "restore_away",
        {"node": node, "epoch": epoch, "dead": dead},
        lambda shard: shard.restore_away(node, str(epoch), max_crashes, _dead(shard, dead)),
        lambda model: model.restore_away(node, epoch, max_crashes, dead),
    )


def abandon(node: str, epoch: int, number: int | None = None) -> Message:
    return Message(
        "abandon",
        {"node": node, "epoch": epoch, "number": number},
        lambda shard: shard.abandon(node, str(epoch), number),
        lambda model: model.abandon(node, epoch, number),
    )


def claim(
    layout: str,
    node: str,
    epoch: int,
    number: int,
    limit: int,
    most_of_a_job: int,
    most_in_all: int,
    known: Sequence[int] = (),
    *,
    is_closed: bool = False,
) -> Message:
    def call(shard: Shard) -> Call[Any]:
        with patch.object(store, "MAX_CLAIM_PAYLOADS", most_in_all):
            call: Call[Any] = shard.claim(
                node, str(epoch), number, limit, most_of_a_job, bytes, known=known, is_closed=is_closed
            )
        return _with_layout(call._replace(parse=lambda reply: jobs(call.parse(reply))), layout, 3)

    return Message(
        "claim",
        {
            "node": node,
            "epoch": epoch,
            "number": number,
            "known": known,
            "is_closed": is_closed,
            "most_in_all": most_in_all,
        },
        call,
        lambda model: model.claim(
            node, epoch, number, layout, limit, most_of_a_job, most_in_all, known, is_closed=is_closed
        ),
        layout,
    )


def isolate(node: str, epoch: int, number: int, id: str, *, is_alone: bool) -> Message:
    return Message(
        "isolate",
        {"node": node, "epoch": epoch, "number": number, "id": id, "is_alone": is_alone},
        lambda shard: shard.isolate(node, str(epoch), number, id, is_alone=is_alone),
        lambda model: model.isolate(node, epoch, number, id, is_alone=is_alone),
    )


def checkpoint(node: str, epoch: int, number: int, id: str, value: bytes) -> Message:
    return Message(
        "checkpoint",
        {"node": node, "epoch": epoch, "number": number, "id": id, "value": value},
        lambda shard: shard.checkpoint(node, str(epoch), number, id, value),
        lambda model: model.checkpoint(node, epoch, number, id, value),
    )


def settle(node: str, epoch: int, number: int, outcome: Outcome) -> Message:
    return Message(
        "settle",
        {"node": node, "epoch": epoch, "number": number, "outcome": outcome},
        lambda shard: shard.settle(node, str(epoch), number, outcome),
        lambda model: model.settle(node, epoch, number, outcome),
    )


def finish(node: str, epoch: int, number: int, following: int) -> Message:
    return Message(
        "finish",
        {"node": node, "epoch": epoch, "number": number, "following": following},
        lambda shard: shard.finish(node, str(epoch), number, following),
        lambda model: model.finish(node, epoch, number, following),
    )


def rest(node: str, epoch: int, number: int, in_hand: Sequence[int]) -> Message:
    return Message(
        "rest",
        {"node": node, "epoch": epoch, "number": number, "in_hand": in_hand},
        lambda shard: shard.rest(node, str(epoch), number, in_hand),
        lambda model: model.rest(node, epoch, number, in_hand),
    )


def pause(layout: str, told: bytes) -> Message:
    """What an operator does to the whole shard; with nothing told it only looks how far that has come."""
    return _of_shard(layout, "pause", told)


def resume(layout: str) -> Message:
    return _of_shard(layout, "resume")


def hold(layout: str, told: bytes, ids: Sequence[str]) -> Message:
    return _of_shard(layout, "hold", told, *ids)


def let_go(layout: str, ids: Sequence[str]) -> Message:
    return _of_shard(layout, "let_go", *ids)


def _of_shard(layout: str, script: str, *arguments: Any) -> Message:
    def call(shard: Shard) -> Call[Any]:
        return Call(script, [shard.prefix], [layout, *arguments], lambda reply: reply)

    return Message(script, {}, call, lambda model: getattr(model, script)(layout, *arguments), layout)


def action(layout: str, script: str, *arguments: Any) -> Message:
    """Operators act on an id: revive, bury, drop, cancel, perform_now, unblock, put_away; or on any: put_back."""

    def call(shard: Shard) -> Call[Any]:
        return Call(script, [shard.prefix], [layout, *arguments], lambda reply: reply)

    details = {"id": arguments[-1], "which": None}
    if script in {"bury", "drop"}:
        details["which"] = arguments[-2]
    elif script == "unblock":
        details["how"] = arguments[0]
    elif script == "put_away":
        details |= {"which": arguments[0], "name": arguments[1]}
    elif script == "put_back":
        details |= {"name": arguments[0]}
    return Message(script, details, call, lambda model: getattr(model, script)(layout, *arguments), layout)


def _dead(shard: Shard, dead: Mapping[str, Ran]) -> list[DeadNode]:
    return [
        DeadNode(name, None if ran is None else tuple(Running(shard.prefix, *run) for run in ran))
        for name, ran in dead.items()
    ]


def _told(time: int | None) -> str:
    return "" if time is None else f"{'+' if isinstance(time, Delay) else ''}{time / SECOND:.6f}"


def _with_layout(call: Call[Any], layout: str, at: int) -> Call[Any]:
    arguments = list(call.arguments)
    arguments[at] = layout
    return call._replace(arguments=arguments)


def jobs(claim: Claim) -> list[TakenJob]:
    return [
        (
            job.id,
            [(payload, round(score * SECOND)) for payload, score in zip(job.payloads, job.scores, strict=True)],
            round(job.perform_in * SECOND),
            job.retry_count,
            claim.crowds,
            job.checkpoint,
            (*job.tags, *(f"{MARK}{context}" for context in job.contexts)),
        )
        for job in claim.jobs
    ]


def outcome_of(run: Callable[[], Any]) -> Any:
    """What a call means, or the class of its refusal; of Unsettled also the number of the claim that it tells."""
    try:
        return run()
    except Unsettled as error:
        return Unsettled, int(str(error))
    except LowkiqError as error:
        return type(error)


def rounded(reply: Any) -> Any:
    """Times as far as Redis keeps them."""
    if isinstance(reply, tuple | list):
        return [rounded(value) for value in reply]
    return round(reply, 6) if isinstance(reply, float) else reply
