"""Layouts: makes queues known in Redis, and tells which shards they have there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from redis.exceptions import RedisError

from lowkiq.errors import OtherLayout, ShardsCountMismatch
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, raise_first
from lowkiq.queue.keys import Layout


def opened(
    caller: Caller,
    namespace: str,
    queues: Mapping[str, int],
    known: Mapping[str, Layout] | None = None,
) -> dict[str, Layout | OtherLayout]:
    """
    Makes queues with their shards_count known, also again should Redis have lost them; those that are `known` are made
    known again so.

    Returns:
        by queue its layout, as Redis has it: it is to be followed. ShardsCountMismatch for one that is known with what
        is no layout, and NewerLayout for a newer one.
    """
    layouts = {queue: Layout.first(count) for queue, count in queues.items()} | dict(known or {})
    calls = [
        Call(
            "register",
            [keys.queues(namespace)],
            [queue, layouts[queue].text],
            partial(_known, namespace, queue),
        )
        for queue in queues
    ]
    replies = caller.run_all(calls)
    raise_first([reply for reply in replies if isinstance(reply, RedisError)])
    return dict(zip(queues, replies, strict=True))


def _known(namespace: str, queue: str, text: bytes) -> Layout | OtherLayout:
    try:
        layout = Layout.parse(text)
    except ValueError as error:  # anybody may have written it
        return ShardsCountMismatch(f"queue {queue}: {error}. Remove it: HDEL {keys.queues(namespace)} {queue}")
    return layout_error(queue, layout) or layout


def layout_error(queue: str, known: Layout) -> OtherLayout | None:
    """NewerLayout if this Lowkiq may not write to a queue that Redis knows so."""
    return keys.newer_layout(queue, known.version) if known.version > keys.LAYOUT_VERSION else None
