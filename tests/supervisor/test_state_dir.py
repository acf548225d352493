"""The state directory: deleted under a running supervisor, prepared by somebody else, taken by another one."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import stat
import time
from pathlib import Path

import psutil
import pytest

from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.state_dir import StateDir
from tests.harness import Supervised, command, state_dir, status
from tests.support import wait_until

AT_ONCE = {"first_delay": 0.01}
SOON = {"control.places.INTERVAL": 0.1}


def is_answered(directory: Path) -> bool:
    return command(directory, "ping").returncode == 0


def delete(directory: Path) -> None:
    """Deletes what a supervisor makes again: out of its way first, since it may make files while others are deleted."""
    shutil.rmtree(directory.rename(directory.with_name("deleted")))


def test_a_deleted_directory_is_made_again_and_kept_from_others(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, constants=SOON) as supervisor:
        delete(state_dir(tmp_path))
        supervisor.until_logged("state_directory_made_again")
        supervisor.until_logged("control_socket_made_again")
        assert is_answered(tmp_path)
        assert stat.S_IMODE(state_dir(tmp_path).stat().st_mode) == 0o700
        (tmp_path / "other").mkdir()
        with Supervised.doing("obedient", tmp_path / "other", state_dir=str(state_dir(tmp_path))) as second:
            assert second.exit_code() == 3
            assert f"process {supervisor.process.pid}" in second.events("cannot_start")[0]["error"]
        supervisor.end()
        assert not (state_dir(tmp_path) / "control.sock").exists()


def test_a_deleted_socket_is_made_again(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, constants=SOON) as supervisor:
        (state_dir(tmp_path) / "control.sock").unlink()
        supervisor.until_logged("control_socket_made_again")
        assert is_answered(tmp_path)
        supervisor.end()


def test_a_directory_that_another_supervisor_has_taken_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with Supervised.running("obedient", tmp_path, constants={"control.places.INTERVAL": 3}) as first:
        delete(state_dir(tmp_path))
        with Supervised.running("obedient", tmp_path / "other", state_dir=str(state_dir(tmp_path))) as second:
            taken = first.until_logged("state_directory_taken")
            assert taken[0]["by"] == str(second.process.pid)
            assert status(tmp_path)["supervisor"]["pid"] == second.process.pid
            first.end()
            assert status(tmp_path)["supervisor"]["pid"] == second.process.pid, "its socket is still there"
            second.end()


def test_a_foreign_socket_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, constants=SOON) as supervisor:
        path = state_dir(tmp_path) / "control.sock"
        path.unlink()
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(str(path))
            foreign.listen()
            supervisor.until_logged("control_socket_lost")
            supervisor.end()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be tempted")
def test_root_writes_through_nobody_s_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    place = state_dir(tmp_path)
    place.mkdir()
    for name in ("supervisor.lock", "redis/lock", "redis/redis.log", "redis"):
        shutil.rmtree(place)
        place.mkdir()
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).symlink_to(precious if name != "redis" else tmp_path)
        with Supervised.doing("obedient", tmp_path, embedded=name != "supervisor.lock") as supervisor:
            wait_until(lambda one=supervisor: one.events("cannot_start") or one.events("redis_failed"), name)
            if supervisor.process.poll() is None:
                supervisor.process.kill()
        assert precious.read_text() == "precious", name
        assert not (tmp_path / "appendonlydir").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be tempted")
@pytest.mark.parametrize("embedded", [False, True])
def test_root_refuses_another_user_s_directory_and_says_what_to_do(tmp_path: Path, embedded: bool) -> None:
    state_dir(tmp_path).mkdir()
    os.chown(state_dir(tmp_path), 1234, 1234)
    with Supervised.doing("obedient", tmp_path, embedded=embedded) as supervisor:
        supervisor.ends(3)
        error = supervisor.events("cannot_start")[0]["error"]
        assert "belongs to user 1234, and this is user 0: run the supervisor as that user, or set" in error
        assert not list(state_dir(tmp_path).iterdir())


def test_without_descriptors_waiting_clients_cost_nothing_and_term_is_heard(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path) as supervisor:
        process = psutil.Process(supervisor.process.pid)
        used = {int(entry.name) for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
        limit = min(set(range(len(used) + 1)) - used) + 1
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        clients = [socket.socket(socket.AF_UNIX) for _ in range(8)]
        try:
            for client in clients:
                client.connect(str(state_dir(tmp_path) / "control.sock"))
            supervisor.until_logged("control_socket_pauses")
            before, began = process.cpu_times(), time.monotonic()
            wait_until(lambda: time.monotonic() - began > 3, "some time to spin in")
            after = process.cpu_times()
            assert after.user + after.system - before.user - before.system < 1
        finally:
            for client in clients:
                client.close()
        wait_until(lambda: is_answered(tmp_path), "room for a client")
        supervisor.end()


def test_a_lack_of_descriptors_is_nobody_s_crash(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, policy=AT_ONCE) as supervisor:
        process = psutil.Process(supervisor.process.pid)
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
        supervisor.until_logged("cannot_fork", 2)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        supervisor.until_logged("ready", 2, "node 1/2")
        assert status(tmp_path)["nodes"][1]["failures"] <= 1, "the kill alone"
        supervisor.end()


def test_one_that_cannot_be_made_is_named_with_the_user_and_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    says = (
        rf"can't use the state directory: .*{tmp_path}/file/state.*LOWKIQ_STATE_DIR to .* user {os.geteuid()} may write"
    )
    with pytest.raises(BootError, match=says):
        StateDir(tmp_path / "file/state").claim()
