"""An async job and a suspect of another queue: neither waits for the other for longer than it must."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq import Lowkiq, current
from lowkiq.node.suspects.isolation import Isolation
from tests.node.driven import burst

WITHIN = 30.0


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_checkpoint_is_kept_while_a_suspect_waits_for_the_node(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    gates: list[Isolation] = []
    is_held_up = threading.Event()
    begin, enter = Isolation.begin, Isolation.enter

    def noted_begin(self: Isolation, *given: Any) -> bool:
        gates.append(self)
        return begin(self, *given)

    def noted_enter(self: Isolation, *given: Any, **options: Any) -> bool:
        if self._holder is not None:
            is_held_up.set()
        return enter(self, *given, **options)

    monkeypatch.setattr(Isolation, "begin", noted_begin)
    monkeypatch.setattr(Isolation, "enter", noted_enter)

    @app.worker(queue_name="jobs", shards_count=1)
    def jobs(id: str, payloads: list[Any]) -> None:
        order.append(id)

    @app.worker(queue_name="tasks", shards_count=1, concurrency=5)
    async def tasks(id: str, payloads: list[Any]) -> None:
        if id == "first":
            (shard,) = app.shards("jobs", 1)
            app.redis().hset(f"{shard.prefix}crashes", "suspect", 1)
            app.redis().hset(f"{shard.prefix}crowds", "suspect", 0)
            await app.apush(jobs, [{"id": "suspect"}])
            await until(lambda: any(gate._holder for gate in gates))
            await app.apush(tasks, [{"id": "second"}])
            await until(is_held_up.is_set)
            current().checkpoint("half of it")
        order.append(id)

    app.push(tasks, [{"id": "first"}])
    burst(app)
    assert order == ["first", "suspect", "second"]
