"""
Journal: records of one process in a file of its own, outside Redis. One append a record, so that a SIGKILL tears none
of the records before; one that is itself torn is not there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: One clock for all processes of a machine.
now = time.monotonic


def line(kind: str, **details: Any) -> bytes:
    """A record: what, when, and details. A line feed goes before it too: it ends what a kill has torn."""
    return b"\n" + json.dumps({"k": kind, "t": round(now(), 6)} | details, separators=(",", ":")).encode() + b"\n"


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **details: Any) -> None:
        os.write(self._file, line(kind, **details))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The whole records of a file, in the order in which they were written."""
    if not path.exists():
        return
    with path.open("rb") as records:
        for text in records:
            if text.startswith(b"{") and text.endswith(b"}\n"):
                try:
                    yield json.loads(text)
                except ValueError:
                    continue  # torn
