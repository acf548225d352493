"""
A hostile network: every way in which bytes come late, in pieces, or never, between Redis and whoever uses it. Nothing
may be lost, no reply may be that of another command, all must work again soon after, and events must tell each gap.

    python -m tests.faults.hostile_net --minutes 10 --on cluster
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import uvicorn
from redis.exceptions import RedisError

from lowkiq import Lowkiq, PushFailed
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node, client_for_people, client_for_producers
from lowkiq.transport.patience import Patience
from lowkiq.web import create_app
from tests.chaos.world.proxy import Weather
from tests.support import free_port, wait_until
from tests.transport import names
from tests.transport.kinds.cluster import RedisCluster
from tests.transport.kinds.load import Load, Outcome
from tests.transport.kinds.member import Member
from tests.transport.kinds.sentinel import SERVICE, SentinelMember
from tests.web.conftest import served

#: Weather → the most seconds that it lasts.
WEATHERS: Final[Mapping[str, float]] = {
    "delay": 6.0,
    "silence": 8.0,
    "hole": 8.0,
    "forget": 0.0,
    "reset": 3.0,
    "half-close": 3.0,
    "single bytes": 5.0,
    "late replies": 6.0,
    "drop requests": 4.0,
    "drop replies": 4.0,
    "name moves": 4.0,
    "name unknown": 4.0,
    "name silent": 6.0,
}
KINDS: Final = ("server", "sentinel", "cluster")
#: Seconds after which all must work again.
SOON: Final = 5.0
#: Keys whose values are asked for.
KEYS: Final = 30
CLIENTS: Final = {
    "people's replies": client_for_people,
    "node's replies": lambda settings: client_for_node(settings, 4),
    "producers' replies": client_for_producers,
}
#: Numbers of payloads that are awaited begin here.
AWAITED: Final = 10**9


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


class Named(Load):
    """Its nodes resolve the name as this process does."""

    begin = "import tests.transport.names\n"
    pause = 0.1


class User:
    """Something that goes on for ever: `done` counts what has worked, `errors` has what has not."""

    def __init__(self, work: Callable[[], object], pause: float) -> None:
        self.done = 0
        self.errors: list[str] = []
        self._work, self._pause, self._is_over = work, pause, threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while not self._is_over.wait(self._pause):
            try:
                self._work()
            except (RedisError, OSError, PushFailed, httpx.HTTPError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            else:
                self.done += 1

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(60)


class Trial:
    """All who use a Redis, over a network. A context manager."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind, self._directory = kind, directory
        self._stack = ExitStack()
        #: Replies that were those of other commands, and worse.
        self.mixed: list[str] = []
        #: What listeners have heard, by their names: ids as numbers, and None for a gap.
        self.heard: dict[str, list[int | None]] = defaultdict(list)
        #: Ids that were pushed for them.
        self.told: list[int] = []
        self.users: dict[str, User] = {}
        self._listeners: list[threading.Thread] = []

    def __enter__(self) -> Trial:
        with self._stack as stack:
            self.network = Network(self._kind, self._directory, stack)
            self.load = stack.enter_context(Named(self._directory, self.network.url))
            app = self._app(stack)
            self.progress: dict[str, Callable[[], int]] = {
                "producer": lambda: len(self.load.accepted),
                "node": self._highest_run,
            }
            self._start(app, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._events.close()
        self._listeners[0].join(60)
        for user in self.users.values():
            user.end()
        self._stack.__exit__(*error)

    def play(self, weather: str, seconds: float, within: float) -> dict[str, float]:
        """Seconds after its end until each user has got on."""
        self.network.be(weather, seconds)
        over_at = time.monotonic()
        at_end = {name: progress() for name, progress in self.progress.items()}
        at_end["node"] = max(self.load.accepted[-200:], key=lambda number: number % AWAITED)
        took: dict[str, float] = {}
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self._note(at_end, took, over_at), within=within)
        return {name: took.get(name, within) for name in at_end}

    def finish(self) -> tuple[Outcome, dict[str, list[int]]]:
        """What became of all payloads, and, by listener, the ids that it neither heard of nor was told a gap for."""
        for user in self.users.values():
            user.end()
        outcome = self.load.finish()
        last = self.told[-1]
        wait_until(lambda: all(last in heard[-50:] or None in heard[-50:] for heard in self.heard.values()), within=60)
        return outcome, {name: untold(self.told, heard) for name, heard in self.heard.items()}

    def _note(self, at_end: Mapping[str, int], took: dict[str, float], over_at: float) -> bool:
        for name, before in at_end.items():
            if name not in took and self.progress[name]() > before:
                took[name] = time.monotonic() - over_at
        return len(took) == len(at_end)

    def _app(self, stack: ExitStack) -> Lowkiq:
        app = Lowkiq(redis_url=self.network.url)
        app.worker(queue_name="jobs", shards_count=12)(lambda _: None)
        app.worker(queue_name="told", shards_count=1)(lambda _: None)
        stack.enter_context(closing(app))
        return app

    def _start(self, app: Lowkiq, stack: ExitStack) -> None:
        config = uvicorn.Config(create_app(app, no_auth=True), http="h11", log_config=None, timeout_graceful_shutdown=1)
        url = stack.enter_context(served(config))
        web = stack.enter_context(httpx.Client(base_url=url, timeout=20))
        loop = stack.enter_context(asyncio.Runner())
        for listener in (self._listen, self._listen_by_web):
            ready = threading.Event()
            thread = threading.Thread(target=listener, args=(app, url, ready), daemon=True)
            thread.start()
            self._listeners.append(thread)
            assert ready.wait(60)
        self.users["told"] = User(lambda: self._tell(app), 0.1)
        self.users["web view"] = User(lambda: web.get("/api/v1/queues").raise_for_status(), 0.1)
        self.users["awaited producer"] = User(lambda: loop.run(self._await_push(app)), 0.05)
        for name, make in CLIENTS.items():
            caller = Caller(make(app.settings))
            stack.callback(caller.close)
            self.users[name] = User(partial(self._ask, caller), 0.02)
        self.progress |= {name: partial(getattr, user, "done") for name, user in self.users.items()}
        self.progress |= {name: heard.__len__ for name, heard in self.heard.items()}

    def _tell(self, app: Lowkiq) -> None:
        """Pushes the next id, or the one that has not worked, whatever Redis has of it."""
        app.workers["told"].perform_async([{"id": len(self.told)}])
        self.told.append(len(self.told))

    async def _await_push(self, app: Lowkiq) -> None:
        first = AWAITED + 10 * self.users["awaited producer"].done
        numbers = range(first, first + 10)

        async def push(one: int) -> None:
            while True:
                with contextlib.suppress(PushFailed):
                    await app.workers["jobs"].aperform_async([{"id": f"a{one % 10}", "payload": one, "score": one}])
                    break

        await asyncio.gather(*map(push, numbers))
        self.load.accepted += numbers

    def _ask(self, caller: Caller) -> None:
        number = random.randrange(KEYS)
        key, value = f"key-{number}", f"value of {number}"
        ways: list[tuple[Any, ...]] = [
            ("SET", key, value),
            ("GET", key),
            ("EVAL", "return redis.call('GET', KEYS[1])", 1, key),
            ("HMGET", "none-" + key, *["x"] * (1 + number)),
        ]
        with Patience(SOON):  # as a push has; others are bounded by their own time-outs
            replies = caller.commands(ways)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        right = [True, value.encode(), value.encode(), [None] * (1 + number)]
        if replies[1:] != right[1:] or caller.command("GET", key) != value.encode():
            self.mixed.append(f"{key}: {replies}")

    def _listen(self, app: Lowkiq, _: str, ready: threading.Event) -> None:
        heard = self.heard["events"]
        with app.events("told", kinds=["pushed"]) as events:
            self._events = events
            ready.set()
            for event in events:
                heard.append(None if event.kind == "gap" else int(event.id))

    def _listen_by_web(self, _: Lowkiq, url: str, ready: threading.Event) -> None:
        heard = self.heard["events by web"]
        with (
            contextlib.suppress(httpx.HTTPError),  # the end
            httpx.stream("GET", f"{url}/api/v1/events?queue=told&kinds=pushed", timeout=None) as response,
        ):
            ready.set()
            for line in response.iter_lines():
                if line.startswith("event: gap"):
                    heard.append(None)
                elif line.startswith("data:") and '"pushed"' in line:
                    heard.append(int(json.loads(line.removeprefix("data:"))["id"]))

    def _highest_run(self) -> int:
        return max((number for number in self.load.ran() if number < AWAITED), default=0)


def untold(pushed: Iterable[int], heard: list[int | None]) -> list[int]:
    """Ids that were pushed one after the other, and not heard of where no gap was told between those around them."""
    known = {number for number in heard if number is not None}
    #: Of each id that was heard: how many gaps were told before.
    gaps: dict[int, int] = {}
    count = 0
    for one in heard:
        if one is None:
            count += 1
        else:
            gaps.setdefault(one, count)
    missing, before = [], 0
    since: list[int] = []
    for number in pushed:
        if number not in known:
            since.append(number)
            continue
        if since and gaps[number] == before:
            missing += since
        since, before = [], gaps[number]
    return missing + (since if count == before else [])


class Verdict(NamedTuple):
    outcome: Outcome
    mixed: list[str]
    untold: dict[str, list[int]]
    #: (weather, user) → the most seconds until it got on.
    slowest: dict[tuple[str, str], float]

    @property
    def wrong(self) -> dict[str, list[Any]]:
        """What must not be."""
        found: dict[str, list[Any]] = {
            "lost": self.outcome.lost, "out of order": self.outcome.out_of_order, "overlaps": self.outcome.overlaps,
            "mixed": self.mixed, **{f"{name} untold": ids for name, ids in self.untold.items()},
        }  # fmt: skip
        return {name: what[:5] for name, what in found.items() if what}


def run(kind: str, directory: Path, weathers: Iterable[tuple[str, float]], within: float) -> Verdict:
    """Plays one weather after the other, and waits after each until all have got on, for so long at most."""
    slowest: dict[tuple[str, str], float] = defaultdict(float)
    with Trial(kind, directory) as trial:
        for weather, seconds in weathers:
            for name, took in trial.play(weather, seconds, within).items():
                slowest[weather, name] = max(slowest[weather, name], took)
                if took > SOON:
                    errors = trial.users[name].errors[-2:] if name in trial.users else trial.load.refused[-2:]
                    print(f"{weather} for {seconds:.1f} s: {name} only after {took:.1f} s {errors}", flush=True)
        outcome, missing = trial.finish()
        return Verdict(outcome, trial.mixed, missing, slowest)


def drawn(minutes: float, rng: random.Random) -> Iterator[tuple[str, float]]:
    """Each weather in turn, in another order each round, for that long in all."""
    end = time.monotonic() + minutes * 60
    while True:
        for weather in rng.sample(list(WEATHERS), len(WEATHERS)):
            if time.monotonic() > end:
                return
            yield weather, rng.uniform(0.3, 1) * WEATHERS[weather]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--on", choices=KINDS, default="server")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    options = parser.parse_args()
    print(f"on {options.on}, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="lowkiq-net-") as directory:
        verdict = run(options.on, Path(directory), drawn(options.minutes, random.Random(options.seed)), within=60)
    users = sorted({user for _, user in verdict.slowest})
    print("slowest to get on, in seconds".ljust(18), *(user.rjust(18) for user in users))
    for weather in WEATHERS:
        print(weather.ljust(18), *(f"{verdict.slowest.get((weather, user), 0):18.1f}" for user in users))
    print(f"{verdict.outcome.accepted} payloads accepted, {verdict.outcome.repeated} run again; wrong: {verdict.wrong}")
    late = [pair for pair, took in verdict.slowest.items() if took > SOON]
    return 1 if verdict.wrong or late else 0


if __name__ == "__main__":
    sys.exit(main())
