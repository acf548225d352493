"""
Names: the nodes of this supervisor, kept in a file, so that the next one can tell its nodes who is dead.

Without it, shards of a supervisor that was killed would wait until leases run out. What is read may be anybody's
writing; what can't be read or written is an event, and nothing more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from lowkiq.log import get_logger
from lowkiq.process.own_files import open_own

#: Bytes of the file: a thousand nodes.
LONGEST: Final = 128 << 10
#: Seconds to wait for nodes of a supervisor that has just died: the kernel ends them with it.
LEFTOVER_LIMIT: Final = 2.0
#: HOST:PID:TOKEN, as nodes are named.
_NAME: Final = re.compile(r"[^\x00-\x20]{1,255}:([1-9][0-9]{0,9}):[0-9a-f]{1,32}")

log = get_logger("supervisor")


class KeptName(NamedTuple):
    """A node, and the birth of its process, whose id may be another's by now; "" if it is dead."""

    name: str
    birth: str = ""

    @property
    def is_alive(self) -> bool:
        return bool(self.birth) and birth_of(int(self.name.split(":")[-2])) == self.birth


class NamesFile:
    """The file in the state directory. Its owner holds the directory's lock."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "nodes"
        self._written: list[KeptName] = []
        self._is_refused = False

    def write(self, names: Iterable[KeptName]) -> None:
        """Replace what is there, if it has changed."""
        if (wanted := list(names)) == self._written:
            return
        self._written = wanted
        new = self._path.with_name("nodes.new")
        try:
            with os.fdopen(open_own(new, os.O_WRONLY | os.O_CREAT), "w") as file:
                file.truncate()
                json.dump(wanted, file)
            new.replace(self._path)
            self._is_refused = False
        except OSError as error:
            if not self._is_refused:
                hint = "nodes work on; after a crash of this supervisor their shards would wait for leases to run out"
                log.warning("names_not_kept", error=str(error), hint=hint)
            self._is_refused = True

    def read_dead(self) -> list[str]:
        """The names of the last supervisor's nodes. Waits for those that end just now, and leaves out others."""
        deadline = time.monotonic() + LEFTOVER_LIMIT
        kept = self._read()
        while any(found.is_alive for found in kept) and time.monotonic() < deadline:
            time.sleep(0.01)
        dead = [found.name for found in kept if not found.is_alive]
        if kept:
            log.info("last_nodes", dead=len(dead), alive=len(kept) - len(dead))
        return dead

    def _read(self) -> list[KeptName]:
        try:
            with os.fdopen(open_own(self._path, os.O_RDONLY)) as file:
                kept = [KeptName(str(name), str(birth)) for name, birth in json.loads(file.read(LONGEST))]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, RecursionError) as error:
            log.warning("names_unreadable", error=str(error), hint="shards wait for leases to run out")
            return []
        here = f"{socket.gethostname()}:"
        return [found for found in kept if _NAME.fullmatch(found.name) and found.name.startswith(here)]


def birth_of(pid: int) -> str:
    """When the process was started, as the kernel counts it; "" if it has ended."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return "" if state in {"Z", "X"} else fields[18]
        return ""
    with contextlib.suppress(psutil.Error):
        return str(psutil.Process(pid).create_time())
    return ""
