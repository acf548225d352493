"""A trial: all who use a Redis, over a network, and what becomes of them in each weather."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn

from lowkiq import Lowkiq
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node, client_for_people, client_for_producers
from lowkiq.web import create_app
from tests.faults.hostile_net.network import Network
from tests.faults.hostile_net.users import Marks, Named, User
from tests.support import wait_until
from tests.transport.kinds.load import Outcome
from tests.web.conftest import served

#: Keys whose values are asked for.
KEYS: Final = 30
CLIENTS: Final = {
    "people's replies": client_for_people,
    "node's replies": lambda settings: client_for_node(settings, 4),
    "producers' replies": client_for_producers,
}
#: Threads that share each of them.
THREADS: Final = 2
#: Numbers of payloads that are awaited begin here; so many jobs have the pushes that are awaited together.
AWAITED: Final = 10**9
TOGETHER: Final = (1, 1, 1, 2, 3)


class Trial:
    """A context manager."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind, self._directory = kind, directory
        self._stack = ExitStack()
        #: Replies that were those of other commands, and errors that no bad network explains.
        self.mixed: list[str] = []
        self.surprises: list[str] = []
        #: What listeners have heard, by their names: ids as numbers, and None for a gap.
        self.heard: dict[str, list[int | None]] = {"events": [], "events by web": []}
        #: Ids that were pushed for them.
        self.told: list[int] = []
        #: Who uses Redis, those of one kind under one name.
        self.marks: dict[str, list[Marks]] = {name: [Marks()] for name in self.heard}
        self._users: list[User] = []
        self._listeners: list[threading.Thread] = []
        self._awaited: list[int] = []
        self._seen_at = 0.0

    def __enter__(self) -> Trial:
        with self._stack as stack:
            self.network = Network(self._kind, self._directory, stack)
            self.load = stack.enter_context(Named(self._directory, self.network.url))
            self.marks |= {"producer": [self.load.producer], "node": [self.load.nodes_marks]}
            self._app = app = Lowkiq(redis_url=self.network.url)
            app.worker(queue_name="jobs", shards_count=12)(lambda _: None)
            app.worker(queue_name="told", shards_count=1)(lambda _: None)
            stack.enter_context(closing(app))
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._events.close()
        self._listeners[0].join(60)
        for user in self._users:
            user.end()
        self._stack.__exit__(*error)

    def play(self, weather: str, seconds: float, rest: float, within: float) -> dict[str, float]:
        """Seconds after its end until each user works again, and goes on to for as long as the rest lasts."""
        self.network.be(weather, seconds)
        over_at = time.monotonic()
        with contextlib.suppress(TimeoutError):
            wait_until(
                lambda: time.monotonic() - over_at >= rest and None not in self._took(over_at).values(),
                within=within, every=0.05,
            )  # fmt: skip
        return {name: within if took is None else took for name, took in self._took(over_at).items()}

    def finish(self) -> tuple[Outcome, dict[str, list[int]]]:
        """What became of all payloads, and, by listener, the ids that it neither heard of nor was told a gap for."""
        for user in self._users:
            user.end()
        self.load.accepted += self._awaited
        outcome = self.load.finish()
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: all(self.told[-1] in heard[-50:] for heard in self.heard.values()), within=60)
        return outcome, {name: untold(self.told, heard) for name, heard in self.heard.items()}

    def missing(self) -> dict[str, int]:
        """How many nodes have ended, and how many of those jobs that nobody runs are no longer there."""
        ended = sum(node.poll() is not None for node in self.load.nodes)
        return {"nodes that ended": ended, "jobs gone": max(0, len(self.told) - self._app.metrics()["told"].length)}

    def _took(self, over_at: float) -> dict[str, float | None]:
        now = time.monotonic()
        found: dict[str, float | None] = {}
        for name, of_all in self.marks.items():
            took = [marks.took(over_at, now) for marks in of_all]
            found[name] = None if None in took else max(one for one in took if one is not None)
        return found

    # ── who uses Redis ───────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, stack: ExitStack) -> None:
        app = self._app
        config = uvicorn.Config(create_app(app, no_auth=True), http="h11", log_config=None, timeout_graceful_shutdown=1)
        url = stack.enter_context(served(config))
        loop = stack.enter_context(asyncio.Runner())
        for listen in (self._listen, partial(self._listen_by_web, url)):
            ready = threading.Event()
            thread = threading.Thread(target=listen, args=(ready,), daemon=True)
            thread.start()
            assert ready.wait(60)
            self._listeners.append(thread)
        web = [stack.enter_context(httpx.Client(base_url=url, timeout=20)) for _ in range(3)]
        self._use("told", self._tell, 0.1)
        self._use("web view", lambda: self._look(web[0]), 0.1)
        self._use("web job", lambda: web[1].get("/api/v1/queues/told/job?id=0").raise_for_status(), 0.1)
        self._use("readiness", lambda: web[2].get("/readyz").raise_for_status(), 0.1)
        self._use("application", app.metrics, 0.1)
        self._use("awaited producer", lambda: loop.run(self._await_pushes()), 0.05)
        for name, make in CLIENTS.items():
            caller = Caller(make(app.settings))
            stack.callback(caller.close)
            for _ in range(THREADS):
                self._use(name, partial(self._ask, caller), 0.05)

    def _use(self, name: str, work: Any, pause: float) -> None:
        user = User(work, pause, self.surprises)
        self._users.append(user)
        self.marks.setdefault(name, []).append(user.marks)

    def _tell(self) -> None:
        """Pushes the next id, or the one that has not worked, whatever Redis has of it."""
        self._check(self._app.workers["told"].perform_async([{"id": len(self.told)}]), 1)
        self.told.append(len(self.told))

    def _look(self, web: httpx.Client) -> bool:
        """Whether the view shows what is newer than what it has shown before."""
        before, self._seen_at = self._seen_at, web.get("/api/v1/alerts").raise_for_status().json()["at"]
        return self._seen_at > before

    async def _await_pushes(self) -> None:
        """Pushes of some jobs each, all of them again if one has failed."""
        push, last = self._app.workers["jobs"].aperform_async, AWAITED + len(self._awaited)
        pushes = []
        for count in TOGETHER:
            numbers = range(last, last := last + count)
            jobs: Any = [{"id": f"a{number % 20}", "payload": number, "score": number} for number in numbers]
            pushes.append(push(jobs))
        results = await asyncio.gather(*pushes, return_exceptions=True)
        for result, count in zip(results, TOGETHER, strict=True):
            if isinstance(result, BaseException):
                raise result
            self._check(result, count)
        self._awaited += range(AWAITED + len(self._awaited), last)

    def _check(self, pushed: tuple[int, int], count: int) -> None:
        if sum(pushed) != count:
            self.mixed.append(f"{pushed} of {count} payloads")

    def _ask(self, caller: Caller) -> None:
        number, own = random.randrange(KEYS), uuid.uuid4().bytes
        key, value = f"key-{number}", f"value of {number}".encode()
        ways: list[tuple[Any, ...]] = [
            ("SET", key, value),
            ("GET", key),
            ("EVAL", "return {redis.call('GET', KEYS[1]), ARGV[1]}", 1, key, own),
            ("HMGET", "none-" + key, *["x"] * (1 + number)),
        ]
        _, *replies = caller.commands(ways)
        if replies != [value, [value, own], [None] * (1 + number)] or caller.command("GET", key) != value:
            self.mixed.append(f"{key}: {replies}")

    def _listen(self, ready: threading.Event) -> None:
        with self._app.events("told", kinds=["pushed"]) as events:
            self._events = events
            ready.set()
            for event in events:
                self._hear("events", None if event.kind == "gap" else int(event.id))

    def _listen_by_web(self, url: str, ready: threading.Event) -> None:
        with (
            contextlib.suppress(httpx.HTTPError),  # the end
            httpx.stream("GET", f"{url}/api/v1/events?queue=told&kinds=pushed", timeout=None) as response,
        ):
            ready.set()
            for line in response.iter_lines():
                if line.startswith("event: gap"):
                    self._hear("events by web", None)
                elif line.startswith("data:") and '"pushed"' in line:
                    self._hear("events by web", int(json.loads(line.removeprefix("data:"))["id"]))

    def _hear(self, name: str, id: int | None) -> None:
        self.heard[name].append(id)
        if id is None:
            self.marks[name][0].fails("gap")
        else:
            self.marks[name][0].works()


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
