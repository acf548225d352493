"""What hooks and libraries do to a node's signals, and hooks that do not come to an end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lowkiq import Lowkiq
from tests.node.nodes import Nodes
from tests.support import RedisServer, wait_until

#: A node whose hook does what the test says; a job of it waits for its gate.
SCRIPT = """
import asyncio, contextlib, faulthandler, functools, json, os, signal, sys, time
from lowkiq import Lowkiq
from lowkiq.log import configure
from lowkiq.node.node import Node

configure()
TERM = signal.SIGTERM
options = json.loads(os.environ["TEST_OPTIONS"])
records = f"{os.environ['LOWKIQ_NAMESPACE']}:records"


def record(what, *details):
    app.redis().rpush(records, json.dumps([what, os.getpid(), *details]))


def by_asyncio():
    loop = asyncio.new_event_loop()
    loop.add_signal_handler(TERM, lambda: None)


def quit(code, *_):
    sys.exit(code)


WAYS = {
    "exit": lambda: signal.signal(TERM, functools.partial(quit, 0)),
    "default": lambda: signal.signal(TERM, signal.SIG_DFL),
    "ignore": lambda: signal.signal(TERM, signal.SIG_IGN),
    "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {TERM}),
    "asyncio": by_asyncio,
    "faulthandler": lambda: faulthandler.register(TERM, chain=False),
    "wakeup": lambda: signal.set_wakeup_fd(-1),
}


def hang():
    record("hangs")
    try:
        while True:
            time.sleep(0.01)
    finally:
        record("unwound")


def go_on():
    record("hangs")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


async def hang_async():
    record("hangs")
    try:
        await asyncio.sleep(300)
    finally:
        record("unwound")


WAYS |= {"hang": hang, "go_on": go_on, "hang_async": hang_async}
WAYS.get(options["imported"], int)()
hooks = {name: WAYS[how] for name, how in options["hooks"].items()}
app = Lowkiq(**hooks)


@app.worker(queue_name="jobs", shards_count=1)
def jobs(id: str, payloads: list):
    for payload in payloads:
        if payload in WAYS:
            WAYS[payload]()
    record("start", [id])
    app.redis().set(f"{records}:on:reached", 1)
    while not app.redis().exists(f"{records}:on"):
        time.sleep(0.01)
    record("end", [id])


sys.exit(Node(app, **options.get("node", {})).run())
"""

TAKEN = {
    "exit": "__main__.quit (<string>:",
    "default": "SIG_DFL",
    "ignore": "SIG_IGN",
    "mask": "blocked",
    "asyncio": "asyncio.unix_events",
    "faulthandler": "C code",
}


class Hooked(Nodes):
    script = SCRIPT


def hooked(tmp_path: Path, server: RedisServer, app: Lowkiq, imported: str = "", **hooks: str) -> Hooked:
    return Hooked(tmp_path, server, app.settings.namespace, shards_count=1, imported=imported, hooks=hooks)


@pytest.mark.parametrize("hook", ["on_server_init", "node_started"])
@pytest.mark.parametrize("how", TAKEN)
def test_a_signal_that_a_hook_has_taken_drains_the_node_and_it_says_whose_it_was(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, hook: str, how: str
) -> None:
    with hooked(tmp_path, redis_server, app, **{hook: how}) as nodes:
        nodes.push({"id": "a"})
        node = nodes.start().wait_ready()
        wait_until(lambda: nodes.is_at("on"))
        taken = wait_until(lambda: node.logged("signal_taken_back"))[0]
        assert (taken["signal"], taken["handler"][: len(TAKEN[how])]) == ("SIGTERM", TAKEN[how])
        node.send(signal.SIGTERM)
        wait_until(lambda: node.logged("draining"))
        nodes.open("on")
        assert node.wait() == 0
        assert nodes.metrics().processed == 1


@pytest.mark.parametrize("how", TAKEN)
def test_a_signal_that_the_application_has_taken_as_it_was_imported_drains_the_node(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: str
) -> None:
    with hooked(tmp_path, redis_server, app, imported=how) as nodes:
        nodes.push({"id": "a"})
        node = nodes.start(node={"ends_process": True}).wait_ready()
        wait_until(lambda: nodes.is_at("on"))
        node.send(signal.SIGTERM)
        wait_until(lambda: node.logged("draining"))
        nodes.open("on")
        assert node.wait() == 0


def test_a_signal_that_code_in_c_has_taken_in_a_job_is_taken_back(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq
) -> None:
    """As a virtual machine of Java does that a job starts."""
    with hooked(tmp_path, redis_server, app) as nodes:
        nodes.push({"id": "a", "payload": "faulthandler"})
        node = nodes.start().wait_ready()
        wait_until(lambda: nodes.is_at("on"))
        wait_until(lambda: node.logged("signal_taken_back"))
        node.send(signal.SIGTERM)
        wait_until(lambda: node.logged("draining"))
        nodes.open("on")
        assert node.wait() == 0


@pytest.mark.parametrize("how", ["hang", "hang_async"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGQUIT, 130)]
)
def test_a_signal_ends_a_node_whose_first_hook_hangs(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: str, number: signal.Signals, code: int
) -> None:
    with hooked(tmp_path, redis_server, app, on_server_init=how) as nodes:
        node = nodes.start()
        wait_until(lambda: nodes.records("hangs"))
        node.send(number)
        assert node.wait() == code
        wait_until(lambda: nodes.records("unwound"))
        assert node.logged("on_server_init_interrupted")


@pytest.mark.parametrize(("hook", "code"), [("on_server_init", 0), ("node_started", 5)])
def test_a_hook_that_goes_on_whatever_is_raised_in_it_is_left(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, hook: str, code: int
) -> None:
    """`while True: try: connect() … except: sleep()`"""
    with hooked(tmp_path, redis_server, app, **{hook: "go_on"}) as nodes:
        node = nodes.start(node={"ends_process": True}, drain_timeout=0.1)
        wait_until(lambda: nodes.records("hangs"))
        node.send(signal.SIGTERM)
        assert node.wait() in {code, 0}  # 0 where it was not just where it lets nothing through


def test_a_node_whose_hook_hangs_once_it_is_ready_drains(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq
) -> None:
    with hooked(tmp_path, redis_server, app, node_started="hang") as nodes:
        nodes.push({"id": "a"})
        node = nodes.start()
        wait_until(lambda: nodes.records("hangs") and nodes.is_at("on"))
        node.send(signal.SIGTERM)
        wait_until(lambda: node.logged("draining"))
        nodes.open("on")
        assert node.wait() == 0
        assert nodes.metrics().processed == 1
