"""Dumps of threads, as far as they need no process of their own."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from lowkiq import clock
from lowkiq.node.health.dump import dump
from tests.support import wait_until


def test_a_dump_finds_the_loop_of_a_thread_that_moves_on_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame forgets who has called it once it has returned."""
    seen, moved, over = threading.Event(), threading.Event(), threading.Event()

    async def job() -> None:
        asyncio.current_task().set_name("fetch-prices")
        seen.wait(60)
        moved.set()
        while not over.is_set():
            await asyncio.sleep(0.01)

    def head(*_: object) -> str:
        seen.set()
        assert moved.wait(60)
        return ""

    monkeypatch.setattr("lowkiq.node.health.dump._head", head)
    thread = threading.Thread(target=asyncio.run, args=(job(),), daemon=True)
    thread.start()
    wait_until(lambda: any(frame.f_code.co_name == "wait" for frame in stack_of(thread)))
    with capture_logs():
        text = dump([], tmp_path, "n")
    over.set()
    thread.join()
    assert "task fetch-prices" in text


def stack_of(thread: threading.Thread) -> list[FrameType]:
    frame = sys._current_frames().get(thread.ident or 0)
    return [entry for entry, _ in traceback.walk_stack(frame)] if frame else []


class Hops:
    """A worker thread that is at another job whenever it is asked."""

    name, in_hand = "lowkiq-worker-0", [1]

    def __init__(self, *ids: str) -> None:
        self.ident, self._ids, self.asked = threading.get_ident(), iter(ids), 0

    @property
    def batches(self) -> Iterator[tuple[Any, Any]]:
        self.asked += 1
        job = SimpleNamespace(id=next(self._ids))
        shard = SimpleNamespace(queue="q", index=0)
        batch = SimpleNamespace(
            running=[job], running_since=clock.monotonic(), progress=None, to_stop_since=None, pid=1
        )
        yield SimpleNamespace(worker=self, shard=shard), batch


def test_a_stack_is_of_the_job_that_is_named_with_it_or_says_that_it_may_not_be(tmp_path: Path) -> None:
    hops: Any = Hops("17", "42", *"99999")
    with capture_logs() as logged:
        text = dump([hops], tmp_path, "n")
    assert re.search(r"shard 0, for 0\.\d s: 1 id \['17'\]; when its stack had been read: .* 1 id \['42'\]\n", text)
    assert any("17" in entry.get("job", "") and "42" in entry["job"] for entry in logged)
    stays: Any = Hops(*["17"] * 9)
    with capture_logs():
        text = dump([stays], tmp_path, "n")
    assert not re.search(r"read: \w+ of queue q", text)
