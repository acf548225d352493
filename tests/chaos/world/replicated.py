"""Redis with replicas: Sentinel and Cluster, whose primaries are killed and replaced, and whose slots move."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import redis

from lowkiq.transport.sentinel import FOLLOW_INTERVAL
from tests.chaos.journal import now
from tests.chaos.plan import ALONE, FAULTS
from tests.chaos.world.servers import Note, Standalone
from tests.support import wait_until
from tests.transport.kinds.cluster import RedisCluster
from tests.transport.kinds.member import Member
from tests.transport.kinds.sentinel import RedisSentinel

#: Seconds in which a failover must be over.
WITHIN = 60.0
#: Seconds that a busy machine may add to the look of a client at its sentinels.
LATE = 1.0
#: Slots that are moved at a time, those with keys first.
SLOTS = 20


class Replicated:
    """Common part of both. One fault at a time, in a thread of its own, since each waits for the other servers."""

    may_lose = True
    #: Clients find their servers by themselves, past any proxy.
    socket = None
    probe_every = 0.1
    faults: tuple[str, ...] = tuple(kind for kind in FAULTS if kind not in ALONE)

    def __init__(self, servers: RedisSentinel | RedisCluster, directory: Path) -> None:
        self._redis = servers
        self._logs = directory / "logs"
        self._fault: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def url(self) -> str:
        return self._redis.url

    def start(self) -> None:
        self._redis.__enter__()

    def stop(self) -> None:
        for path in self._redis._directory.glob("*/log"):
            shutil.copy(path, self._logs / f"redis-{path.parent.name}.log")
        self._redis.__exit__(None, None, None)

    def break_(self, kind: str, target: float, seconds: float, note: Note) -> bool:
        if self._fault and self._fault.is_alive():
            return False
        does: dict[str, Callable[[float, Note], None]] = {
            "kill primary": self._kill_primary, "fail over": self._fail_over, "move slots": self._move_slots
        }  # fmt: skip
        self._fault = threading.Thread(target=self._try, args=(does[kind], target, note), daemon=True)
        self._fault.start()
        return True

    def _try(self, do: Callable[[float, Note], None], target: float, note: Note) -> None:
        try:
            do(target, note)
        except redis.RedisError:
            return  # whoever should have done it was away
        except BaseException as error:  # noqa: BLE001 (it must not pass unnoticed in a thread)
            self._error = error

    def mend(self) -> None:
        """Faults end by themselves."""

    def wait(self) -> None:
        if self._fault:
            self._fault.join(WITHIN * 3)
        if self._error:
            raise RuntimeError("Redis has not come back from a fault") from self._error

    def _kill_primary(self, target: float, note: Note) -> None:
        victim = self._primary(target)
        others = [member for member in self._primaries() if member is not victim]
        since = now()
        victim.kill()
        # Started again before another has taken over, it would go on where it was, and nothing would have happened.
        wait_until(lambda: any(each not in others for each in self._primaries()), within=WITHIN)
        self._redis.restart(victim)
        self._settle(since, note)

    def _fail_over(self, target: float, note: Note) -> None:
        raise NotImplementedError

    def _settle(self, since: float, note: Note, **more: float) -> None:
        """A failover is over when every other server follows."""
        try:
            wait_until(self._is_settled, within=WITHIN)
        finally:
            note(since, now(), **more)

    def _is_settled(self) -> bool:
        return self._redis.is_well()

    def _move_slots(self, target: float, note: Note) -> None:
        raise NotImplementedError

    def _primaries(self) -> list[Member]:
        raise NotImplementedError

    def _primary(self, target: float) -> Member:
        primaries = self._primaries()
        if not primaries:
            raise redis.ConnectionError("there is no primary now")
        return primaries[int(target * len(primaries))]

    def flush(self, target: float) -> None:
        self._primary(target).ask("SCRIPT", "FLUSH")


class Sentinel(Replicated):
    """
    A primary, two replicas, three sentinels. A primary that was replaced lives on, and takes writes for ten seconds:
    docs/redis.md advises `min-replicas-to-write`, by which it would not, but who follows the sentinels needs none.
    """

    faults = tuple(kind for kind in Replicated.faults if kind != "move slots")

    def __init__(self, directory: Path) -> None:
        self._sentinel = RedisSentinel(2, 3, 1.0)
        super().__init__(self._sentinel, directory)

    def answers(self) -> bool:
        return any(_is_primary(member) for member in self._sentinel.servers)

    def _primaries(self) -> list[Member]:
        # A server that has come back may think for a moment that it still is one: the sentinels know.
        return [self._sentinel.primary()]

    def _fail_over(self, target: float, note: Note) -> None:
        since = now()
        try:
            self._sentinel.fail_over(within=WITHIN / 3)
        except TimeoutError:
            return
        self._settle(since, note, loses_until=now() + FOLLOW_INTERVAL + LATE)

    def _is_settled(self) -> bool:
        return len(self._sentinel.replicas()) == len(self._sentinel.servers) - 1 and super()._is_settled()


class Cluster(Replicated):
    """Three primaries with a replica each."""

    def __init__(self, directory: Path) -> None:
        self._cluster = RedisCluster()
        super().__init__(self._cluster, directory)

    def answers(self) -> bool:
        return len(self._primaries()) == self._cluster._count

    def _primaries(self) -> list[Member]:
        return self._cluster.primaries()

    def _fail_over(self, target: float, note: Note) -> None:
        since = now()
        self._cluster.fail_over(self._primary(target), how="" if target < 0.5 else "TAKEOVER")
        self._settle(since, note)

    def _move_slots(self, target: float, note: Note) -> None:
        since = now()
        with contextlib.suppress(redis.RedisError):
            self._cluster.move_slots(SLOTS, self._primary(target))
        note(since, now())
        wait_until(self._redis.is_well, within=WITHIN)


#: A kind of Redis, as chaos needs it.
Servers = Standalone | Sentinel | Cluster


def _is_primary(member: Member) -> bool:
    with contextlib.suppress(redis.RedisError):
        return bool(member.is_running and member.ask("INFO", "replication").get("role") == "master")
    return False
