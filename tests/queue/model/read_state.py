"""What a shard holds in Redis, read into the state that the model has, without the scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lowkiq.queue.shard import Shard
from lowkiq.testing.model.shard_state import COUNTERS, SECOND, Away, Entry, FewerRule, Grave, Kept, Payloads, ShardState
from tests.queue.look import Claimed, Dead, Look, Queued
from tests.queue.shard_driver import ShardDriver


def read_state(shard: ShardDriver) -> ShardState:
    look = shard.look(beside=bell_of(shard.shard, "*:idle"))
    look.check_tags()
    owner, meta = (_fields(look, key) for key in ("owner", "meta"))
    return ShardState(
        queued=_entries(look.queued()),
        claims={name: _entries(claim) for name, claim in look.claims().items()},
        away={
            name: Away(node, _microseconds(until), _microseconds(ttl), left, alone)
            for name, (until, ttl, left, node, alone) in look.away().items()
        },
        morgue={
            id: Grave(_payloads(dead), dead.error, dead.tags, None if dead.newer is None else _microseconds(dead.newer))
            for id, dead in look.morgue().items()
        },
        crashes=look.deaths("crashes"),
        crowds=look.deaths("crowds"),
        untold=look.untold(),
        errors=look.errors(),
        cancels={id: _pair(mark.decode()) for id, mark in look.hash("cancels").items()},
        checkpoints={id: _checkpoint(text) for id, text in look.hash("checkpoints").items()},
        kept={key: _kept(record, payloads) for key, (record, payloads) in look.put_away().items()},
        senders={name: _said(text) for name, text in meta.items() if name.startswith("~")},
        tenants={id: tenant.decode() for id, tenant in look.hash("tenants").items()},
        lanes={tenant: {id: _microseconds(due) for id, due in hints.items()} for tenant, hints in look.lanes().items()},
        layout=meta.get("layout"),
        last_score=int(meta.get("last_score", 0)),
        seen=int(meta["seen"]) if "seen" in meta else None,
        counters={name: int(meta.get(name, 0)) for name in COUNTERS},
        node=owner.get("node"),
        epoch=int(owner.get("epoch", 0)),
        lead=_pair(meta.get("lead", "0 0")),
        until=_microseconds(float(owner.get("until", 0))),
        ttl=_microseconds(float(owner.get("ttl", 0))),
        claim_number=int(owner.get("claim", 0)),
        alone=_alone(owner["alone"]) if "alone" in owner else None,
        is_abandoned="abandoned" in owner,
        wanted=owner.get("wanted"),
        bell=owner.get("bell"),
        waiting=_waiting(owner["waiting"]) if "waiting" in owner else None,
        open=_pair(owner["open"]) if "open" in owner else None,
        paused=_pause(look.pause()),
        held={id: (_microseconds(since), told) for id, (since, told) in look.holds().items()},
        rules={id: _rule(text) for id, text in look.hash("rules").items()},
        spaced={id: _microseconds(until) for id, until in look.zset("spaced").items()},
        debounced={id: _mark(text) for id, text in look.hash("debounced").items()},
        rests=int(owner["rests"]) if "rests" in owner else None,
        idle={key.decode().removesuffix(":idle") for key in look.beside},
    )


def bell_of(shard: Shard, node: str) -> str:
    return f"{shard.prefix.partition(':{')[0]}:bell:{node}"


def _waiting(text: str) -> float:
    return math.inf if text == "inf" else _microseconds(float(text))


def _pair(text: str) -> tuple[int, int]:
    epoch, number = text.split()
    return int(epoch), int(number)


def _said(text: str) -> tuple[int, int | None]:
    number, _, new = text.partition(" ")
    return int(number), int(new) if new else None


def _pause(text: bytes | None) -> tuple[int, bytes] | None:
    since, _, told = (text or b"").partition(b" ")
    return None if text is None else (_microseconds(float(since)), told)


def _checkpoint(text: bytes) -> tuple[bytes, bytes]:
    length, _, rest = text.partition(b":")
    return rest[: int(length)], rest[int(length) :]


def _kept(record: list[bytes | None], payloads: dict[bytes, float]) -> Kept:
    where, at, retry_count, error, _, crashes, crowds, checkpoint, tags, tenant, rule, waits = record
    assert waits is None, "nothing waits for others here"
    return Kept(
        (where or b"").decode(),
        tuple((payload, _microseconds(score)) for payload, score in sorted(payloads.items())),
        _microseconds(float(at or 0)) if where == b"queue" else 0,
        -1 if retry_count is None else int(retry_count),
        None if error is None else error.decode(),
        None if crashes is None else int(crashes),
        None if crowds is None else int(crowds),
        None if checkpoint is None else _checkpoint(checkpoint),
        () if tags is None else tuple(tags.decode().split("\n")),
        None if tenant is None else tenant.decode(),
        None if rule is None else _rule(rule),
    )


def _rule(text: bytes) -> FewerRule:
    throttle, _, keep = text.decode().partition(":")
    return (_microseconds(float(throttle)) if throttle else None), keep


def _mark(text: bytes) -> tuple[int, int]:
    due, latest = text.split()
    return _microseconds(float(due)), _microseconds(float(latest))


def _alone(text: str) -> tuple[int, str]:
    number, _, id = text.partition(" ")
    return int(number), id


def _fields(look: Look, key: str) -> dict[str, str]:
    return {name: value.decode() for name, value in look.hash(key).items()}


def _microseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def _payloads(job: Queued | Claimed | Dead) -> Payloads:
    return {payload: _microseconds(score) for payload, score in job.payloads.items()}


def _entries(jobs: Mapping[str, Queued | Claimed]) -> dict[str, Entry]:
    return {
        id: Entry(
            _payloads(job),
            _microseconds(job.perform_in),
            job.retry_count,
            getattr(job, "waits", False),
            job.tags,
            _microseconds(job.blocked) if isinstance(job, Queued) and job.blocked is not None else None,
        )
        for id, job in jobs.items()
    }
