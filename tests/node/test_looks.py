"""A look hurts nobody: dumps in any application, whatever its log, its threads and what they hold are like."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog import dev, processors

from lowkiq import Lowkiq, log
from lowkiq.node.health.dump import dump
from lowkiq.node.health.heartbeat import Heartbeat
from lowkiq.node.node import Node
from tests.node.driven import runtime_of
from tests.support import wait_until


def failing(*_: object) -> Any:
    raise SystemExit("the collector is away")


RENDERERS: dict[str, list[Any]] = {
    "console": [dev.ConsoleRenderer()],
    "key=value": [processors.KeyValueRenderer()],
    "logfmt": [processors.LogfmtRenderer()],
    "JSON": [processors.JSONRenderer()],
    "to the standard library": [structlog.stdlib.render_to_log_kwargs],
    "one that raises": [failing],
}


@pytest.fixture(params=[*RENDERERS.values()], ids=[*RENDERERS])
def any_log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(log, "TROUBLES", log.Troubles())
    is_stdlib = request.param == RENDERERS["to the standard library"]
    factory = structlog.stdlib.LoggerFactory() if is_stdlib else structlog.PrintLoggerFactory()
    structlog.configure(processors=request.param, logger_factory=factory)
    yield
    structlog.reset_defaults()


class Hostile:
    """Something that raises whatever is done with it."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)

    def __repr__(self) -> str:
        raise SystemExit("repr")

    def __hash__(self) -> int:
        raise SystemExit("hash")


class Odd(threading.Thread):
    """A thread of a library's, which has a name of its own kind."""

    odd_name: Any = "\ud800 \x1b[31m\nfaked line"

    @property
    def name(self) -> Any:
        if isinstance(self.odd_name, Exception):
            raise self.odd_name
        return self.odd_name

    @name.setter
    def name(self, _: str) -> None:
        pass


@pytest.fixture
def parked() -> Iterator[Callable[..., threading.Thread]]:
    """Starts threads that wait inside a function until the test is over."""
    over, threads, limit = threading.Event(), list[threading.Thread](), sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # until the threads have ended

    def start(inside: Callable[[Callable[[], Any]], Any], kind: type[threading.Thread] = threading.Thread) -> Any:
        reached = threading.Event()

        def wait() -> None:
            reached.set()
            over.wait(60)

        thread = kind(target=inside, args=(wait,), daemon=True)
        thread.start()
        assert reached.wait(60)
        threads.append(thread)
        return thread

    yield start
    over.set()
    for thread in threads:
        thread.join(60)
    sys.setrecursionlimit(limit)


def run_until_complete(self: Any, wait: Callable[[], Any]) -> None:
    """Named as what runs a loop is, and its `self` is none."""
    wait()


def deep(wait: Callable[[], Any], left: int = 3_000) -> Any:
    return deep(wait, left - 1) if left else wait()


@pytest.mark.usefixtures("any_log")
def test_a_dump_is_made_whatever_writes_the_log(tmp_path: Path) -> None:
    text = dump([], tmp_path, "n")
    assert "MainThread  no job" in text
    assert [path.read_text("utf-8") for path in (tmp_path / "dumps").iterdir()] == [text]


@pytest.mark.usefixtures("any_log")
def test_a_dump_shows_the_others_though_one_of_all_is_odd(tmp_path: Path, parked: Callable[..., Any]) -> None:
    parked(lambda wait: run_until_complete(Hostile(), wait))
    parked(deep)
    parked(lambda wait: wait(), Odd)
    odder = parked(lambda wait: wait(), Odd)
    odder.odd_name = ValueError("no name")
    text = dump([], tmp_path, "n")
    odder.odd_name = "a name"
    assert "MainThread  no job" in text
    assert "frames left out" in text
    assert "this can't be shown: ValueError: no name" in text
    assert "\nfaked line" not in text
    assert len(text) < 200_000


def test_a_dump_shows_tasks_though_one_of_them_is_odd(
    tmp_path: Path, parked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loop(wait: Callable[[], Any]) -> None:
        async def main() -> None:
            tasks = [asyncio.create_task(asyncio.sleep(60), name=name) for name in ("odd\n\x1b[31m", "even")]
            await asyncio.sleep(0)
            await asyncio.to_thread(wait)
            for task in tasks:
                task.cancel()

        asyncio.run(main())

    parked(loop)
    whole = sys.modules[dump.__module__]._awaited

    def awaited(task: asyncio.Task[Any]) -> str:
        if task.get_name().startswith("odd"):
            raise SystemExit("a coroutine of an extension")
        return str(whole(task))

    monkeypatch.setattr(sys.modules[dump.__module__], "_awaited", awaited)
    text = dump([], tmp_path, "n")
    assert "task even  <coroutine object sleep" in text
    assert "task odd\\n\\x1b[31m" in text
    assert "this can't be shown: SystemExit: a coroutine of an extension" in text


def test_a_node_whose_dump_fails_says_so_and_runs_on(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    app.worker(queue_name="q", shards_count=1)(lambda batch: None)
    monkeypatch.setattr("lowkiq.node.node.dump", failing_with(RuntimeError("no memory")))
    assert Node(app).dump() == "the dump has failed: RuntimeError: no memory\n"


def failing_with(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [OSError("too many open files"), SystemExit("of a hook"), UnicodeError("a name")])
def test_a_beat_that_fails_is_told_of_once_and_the_next_ones_come(app: Lowkiq, error: BaseException) -> None:
    app.worker(queue_name="q", shards_count=1)(lambda batch: None)
    runtime = runtime_of(app)
    tries: list[int] = []

    def report(_: float | None) -> Any:
        tries.append(1)
        raise error

    beats = Heartbeat(runtime, report, lambda: None)
    beats.start()
    wait_until(lambda: beats.beat_soon() or len(tries) >= 5)
    beats.stop()
    beats.join(60)
    assert [new.kind for _, new in runtime.incidents._waiting] == ["mishap"]
    assert type(error).__name__ in runtime.incidents._waiting[0][1].says


@pytest.mark.parametrize("error", [RuntimeError("x"), SystemExit("x")])
def test_what_one_flush_raises_keeps_no_other_from_its_turn(app: Lowkiq, error: BaseException) -> None:
    app.worker(queue_name="q", shards_count=1)(lambda batch: None)
    runtime = runtime_of(app)
    flushed: list[str] = []

    def fail() -> None:
        raise error

    runtime.flushes.extend([fail, lambda: flushed.append("other")])
    Heartbeat(runtime, lambda _: None, lambda: None)._flush()  # type: ignore[arg-type, return-value]
    assert flushed == ["other"]
