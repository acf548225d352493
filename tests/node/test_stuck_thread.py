"""A worker thread inside a long job: other threads run its other shards, each of them one thread at a time."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import pytest

from lowkiq import current
from lowkiq.job import shard_of
from lowkiq.node.claim_size import ClaimSize
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.threads import make_threads, split_by_node
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node
from tests.node.driven import acquire, runtime_of
from tests.support import wait_until

SHARDS, THREADS = 6, 2


class Running:
    """The threads of a node that owns all shards of a queue; jobs wait for the gate that their payload names."""

    def __init__(self, app, fatal):
        self.gates = defaultdict(threading.Event)
        self.done: list[str] = []
        self.ran_on: dict[str, str] = {}
        self.act = self.wait_for_gates

        @app.worker(queue_name="jobs", shards_count=SHARDS)
        def jobs(payloads_by_id):
            self.act(payloads_by_id)

        self.app, self.jobs = app, jobs
        self.caller = Caller(client_for_node(app.settings, THREADS + 4))
        runtime = runtime_of(app, "n", fatal=fatal, caller=self.caller)
        self.threads = make_threads(runtime)
        own_threads = {lease: thread for thread in self.threads for lease in thread.leases}
        for lease, thread in own_threads.items():
            thread.wake(acquire(lease, until=1e9), 0.0)
        self.keeper = LeaseKeeper(runtime, own_threads)

    def start(self):
        for thread in (*self.threads, self.keeper):
            thread.start()

    def wait_for_gates(self, payloads_by_id):
        for id, payloads in payloads_by_id.items():
            self.ran_on[id] = threading.current_thread().name
            for payload in payloads:
                assert payload is None or self.gates[payload].wait(60)
            self.done.append(id)

    def stick(self, thread):
        """Has it run a long job; gives the id of that, and one for each of its other shards."""
        stuck, *others = self.ids_of(thread)
        self.push(stuck, "long")
        wait_until(lambda: stuck in self.ran_on)
        return stuck, *others

    def push(self, id, payload=None):
        self.jobs.perform_async([{"id": id, "payload": payload}])

    def ids_of(self, thread):
        ids = {shard_of(str(number).encode(), SHARDS): str(number) for number in range(1000)}
        return [ids[lease.shard.index] for lease in self.threads[thread].leases]

    def stop(self):
        for thread in self.threads:
            thread.stop()
        for gate in self.gates.values():
            gate.set()
        self.keeper.stop()
        for thread in (*self.threads, self.keeper):
            thread.join(60)
        self.caller.close()


def wait_for_polls_of(thread):
    """A few: it has looked for what there is to do."""
    before = thread._next_poll_at
    wait_until(lambda: thread._next_poll_at > before + 3 * thread._poll_interval)


@pytest.fixture
def make_running(own_redis_server, make_app):
    errors: list[BaseException] = []
    made: list[Running] = []

    def make(starts=True, **settings):
        settings = {"poll_interval": 0.1, "threads_per_node": THREADS, "lease_ttl": 3600} | settings
        app = make_app(redis_url=own_redis_server.url, **settings)
        made.append(Running(app, errors.append))
        if starts:
            made[-1].start()
        return made[-1]

    yield make
    for running in made:
        running.stop()
    assert not errors


def test_the_shards_of_a_thread_that_is_stuck_run_on_another(make_running):
    running = make_running()
    stuck, *others = running.stick(0)
    for id in others:
        running.push(id)
    wait_until(lambda: sorted(running.done) == sorted(others))
    assert running.ran_on[stuck] == "lowkiq-worker-0"
    assert {running.ran_on[id] for id in others} == {"lowkiq-worker-1"}


def test_so_do_those_whose_jobs_were_claimed_along_with_the_one_it_is_stuck_in(make_running, monkeypatch):
    monkeypatch.setattr(ClaimSize, "shards", SHARDS)
    running = make_running(starts=False)
    stuck, *others = running.ids_of(0)
    running.push(stuck, "long")
    for id in others:
        running.push(id)
    running.start()
    wait_until(lambda: sorted(running.done) == sorted(others))
    assert running.ran_on[stuck] == "lowkiq-worker-0"
    assert {running.ran_on[id] for id in others} == {"lowkiq-worker-1"}


def test_and_those_of_which_all_was_done_before_it_got_stuck(make_running, monkeypatch):
    monkeypatch.setattr(ClaimSize, "shards", SHARDS)
    running = make_running(starts=False)
    done, stuck, _ = running.ids_of(0)
    running.push(done)
    running.push(stuck, "long")
    running.start()
    wait_until(lambda: stuck in running.ran_on)
    running.push(done)
    wait_until(lambda: running.done == [done, done])
    assert running.ran_on[done] == "lowkiq-worker-1"


def test_jobs_of_the_shard_itself_wait(make_running):
    """They may be of the same id."""
    running = make_running()
    stuck, other, _ = running.stick(0)
    running.push(stuck)
    for _ in range(3):
        running.push(other)
        count = len(running.done)
        wait_until(lambda count=count: len(running.done) > count)
    assert stuck not in running.done
    running.gates["long"].set()
    wait_until(lambda: running.done.count(stuck) == 2)


def test_a_thread_that_is_free_again_runs_its_shards_itself(make_running):
    running = make_running()
    stuck, other, _ = running.stick(0)
    running.push(other)
    wait_until(lambda: other in running.done)
    running.gates["long"].set()
    wait_until(lambda: stuck in running.done)
    running.push(other)
    wait_until(lambda: running.done.count(other) == 2)
    assert running.ran_on[other] == "lowkiq-worker-0"


def test_it_does_not_run_what_another_thread_runs_for_it(make_running):
    running = make_running()
    stuck, other, _ = running.stick(0)
    running.push(other, "longer")
    wait_until(lambda: other in running.ran_on)
    running.gates["long"].set()
    running.push(other)
    wait_until(lambda: stuck in running.done)
    wait_for_polls_of(running.threads[0])
    assert other not in running.done
    running.gates["longer"].set()
    wait_until(lambda: running.done.count(other) == 2)


def test_when_all_threads_are_stuck_jobs_wait_and_none_is_lost(make_running):
    running = make_running()
    (first, *firsts), (second, *seconds) = running.stick(0), running.stick(1)
    for id in (*firsts, *seconds):
        running.push(id)
    running.gates["long"].set()
    wait_until(lambda: sorted(running.done) == sorted([first, second, *firsts, *seconds]))


def test_a_splitter_of_the_users_keeps_its_shards_apart(make_running):
    running = make_running(build_splitter=lambda *numbers: lambda shards: split_by_node(shards, *numbers))
    _, other, _ = running.stick(0)
    running.push(other)
    wait_for_polls_of(running.threads[1])
    assert other not in running.done
    running.gates["long"].set()
    wait_until(lambda: other in running.done)


class Watching:
    """Performs jobs that take longer than threads are patient, at random, and notes which shards meet themselves."""

    def __init__(self, threads):
        self.threads = threads
        self.running: dict[int, int] = defaultdict(int)
        self.got: dict[str, list[int]] = defaultdict(list)
        self.overlaps: list[int] = []
        self.handed_off = 0
        self.chance = random.Random(1)

    def __call__(self, payloads_by_id):
        shard = current().shard
        self.running[shard] += 1
        if self.running[shard] > 1:
            self.overlaps.append(shard)
        own = next(t for t in self.threads for lease in t.leases if lease.shard.index == shard)
        self.handed_off += threading.current_thread() is not own
        time.sleep(self.chance.choice([0, 0.001, 0.001, 0.06]))
        for id, payloads in payloads_by_id.items():
            self.got[id] += payloads
        self.running[shard] -= 1


@pytest.mark.parametrize("shards", [1, SHARDS])
def test_a_shard_never_runs_on_two_threads(make_running, monkeypatch, shards):
    monkeypatch.setattr(ClaimSize, "shards", shards)
    running = make_running(poll_interval=0.02, claim_window=0.01)
    running.act = watching = Watching(running.threads)
    pushed: dict[str, list[int]] = defaultdict(list)
    for number in range(600):
        id = f"id {number % 29}"
        running.push(id, number)
        pushed[id].append(number)
    wait_until(lambda: sum(map(len, watching.got.values())) == 600, within=60)
    assert watching.handed_off, "nothing was tried"
    assert not watching.overlaps
    assert watching.got == pushed
