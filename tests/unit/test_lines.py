"""Lines of the log: whole or not at all, never waited for, and a file that is moved away is made again."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from lowkiq.process.lines import Lines
from lowkiq.process.own_files import open_own
from tests.support import SOURCES


@pytest.fixture
def to_file(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "log", lambda _: None)


def test_a_file_that_was_moved_away_or_deleted_is_made_again(to_file: Lines, tmp_path: Path) -> None:
    to_file.msg("one")
    (tmp_path / "log").rename(tmp_path / "log.1")
    to_file.msg("two")
    (tmp_path / "log").unlink()
    to_file.msg("three")
    assert ((tmp_path / "log.1").read_text(), (tmp_path / "log").read_text()) == ("one\n", "three\n")


def test_what_can_t_be_made_again_goes_on_where_it_was(to_file: Lines, tmp_path: Path) -> None:
    to_file.msg("one")
    (tmp_path / "log").rename(tmp_path / "log.1")
    (tmp_path / "log").symlink_to("elsewhere")
    to_file.msg("two")
    assert (tmp_path / "log.1").read_text() == "one\ntwo\n"
    assert not (tmp_path / "elsewhere").exists()


def test_rotation_keeps_no_descriptor(to_file: Lines, tmp_path: Path) -> None:
    to_file.msg("first")
    before = psutil.Process().num_fds()
    for _ in range(20):
        (tmp_path / "log").unlink()
        to_file.msg("next")
    assert psutil.Process().num_fds() == before


def test_without_a_stderr_lines_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    Lines(None, lambda _: None).msg("nobody hears it")


def test_the_file_is_private_and_never_somebody_else_s(tmp_path: Path) -> None:
    Lines(tmp_path / "own", lambda _: None)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to("target")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "twice").hardlink_to(tmp_path / "target")
    for name in ("link", "fifo", "twice"):
        with pytest.raises(OSError):
            Lines(tmp_path / name, lambda _: None)
    if os.geteuid() == 0:
        (tmp_path / "other").touch()
        os.chown(tmp_path / "other", 1234, 1234)
        with pytest.raises(OSError, match="belongs to 1234"):
            open_own(tmp_path / "other", os.O_WRONLY)
    assert (tmp_path / "target").read_text() == "precious"


LONG = """
import sys, structlog
from lowkiq import log
log.configure()
number = 0
while True:
    number += 1
    structlog.get_logger().info("line", text="x" * (number * 997 % 9000), number=number)
"""


def test_long_lines_of_several_writers_are_neither_cut_nor_mixed() -> None:
    reader, writer = os.pipe()
    words = [sys.executable, "-c", LONG]
    writers = [subprocess.Popen(words, stderr=writer, env={"PYTHONPATH": SOURCES}) for _ in range(3)]
    os.close(writer)
    with os.fdopen(reader, "rb") as lines:
        try:
            found = [json.loads(lines.readline()) for _ in range(3000)]
        finally:
            for process in writers:
                process.kill()
                process.wait()
    assert any(len(line.get("text", "")) > 5000 for line in found)


TERMINAL = """
import sys
from lowkiq import log
import structlog
log.configure()
for number in range(20000):
    structlog.get_logger().info("line", number=number)
"""


@pytest.mark.parametrize("kind", ["terminal", "socket"])
def test_a_terminal_or_a_journal_that_reads_nothing_is_not_waited_for(kind: str) -> None:
    if kind == "terminal":
        reader, writer = pty.openpty()
    else:
        reader, writer = (end.detach() for end in socket.socketpair())
    try:
        environment = {"PYTHONPATH": SOURCES, "TERM": "xterm"}
        process = subprocess.Popen([sys.executable, "-c", TERMINAL], stderr=writer, env=environment)
        assert process.wait(60) == 0
        assert os.get_blocking(writer)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_reader_that_has_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([sys.executable, "-c", TERMINAL], stderr=writer, env={"PYTHONPATH": SOURCES})
    os.close(writer)
    assert process.wait(60) == 0


def test_a_fork_beside_a_thread_that_logs_can_log(to_file: Lines) -> None:
    end = threading.Event()

    def chat() -> None:
        while not end.is_set():
            to_file.msg("chat")

    thread = threading.Thread(target=chat)
    thread.start()
    try:
        for _ in range(50):
            if (pid := os.fork()) == 0:
                signal.alarm(20)
                to_file.msg("child")
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        end.set()
        thread.join()
