"""The end of a process in which jobs have run: what the application has for that runs, within what is left."""

from __future__ import annotations

import signal
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq
from tests.harness import Supervised
from tests.node.nodes import Nodes
from tests.support import RedisServer, wait_until

#: A node by its command. Jobs do what their payload says; what is recorded tells of which process it is.
SCRIPT = """
import asyncio, atexit, io, json, logging, logging.handlers, os, signal, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory
import redis
from lowkiq import Lowkiq, Worker
from lowkiq.node import node
from lowkiq.process import ending

options = json.loads(os.environ["TEST_OPTIONS"])
records = f"{os.environ['LOWKIQ_NAMESPACE']}:records"
NODE, loops, kept = os.getpid(), [], []
directory = tempfile.TemporaryDirectory()
# What is not about the last second is given time, for a machine that is busy.
node.OVERDUE, ending.LEAST = options.get("overdue", 30), options.get("least", ending.LEAST)


def record(what, *details):
    where = "node" if os.getpid() == NODE else "helper"
    with redis.Redis.from_url(os.environ["LOWKIQ_REDIS_URL"]) as client:
        client.rpush(records, json.dumps([what, where, *details]))


class ToRedis(logging.Handler):
    def emit(self, line):
        record("log", line.getMessage())


def begin():
    atexit.register(record, "atexit")
    logging.getLogger("shop").addHandler(logging.handlers.MemoryHandler(1000, target=ToRedis()))
    record("init")


async def begin_async():
    loops.append(asyncio.get_running_loop())
    begin()


def stop():
    record("stop")
    act(options.get("stop"))


async def stop_async():
    assert asyncio.get_running_loop() is loops[0]
    record("stop")
    if options.get("stop") == "hang":
        await asyncio.sleep(300)
    act(options.get("stop"))


def act(what):
    if what == "hang":
        while True:
            time.sleep(0.01)
    if what == "default":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        act("hang")
    if what == "raise":
        raise ValueError("stop")
    if what == "exit":
        sys.exit(9)


async def leave_tasks():
    async def later():
        try:
            await asyncio.sleep(300)
        finally:
            record("task")

    async def rows():
        try:
            while True:
                yield 1
        finally:
            record("generator")

    kept.extend((asyncio.create_task(later()), rows()))
    await anext(kept[-1])


def leave(what):
    logging.getLogger("shop").warning("a line")
    if what == "directory":
        record("directory", directory.name)
        raise SystemExit
    if what in {"memory", "fork"}:
        memory = shared_memory.SharedMemory(create=True, size=10)
        record("memory", memory.name)
    if what == "fork" and os.fork() == 0:
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.01)
        os._exit(0)
    if what == "threads":
        pool = ThreadPoolExecutor(1)
        for _ in range(3):
            pool.submit(lambda: (time.sleep(0.05), record("call")))
        # Of a thread of the node's, which is a daemon, it would be one, too.
        threading.Thread(target=lambda: (time.sleep(0.2), record("thread")), daemon=False).start()
    if what == "stuck":
        threading.Thread(target=time.sleep, args=(300,), daemon=False).start()
    if what == "atexit":
        atexit.register(time.sleep, 300)
        atexit.register(record, "hangs")
    if what == "gate":
        with redis.Redis.from_url(os.environ["LOWKIQ_REDIS_URL"]) as client:
            while not client.exists(f"{records}:go"):
                time.sleep(0.01)
    if what == "fatal":
        raise SystemExit
    if what == "close":
        print("a line that waits")
        sys.stdout.close()
        sys.stderr.close()
    if what == "replace":
        sys.stderr = io.StringIO()
    if what == "print":
        print("heard")
        print("heard, too", file=sys.stderr)


if options.get("signalled"):
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), options["signalled"]))
is_async = options.get("asynchronous")
app = Lowkiq(
    on_server_init=begin_async if is_async else begin,
    on_server_stop=stop_async if is_async else stop,
    last_words=lambda error: record("last_words"),
)


@app.worker
class Jobs(Worker):
    queue_name = "jobs"
    shards_count = 1
    max_retry_count = 0
    isolation = options.get("isolation", "thread")

    def perform(self, payloads_by_id):
        for (what,) in payloads_by_id.values():
            record("start")
            leave(what)
            record("end")

    if is_async:

        async def perform(self, payloads_by_id):
            await leave_tasks()
            for (what,) in payloads_by_id.values():
                leave(what)
            record("end")


if __name__ == "__main__":
    sys.argv = ["lowkiq", "-r", "__main__:app", *options["node"].get("arguments", ())]
    from lowkiq.cli.commands import cli

    cli()
"""

HOW = [
    {"isolation": "thread"},
    {"isolation": "process"},
    {"isolation": "thread", "asynchronous": True},
    {"isolation": "process", "asynchronous": True},
]


class Ending(Nodes):
    script = SCRIPT

    def work_off(self, payload: str, **settings: Any) -> None:
        """A node runs a job with that payload, and ends by itself."""
        self.push({"id": "a", "payload": payload})
        assert self.start(node={"arguments": ["--burst"]}, **settings).wait() == 0


def of(how: dict[str, object]) -> str:
    """The process in which jobs run."""
    return "helper" if how.get("isolation") == "process" else "node"


@pytest.mark.parametrize("burst", [False, True])
@pytest.mark.parametrize("how", HOW)
def test_what_the_application_has_for_its_end_runs_after_the_last_job(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object], burst: bool
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, **how) as nodes:
        nodes.push({"id": "a", "payload": "nothing"})
        node = nodes.start(node={"arguments": ["--burst"] if burst else []})
        wait_until(lambda: nodes.records("end"))
        if not burst:
            node.send(signal.SIGTERM)
        assert node.wait() == 0
        rows = [(what, where) for what, where, *_ in nodes.records() if where == of(how) and what != "start"]
        left = ["task", "generator"] if how.get("asynchronous") else []
        assert [what for what, _ in rows] == ["init", "end", "stop", *left, "atexit", "log"]
        where = {where for what, where, *_ in nodes.records("stop")}
        assert where == {"node", of(how)}
        assert bool(node.logged("tasks_cancelled")) == bool(left)


@pytest.mark.parametrize("how", HOW)
def test_a_job_that_closes_its_streams_closes_them_for_nobody_else(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object]
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, **how) as nodes:
        node = nodes.start()
        for done, what in enumerate(["close", "print"]):
            nodes.push({"id": what, "payload": what})
            wait_until(lambda done=done: nodes.metrics().processed + nodes.metrics().failed > done)
        node.send(signal.SIGTERM)
        assert node.wait() == 0
        assert nodes.metrics().processed == 2
        assert node.logged("drained")
        assert "heard, too" in node.output


def test_a_job_that_replaces_stderr_does_not_take_the_log_along(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace) as nodes:
        nodes.push({"id": "a", "payload": "replace"})
        node = nodes.start(node={"arguments": ["--burst"]})
        assert node.wait() == 0
        assert node.logged("drained")


@pytest.mark.parametrize("how", HOW[:2])
def test_memory_that_jobs_have_left_is_removed(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object]
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, **how) as nodes:
        nodes.work_off("memory")
        ((_, _, name),) = nodes.records("memory")
        with pytest.raises(FileNotFoundError):
            shared_memory.SharedMemory(name)


@pytest.mark.parametrize("how", HOW[:2])
def test_threads_that_jobs_have_left_end(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object]
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, **how) as nodes:
        nodes.work_off("threads")
        assert (len(nodes.records("call")), len(nodes.records("thread"))) == (3, 1)


@pytest.mark.parametrize("left", ["stuck", "atexit"])
@pytest.mark.parametrize("how", HOW[:2])
def test_what_does_not_end_holds_the_node_no_longer_than_its_drain(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object], left: str
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, **how, least=3) as nodes:
        nodes.push({"id": "a", "payload": left})
        node = nodes.start(drain_timeout=0.1)
        wait_until(lambda: nodes.metrics().processed == 1)
        node.send(signal.SIGTERM)
        assert node.wait() == 0
        assert nodes.records("stop")
        if left == "stuck":  # and what comes after the threads is done without them
            assert {where for what, where, *_ in nodes.records("atexit", "log")} == {"node", of(how)}
            assert len(nodes.records("log")) == 1


@pytest.mark.parametrize("how", HOW[:2])
def test_what_jobs_have_forked_does_not_hold_the_node(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object]
) -> None:
    """Nothing tells what removes shared memory that nobody is left to have it."""
    with Ending(tmp_path, redis_server, app.settings.namespace, **how) as nodes:
        nodes.work_off("fork", drain_timeout=3600)


def test_another_interrupt_ends_a_node_whose_end_hangs(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace) as nodes:
        nodes.push({"id": "a", "payload": "atexit"})
        node = nodes.start(drain_timeout=3600)
        wait_until(lambda: nodes.metrics().processed == 1)
        node.send(signal.SIGINT)
        wait_until(lambda: nodes.records("hangs"))
        wait_until(lambda: node.send(signal.SIGINT) or not node.is_running())
        assert node.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_for_all_processes_of_a_service_does_not_end_a_helper_that_is_being_made(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, number: signal.Signals
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, isolation="process", signalled=int(number)) as nodes:
        nodes.push({"id": "a", "payload": "nothing"})
        node = nodes.start(node={"arguments": ["--burst"]})
        assert node.wait() == 0
        assert (nodes.metrics().processed, nodes.crashes()) == (1, 0)


def test_temporary_directories_of_the_node_outlive_its_helpers(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, isolation="process") as nodes:
        nodes.push({"id": "a", "payload": "directory"})
        node = nodes.start()
        wait_until(lambda: nodes.records("log"))
        ((_, _, directory),) = nodes.records("directory")
        assert Path(directory).is_dir()
        node.send(signal.SIGTERM)
        assert node.wait() == 0
        assert not Path(directory).exists()


@pytest.mark.parametrize("fault", ["hang", "raise", "exit"])
@pytest.mark.parametrize("how", HOW)
def test_a_hook_that_hangs_or_fails_changes_nothing(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object], fault: str
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, **how, stop=fault) as nodes:
        nodes.push({"id": "a", "payload": "nothing"})
        node = nodes.start(drain_timeout=1)
        wait_until(lambda: nodes.metrics().processed == 1)
        node.send(signal.SIGTERM)
        assert node.wait() == 0
        assert node.logged("on_server_stop_failed")


def test_a_hook_that_takes_the_signal_which_would_end_it_is_left(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, stop="default", overdue=0.5) as nodes:
        node = nodes.start(drain_timeout=1)
        wait_until(lambda: node.logged("ready"))
        node.send(signal.SIGTERM)
        assert node.wait() == 0


def test_a_node_that_has_left_a_job_behind_ends_with_5_after_its_hook(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq
) -> None:
    with Ending(tmp_path, redis_server, app.settings.namespace, least=30) as nodes:
        nodes.push({"id": "a", "payload": "gate"})
        node = nodes.start(drain_timeout=0.1)
        wait_until(lambda: nodes.records("start"))
        node.send(signal.SIGTERM)
        assert node.wait() == 5
        assert [row[0] for row in nodes.records()][-3:] == ["stop", "atexit", "log"]


@pytest.mark.parametrize("how", HOW[:2])
def test_what_a_job_ends_cleans_up(
    tmp_path: Path, redis_server: RedisServer, app: Lowkiq, how: dict[str, object]
) -> None:
    """A node says its last words before that."""
    with Ending(tmp_path, redis_server, app.settings.namespace, **how) as nodes:
        nodes.push({"id": "a", "payload": "fatal"})
        node = nodes.start()
        wait_until(lambda: nodes.records("log"))
        if of(how) == "helper":
            node.send(signal.SIGTERM)
        assert node.wait() == (0 if of(how) == "helper" else 1)
        words = ["last_words"] if of(how) == "node" else []
        own = [row[0] for row in nodes.records() if row[1] == of(how)]
        assert own == ["init", "start", *words, "stop", "atexit", "log"]


def test_nodes_of_a_supervisor_end_so_too(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT)
    environment = {"REDIS_URL": redis_server.url, "LOWKIQ_REDIS_URL": redis_server.url}
    environment |= {"LOWKIQ_NAMESPACE": app.settings.namespace, "TEST_OPTIONS": "{}"}
    with (
        Ending(tmp_path, redis_server, app.settings.namespace) as nodes,
        Supervised.main(tmp_path, "-r", "shop", **environment).ready(1) as supervisor,
    ):
        nodes.push({"id": "a", "payload": "memory"})
        wait_until(lambda: nodes.metrics().processed == 1)
        supervisor.end()
        assert [row[0] for row in nodes.records()][-3:] == ["stop", "atexit", "log"]
        with pytest.raises(FileNotFoundError):
            shared_memory.SharedMemory(nodes.records("memory")[0][2])
