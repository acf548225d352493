"""Servers of a larger arrangement: each has a port and a directory, and can be killed and started again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.support import HOST, RedisServer


class Member(RedisServer):
    """One process, on a port of its own. `options` come after the usual ones."""

    def __init__(self, directory: Path, port: int, *options: str, client: Mapping[str, Any] | None = None) -> None:
        super().__init__(directory, *options, port=port, client={"socket_timeout": 5.0} | dict(client or {}))

    def __repr__(self) -> str:
        return f"{HOST}:{self.port}"


class Arrangement:
    """Members that work together, in a directory of their own. A context manager: from a start to a kill of all."""

    def __init__(self, name: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=f"lowkiq-{name}-"))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self) -> None:
        """Returns when all is well."""
        raise NotImplementedError

    def _members(self) -> Iterable[Member]:
        """In the order in which they are killed."""
        raise NotImplementedError

    def _end(self) -> None:
        for member in self._members():
            member.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
