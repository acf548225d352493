"""
Loads the scripts: one .lua file an operation, in the folder `scripts` of the room that calls it. A line `--@ file a b`
includes the sections a and b of includes/file.lua, each once in a script: Lua makes a function anew at each run, so a
script has no more of them than it needs. A section begins with a line `--- name`. HINDERS.word stands for the keys of
all that has that word in the tables of includes/sides.lua.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from typing import Final, NamedTuple

_ROOMS: Final = resources.files("lowkiq")

Read = Callable[[str], str]

#: How a script says that it makes room, or keeps order while there is none, and so may run when memory is full; and how
#: Redis 7 and later are told so. Older servers, and fakeredis, know no such line.
MAKES_ROOM: Final = "--! allow-oom\n"
ALLOW_OOM: Final = "#!lua flags=allow-oom\n"
#: What keeps order where it can't be told (shard.lua), and is left out where it can.
FREES: Final = "  redis.call('HDEL', P .. 'owner', '')\n"
#: Asks a server whether it does; it runs also where nothing can be written just now.
PROBE: Final = "#!lua flags=allow-oom,no-writes\nreturn 1"

#: How a script says that it is applied once, however often it comes (senders.lua), and what that makes of it.
ONCE: Final = "--! once\n"
ONCE_FREES: Final = "--@ shard oom\nfree_first(KEYS[1])\n"
AS_DEED: Final = "--@ senders once\n{first}local function deed()\n{body}\nend\nreturn once(KEYS[1], deed)\n"

_INCLUDE = re.compile(r"^--@ (\w+) (.+)\n", re.MULTILINE)
_HINDERS = re.compile(r"HINDERS\.(\w+)")
_SIDE = re.compile(r"\{'([\w:]+)'[^{}]*hinders = '([^']+)'\}")
_SECTION = re.compile(r"^--- (\w+)\n", re.MULTILINE)


class Script(NamedTuple):
    """A script's text and the name under which Redis remembers it."""

    source: str
    sha: bytes
    #: Whether it is sent with a stamp behind its arguments.
    is_once: bool = False


def load(*, flags: bool) -> dict[str, Script]:
    """All scripts by name; with `flags` those that make room say so to Redis."""
    return _load(_read, flags)


@lru_cache(maxsize=4)
def _load(read: Read, flags: bool) -> dict[str, Script]:
    """Loads once in a process, however many applications it has."""
    return {path.rpartition("/")[2].removesuffix(".lua"): _script(path, read, flags) for path in paths()}


def paths() -> list[str]:
    """The files of the scripts, from the package on."""
    rooms = [room for room in _ROOMS.iterdir() if room.joinpath("scripts").is_dir()]
    files = [f"{room.name}/scripts/{file.name}" for room in rooms for file in room.joinpath("scripts").iterdir()]
    return sorted(path for path in files if path.endswith(".lua"))


def _script(path: str, read: Read, flags: bool) -> Script:
    source = read(path)
    makes_room, is_once = MAKES_ROOM in source, ONCE in source
    source = source.replace(MAKES_ROOM, "", 1)
    if is_once:
        source = AS_DEED.format(first=ONCE_FREES if makes_room else "", body=source.replace(ONCE, "", 1))
    source = _HINDERS.sub(lambda match: _keys(match[1], read), _expand(source, read, set()))
    if flags:
        source = (ALLOW_OOM if makes_room else "") + source.replace(FREES, "", 1)
    sha = hashlib.sha1(source.encode()).hexdigest().encode()  # noqa: S324 (Redis names scripts so)
    return Script(source, sha, is_once)


def _expand(source: str, read: Read, seen: set[str]) -> str:
    def include(match: re.Match[str]) -> str:
        file, names = match.groups()
        texts = _sections(file, read)
        return "".join(section(f"{file} {name}", texts[name]) for name in names.split())

    def section(name: str, text: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        return _expand(text, read, seen)

    return _INCLUDE.sub(include, source)


def _keys(word: str, read: Read) -> str:
    """The keys of what hinders that, as arguments in Lua."""
    sides = _SIDE.findall("".join(_sections("sides", read).values()))
    return ", ".join(f"P .. '{name}'" for name, hinders in sides if word in hinders.split())


@lru_cache(maxsize=32)
def _sections(file: str, read: Read) -> dict[str, str]:
    """The sections of an include, which most scripts have."""
    _, *sections = _SECTION.split(read(f"queue/scripts/includes/{file}.lua"))
    return dict(zip(sections[::2], sections[1::2], strict=True))


def _read(path: str) -> str:
    return _ROOMS.joinpath(path).read_text("utf-8")
