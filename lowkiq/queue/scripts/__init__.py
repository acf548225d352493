"""
Loads the scripts: one .lua file an operation. A line `--@ name` of a file includes includes/name.lua, once.
"""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from typing import Final, NamedTuple

NAMES: Final = (
    "push",
    "acquire",
    "renew",
    "release",
    "abandon",
    "claim",
    "settle",
    "peek",
    "stats",
    "register",
    "fetch",
    "revive",
    "bury",
    "drop",
    "perform_now",
    "beat",
    "record",
    "turn",
    "heads",
    "lengths",
)

#: Those that make room, or keep order while there is none: with Redis 7 or later they run when memory is full.
MAKE_ROOM: Final = frozenset({"claim", "settle", "renew", "acquire", "release", "abandon", "drop"})

#: Redis 7's way to say so. Older servers, and fakeredis, know no such line.
ALLOW_OOM: Final = "#!lua flags=allow-oom\n"
#: Asks a server whether it does; it runs also where nothing can be written just now.
PROBE: Final = "#!lua flags=allow-oom,no-writes\nreturn 1"

_INCLUDE = re.compile(r"^--@ (\w+)\n", re.MULTILINE)


class Script(NamedTuple):
    """A script's text and the name under which Redis remembers it."""

    source: str
    sha: bytes


def load(*, flags: bool) -> dict[str, Script]:
    """All scripts by name; with `flags` those that make room say so to Redis."""
    return {name: _script(name, flags and name in MAKE_ROOM) for name in NAMES}


def _script(name: str, allow_oom: bool) -> Script:
    source = _expand(_read(f"{name}.lua"), set())
    if allow_oom:
        source = ALLOW_OOM + source
    return Script(source, hashlib.sha1(source.encode()).hexdigest().encode())  # noqa: S324 (Redis names scripts so)


def _expand(source: str, seen: set[str]) -> str:
    def include(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return _expand(_read(f"includes/{name}.lua"), seen)

    return _INCLUDE.sub(include, source)


def _read(path: str) -> str:
    return resources.files(__package__).joinpath(path).read_text("utf-8")
