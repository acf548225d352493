"""Injector: does what the plan says to the world, heals it, and records from when to when each fault has lasted."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from redis.exceptions import RedisError

from tests.chaos.journal import Journal, now
from tests.chaos.plan import WEATHERS, Fault
from tests.chaos.world.processes import Revived
from tests.chaos.world.world import World

T = TypeVar("T")


class Injector:
    """One step does all that has become due. `counts` has what was really done."""

    def __init__(self, world: World, plan: Iterator[Fault], directory: Path) -> None:
        self._world = world
        self._plan = plan
        self._journal = Journal(directory / "faults.jsonl")
        self._began = now()
        self._next = next(plan)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._paused: set[int] = set()
        self._weather_until = 0.0
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        """Ends faults whose time is over, and begins those whose time has come."""
        self._world.revive()
        while self._later and self._later[0][0] <= now():
            heapq.heappop(self._later)[2]()
        while self._began + self._next.at <= now():
            if self._do(self._next):
                self.counts[self._next.kind] += 1
            self._next = next(self._plan)

    def heal(self) -> None:
        while self._later:
            heapq.heappop(self._later)[2]()
        self._world.servers.mend()
        self._world.servers.wait()

    def _do(self, fault: Fault) -> bool:
        match fault.kind.split():
            case [("kill" | "pause"), "node"]:
                done = self._hit(fault, _one(self._world.nodes(), fault.target))
            case ["kill", "helper"] | ["kill", "fork", "server"]:
                done = self._hit(fault, _one(self._world.helpers(of_fork="fork" in fault.kind), fault.target))
            case [("kill" | "term"), ("supervisor" | "producer")]:
                done = self._end(fault, _one(self._group(fault), fault.target))
            case ["kill", "tree"]:
                done = self._end_tree(fault, _one(self._group(fault), fault.target))
            case ["pause", "supervisor"]:
                chosen = _one(self._group(fault), fault.target)
                done = self._hit(fault, chosen.process.pid if chosen and chosen.process else None)
            case ["hup", _]:
                done = self._roll(fault, _one(self._group(fault), fault.target))
            case ["flush", _]:
                done = self._flush(fault)
            case _ if fault.kind in WEATHERS:
                done = self._weather(fault)
            case _:
                done = self._break(fault)
        return done

    def _group(self, fault: Fault) -> Sequence[Revived]:
        group = self._world.producers if fault.kind.endswith("producer") else self._world.supervisors
        return [each for each in group if each.is_running]

    def _hit(self, fault: Fault, pid: int | None) -> bool:
        if pid is None or pid in self._paused:
            return False
        since = now()
        try:
            os.kill(pid, signal.SIGSTOP if fault.seconds else signal.SIGKILL)
        except ProcessLookupError:
            return False
        if fault.seconds:
            self._paused.add(pid)
            self._after(fault.seconds, lambda: self._resume(fault, pid, since))
        else:
            self._journal.write(fault.kind, pids=[pid], since=since, until=since)
        return True

    def _resume(self, fault: Fault, pid: int, since: float) -> None:
        self._paused.discard(pid)
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile
            os.kill(pid, signal.SIGCONT)
        self._journal.write(fault.kind, pids=[pid], since=since, until=now())

    def _end(self, fault: Fault, chosen: Revived | None) -> bool:
        if chosen is None or chosen.process is None:
            return False
        pids = [chosen.process.pid, *chosen.children()]
        since = now()
        chosen.send(signal.SIGKILL if fault.kind.startswith("kill") else signal.SIGTERM)
        if chosen.process.pid in self._paused:
            chosen.send(signal.SIGCONT)
        chosen.start_at = since + fault.seconds
        self._journal.write(fault.kind, pids=pids, since=since, until=since)
        return True

    def _end_tree(self, fault: Fault, chosen: Revived | None) -> bool:
        """Stands still as a whole before it is killed, so that none sees another's end."""
        if chosen is None or chosen.process is None:
            return False
        pids, since = chosen.tree(), now()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._paused.difference_update(pids)
        chosen.start_at = since + fault.seconds
        self._journal.write(fault.kind, pids=pids, since=since, until=now())
        return True

    def _roll(self, fault: Fault, chosen: Revived | None) -> bool:
        if chosen is None:
            return False
        chosen.send(signal.SIGHUP)
        self._journal.write(fault.kind, pids=chosen.children(), since=now(), until=now())
        return True

    def _flush(self, fault: Fault) -> bool:
        try:
            self._world.servers.flush(fault.target)
        except RedisError:
            return False
        self._journal.write(fault.kind, since=now(), until=now())
        return True

    def _weather(self, fault: Fault) -> bool:
        """One at a time; what comes meanwhile is left out."""
        since = now()
        if since < self._weather_until or not self._world.weather(fault.kind, fault.seconds):
            return False
        self._weather_until = since + fault.seconds + 0.2
        self._journal.write(fault.kind, via="proxy", since=since, until=since + fault.seconds)
        return True

    def _break(self, fault: Fault) -> bool:
        def note(since: float, until: float, **more: float) -> None:
            self._journal.write(fault.kind, since=since, until=until, **more)

        servers = self._world.servers
        if not servers.break_(fault.kind, fault.target, fault.seconds, note):
            return False
        self._after(fault.seconds, servers.mend)
        return True

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._later, (now() + seconds, next(self._numbers), action))


class Prober(threading.Thread):
    """Asks Redis again and again, and records from when to when it did not answer."""

    def __init__(self, world: World, directory: Path) -> None:
        super().__init__(daemon=True)
        self._world = world
        self._journal = Journal(directory / "outages.jsonl")
        self._is_over = threading.Event()

    def run(self) -> None:
        well_at = now()
        was_up = True
        while not self._is_over.wait(self._world.servers.probe_every):
            asked_at = now()
            is_up = self._world.servers.answers()
            if is_up and (not was_up or now() - well_at > 0.25):
                self._journal.write("redis away", since=well_at, until=now())
            if is_up:
                well_at = asked_at
            was_up = is_up

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def _one(group: Sequence[T], target: float) -> T | None:
    return group[int(target * len(group))] if group else None
