"""
The watcher, for development: a process that tells the supervisor which Python files have changed.

A process, since the library that watches has threads, and the supervisor has none.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Callable
from pathlib import Path

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq.process.title import set_title
from lowkiq_supervisor.loop import Loop
from lowkiq_supervisor.processes.child import Child, spawn

#: Milliseconds for further changes to come: an editor, or git, writes many files at once.
DEBOUNCE = 200
#: Files that are named.
MOST_NAMED = 5

log = get_logger("supervisor")


class Watcher:
    """
    The supervisor's end of the pipe.

    Args:
        on_change: called with the names of files that have changed.
        close_foreign: called in the watcher; closes what belongs to the supervisor and to other children.
    """

    def __init__(self, loop: Loop, on_change: Callable[[list[str]], None], close_foreign: Callable[[], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._close_foreign = close_foreign
        self._child: Child | None = None
        self._reader: int | None = None

    def start(self) -> None:
        """Watch what is in the current directory, and below."""
        reader, writer = os.pipe()
        try:
            self._child = spawn(lambda _: _watch(writer), close_foreign=self._close_foreign)
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        os.set_blocking(reader, False)
        self._reader = reader
        self._loop.add(reader, self._read)
        log.info("watching", directory=str(Path.cwd()), hint="nodes are replaced when a Python file changes")

    def end(self) -> None:
        """Watch no more."""
        if self._child is not None and self._reader is not None:
            self._loop.drop(self._reader)
            self._child.end_now()
        self.close()

    def close(self) -> None:
        """Close the descriptors; in a forked child, without touching the supervisor's watcher."""
        if self._reader is not None:
            os.close(self._reader)
            self._reader = None
        if self._child is not None:
            self._child.close()
            self._child = None

    def _read(self) -> None:
        assert self._reader is not None  # noqa: S101 - it is watched as long as it is open
        with contextlib.suppress(BlockingIOError):
            found = os.read(self._reader, select.PIPE_BUF)
            if found:
                self._on_change(json.loads(found.splitlines()[-1]))
                return
            log.error("watcher_ended", hint="changes are not noticed any more: start the supervisor again")
            self.end()


def _watch(writer: int) -> int:
    from watchfiles import PythonFilter, watch  # noqa: PLC0415 - only with --reload, and in this process

    set_title("lowkiq: watcher of files")
    here = Path.cwd()
    for changes in watch(here, watch_filter=PythonFilter(), debounce=DEBOUNCE, raise_interrupt=False):
        names = sorted({os.path.relpath(path, here) for _, path in changes})
        more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        line = json.dumps([name[-200:] for name in names[:MOST_NAMED]] + more)
        os.write(writer, f"{line}\n".encode())
    return ExitCode.DRAINED
