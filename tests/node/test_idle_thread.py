"""A worker thread that is idle: how pushes hand it jobs, and when they do not."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from lowkiq import Worker
from lowkiq.job import EncodedJob, shard_of
from lowkiq.node.threads import make_threads
from lowkiq.queue.call import Caller
from lowkiq.queue.push_calls import push_call
from lowkiq.transport.connect import client_for_node
from tests.node.driven import acquire, runtime_of
from tests.queue.stamps import once
from tests.support import wait_until


class ListeningCaller(Caller):
    def __init__(self, client):
        super().__init__(client)
        self.trips: list[list[str]] = []

    def run_all(self, calls, replicas=None):
        self.trips.append([call.script for call in calls])
        return super().run_all(calls, replicas)


class Idle:
    """A started thread with two shards that it owns; polls come too late to matter."""

    def __init__(self, app, fatal):
        self.done: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        done, gate = self.done, self.gate

        @app.worker
        class Jobs(Worker):
            shards_count = 2

            def perform(self, payloads_by_id):
                done.extend(payloads_by_id)
                gate.wait(60)

        self.app, self.jobs = app, Jobs
        self.caller = ListeningCaller(client_for_node(app.settings, 4))
        (self.thread,) = make_threads(runtime_of(app, "n", fatal=fatal, caller=self.caller))
        for lease in self.thread.pool.leases:
            self.acquire(lease)
        self.thread.start()
        # A shard that was never looked at has no claim that is open; nor has one whose last jobs turned out slow.
        while not all(lease.is_open for lease in self.thread.pool.leases):
            done.clear()
            self.push(*self.two_ids())
            wait_until(lambda: len(done) == 2 and not self.thread.in_hand)
        done.clear()
        self.wait_until_idle()

    def acquire(self, lease):
        self.thread.pool.wake(acquire(lease, until=1e9), 0.0)

    def wait_until_idle(self):
        wait_until(lambda: self.says_idle() and self.redis_waits() and not self.thread.in_hand)
        self.caller.trips.clear()

    def says_idle(self):
        return any(self.app.redis().scan_iter(match="*:bell:*:idle"))

    def redis_waits(self):
        """Blocked, and not at a ring of before: then it will send nothing until it is rung."""
        return any(row["cmd"] == "blpop" and "b" in row["flags"] for row in self.app.redis().client_list())

    def push(self, *ids):
        self.jobs.perform_async([{"id": id} for id in ids])

    @staticmethod
    def two_ids():
        return [next(id for id in map(str, count()) if shard_of(id.encode(), 2) == n) for n in range(2)]

    def stop(self):
        self.gate.set()
        self.thread.stop()
        self.thread.join(60)
        self.caller.close()


@pytest.fixture
def idle(own_redis_server, make_app):
    errors: list[BaseException] = []
    app = make_app(redis_url=own_redis_server.url, threads_per_node=1, poll_interval=3600, lease_ttl=3600)
    idle = Idle(app, errors.append)
    yield idle
    idle.stop()
    assert not errors


def test_a_pushed_job_comes_with_the_ring(idle):
    idle.push("a")
    wait_until(lambda: idle.done == ["a"] and idle.caller.trips)
    assert idle.caller.trips[0] == ["finish"], "nothing was sent before the job ran"
    wait_until(lambda: idle.app.metrics()["Jobs"].busy == 0)


def test_jobs_of_two_shards_run_though_one_comes_with_the_ring(idle):
    idle.push(*idle.two_ids())
    wait_until(lambda: sorted(idle.done) == sorted(idle.two_ids()))


def test_jobs_in_a_row_come_each_with_its_ring(idle):
    for n in range(20):
        idle.push(str(n))
        wait_until(lambda n=n: len(idle.done) == n + 1)
        idle.wait_until_idle()
    assert idle.done == [str(n) for n in range(20)]


def test_a_payload_that_can_t_be_read_comes_with_the_ring_too(idle):
    idle.app.caller.run(push_call(idle.thread.pool.leases[0].shard, [EncodedJob(b"bad", b"{", "", "")], once()))
    wait_until(lambda: idle.app.metrics()["Jobs"].morgue_length == 1)
    assert idle.done == []


def test_a_job_that_is_handed_over_as_the_connection_is_lost_runs_soon(idle):
    """Whether or not the ring was lost with it: polls, which would come too late here, do not see what is claimed."""
    client, caller = idle.app.redis(), idle.app.caller
    (listener,) = (row["id"] for row in client.client_list() if row["cmd"] == "blpop")
    push = push_call(idle.thread.pool.leases[0].shard, [EncodedJob(b"a", b"1", "", "")], once())
    with client.pipeline(transaction=True) as pipeline:
        pipeline.execute_command("CLIENT", "KILL", "ID", listener)
        pipeline.execute_command(*caller.command_of(push, whole=True))
        pipeline.execute()
    wait_until(lambda: idle.done == ["a"])


def test_a_job_handed_over_into_another_claim_than_its_last_is_found_by_the_next(idle):
    lease = idle.thread.pool.leases[0]
    lease._open = 0  # as if it had sent one since
    idle.app.caller.run(push_call(lease.shard, [EncodedJob(b"a", b"1", "", "")], once()))
    wait_until(lambda: idle.done == ["a"])
    wait_until(lambda: idle.app.metrics()["Jobs"].busy == 0)


def test_a_job_of_which_it_never_heard_is_found_by_a_poll(idle):
    """What it sent long ago came late, and Redis told a connection that is gone."""
    lease = idle.thread.pool.leases[0]
    prefix, client = lease.shard.prefix, idle.app.redis()
    client.hdel(f"{prefix}owner", "waiting", "open")
    client.rpush(f"{prefix}claim", "a", "1700000000.000000:-1:1700000000.000000:1")
    idle.thread.pool.poll_soon()
    wait_until(lambda: idle.done == ["a"])


def test_while_it_is_busy_nothing_is_handed_to_it(idle):
    """A job that waits for a busy thread is in the queue: should the node die, it has not been tried."""
    idle.gate.clear()
    first, second = idle.two_ids()
    idle.push(first)
    wait_until(lambda: idle.done == [first])
    idle.push(second)
    metrics = idle.app.metrics()["Jobs"]
    assert (metrics.busy, metrics.length) == (1, 1)


def test_what_it_has_in_hand_is_settled_before_it_hears_of_more(idle):
    """Two rings have crossed: it is said to be idle, and is not."""
    idle.gate.clear()
    first, second = idle.two_ids()
    idle.push(first)
    wait_until(lambda: idle.done == [first])
    bell = idle.thread.pool._bell
    idle.app.redis().set(f"{bell.key}:idle", 1)
    bell.is_idle, bell._idle_until = True, float("inf")
    idle.push(second)
    assert idle.app.metrics()["Jobs"].busy == 2
    idle.gate.set()
    wait_until(lambda: idle.app.metrics()["Jobs"].busy == 0)
    assert sorted(idle.done) == sorted([first, second])


def test_who_was_told_to_be_quiet_gets_nothing(idle):
    idle.thread.quiet()
    wait_until(lambda: idle.thread.is_calm)
    idle.push("a")
    metrics = idle.app.metrics()["Jobs"]
    assert (metrics.busy, metrics.length, idle.done) == (0, 1, [])


def test_a_job_handed_over_before_it_was_to_be_quiet_runs(idle):
    """It is in hand, whoever knows."""
    idle.gate.clear()
    first, second = idle.two_ids()
    idle.push(first)
    wait_until(lambda: idle.done == [first])
    idle.thread.quiet()
    idle.gate.set()
    wait_until(lambda: idle.app.metrics()["Jobs"].busy == 0)
    idle.push(second)
    metrics = idle.app.metrics()["Jobs"]
    assert (metrics.busy, metrics.length, idle.done) == (0, 1, [first])


def test_a_shard_acquired_later_gets_jobs_too(idle):
    lease = idle.thread.pool.leases[0]
    _, release = lease.leave_call()
    idle.app.caller.run(release)
    idle.acquire(lease)
    wait_until(lambda: lease.is_open)
    idle.wait_until_idle()
    idle.push(*idle.two_ids())
    wait_until(lambda: sorted(idle.done) == sorted(idle.two_ids()))


def test_jobs_that_come_between_its_end_and_the_release_are_not_lost(idle):
    """What Redis did for the thread that is gone is given back with the lease."""
    idle.thread.stop()
    idle.thread.join(60)
    idle.push("a")
    for lease in idle.thread.pool.leases:
        _, call = lease.leave_call()
        idle.app.caller.run(call)
    metrics = idle.app.metrics()["Jobs"]
    assert (metrics.busy, metrics.length) == (0, 1)
