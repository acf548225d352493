"""Dumps of threads, as far as they need no process of their own."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

import pytest
from structlog.testing import capture_logs

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
