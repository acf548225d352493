"""The program of the tests' nodes."""

from __future__ import annotations

#: What a node of the tests runs. Payloads are mappings that say what their job does.
SCRIPT = """
import asyncio, contextlib, json, multiprocessing, os, resource, signal, subprocess, sys, time
from redis.exceptions import RedisError
from lowkiq import Lowkiq, PartialFailure, Worker, current
from lowkiq.admin.past import history
from lowkiq.log import configure
from lowkiq.node.health import heartbeat
from lowkiq.node.health.housekeeping import Housekeeping
from lowkiq.node import spares
from lowkiq.node.helpers import fork_server
from lowkiq.node.node import Node

options = json.loads(os.environ["TEST_OPTIONS"])
records = f"{os.environ['LOWKIQ_NAMESPACE']}:records"
configure("debug")
# Five times as often as elsewhere: many tests wait for what a beat tells.
heartbeat.BEAT_INTERVAL = history.SAMPLE_INTERVAL = 1
spares.AWAY_AFTER = options.get("away_after", spares.AWAY_AFTER)
if not options.get("fosters_unasked", True):
    Housekeeping._foster = lambda *_: None
if "pairs" in options:  # so many can be had between the node and other processes
    pairs = [fork_server.pair] * options["pairs"]
    fork_server.pair = lambda: pairs.pop()()
if "address_space" in options:
    resource.setrlimit(resource.RLIMIT_AS, (options["address_space"],) * 2)


def record(what, *details):
    app.redis().rpush(records, json.dumps([what, os.getpid(), *details]))


def load(data):
    if b"undecodable" in data:
        raise ValueError("no such format")
    return json.loads(data)


def wait_for(key):
    app.redis().set(f"{key}:reached", 1)
    while not app.redis().exists(key):
        time.sleep(0.01)


async def sleep_beside(key):
    async def fetch():
        await asyncio.sleep(300)

    task = asyncio.create_task(fetch(), name="fetch-prices")
    await asyncio.sleep(0)
    app.redis().set(key, 1)
    await task


def act(id, payload):
    if "progress" in payload:
        current().progress(*payload["progress"])
    if "checkpoint" in payload:
        record("found", id, current().checkpoint_value)
        current().checkpoint(payload["checkpoint"])
    if "sleep" in payload:
        time.sleep(payload["sleep"])
    if "gate" in payload:
        wait_for(f"{records}:{payload['gate']}")
    if "until_lost" in payload:
        while not current().lease_lost:
            time.sleep(0.01)
        record("lost", id)
    if "until_cancelled" in payload:
        while not current().cancelled:
            time.sleep(0.01)
        record("was_cancelled", id)
    if "fork" in payload:
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
        child.start()
        os.kill(child.pid, payload["fork"])
        child.join(30)
        record("forked", child.exitcode)
        child.kill()
    if "tasks" in payload:
        asyncio.run(sleep_beside(f"{records}:{payload['tasks']}:reached"))
    if "run" in payload:
        record("ran", subprocess.run(payload["run"], capture_output=True, text=True).stdout)
    if "kill" in payload:
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in payload:
        sys.exit(payload["exit"])
    if "push" in payload:
        Jobs.perform_async(payload["push"])
    if "eat" in payload:
        bytearray(payload["eat"])
    if "recurse" in payload:
        act(id, payload)
    if "failures" in payload and app.redis().incr(f"{records}:{id!a}:tries") <= payload["failures"]:
        raise ValueError(f"{id} is to fail")


async def act_async(id, payload):
    # What must not block the loop; the rest as on a thread.
    if "progress" in payload:
        current().progress(*payload.pop("progress"))
    if "checkpoint" in payload:
        record("found", id, current().checkpoint_value)
        await current().checkpoint(payload["checkpoint"])
    if "sleep" in payload:
        await asyncio.sleep(payload["sleep"])
    if "gate" in payload:
        app.redis().set(f"{records}:{payload['gate']}:reached", 1)
        while not app.redis().exists(f"{records}:{payload['gate']}"):
            await asyncio.sleep(0.01)
    while "stubborn" in payload:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(300)
    if "own_cancel" in payload:
        asyncio.current_task().cancel()
        await asyncio.sleep(1)
    act(id, {key: value for key, value in payload.items() if key not in {"sleep", "gate", "checkpoint"}})


#: Ids that jobs of this process are at.
running = set()
#: The event loop on which the node was made ready.
loops = []


async def init():
    loops.append(asyncio.get_running_loop())
    record("init")


def hear(worker, batch, call):
    try:
        call()
    except Exception as error:
        record("heard", [job.id for job in batch], f"{type(error).__name__}: {error}")
        raise


app = Lowkiq(
    server_middlewares=[hear] if "hears" in options else [],
    load_payload=load,
    last_words=lambda error: record("last_words", type(error).__name__, str(error)),
    on_server_init=init if options.get("asynchronous") else lambda: record("init"),
)


@app.worker
class Jobs(Worker):
    queue_name = "jobs"
    shards_count = options.get("shards_count", 3)
    batch_size = options.get("batch_size", 1)
    concurrency = options.get("concurrency")
    max_running = options.get("max_running")
    max_retry_count = options.get("max_retry_count", 25)
    perform_timeout = options.get("perform_timeout")
    isolation = options.get("isolation", "thread")

    def retry_in(self, retry_count):
        with contextlib.suppress(RedisError):  # Redis may be what made the job fail
            record("retry_in", retry_count)
        return options.get("retry_in", 0.05)

    def perform(self, payloads_by_id):
        context = current()
        record("start", payloads_by_id, context.epoch, context.shard, context.attempt)
        failed = {}
        if twice := running.intersection(payloads_by_id):
            record("overlap", sorted(twice))
        running.update(payloads_by_id)
        try:
            self.act_all(payloads_by_id, failed)
        finally:
            running.difference_update(payloads_by_id)
        record("end", payloads_by_id, context.epoch, context.shard, context.attempt)
        if failed:
            raise PartialFailure(failed)

    def act_all(self, payloads_by_id, failed):
        for id, payloads in payloads_by_id.items():
            try:
                for payload in payloads:
                    act(id, payload)
            except ValueError as error:
                failed[id] = error

    def retries_exhausted(self, batch):
        record("exhausted", [[job.id, job.payloads, job.error] for job in batch])
        if options.get("exhausted"):
            act("", options["exhausted"])

    async def perform_async_jobs(self, payloads_by_id):
        context = current()
        record("start", payloads_by_id, context.epoch, context.shard, context.attempt)
        assert asyncio.get_running_loop() is loops[0]
        failed = {}
        if twice := running.intersection(payloads_by_id):
            record("overlap", sorted(twice))
        running.update(payloads_by_id)
        try:
            for id, payloads in payloads_by_id.items():
                try:
                    for payload in payloads:
                        await act_async(id, payload)
                except ValueError as error:
                    failed[id] = error
        except asyncio.CancelledError:
            record("cancelled", payloads_by_id)
            raise
        finally:
            running.difference_update(payloads_by_id)
        record("end", payloads_by_id, context.epoch, context.shard, context.attempt)
        if failed:
            raise PartialFailure(failed)

    if options.get("asynchronous"):
        perform = perform_async_jobs


if "others" in options:

    @app.worker(queue_name="others", shards_count=options["others"])
    def others(payloads_by_id):
        record("start", payloads_by_id)


sys.exit(Node(app, **options.get("node", {})).run())
"""
