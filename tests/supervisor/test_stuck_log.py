"""A log that nobody reads: neither the supervisor nor a node waits for it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from lowkiq_supervisor.errors import Unreachable
from tests import warm
from tests.harness import SCRIPT, status
from tests.support import ROOT, SOURCES, SUPERVISOR, wait_until


def piped(directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """A process whose stderr is a pipe that nobody reads yet."""
    plain = {name: value for name, value in os.environ.items() if "REDIS" not in name}
    return warm.popen(
        [sys.executable, *arguments],
        cwd=directory,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=plain | {"PYTHONPATH": SOURCES} | environment,
    )


def is_full(process: subprocess.Popen[bytes]) -> bool:
    """True when a writer finds no room in its stderr."""
    with open(f"/proc/{process.pid}/fd/2", "wb", buffering=0, opener=_without_waiting) as end:
        return not select.select([], [end], [], 0)[1]


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_NONBLOCK)


def restarts(directory: Path) -> int:
    try:
        return int(status(directory)["nodes"][0]["restarts"])
    except Unreachable:
        return 0


@pytest.fixture
def chatty(tmp_path: Path) -> Any:
    """A supervisor that logs four lines for each of its node's many ends."""
    options = json.dumps({"nodes": 1, "policy": {"first_delay": 0}})
    process = piped(tmp_path, str(SCRIPT), "recycling", options)
    yield process
    if process.poll() is None:
        process.kill()
        process.wait()
    assert process.stderr
    process.stderr.close()


def test_a_stderr_that_nobody_reads_stops_neither_the_loop_nor_term(
    chatty: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    wait_until(lambda: is_full(chatty), "the pipe full")
    before = restarts(tmp_path)
    wait_until(lambda: restarts(tmp_path) > before + 10, "a loop that turns")
    chatty.send_signal(signal.SIGTERM)
    assert chatty.wait(60) == 0


def test_lines_are_whole_and_what_was_dropped_is_counted_when_the_reader_is_back(
    chatty: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert chatty.stderr
    wait_until(lambda: is_full(chatty), "the pipe full")
    before = restarts(tmp_path)
    wait_until(lambda: restarts(tmp_path) > before + 40, "some lost lines")
    os.set_blocking(chatty.stderr.fileno(), False)
    read = b""

    def is_told() -> bool:
        nonlocal read
        read += chatty.stderr.read() or b""
        return b"log_lines_dropped" in read

    wait_until(is_told)
    chatty.send_signal(signal.SIGTERM)
    wait_until(lambda: is_told() and chatty.poll() is not None)
    os.set_blocking(chatty.stderr.fileno(), True)
    read += chatty.stderr.read()
    lines = [json.loads(line) for line in read.splitlines()]
    assert sum(line["count"] for line in lines if line["event"] == "log_lines_dropped") > 10


def test_a_node_and_its_standalone_kind_drain_with_a_full_stderr(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    process = piped(tmp_path, *SUPERVISOR, "-r", "shop", "--drain-timeout", "20")
    assert process.stderr
    try:
        wait_until(lambda: (tmp_path / "logged").exists() and is_full(process), "the pipe full")
        node = next(one for one in psutil.Process(process.pid).children() if "node" in one.cmdline()[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "the job has ended, and so has the node"
        assert not node.is_running()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stderr.close()


APP = """
import structlog
from pathlib import Path
from lowkiq import Lowkiq

def feed():
    note.perform_async([{"id": "1"}])

app = Lowkiq(on_server_init=feed)

@app.worker
def note(payloads_by_id):
    for number in range(5000):
        structlog.get_logger().info("a line", number=number)
    Path("logged").touch()
"""


def test_the_flags_of_a_shared_stderr_stay_as_they_are(tmp_path: Path) -> None:
    code = "from lowkiq import log; log.configure(); import structlog; structlog.get_logger().info('x')"
    reader, writer = os.pipe()
    subprocess.run(
        [sys.executable, "-c", code], stderr=writer, cwd=ROOT, env={"PYTHONPATH": SOURCES, "PATH": ""}, check=True
    )
    assert os.get_blocking(writer)
    assert json.loads(os.read(reader, 4096))["event"] == "x"
    os.close(reader)
    os.close(writer)
