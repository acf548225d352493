"""Proxies before a Redis of each kind, and what the weather does to them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.chaos.world.proxy import Weather
from tests.support import free_port
from tests.transport import names
from tests.transport.kinds.cluster import RedisCluster
from tests.transport.kinds.member import Member
from tests.transport.kinds.sentinel import SERVICE, SentinelMember

KINDS: Final = ("server", "sentinel", "cluster")
#: Weather → the most seconds that it lasts.
WEATHERS: Final[Mapping[str, float]] = {
    "delay": 6.0,
    "silence": 8.0,
    "hole": 8.0,
    "forget": 0.0,
    "reset": 3.0,
    "half-close": 3.0,
    "single bytes": 5.0,
    "late": 3.0,
    "late replies": 6.0,
    "drop requests": 4.0,
    "drop replies": 4.0,
    "name moves": 4.0,
    "name unknown": 4.0,
    "name silent": 6.0,
}


class Network:
    """Proxies in a thread of their own, and what they have before them. `url` names Redis by a name."""

    def __init__(self, kind: str, directory: Path, stack: ExitStack) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        stack.callback(self._end)
        self._weather = Weather()
        #: Those of what the name may lead to, now first.
        self._fronts = [Weather(), Weather()]
        os.environ[names.VARIABLE] = str(directory / "names")
        first = {"server": self._server, "sentinel": self._sentinel, "cluster": self._cluster}[kind](directory, stack)
        self._ports = [self._open(first, front) for front in self._fronts]
        names.say(port=self._ports[0])
        service = f"/{SERVICE}" if kind == "sentinel" else ""
        self.url = f"redis{'' if kind == 'server' else f'+{kind}'}://{names.NAME}:1{service}/0".removesuffix(
            "/0" if kind == "cluster" else ""
        )

    def be(self, weather: str, seconds: float) -> None:
        """It is so for that long, and well again."""
        if weather == "name moves":  # those who lead there by its old address hear nothing any more
            self._ports.reverse()
            self._fronts.reverse()
            names.say(port=self._ports[0])
            self._run(self._fronts[1].become("hole", seconds))
        elif weather.startswith("name "):
            names.say(**{"is": weather.removeprefix("name ")})
            self._run(self._become("reset", 0))
            time.sleep(seconds)
            names.say(port=self._ports[0])
        else:
            self._run(self._become(weather, seconds))

    async def _become(self, weather: str, seconds: float) -> None:
        await asyncio.gather(*(one.become(weather, seconds) for one in (self._weather, self._fronts[0])))

    def _end(self) -> None:
        self._run(self._ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _ended(self) -> None:
        tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for weather in (self._weather, *self._fronts):
            weather.end()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def _open(self, port: int, weather: Weather | None = None) -> int:
        return int(self._run((weather or self._weather).serve(0, port)))

    def _server(self, directory: Path, stack: ExitStack) -> int:
        server = Member(directory / "redis", free_port())
        stack.callback(server.kill)
        server.start()
        return server.port

    def _sentinel(self, directory: Path, stack: ExitStack) -> int:
        primary = self._open(self._server(directory, stack))
        sentinel = SentinelMember(directory / "sentinel", free_port(), primary, 600, 1)
        stack.callback(sentinel.kill)
        sentinel.start()
        return sentinel.port

    def _cluster(self, _: Path, stack: ExitStack) -> int:
        cluster = RedisCluster(3, 0)
        for member in cluster.members:
            announced = {"port": self._open(member.port), "bus-port": member.port + 10_000}
            for name, port in announced.items():
                member._options += (f"--cluster-announce-{name}", str(port))
        stack.enter_context(cluster)
        return cluster.members[0].port
