"""
A supervisor to run as a process in tests: its nodes are the functions below instead of real ones.

Usage: supervised.py BEHAVIOUR JSON, with the options, the policy's numbers, `embedded` (a bool), `web` (a function of
web_views.py and a port), `range` (as of --nodes), and `constants` (such as {"policy.limits.DUMP_TIME": 0.1}) in it.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowkiq import log
from lowkiq.environment import Address, Found
from lowkiq_supervisor import parsing
from lowkiq_supervisor.arbiter import Arbiter
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.beat_pipe import HAS_SPLITTER
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.node import NodeSpec
from lowkiq_supervisor.restart_policy import RestartMode, RestartPolicy
from tests.supervisor.processes import web_views

Tell = Callable[..., None]


def signals(*numbers: signal.Signals) -> list[int]:
    """Those that have come, from now on."""
    come: list[int] = []
    for number in numbers:
        signal.signal(number, lambda number, _: come.append(number))
    return come


def obedient(spec: NodeSpec, beat: Tell) -> int:
    """Runs until TERM, and drains."""
    told, quiet, dumps = (
        signals(signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP),
        signals(signal.SIGTSTP),
        signals(signal.SIGTTIN),
    )
    Path(f"env-{spec.node_number}").write_text(
        json.dumps({**os.environ, "dead_nodes": [dead.name for dead in spec.page.read_bulletin().dead_nodes]})
    )
    beat("starting")
    while not told:
        beat("quiet" if quiet else "ready")
        if quiet:
            Path(f"quiet-{spec.node_number}").touch()
        while dumps:
            dumps.pop()
            place = Path(os.environ["LOWKIQ_STATE_DIR"]) / "dumps"
            place.mkdir(exist_ok=True)
            (place / f"dump-now-{os.getpid()}-x.txt").write_text("Thread 1")
        signal.sigtimedwait((), 0.02) if hasattr(signal, "sigtimedwait") else time.sleep(0.02)
    beat("draining")
    return 0


def listening(spec: NodeSpec, beat: Tell) -> int:
    """Notes what its supervisor tells it while it runs."""

    def note_and_beat(state: str) -> None:
        bulletin = spec.page.read_bulletin()
        told = [[dead.name for dead in bulletin.dead_nodes], *bulletin.notices]
        Path(f"told-{spec.node_number}.new").write_text(json.dumps(told))
        Path(f"told-{spec.node_number}.new").rename(f"told-{spec.node_number}")
        beat(state)

    return obedient(spec, note_and_beat)


def listening_beside_a_bad_one(spec: NodeSpec, beat: Tell) -> int:
    """The last node can't boot until a file is there."""
    return (listening if spec.node_number == 0 else failing_at_boot)(spec, beat)


def cut_off_as_it_retires(spec: NodeSpec, beat: Tell) -> int:
    """Runs a job that kills it once it is to go, and can't boot once a file is there."""
    if Path("broken").exists():
        return 3
    seat = spec.page.seat(0)
    seat.begin("lowkiq:{orders:7}:", 1, 1, 1)
    seat.place[0] = 1

    def beat_or_die(state: str) -> None:
        if state == "draining":
            os.kill(os.getpid(), signal.SIGKILL)
        beat(state)

    return listening(spec, beat_or_die)


def deaf(spec: NodeSpec, beat: Tell) -> int:
    """Hears neither TERM nor QUIT."""
    for signum in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    return forever(beat)


def hard_of_hearing(spec: NodeSpec, beat: Tell) -> int:
    """Has not heard the first TERM, and ends with 9 if a third one disturbs its end."""
    told = signals(signal.SIGTERM)
    while len(told) < 2:
        beat("ready")
        time.sleep(0.02)
    for _ in range(150):
        beat("draining")
        time.sleep(0.02)
    return 0 if len(told) == 2 else 9


def the_last_is_deaf(spec: NodeSpec, beat: Tell) -> int:
    return (deaf if spec.node_number == spec.options.number_of_nodes - 1 else obedient)(spec, beat)


def patient(spec: NodeSpec, beat: Tell) -> int:
    """Has a job that ends when a file is there."""
    told, retired = signals(signal.SIGTERM), signals(signal.SIGHUP)
    seat = spec.page.seat(0)
    seat.begin("lowkiq:{orders:7}:", 1, 1, 1)
    seat.place[0] = 1
    while not ((told or retired) and Path("job-has-ended").exists()):
        beat("draining" if told else "retiring" if retired else "ready")
        time.sleep(0.02)
    return 0


def parent(spec: NodeSpec, beat: Tell) -> int:
    """Has started a process of its own, and waits for it."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        forever(lambda _: None)
    return forever(beat)


def forever(beat: Tell) -> int:
    while True:
        beat("ready")
        time.sleep(0.05)


def crashing(spec: NodeSpec, beat: Tell) -> int:
    """The last node dies whenever it has become ready."""
    if spec.node_number < spec.options.number_of_nodes - 1:
        return obedient(spec, beat)
    beat("ready")
    raise RuntimeError("boom")


def refusing(spec: NodeSpec, beat: Tell) -> int:
    """Can't boot."""
    beat("starting")
    return 3


def failing_at_boot(spec: NodeSpec, beat: Tell) -> int:
    """Fails before it is ready, in a way that may heal, until a file is there."""
    beat("starting")
    return obedient(spec, beat) if Path("healed").exists() else 1


def failing_at_boot_beside_a_good_one(spec: NodeSpec, beat: Tell) -> int:
    """All nodes but the first boot until a file is there, and then fail, until another is."""
    if spec.node_number == 0 or Path("healed").exists():
        return obedient(spec, beat)
    while not Path("fails").exists():
        beat("starting")
        time.sleep(0.02)
    return 1


def one_failing_at_boot(spec: NodeSpec, beat: Tell) -> int:
    """The last node fails before it is ready, in a way that may heal, until a file is there."""
    return (failing_at_boot if spec.node_number == spec.options.number_of_nodes - 1 else obedient)(spec, beat)


def waiting(spec: NodeSpec, beat: Tell) -> int:
    """Fails once, and then waits for Redis for ever."""
    if not Path("failed").exists():
        Path("failed").touch()
        return 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        beat("starting")
        time.sleep(0.05)


def poisoned(spec: NodeSpec, beat: Tell) -> int:
    """A job kills the first processes of each slot, before they are ready."""
    deaths = Path(f"deaths-{spec.node_number}")
    with deaths.open("ab") as log_of_deaths:
        log_of_deaths.write(b".")
    if deaths.stat().st_size <= 4:
        beat("starting")
        seat = spec.page.seat(0)
        seat.begin("lowkiq:{orders:7}:", 1, 1, 1)
        seat.place[0] = 1
        os.kill(os.getpid(), signal.SIGSEGV)
    return obedient(spec, beat)


def burst(spec: NodeSpec, beat: Tell) -> int:
    """The first process of each slot crashes, the second finishes."""
    beat("ready")
    crashed = Path(f"crashed-{spec.node_number}")
    if not crashed.exists():
        crashed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    Path(f"finished-{spec.node_number}").touch()
    return 0


def recycling(spec: NodeSpec, beat: Tell) -> int:
    """Asks to be replaced."""
    beat("ready")
    return 75


def silent(spec: NodeSpec, beat: Tell) -> int:
    """Becomes ready, and never beats again, in C code that holds the interpreter's lock."""
    faulthandler.enable()
    beat("ready")
    ctypes.PyDLL(None).sleep(300)
    return 0


def calm(spec: NodeSpec, beat: Tell) -> int:
    """Becomes ready and says no more."""
    beat("ready")
    time.sleep(300)
    return 0


def silent_at_boot(spec: NodeSpec, beat: Tell) -> int:
    """Never becomes ready."""
    faulthandler.enable()
    time.sleep(300)
    return 0


def hungry(spec: NodeSpec, beat: Tell) -> int:
    """The first process of each slot takes much memory."""
    if not Path(f"fed-{spec.node_number}").exists():
        Path(f"fed-{spec.node_number}").touch()
        taken = bytearray(os.urandom(1)) * (150 << 20)
        assert taken
    return obedient(spec, beat)


def busy(spec: NodeSpec, beat: Tell) -> int:
    """The first process of each slot has run many jobs."""
    jobs = 0 if Path(f"ran-{spec.node_number}").exists() else 1000
    Path(f"ran-{spec.node_number}").touch()
    return obedient(spec, lambda state: beat(state, 3, jobs))


def loaded(spec: NodeSpec, beat: Tell) -> int:
    """Is as busy as a file says, "busy full late", the last in milliseconds."""

    def beat_so(state: str) -> None:
        busy, full, late = map(int, Path("load").read_text().split())
        beat(state, busy, 7, 0, full, late)

    return obedient(spec, beat_so)


def with_a_splitter(spec: NodeSpec, beat: Tell) -> int:
    """Tells that its application has a splitter."""
    beat(HAS_SPLITTER)
    return obedient(spec, beat)


def doomed_successor(spec: NodeSpec, beat: Tell) -> int:
    """Only the first process of a slot gets through its boot, until a file is there."""
    if Path(f"env-{spec.node_number}").exists() and not Path("mended").exists():
        return 3
    return obedient(spec, beat)


def hanging_successor(spec: NodeSpec, beat: Tell) -> int:
    """Only the first process of a slot gets through its boot; the others hang."""
    if Path(f"env-{spec.node_number}").exists():
        return silent_at_boot(spec, beat)
    return obedient(spec, beat)


def slowly_ready(spec: NodeSpec, beat: Tell) -> int:
    """The second process of a slot takes a second to boot."""
    until = time.monotonic() + (1 if Path(f"env-{spec.node_number}").exists() else 0)
    while time.monotonic() < until:
        beat("starting")
        time.sleep(0.02)
    return obedient(spec, beat)


def short_lived_successor(spec: NodeSpec, beat: Tell) -> int:
    """The second process of a slot dies when it has been ready for a while."""
    lives = Path(f"lives-{spec.node_number}")
    with lives.open("ab") as log_of_lives:
        log_of_lives.write(b".")
    if lives.stat().st_size != 2:
        return obedient(spec, beat)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        beat("ready")
        time.sleep(0.02)
    return 1


def abandoning(spec: NodeSpec, beat: Tell) -> int:
    """Leaves behind a process of another group, which ends on its own, and goes on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                time.sleep(0.01)
            Path("orphan").write_text(str(os.getpid()))
        os._exit(0)
    os.wait()
    return obedient(spec, beat)


def one_cycle(spec: NodeSpec, beat: Tell) -> int:
    """Is born and ends, and leaves a trace of one byte."""
    with Path("cycles").open("ab") as cycles:
        cycles.write(b".")
    beat("ready")
    return 75


def slow_boot(spec: NodeSpec, beat: Tell) -> int:
    """Takes its time to boot, the way an import does."""
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        socket.gethostname()
    return obedient(spec, beat)


def no_pidfd(pid: int, flags: int = 0) -> int:
    raise OSError(errno.ENOSYS, "as on an old kernel")


def main(behaviour: str, given: dict[str, Any]) -> int:
    log.configure()
    if not given.pop("pidfds", True):
        os.pidfd_open = no_pidfd
    numbers = given.pop("policy", {})
    for name, value in given.pop("constants", {}).items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(f"lowkiq_supervisor.{module}"), constant, value)
    state_dir = Path(given.pop("state_dir", ".lowkiq")).absolute()
    embedded = EmbeddedRedis(state_dir) if given.pop("embedded", False) else None
    view, port = given.pop("web", ("serving", None))
    count = parsing.nodes(Found(given.pop("range"), "range")) if "range" in given else None
    if count:
        given |= {"nodes": count.least, "node_range": count, "is_elastic": True}
    options = Options(
        app="unused",
        state_dir=state_dir,
        restart=RestartMode(given.pop("restart", "always")),
        number_of_nodes=given.get("nodes", 1),
        web=Address("127.0.0.1", port) if port else None,
        soak=given.pop("soak", 0),
        **given,
    )
    policy = RestartPolicy(mode=options.restart, burst=options.burst, strict=options.strict, **numbers)
    body, web_body = globals()[behaviour], getattr(web_views, view)
    return Arbiter(options, run_child=body, run_web=web_body, embedded=embedded, policy=policy).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
