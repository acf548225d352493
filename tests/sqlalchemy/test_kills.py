"""kill -9 at any point of commit, relay and push: each change arrives, in the order of its id."""

from __future__ import annotations

import importlib
import os
import random
import signal
import time
from itertools import count
from typing import Any

import pytest

from tests.support import LOWKIQ, SOURCES, python_processes, wait_until


@pytest.fixture
def environment(app, database):
    return os.environ | {
        "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace, "DATABASE_URL": database,
        "PYTHONPATH": SOURCES,
    }  # fmt: skip


@pytest.fixture
def world(environment, monkeypatch):
    """The module, made for this test."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    from tests.sqlalchemy import world

    made: Any = importlib.reload(world)
    made.make()
    yield made
    made.engine.dispose()
    made.app.close()


@pytest.fixture
def start(environment, tmp_path):
    """start(*arguments) → a process of Python; all end with the test."""
    with python_processes(environment, tmp_path / "log") as start:
        yield start


def steps(start, what):
    """Runs it again and again, to die at each of its calls in turn; after each death the test looks."""
    for number in count(1):
        code = start("-m", "tests.sqlalchemy.world", "step", what, str(number)).wait(120)
        assert code in {0, -signal.SIGKILL}
        yield number
        if code == 0:
            assert number > 8, "the points to die at are gone"
            return


def relayed(world):
    """All that is in the outbox is sent; returns the payloads of order 1 in Redis."""
    while world.relay.run_once():
        pass
    return [payload for job in world.sync.queries.fetch([1]) for payload in job.payloads]


@pytest.mark.long
def test_a_writer_killed_at_each_of_its_calls_leaves_change_and_job_or_neither(world, start):
    for _ in steps(start, "put"):
        assert relayed(world) == [*range(1, world.versions()[1] + 1)]


@pytest.mark.long
def test_a_relay_killed_at_each_of_its_calls_loses_nothing_and_keeps_the_order(world, start):
    changes = 0

    def change():
        nonlocal changes
        for id in (1, 2, 1):
            world.change(id)
        changes += 2

    change()
    for _ in steps(start, "relay"):
        # All merge: what was sent before the death and is sent again is where it was.
        assert relayed(world) == [*range(1, changes + 1)]
        change()


def in_order(seen, version):
    """
    Whether all changes arrived in order: new ones each after the one before; and when one is repeated, so are all that
    follow, up to the newest.
    """
    follows = all(after <= before + 1 for before, after in zip([0, *seen], seen, strict=False))
    return follows and {*seen} == {*range(1, version + 1)} and (version == 0 or seen[-1] == version)


def test_the_rule_tells_order_from_disorder():
    assert in_order([1, 2, 3], 3)
    assert in_order([1, 2, 1, 2, 3], 3)
    assert not in_order([1, 3, 2], 3)
    assert not in_order([1, 2, 3, 2], 3)
    assert not in_order([1, 2], 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.rare)])
def test_writers_relays_and_a_node_killed_at_any_time(world, start, seed):
    """Two of each, real; every one is killed again and again, and started anew."""
    chance = random.Random(seed)
    kinds = {
        "writer": lambda: ("-m", "tests.sqlalchemy.world", "write", str(chance.randrange(10**6))),
        "relay": lambda: ("-m", "lowkiq.outbox", "tests.sqlalchemy.world:relay"),
        "node": lambda: (*LOWKIQ, "-r", "tests.sqlalchemy.world:app"),
    }
    running = [(kind, start(*kinds[kind]())) for kind in ("writer", "writer", "relay", "relay", "node")]
    wait_until(lambda: all(world.seen(id) for id in world.versions()), "the first changes")
    deadline = time.monotonic() + 25
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.02, 1.2))
        place = chance.randrange(len(running) - (chance.random() < 0.7))  # the node more seldom: its lease has to end
        kind, process = running[place]
        assert process.poll() is None, f"{kind} has ended by itself"
        process.kill()
        process.wait(60)
        running[place] = kind, start(*kinds[kind]())
    for kind, process in running:
        if kind == "writer":
            process.kill()
            process.wait(60)
    versions = world.versions()
    assert sum(versions.values()) > 100
    wait_until(lambda: all(version == 0 or version in world.seen(id) for id, version in versions.items()))
    wait_until(lambda: world.app.metrics()["sync"].length == 0)
    for id, version in versions.items():
        wait_until(
            lambda order=id, version=version: world.seen(order)[-1:] == [version],
            f"the last of {id}",
        )
        assert in_order(world.seen(id), version), (id, version, world.seen(id))
