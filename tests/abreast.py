"""
Tests run abreast, in processes that are forks of the one that has collected them: `pytest --abreast 6`.

To import and collect all of them takes ten seconds of a core, which six processes of their own would each need. Each
takes whole files, or parts of long ones, one after the other, in the order in which they were collected.
"""

from __future__ import annotations

import atexit
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

NUMBER = struct.Struct("i")
Group = Sequence[pytest.Item]


class Process:
    """One that runs tests, as the one sees it that has collected them."""

    def __init__(self, session: pytest.Session, number: int, groups: Sequence[Group], left: int) -> None:
        self.reports, theirs = Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            run(session, number, _taken(groups, left), theirs)
        theirs.close()


def run_abreast(session: pytest.Session, processes: int, part_of: Callable[[pytest.Item], object]) -> None:
    """Runs the session's tests; those with the same part in the same process."""
    groups: dict[object, list[pytest.Item]] = {}
    for item in session.items:
        groups.setdefault(part_of(item), []).append(item)
    left, theirs = os.pipe()
    for number in range(len(groups)):
        os.write(theirs, NUMBER.pack(number))
    os.close(theirs)
    hook = session.config.hook
    session.config.pluginmanager.getplugin("terminalreporter").showfspath = False
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one, with a directory for each
    sys.stdout.flush()
    made = [Process(session, number, list(groups.values()), left) for number in range(min(processes, len(groups)))]
    unfinished, unseen = list(made), {item.nodeid: item for item in session.items}
    try:
        for data in _received([process.reports for process in made]):
            if data["when"] == "teardown":
                unseen.pop(data["nodeid"], None)
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
            if session.shouldfail:
                break
        else:
            unfinished.clear()
    finally:
        for process in unfinished:
            os.kill(process.pid, signal.SIGINT)
        for process in made:
            os.waitpid(process.pid, 0)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    for item in unseen.values():
        why = "its process has died before its end"
        hook.pytest_runtest_logreport(report=pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call"))


def _received(readers: list[Connection]) -> Iterator[dict[str, Any]]:
    """What comes from any of these, until all are closed."""
    while readers:
        for reader in wait(readers):
            assert isinstance(reader, Connection)
            try:
                yield reader.recv()
            except EOFError:
                readers.remove(reader)


def _taken(groups: Sequence[Group], left: int) -> Iterator[pytest.Item]:
    """The tests of the groups that this process takes; a whole group at a time, from the pipe that all read."""
    while number := os.read(left, NUMBER.size):
        yield from groups[NUMBER.unpack(number)[0]]


def run(session: pytest.Session, number: int, items: Iterator[pytest.Item], reports: Connection) -> NoReturn:
    """Runs tests in a fork, and ends it."""
    config, code = session.config, 1

    class Sender:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            reports.send(config.hook.pytest_report_to_serializable(config=config, report=report))

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _begin(config, number)
        config.pluginmanager.register(Sender())
        item = next(items, None)
        while item:
            # The next one says which fixtures stay.
            after = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            item = after
        code = 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session._setupstate.teardown_exact(None)
    except BaseException:  # noqa: BLE001 - what pytest itself could not do
        traceback.print_exc()
    finally:
        reports.close()
        atexit._run_exitfuncs()
        os._exit(code)


def _begin(config: Any, number: int) -> None:
    """Nothing that the processes write, or where they write it, is the same."""
    plugins = config.pluginmanager
    reporter, capture = plugins.getplugin("terminalreporter"), plugins.getplugin("capturemanager")
    plugins.unregister(reporter)
    plugins.register(SimpleNamespace(_tw=reporter._tw), "terminalreporter")  # what a timeout writes stacks to
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    base = config._tmp_path_factory._basetemp / f"process-{number}"
    base.mkdir()
    config._tmp_path_factory._basetemp = base
