"""What a node tells its supervisor of its work: how full it is, and how late the oldest job that it knows of."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from lowkiq.node.health.load import Load, load_of
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.threads import make_threads
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node, connections_of_node
from tests.node.driven import acquire, runtime_of
from tests.support import wait_until


class Working:
    """The threads of a node that owns a shard of each of two queues, whose jobs wait for a gate; one queue is async."""

    def __init__(self, app):
        self.gate = threading.Event()

        @app.worker(queue_name="jobs", shards_count=1)
        def jobs(payloads_by_id):
            assert self.gate.wait(60)

        @app.worker(queue_name="tasks", shards_count=1, concurrency=4)
        async def tasks(payloads_by_id):
            while not self.gate.is_set():
                await asyncio.sleep(0.005)

        self.jobs, self.tasks = jobs, tasks
        self.caller = Caller(client_for_node(app.settings, connections_of_node(4)))
        self.runtime = runtime_of(app, "n", caller=self.caller)
        self.threads = make_threads(self.runtime)
        self.pools = {lease: thread.pool for thread in self.threads for lease in thread.pool.leases}
        self.keeper = LeaseKeeper(self.runtime, self.pools, self.threads)

    def start(self):
        for lease, pool in self.pools.items():
            acquire(lease, until=1e9)
            pool.wake(lease, time.monotonic())
        for thread in (*self.threads, self.keeper):
            thread.start()
        return self

    def until(self, condition):
        wait_until(lambda: condition(load_of(self.threads)), f"{load_of(self.threads)}")

    def stop(self):
        self.gate.set()
        for thread in self.threads:
            thread.stop()
        self.keeper.stop()
        for thread in (*self.threads, self.keeper):
            if thread.is_alive():
                thread.join(60)
        self.runtime.loop.close()
        self.caller.close()


@pytest.fixture
def working(make_app):
    made = Working(make_app(poll_interval=0.05, threads_per_node=2, lease_ttl=3600))
    yield made
    made.stop()


def push(worker, count, **when):
    worker.perform_async([{"id": f"id-{number}", "payload": 0, **when} for number in range(count)])


def test_before_it_has_any_shard_it_is_empty_and_nothing_is_late(working):
    push(working.jobs, 9)
    assert load_of(working.threads) == Load(busy=0, jobs=0, waits=0, full=0, late=0)


def test_with_all_threads_inside_jobs_it_is_full_and_what_waits_behind_them_grows_late(working):
    push(working.jobs, 9)
    working.start()
    working.until(lambda load: load.full == 1000 and load.late > 20)
    before = load_of(working.threads).late
    working.until(lambda load: load.late > before + 20)
    working.gate.set()
    working.until(lambda load: (load.jobs, load.full, load.late) == (9, 0, 0))


def test_with_jobs_for_all_threads_and_no_more_it_is_full_and_nothing_late(working):
    push(working.jobs, 2)
    working.start()
    working.until(lambda load: load.busy == 2)
    wait_until(lambda: all(lease.due_at > time.monotonic() or lease.is_busy for lease in working.pools))
    assert load_of(working.threads)[3:] == (1000, 0)


def test_half_of_the_threads_are_half_full(working):
    push(working.jobs, 1)
    working.start()
    working.until(lambda load: (load.full, load.late) == (500, 0))


def test_a_job_that_is_due_later_is_not_late(working):
    push(working.jobs, 3, perform_in=time.time() + 3600)
    working.start()
    working.until(lambda load: all(lease.queued_for > time.monotonic() for lease in working.pools))
    assert load_of(working.threads).late == 0


def test_tasks_fill_the_places_of_their_shards_whoever_of_the_threads_is_idle(working):
    push(working.tasks, 3)
    working.start()
    working.until(lambda load: (load.busy, load.full, load.late) == (3, 750, 0))
    push(working.tasks, 9)
    working.until(lambda load: load.full == 1000 and load.late > 20)
    working.gate.set()
    working.until(lambda load: (load.full, load.late) == (0, 0))
