"""A real Redis for the tests: our own, on a unix socket, one for each process that runs tests."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import itertools
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck
from structlog import dev
from xdist.scheduler import LoadFileScheduling

from lowkiq import Lowkiq
from tests.queue.model.virtual_clock import VirtualClock
from tests.queue.shard_driver import ShardDriver
from tests.support import RedisServer, running_redis
from tests.transport.kinds.kinds import kind_wanted, leave_out, of_kind

# The objects of eight thousand tests stay until the end: the collector looks through them once. Each node that starts
# here would have it look through them again, and what it leaves alone is so for no longer than the node runs.
gc.disable()

# Hundreds of processes import the same modules: they are compiled once, also where a container forbids it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Of each connection redis-py tells the server its version, and parses the package's metadata for it.
importlib.metadata.version = functools.cache(importlib.metadata.version)

# rich would color, and box with their variables, the tracebacks of errors that tests provoke: 50 ms each.
dev.ConsoleRenderer.get_active().exception_formatter = dev.plain_traceback

# How long an example takes is the machine's affair; and what a test's application has from one to the next, its own. CI
# plays the same examples each time.
hypothesis.settings.register_profile("tests", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[
    HealthCheck.too_slow, HealthCheck.function_scoped_fixture,
])  # fmt: skip
hypothesis.settings.load_profile("tests")

_numbers = itertools.count()
TESTS = Path(__file__).parent
#: Directories whose tests mostly wait, for processes, threads and clocks.
WAITING = {
    "benchmarks", "browser", "deploy", "doctor", "fastapi", "faults", "node", "supervisor", "transport", "web",
}  # fmt: skip
#: What starts whole supervisors, browsers, frameworks' servers, databases or type checkers, again and again:
#: `make test-long` has it, beside single tests that say so themselves.
LONG = frozenset(TESTS / one for one in (
    "browser", "deploy", "django", "docs/test_outbox_and_fastapi.py", "docs/test_site.py", "doctor/test_junk.py",
    "examples", "faults", "node/processes", "supervisor/policy/test_load.py", "supervisor/policy/test_recycling.py",
    "supervisor/processes", "supervisor/test_end_to_end.py", "supervisor/test_scale_end_to_end.py",
    "supervisor/test_signals.py", "testing/test_plugin.py", "typing", "unit/test_commands.py", "web/test_junk.py",
))  # fmt: skip
#: Seconds that a test of a file, or of a directory, takes, where that is not a tenth of one.
SECONDS = {
    "faults/test_failpoints.py": 60.0,
    "faults/test_failpoints_of_nodes.py": 80.0,
    "faults/test_trees.py": 30.0,
    "pairs/test_pairs.py": 10.0,
    "queue/test_model.py": 2.0,
    "chaos/test_chaos.py": 20.0,
    "django": 5.0,
    "browser": 8.0,
    "docs": 0.5,
    "typing": 3.0,
    "faults": 1.0,
    "node": 0.7,
    "supervisor": 0.7,
    "examples": 0.6,
    "web": 0.2,
}

#: Files that one process alone would be at when all others have ended, and into how many parts each is cut.
PARTS = {
    "browser/test_pages.py": 2,
    "faults/test_failpoints.py": 4,
    "faults/test_failpoints_of_nodes.py": 4,
    "pairs/test_pairs.py": 4,
    "queue/test_following.py": 3,
    "queue/test_model.py": 4,
    "web/test_alert_kinds.py": 2,
}


class Parts(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives processes whole files, or parts of long ones."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        part = zlib.crc32(nodeid.encode()) % PARTS.get(file.removeprefix("tests/"), 1)
        return f"{file} {part}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Parts | None:
    return Parts(config, log) if config.option.dist == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules of which nothing is asked for are not even imported."""
    return True if config.option.markexpr.startswith("not long") and _is_long(collection_path) else None


@functools.cache
def _is_long(path: Path) -> bool:
    return path in LONG or not LONG.isdisjoint(path.parents)


@pytest.hookimpl(tryfirst=True)  # before those are left out that are not asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Leaves out what LOWKIQ_TEST_REDIS_KIND rules out, and marks what is long. What waits for processes, and what is
    long, is tried once more when it fails: the summary names it, to be mended.
    """
    leave_out(items)
    items[:] = _interleaved(items)
    for item in items:
        if _is_long(item.path):
            item.add_marker(pytest.mark.long)
        if _room(item) in WAITING or _is_long(item.path):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    # The first example ever has Hypothesis look who holds its random numbers: it would not find what is frozen.
    hypothesis.given(hypothesis.strategies.none())(lambda _: None)()
    gc.collect()
    gc.freeze()
    gc.enable()
    # What a test makes, and leaves, is looked at: with its files it would stay for good.
    gc.freeze = gc.unfreeze = lambda: None


def _room(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


def _seconds(item: pytest.Item) -> float:
    return SECONDS.get(item.path.relative_to(TESTS).as_posix(), SECONDS.get(_room(item), 0.1))


def _interleaved(items: list[pytest.Item]) -> list[pytest.Item]:
    """Files that wait for processes in turn with those that compute, as several run at a time; those soon over last."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    sides: tuple[list[tuple[float, list[pytest.Item]]], ...] = ([], [])
    for side, waits in zip(sides, (True, False), strict=True):
        own = [file for file in files.values() if (_room(file[0]) in WAITING) is waits]
        own.sort(key=lambda file: len(file) * _seconds(file[0]), reverse=True)
        side += [(place / len(own), file) for place, file in enumerate(own)]
    return [item for _, file in sorted((*sides[0], *sides[1]), key=lambda each: each[0]) for item in file]


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """
    One server for all tests of this process; each test has a namespace of its own. LOWKIQ_TEST_REDIS_KIND says what
    kind: server (the default), sentinel, cluster or tls.
    """
    kind = kind_wanted()
    if kind != "server":
        with of_kind(kind) as other:
            yield other
        return
    with running_redis() as server:
        yield server


@pytest.fixture
def own_redis_server() -> Iterator[RedisServer]:
    """A server that the test may kill: with AOF always, as nothing acknowledged may be lost."""
    with running_redis("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def make_app(redis_server: RedisServer) -> Iterator[Callable[..., Lowkiq]]:
    """Makes applications on the shared server, in a namespace of this test."""
    namespace = f"test{next(_numbers)}"
    made: list[Lowkiq] = []

    def make(**settings: Any) -> Lowkiq:
        app = Lowkiq(**({"redis_url": redis_server.url, "namespace": namespace} | settings))
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()
    if isinstance(redis_server, RedisServer):  # what looks for keys of a pattern looks at all there are
        redis_server.ask("FLUSHALL")


@pytest.fixture
def app(make_app: Callable[..., Lowkiq]) -> Lowkiq:
    """An application with default settings."""
    return make_app()


@pytest.fixture
def shard(app: Lowkiq) -> ShardDriver:
    """The only shard of a queue."""
    return ShardDriver(app)


@pytest.fixture
def clock(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """The clock of scripts that are loaded from here on; it stands still."""
    return VirtualClock(app.redis(), monkeypatch)
