"""Suspects: jobs that ran when their node died, which run alone on the next one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker, clock
from lowkiq.job import shard_of
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.suspects import isolation
from lowkiq.node.threads import make_threads
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node, connections_of_node
from tests.node.driven import runtime_of
from tests.queue.shard_driver import ShardDriver
from tests.support import wait_until

SHARDS, THREADS = 6, 3


class Stage:
    """A node's threads and its lease keeper, without the rest of it; and what its jobs saw."""

    def __init__(self, make_app: Callable[..., Lowkiq], **settings: Any) -> None:
        self.app = make_app(threads_per_node=THREADS, poll_interval=0.05, lease_ttl=30, **settings)
        self.during: Callable[[str], Any] = lambda _: None
        self.running: set[str] = set()
        #: Id → what ran when it began, and what was said of it in Redis.
        self.beside: dict[str, set[str]] = {}
        self.marks: dict[str, str | None] = {}
        self.ended: list[str] = []
        stage = self

        @self.app.worker(queue_name="jobs", shards_count=SHARDS)
        class Jobs(Worker):
            def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
                for id in payloads_by_id:
                    stage.perform(id)

        self.worker = Jobs
        self.shards = [ShardDriver(self.app, "jobs", index, SHARDS) for index in range(SHARDS)]

    def perform(self, id: str) -> None:
        self.running.add(id)
        self.beside[id] = self.running - {id}
        self.marks[id] = self.shard(id).owner("alone")
        self.during(id)
        self.running.discard(id)
        self.ended.append(id)

    def shard(self, id: str) -> ShardDriver:
        return self.shards[shard_of(id.encode(), SHARDS)]

    def push(self, *ids: str) -> None:
        self.worker.perform_async([{"id": id} for id in ids])

    def push_suspects(self, *ids: str, crowds: int = 0) -> None:
        for id in ids:
            self.shard(id).redis.hset(self.shard(id).key("crashes"), id, 1)
            self.shard(id).redis.hset(self.shard(id).key("crowds"), id, crowds)
        self.push(*ids)

    def start(self) -> None:
        self.caller = Caller(client_for_node(self.app.settings, connections_of_node(THREADS)))
        runtime = runtime_of(self.app, fatal=self.fail, caller=self.caller)
        self.threads = make_threads(runtime)
        self.isolation = self.threads[0].isolation
        pools = {lease: thread.pool for thread in self.threads for lease in thread.pool.leases}
        self.keeper = LeaseKeeper(runtime, pools, self.threads)
        for thread in (*self.threads, self.keeper):
            thread.start()

    def fail(self, error: BaseException) -> None:
        self.error = error

    def stop(self) -> None:
        for thread in self.threads:
            thread.stop()
        for thread in self.threads:
            thread.join(60)
        self.keeper.stop()
        self.keeper.join(60)
        self.caller.close()
        assert not any(thread.is_alive() for thread in self.threads)
        assert not hasattr(self, "error")

    def wait_for(self, *ids: str) -> None:
        wait_until(lambda: set(ids) <= set(self.ended))

    def crashes(self) -> dict[str, int]:
        return {id: died for shard in self.shards for id, died in shard.crashes().items()}


@pytest.fixture
def stage(make_app: Callable[..., Lowkiq]) -> Iterator[Stage]:
    stage = Stage(make_app)
    yield stage
    stage.stop()


def test_suspects_run_alone_and_redis_knows_which_one_does(stage: Stage) -> None:
    innocents, suspects = [f"innocent-{n}" for n in range(200)], [f"suspect-{n}" for n in range(40)]
    stage.during = lambda _: time.sleep(0.002)
    stage.push(*innocents[:100])
    stage.push_suspects(*suspects)
    stage.push(*innocents[100:])
    stage.start()
    stage.wait_for(*innocents, *suspects)
    assert sorted(stage.ended) == sorted([*innocents, *suspects])
    assert not any(stage.beside[id] for id in suspects)
    assert not any(beside.intersection(suspects) for beside in stage.beside.values())
    assert all((stage.marks[id] or "").partition(" ")[2] == id for id in suspects)
    assert any(stage.beside[id] for id in innocents)
    wait_until(lambda: not stage.crashes())


def test_what_waits_behind_a_suspect_is_pushed_jobs_too(stage: Stage) -> None:
    """Those that a push hands over are held like claimed ones."""
    begun, go_on = threading.Event(), threading.Event()
    stage.during = lambda job: (begun.set(), go_on.wait(60)) if job == "suspect" else None
    stage.push_suspects("suspect")
    stage.start()
    assert begun.wait(60)
    others = [f"innocent-{n}" for n in range(20)]
    for id in others:
        stage.push(id)
    wait_until(lambda: sum(thread.in_hand != [] for thread in stage.threads) >= 2)
    assert not stage.ended
    go_on.set()
    stage.wait_for("suspect", *others)
    assert stage.beside["suspect"] == set()


def test_a_suspect_does_not_wait_for_ever_nor_others_for_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that takes long is in its way: others go on meanwhile, and they are held for longer the next time."""
    monkeypatch.setattr(isolation, "HOLD", 0.1)
    stop = threading.Event()
    stage.during = lambda job: stop.wait(60) if job == "long" else time.sleep(0.01)
    stage.start()
    stage.push("long")
    wait_until(lambda: "long" in stage.running)
    others = [id for id in map(str, range(400)) if stage.shard(id) not in (stage.shard("long"), stage.shard("s"))][:200]
    stage.push_suspects("s")
    stage.push(*others)
    stage.wait_for(*others)
    assert "s" not in stage.ended
    wait_until(lambda: stage.isolation._hold > 0.15)
    stop.set()
    stage.wait_for("long", "s")
    assert stage.beside["s"] == set()


def test_a_suspect_that_takes_long_is_alone_no_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "HOLD", 0.2)
    stop = threading.Event()
    stage.during = lambda job: stop.wait(60) if job == "suspect" else None
    stage.push_suspects("suspect")
    stage.start()
    wait_until(lambda: "suspect" in stage.running)
    others = [id for id in map(str, range(40)) if stage.shard(id) is not stage.shard("suspect")]
    stage.push(*others)
    stage.wait_for(*others)
    assert stage.shard("suspect").owner("alone") is None
    assert all("suspect" in stage.beside[id] for id in others)
    stop.set()
    stage.wait_for("suspect")


def test_it_is_alone_for_longer_each_time_that_was_too_short(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "HOLD", 0.01)
    stop = threading.Event()
    stage.during = lambda job: stop.wait(60) if job == "suspect" else None
    stage.push_suspects("suspect", crowds=12)
    began = clock.monotonic()
    stage.start()
    wait_until(lambda: "suspect" in stage.running)
    suspect = stage.isolation._suspect
    assert suspect is not None
    assert suspect.until - clock.monotonic() < 0.01 * 2**12 < suspect.until - began
    stop.set()
    stage.wait_for("suspect")


def test_a_suspect_that_waits_goes_back_when_its_node_drains(stage: Stage) -> None:
    stop = threading.Event()
    stage.during = lambda _: stop.wait(60)
    stage.start()
    stage.push("long")
    wait_until(lambda: "long" in stage.running)
    suspect = next(id for id in map(str, range(40)) if stage.shard(id) is not stage.shard("long"))
    stage.push_suspects(suspect)
    wait_until(lambda: stage.isolation._holder is not None)
    for thread in stage.threads:
        thread.stop()
    wait_until(lambda: suspect in stage.shard(suspect).queued())
    assert stage.crashes() == {suspect: 1}
    stop.set()


def test_a_suspect_whose_payload_cannot_be_loaded_goes_to_the_morgue(make_app: Callable[..., Lowkiq]) -> None:
    def load(data: bytes) -> Any:
        if bare.shard("a").owner("alone") is None:
            raise AssertionError("it is loaded before it is alone")
        if data == b'"bad"':
            raise ValueError("no such format")
        return data

    bare = Stage(make_app, load_payload=load)
    bare.push_suspects("a")
    bare.worker.perform_async([{"id": "a", "payload": "bad"}])
    bare.worker.perform_async([{"id": "b" if bare.shard("b") is bare.shard("a") else "a", "payload": "x"}])
    bare.start()
    wait_until(lambda: "a" in bare.shard("a").morgue())
    bare.wait_for("a")
    bare.stop()
    assert list(bare.shard("a").morgue()["a"].payloads) == [b'"bad"']
