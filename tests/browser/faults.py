"""What goes wrong in a shop, and what its page is to say of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from tests.browser.six_workers import write_app
from tests.browser.troubled_shop import LATE, NODES, TroubledShop
from tests.harness import Supervised


@contextmanager
def overload(shop: TroubledShop) -> Iterator[None]:
    shop.load.overload(4 * LATE)
    yield


@contextmanager
def failing_worker(shop: TroubledShop) -> Iterator[None]:
    broken = shop.directory / "broken"
    broken.touch()
    yield
    broken.unlink()


@contextmanager
def killed_node(shop: TroubledShop) -> Iterator[None]:
    os.kill(shop.pid(1), signal.SIGKILL)
    yield


@contextmanager
def deadly_job(shop: TroubledShop) -> Iterator[None]:
    shop.load.kill()
    yield


@contextmanager
def stopped_node(shop: TroubledShop) -> Iterator[None]:
    """Its supervisor ends it after half a minute of silence."""
    os.kill(shop.pid(2), signal.SIGSTOP)
    yield


@contextmanager
def doubled_number(shop: TroubledShop) -> Iterator[None]:
    directory = shop.directory / "double"
    directory.mkdir(exist_ok=True)
    write_app(directory)
    options = ("-r", "shop", "--nodes", "1", "--node-number", "3", "--number-of-nodes", str(NODES))
    with Supervised.main(directory, *options, **shop.environment).ready(1) as double:
        yield
        double.end()


@contextmanager
def hanging_redis(shop: TroubledShop) -> Iterator[None]:
    shop.redis.pause()
    try:
        yield
    finally:
        shop.redis.resume()


@contextmanager
def ended_supervisor(shop: TroubledShop) -> Iterator[None]:
    shop.supervisor.send(signal.SIGKILL)
    shop.supervisor.exit_code()
    yield
    shop.supervisor.nothing_is_left()
    shop.supervisor.__exit__()
    shop.start()


class Fault(NamedTuple):
    """One thing that goes wrong."""

    name: str
    happens: Callable[[TroubledShop], AbstractContextManager[None]]
    #: What the supervisor's page says, and what the other; "" if it is over before there is anything to do.
    says: tuple[str, str]
    #: Seconds that it goes on after it was said.
    lasts: float = 10.0
    #: Seconds after its beginning since when it is so, for people.
    since: float = 0.0
    #: What the page of incidents says afterwards.
    incident: str = ""


def both(text: str) -> tuple[str, str]:
    return text, text


FAULTS = {
    "late": Fault("a queue gets more than it can do", overload, both(r"^late queue.*slow"), 0, LATE),
    "failing": Fault("a worker fails always", failing_worker, both(r"^failing queue.*failing"), 5),
    "killed": Fault("kill -9 of a node", killed_node, both(""), incident="SIGKILL"),
    "deadly": Fault("a job kills its process", deadly_job, both(""), incident="SIGKILL"),
    "stopped": Fault("SIGSTOP of a node", stopped_node, both(r"^late\b(?! queue).*2 on ")),
    "doubled": Fault("a node number twice", doubled_number, both(r"^doubled.*number 3")),
    "redis": Fault("Redis hangs", hanging_redis, both(r"^stale .*Redis .*does not answer")),
    "supervisor": Fault(
        "kill -9 of the whole supervisor: nothing runs", ended_supervisor,
        (r"^stale .*can.t be reached", r"^no nodes.*nothing runs"),
    ),
}  # fmt: skip


#: Faults that take nodes away, and what may be said meanwhile.
MAY_LOSE_NODES = {killed_node, deadly_job, stopped_node, ended_supervisor, hanging_redis}
#: Those that show each kind of staleness and of alert within two minutes.
SHORTEST = ("failing", "doubled", "redis", "supervisor")
