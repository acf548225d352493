"""TroubledShop: the shop of six workers under load, before two browsers, for whatever is done to it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from playwright.sync_api import Browser

from lowkiq import Lowkiq
from tests.browser.six_workers import Load, write_app
from tests.browser.watch import Watch
from tests.harness import Supervised
from tests.support import LOWKIQ, free_port, running_redis

NODES = 4
#: Seconds by which a queue is late in this shop: a minute, as by default, would take a third of the time.
LATE = 10.0


class TroubledShop:
    """
    A supervisor of four nodes with its web view, and a web view that outlives it. Each is watched by a browser with
    only its overview open.
    """

    def __init__(self, directory: Path, browser: Browser) -> None:
        self.directory, self._browser = directory, browser
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/"
        write_app(directory)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.redis = stack.enter_context(running_redis("--appendonly", "yes", "--appendfsync", "everysec"))
            self.environment = {"REDIS_URL": self.redis.url, "LOWKIQ_ALERT_LAG": str(LATE)}
            stack.callback(lambda: self.supervisor.__exit__(None))
            self.start()
            self.app = Lowkiq(redis_url=self.redis.url)
            stack.callback(self.app.close)
            beside = self.directory / "beside"
            beside.mkdir()
            arguments = [*LOWKIQ, "web", "--no-auth", "--bind", "127.0.0.1:0"]
            view = stack.enter_context(Supervised(beside, arguments, self.environment))
            lasting = str(view.until_logged("web_ready")[0]["url"])
            self.watches = [self._open("supervised", self.url), self._open("lasting", lasting)]
            self.load = Load(self.redis.url)
            self.load.start()
            stack.callback(self.load.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Starts the supervisor, and waits until its nodes and its view are there."""
        web = ("--web", f"127.0.0.1:{self._port}", "--web-no-auth")
        # Numbered, as two of the faults are of numbers.
        numbers = ("--nodes", str(NODES), "--number-of-nodes", str(NODES))
        options = ("-r", "shop", *numbers, "--drain-timeout", "5", *web)
        self.supervisor = Supervised.main(self.directory, *options, **self.environment).ready(NODES)
        self.supervisor.until_logged("web_ready")

    def pid(self, number: int) -> int:
        """The process of a node."""
        return next(node.pid for node in self.app.nodes().nodes if node.node_number == number)

    def _open(self, name: str, url: str) -> Watch:
        page = self._browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(url)
        return Watch(name, page)
