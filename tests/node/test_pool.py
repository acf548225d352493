"""Threads of a pool: whichever is free runs what is due, and other ids of a shard beside a job that lasts."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict

import pytest

from lowkiq import current
from lowkiq.job import shard_of
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.leases.claim_size import ClaimSize
from lowkiq.node.threads import make_threads
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node, connections_of_node
from tests.node.driven import acquire, runtime_of
from tests.support import wait_until

SHARDS, THREADS = 6, 2


class Running:
    """The threads of a node that owns all shards of a queue; jobs wait for the gate that their payload names."""

    def __init__(self, app, fatal, concurrency):
        self.gates = defaultdict(threading.Event)
        self.done: list[str] = []
        self.ran_on: dict[str, str] = {}
        self.act = self.wait_for_gates

        @app.worker(queue_name="jobs", shards_count=SHARDS, concurrency=concurrency)
        def jobs(payloads_by_id):
            self.act(payloads_by_id)

        self.app, self.jobs = app, jobs
        self.caller = Caller(client_for_node(app.settings, connections_of_node(4)))
        runtime = runtime_of(app, "n", fatal=fatal, caller=self.caller)
        self.threads = make_threads(runtime)
        pools = {lease: thread.pool for thread in self.threads for lease in thread.pool.leases}
        for lease, pool in pools.items():
            pool.wake(acquire(lease, until=1e9), 0.0)
        self.keeper = LeaseKeeper(runtime, pools, self.threads)

    def start(self, *threads):
        for thread in threads or (*self.threads, self.keeper):
            thread.start()

    def wait_for_gates(self, payloads_by_id):
        for id, payloads in payloads_by_id.items():
            self.ran_on[id] = threading.current_thread().name
            for payload in payloads:
                assert payload is None or self.gates[payload].wait(60)
            self.done.append(id)

    def push(self, *ids, payload=None):
        self.jobs.perform_async([{"id": id, "payload": payload} for id in ids])

    def stick(self, gate):
        """Has a thread run a long job of the first shard."""
        (stuck,) = self.ids_of(0)
        self.push(stuck, payload=gate)
        wait_until(lambda: stuck in self.ran_on)

    @staticmethod
    def ids_of(shard, count=1):
        """So many ids of a shard."""
        ids = (str(number) for number in itertools.count())
        return list(itertools.islice((id for id in ids if shard_of(id.encode(), SHARDS) == shard), count))

    def run_some(self, id):
        """Pushes it three times, each when the one before is done: by then the node has looked for what there is."""
        for _ in range(3):
            count = len(self.done)
            self.push(id)
            wait_until(lambda count=count: len(self.done) > count)

    def wait_for(self, *ids):
        wait_until(lambda: sorted(self.done) == sorted(ids))

    def stop(self):
        for thread in self.threads:
            thread.stop()
        for gate in self.gates.values():
            gate.set()
        self.keeper.stop()
        for thread in (*self.threads, self.keeper):
            thread.join(60)
        self.caller.close()


@pytest.fixture
def make_running(own_redis_server, make_app):
    errors: list[BaseException] = []
    made: list[Running] = []

    def make(starts=True, concurrency=None, **settings):
        """Polls come too late to matter."""
        settings = {"poll_interval": 3600, "threads_per_node": THREADS, "lease_ttl": 3600} | settings
        app = make_app(redis_url=own_redis_server.url, **settings)
        made.append(Running(app, errors.append, concurrency))
        if starts:
            made[-1].start()
        return made[-1]

    yield make
    for running in made:
        running.stop()
    assert not errors


@pytest.fixture
def stuck(make_running):
    """A thread is inside a job of the first shard."""
    running = make_running()
    running.stick("long")
    return running


def test_all_other_shards_run_on_the_thread_that_is_free(stuck):
    others = [id for shard in range(1, SHARDS) for id in stuck.ids_of(shard)]
    stuck.push(*others)
    stuck.wait_for(*others)
    assert len({stuck.ran_on[id] for id in others}) == 1


def test_so_do_other_ids_of_its_shard(stuck):
    _, *others = stuck.ids_of(0, 20)
    for id in others:
        stuck.push(id)
    stuck.wait_for(*others)


def test_what_is_pushed_to_its_id_waits_for_it(stuck):
    first, other = stuck.ids_of(0, 2)
    stuck.push(first)
    stuck.run_some(other)
    assert first not in stuck.done
    stuck.gates["long"].set()
    wait_until(lambda: stuck.done.count(first) == 2)


def test_what_it_has_claimed_and_not_started_runs_on_others(make_running, monkeypatch):
    """Of its own shard, and of others."""
    monkeypatch.setattr(ClaimSize, "shards", SHARDS)
    monkeypatch.setattr(ClaimSize, "share", lambda self, shards: 10)
    running = make_running(starts=False)
    stuck, *others = (id for shard in range(SHARDS) for id in running.ids_of(shard, 5))
    running.push(stuck, payload="long")
    running.push(*others)
    first, second = running.threads
    running.start(first, running.keeper)
    wait_until(lambda: stuck in running.ran_on)
    running.start(second)
    running.wait_for(*others)


def test_so_does_what_waits_behind_a_job_that_turns_out_slow_late(make_running):
    """Others have looked before, when all was quick, and found nothing else to do."""
    running = make_running()
    stuck, last, *quick = running.ids_of(0, 60)
    act = running.act

    def act_after_a_while(payloads_by_id):
        time.sleep(0.0005)
        act(payloads_by_id)

    running.act = act_after_a_while
    payloads = dict.fromkeys(quick) | {stuck: "long", last: None}
    running.jobs.perform_async([{"id": id, "payload": payload} for id, payload in payloads.items()])
    running.wait_for(*quick, last)


def test_and_so_does_a_shard_of_which_all_was_done_before(make_running, monkeypatch):
    monkeypatch.setattr(ClaimSize, "shards", SHARDS)
    running = make_running(starts=False)
    (done,), (first,) = running.ids_of(0), running.ids_of(1)
    running.push(done)
    running.push(first, payload="long")
    running.start()
    wait_until(lambda: first in running.ran_on)
    running.push(done)
    wait_until(lambda: running.done == [done, done])


def test_with_a_concurrency_of_one_other_ids_of_the_shard_wait(make_running):
    running = make_running(concurrency=1)
    running.stick("long")
    first, other = running.ids_of(0, 2)
    (elsewhere,) = running.ids_of(1)
    running.push(other)
    running.run_some(elsewhere)
    assert other not in running.done
    running.gates["long"].set()
    wait_until(lambda: {first, other} <= set(running.done))


def test_when_all_threads_are_stuck_jobs_wait_and_none_is_lost(stuck):
    first, second, *others = stuck.ids_of(0, 20)
    stuck.push(second, payload="long")
    wait_until(lambda: second in stuck.ran_on)
    stuck.push(*others)
    stuck.gates["long"].set()
    stuck.wait_for(first, second, *others)


def test_a_ring_is_heard_though_all_threads_are_busy_with_other_shards(make_running):
    """One shard has work for ever; what is pushed to another must not wait until it ends."""
    running = make_running()
    busy, (other,) = running.ids_of(0, 12), running.ids_of(1)
    begun, enough = threading.Semaphore(0), threading.Event()

    def act(payloads_by_id):
        running.done.extend(payloads_by_id)
        if other not in payloads_by_id and not enough.is_set():
            running.push(*payloads_by_id)
            begun.release()

    running.act = act
    running.push(*busy)
    for _ in range(50):
        assert begun.acquire(timeout=30)
    running.push(other)
    wait_until(lambda: other in running.done)
    enough.set()


def test_a_splitter_of_the_users_keeps_its_shards_apart(make_running):
    running = make_running(build_splitter=lambda *_: lambda shards: [shards[0::2], shards[1::2]])
    running.stick("long")
    (other,), (elsewhere,) = running.ids_of(2), running.ids_of(1)
    running.push(other)
    running.run_some(elsewhere)
    assert other not in running.done
    running.gates["long"].set()
    wait_until(lambda: other in running.done)


class Watching:
    """Performs jobs some of which last, at random, and notes what meets itself."""

    def __init__(self):
        self.running: dict[object, int] = defaultdict(int)
        self.got: dict[str, list[int]] = defaultdict(list)
        self.met: set[object] = set()
        self.chance = random.Random(1)

    def __call__(self, payloads_by_id):
        present = [current().shard, *payloads_by_id]
        for one in present:
            self.running[one] += 1
            if self.running[one] > 1:
                self.met.add(one)
        time.sleep(self.chance.choice([0, 0.001, 0.001, 0.02]))
        for id, payloads in payloads_by_id.items():
            self.got[id] += payloads
        for one in present:
            self.running[one] -= 1


@pytest.mark.parametrize("shards", [1, SHARDS])
@pytest.mark.parametrize("concurrency", [None, 1, 2])
def test_an_id_never_meets_itself_and_its_payloads_keep_their_order(make_running, monkeypatch, shards, concurrency):
    monkeypatch.setattr(ClaimSize, "shards", shards)
    running = make_running(threads_per_node=4, concurrency=concurrency, poll_interval=0.02, claim_window=0.01)
    running.act = watching = Watching()
    pushed: dict[str, list[int]] = defaultdict(list)
    for number in range(600):
        id = f"id {number % 29}"
        running.push(id, payload=number)
        pushed[id].append(number)
    wait_until(lambda: sum(map(len, watching.got.values())) == 600)
    assert watching.got == pushed
    shards_met = {one for one in watching.met if isinstance(one, int)}
    assert not watching.met - shards_met
    assert bool(shards_met) == (concurrency != 1), "nothing was tried"
