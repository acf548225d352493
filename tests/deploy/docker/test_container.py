"""
The Dockerfile and the example on top of it, built by buildah on a bare Debian with Python, and started as a container
runtime would: the entry point is process 1, the root is read-only, Redis is outside.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from lowkiq.environment import ExitCode
from lowkiq.version import VERSION
from tests.deploy.debian import bare_root
from tests.deploy.docker.containers import Container, Store
from tests.deploy.tools import JOBS, need, pushing, slow
from tests.support import ROOT, RedisServer, wait_until

pytestmark = [slow, pytest.mark.timeout(900)]

BASE, IMAGE, SHOP = "localhost/python", "localhost/lowkiq", "localhost/shop"
USER = 10001

Start = Callable[..., Container]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Store with the image of this checkout, and the example's on top of it."""
    need("buildah")
    directory = tmp_path_factory.mktemp("images")
    made = Store(directory / "store")
    made.base(bare_root(tmp_path_factory.getbasetemp()), BASE)
    try:
        made.build(ROOT, IMAGE, PYTHON_IMAGE=BASE, VERSION=VERSION, REVISION="1234567")
        (directory / "app/shop").mkdir(parents=True)
        (directory / "app/shop/jobs.py").write_text(JOBS)
        (directory / "app/requirements.txt").write_text("structlog>=25.1\n")
        made.build(directory / "app", SHOP, file=ROOT / "examples/Dockerfile.app", LOWKIQ_IMAGE=IMAGE)
        yield made
    finally:
        made.clear()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis on a socket that any user may open, as the container's is nobody here."""
    server = RedisServer(tmp_path / "redis", "--unixsocketperm", "777")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def start(store: Store, tmp_path: Path, outside: RedisServer) -> Iterator[Start]:
    running: list[Container] = []

    def make(*arguments: str, image: str = SHOP, **environment: str) -> Container:
        made = Container(
            store,
            image,
            tmp_path / f"container-{len(running)}.log",
            *arguments,
            volumes={outside.socket.parent: "/redis"},
            environment={"REDIS_URL": "unix:///redis/redis.sock"} | environment,
        )
        running.append(made)
        return made

    yield make
    for container in running:
        container.__exit__()


def push(container: Container, id: str, **order: str) -> None:
    """Pushes from inside, as by `docker exec`."""
    done = container.run(["python", "-c", pushing(id, order)])
    assert done.returncode == 0, done.stdout


def outcome(client: redis.Redis, id: str) -> str:
    ended: Any = wait_until(lambda: client.get(f"ended:{id}"), every=0.05)
    return bytes(ended).decode()


def ready(container: Container) -> Container:
    wait_until(lambda: container.health() == 0, every=0.2)
    return container


def test_without_arguments_it_says_what_it_takes(start: Start) -> None:
    container = start(image=IMAGE)
    assert container.process.wait(60) == 0
    assert "Usage: lowkiq-supervisor" in container.log.read_text()


def test_the_labels_say_what_it_is(store: Store) -> None:
    labels = store.config(IMAGE)["Labels"]
    told = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert told | {"title": "Lowkiq for Python", "version": VERSION, "revision": "1234567", "licenses": "MIT"} == told


def test_the_image_has_lowkiq_the_web_view_and_nothing_of_the_build(store: Store) -> None:
    root = store.root(IMAGE)
    assert not any((root / place).exists() for place in ("build", "dist", "opt/build"))
    (packages,) = (root / "opt/lowkiq/lib").glob("python3.*/site-packages")
    assert (packages / "lowkiq/queue/scripts/claim.lua").exists()
    assert (packages / "uvicorn").is_dir()
    assert not (packages / "hatchling").exists()
    assert not list(packages.rglob("tests"))
    for name in ("pip", "setuptools", "wheel", "_distutils_hack"):
        assert not (packages / name).exists() and not list(packages.glob(f"{name}-*")), name
        assert not list(root.glob(f"opt/lowkiq/bin/{name}*")), name
    assert not list((root / "root").glob(".cache/*"))
    ours = [path.lstat() for path in (root / "opt/lowkiq").rglob("*")]
    assert all(found.st_uid == 0 and (stat.S_ISLNK(found.st_mode) or not found.st_mode & 0o022) for found in ours)


def test_everything_has_byte_code_that_goes_by_no_date(store: Store) -> None:
    root = store.root(SHOP)
    (packages,) = (root / "opt/lowkiq/lib").glob("python3.*/site-packages")
    (standard,) = (path for path in (root / "usr/lib").glob("python3.*") if path.is_dir())
    for source in [*packages.rglob("lowkiq*/**/*.py"), *packages.glob("typer/*.py"), *standard.glob("*.py"),
                   *standard.glob("asyncio/*.py"), root / "app/shop/jobs.py"]:  # fmt: skip
        (compiled,) = source.parent.glob(f"__pycache__/{source.stem}.cpython-3*.pyc")
        # PEP 552: a hash that isn't checked. What the application's pip compiled it did in its own way.
        assert compiled.read_bytes()[4:8] == bytes([1, 0, 0, 0]), compiled


def test_a_second_build_makes_the_same_files(store: Store) -> None:
    store.build(ROOT, f"{IMAGE}-again", PYTHON_IMAGE=BASE, VERSION=VERSION, REVISION="1234567")
    first, second = (contents(store.root(name)) for name in (IMAGE, f"{IMAGE}-again"))
    assert {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)} == set()


def contents(root: Path) -> dict[str, object]:
    """Path → what stands there, and whose it is; of what the Dockerfile makes."""
    found: dict[str, object] = {}
    for place in ("opt", "etc", "app", "var/lib/lowkiq", "usr/lib/python3*", "usr/local"):
        for path in [each for top in root.glob(place) for each in [top, *top.rglob("*")]]:
            told = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(root))] = (told.st_mode, told.st_uid, told.st_gid, content)
    return found


def test_a_probe_costs_little(start: Start) -> None:
    """Forty milliseconds of CPU is what it may take; the machine of this test may be slower than yours."""
    container = ready(start())
    code = (
        "import resource, subprocess; [subprocess.run(['lowkiq-supervisor', 'ping', '--ready'], check=True, "
        "stdout=subprocess.DEVNULL) for _ in range(10)]; told = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print('CPU', (told.ru_utime + told.ru_stime) / 10)"
    )
    told = container.run(["python", "-c", code])
    seconds = float(told.stdout.partition("CPU ")[2])
    print(f"ping takes {seconds * 1000:.0f} ms of CPU")
    assert seconds < 0.08


def test_process_1_is_the_supervisor_without_any_right(start: Start) -> None:
    container = ready(start())
    status = dict(re.findall(r"^(\w+):\s*(.*)$", Path(f"/proc/{container.first.pid}/status").read_text(), re.MULTILINE))
    assert status["NSpid"].split()[-1] == "1"
    assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
    assert int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
    assert "supervisor" in container.first.cmdline()[0]
    assert len(container.first.children()) == 4 + 1, "nodes, and the guardian"


def test_jobs_run_with_a_read_only_root_and_write_to_the_volume_and_tmp_alone(
    start: Start, outside: RedisServer
) -> None:
    container = ready(start())
    places = {"volume": "/var/lib/lowkiq/file", "tmp": "/tmp/file", "app": "/app/file", "opt": "/opt/lowkiq/file"}
    with outside.client() as client:
        for id, path in places.items():
            push(container, id, write=path)
        found = {id: outcome(client, id) for id in places}
    refused = "Read-only file system"
    assert found == {"volume": "done", "tmp": "done", "app": refused, "opt": refused}


def test_the_health_check_fails_before_and_after_and_with_1_alone(start: Start) -> None:
    waiting = start(REDIS_URL="unix:///redis/nowhere.sock")
    wait_until(lambda: "waiting" in waiting.log.read_text() or "redis" in waiting.log.read_text())
    assert waiting.health() == 1, "not 2, which Docker keeps for itself"
    assert waiting.stop() == ExitCode.DRAINED
    container = ready(start())
    (node, *_) = container.first.children()
    node.suspend()
    node.kill()
    wait_until(lambda: node.pid not in {child.pid for child in container.first.children()})
    ready(container)


def test_what_a_job_leaves_behind_is_reaped_by_process_1(start: Start, outside: RedisServer) -> None:
    container = ready(start())
    with outside.client() as client:
        push(container, "parent", run="sleep 0.5 >/dev/null & echo $!")
        left = outcome(client, "parent").strip()
    inner = {_pid_inside(child): child for child in container.first.children(recursive=True)}
    child = inner.get(left)
    assert child is None or child.ppid() == container.first.pid, "it is process 1's now"
    wait_until(lambda: child is None or not child.is_running())
    zombies = [each for each in container.first.children(recursive=True) if each.status() == psutil.STATUS_ZOMBIE]
    assert not zombies


def test_the_stop_signal_lets_a_running_job_finish_and_ends_with_0(start: Start, outside: RedisServer) -> None:
    container = ready(start())
    with outside.client() as client:
        push(container, "long", wait_for="go")
        wait_until(lambda: client.get("began:long"))
        first = container.first
        first.terminate()
        wait_until(lambda: '"draining"' in container.log.read_text())
        assert client.get("ended:long") is None
        client.set("go", 1)
        assert container.process.wait(60) == ExitCode.DRAINED
        assert outcome(client, "long") == "done"


def test_without_a_redis_it_says_what_to_set(start: Start) -> None:
    container = start(REDIS_URL="", PATH="/opt/lowkiq/bin")  # the base has a redis-server, elsewhere on its path
    assert container.process.wait(60) == ExitCode.BOOT
    assert "set REDIS_URL" in container.log.read_text()


def test_an_image_that_has_a_redis_server_runs_its_own_in_the_volume(start: Start) -> None:
    container = ready(start(REDIS_URL=""))
    push(container, "own", write="/var/lib/lowkiq/file")
    wait_until((container.volume("/var/lib/lowkiq") / "file").exists)
    assert container.stop() == ExitCode.DRAINED
    assert list((container.volume("/var/lib/lowkiq") / "redis").rglob("*.aof"))


def test_another_command_of_lowkiq_runs_in_it(start: Start) -> None:
    container = ready(start())
    assert container.run(["lowkiq", "stats", "--json"]).returncode == 0
    assert container.run(["lowkiq", "web", "--help"]).returncode == 0


def _pid_inside(process: psutil.Process) -> str:
    try:
        return str(re.findall(r"^NSpid:.*\s(\d+)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)[0])
    except (OSError, IndexError):
        return ""
