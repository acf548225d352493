"""The program of nodes whose jobs run in processes of their own."""

from __future__ import annotations

#: Payloads are mappings that say what their job does. Options are those of the worker, and which kind it is.
SCRIPT = """
import asyncio, ctypes, json, os, signal, socket, subprocess, sys, threading, time
import lowkiq
from lowkiq import Lowkiq, PartialFailure, Worker, current
from lowkiq.log import configure
from lowkiq.node.health import heartbeat
from lowkiq.node.node import Node

options = json.loads(os.environ["TEST_OPTIONS"])
records = f"{os.environ['LOWKIQ_NAMESPACE']}:records"
configure()
socket.setdefaulttimeout(options.get("default_timeout"))
# Five times as often as elsewhere: tests wait for what a beat tells.
heartbeat.BEAT_INTERVAL = 1
NODE = int(os.environ.setdefault("TEST_NODE", str(os.getpid())))
#: Only what shares the memory of the node has it.
marks = []


def record(what, *details):
    app.redis().rpush(records, json.dumps([what, os.getpid(), *details]))


def load(data):
    if b"undecodable" in data:
        raise ValueError("no such format")
    if b"gate_of_load" in data and os.getpid() != NODE:
        wait_for("load")
    if b"deadly" in data:
        os.kill(os.getpid(), signal.SIGBUS)
    return json.loads(data)


def init():
    record("init")
    if os.getpid() != NODE and options.get("init_fails"):
        raise OSError("no database")
    if os.getpid() != NODE:
        time.sleep(options.get("slow_init", 0))
    if os.getpid() != NODE and options.get("gate_of_init"):
        wait_for("init")


async def init_async():
    record("init", id(asyncio.get_running_loop()))


def around(worker, batch, call):
    record("around", [job.id for job in batch])
    return call()


async def around_async(worker, batch, call):
    record("around_async", [job.id for job in batch])
    return await call()


def wait_for(gate):
    key = f"{records}:{gate}"
    app.redis().set(f"{key}:reached", 1)
    while not app.redis().exists(key):
        time.sleep(0.01)


def start_children():
    code = "import os, sys, time; sys.argv[1:] and os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
    children = [
        subprocess.Popen([sys.executable, "-c", code, *more], stdout=subprocess.PIPE) for more in ((), ("alone",))
    ]
    record("children", [int(child.stdout.readline()) for child in children])


def channel():
    "The socket to the node: of the helper's own, the one that is connected and no status."
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=os.dup(int(name)))
            if found.family == socket.AF_UNIX and not found.getpeername():
                return found
        except OSError:
            pass


def act(id, payload):
    context = current()
    if "signal" in payload:
        os.kill(os.getpid(), payload["signal"])
    if "null" in payload:
        ctypes.string_at(0)
    if "exit" in payload:
        os._exit(payload["exit"])
    if "sys_exit" in payload:
        sys.exit(payload["sys_exit"])
    if "children" in payload:
        start_children()
    if "daemon" in payload:
        record("daemon", subprocess.Popen(["sleep", "600"]).pid)
    if "sleep" in payload:
        time.sleep(payload["sleep"])
    if "gate" in payload:
        wait_for(payload["gate"])
    if "rubbish" in payload:
        channel().send(bytes.fromhex(payload["rubbish"]))
        time.sleep(600)
    if "ask" in payload:
        record(
            "asked", context.queue, context.shard, context.epoch, context.attempt, context.lease_lost,
            context.cancelled, [job.id for job in context.jobs], type(context.worker).__name__,
        )
    if "wait_lost" in payload:
        while not context.lease_lost:
            time.sleep(0.02)
        record("lost")
    while "chatter" in payload:
        context.progress(0.5)
    if "progress" in payload:
        context.progress(*payload["progress"])
    if "checkpoint" in payload:
        record("kept", context.checkpoint_value)
        context.checkpoint(payload["checkpoint"])
    if "fails" in payload:
        raise ValueError(f"{id} is to fail")
    if "decide" in payload and context.jobs[0].payload_count == 1:
        kind, *details = payload["decide"]
        raise getattr(lowkiq, kind)(*details)
    if "push" in payload:
        app.workers["jobs"].perform_async(payload["push"])
    if "print" in payload:
        print(payload["print"])
    if "fork" in payload and os.fork() == 0:
        return
    if "marks" in payload:
        record("marks", marks, os.getppid(), id)
    if "big" in payload:
        record("big", len(payload["big"]))
    if "state" in payload:
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        record("state", {name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt", "Threads")},
            os.getpgid(0), sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{name}")), open("/proc/self/cmdline").read())


settings = {"load_payload": load} if options.get("loads") else {}
if options.get("middlewares"):
    settings["server_middlewares"] = [around, around_async]
app = Lowkiq(on_server_init=init_async if options.get("is_async") else init, **settings)
NAMES = ("shards_count", "batch_size", "max_retry_count", "perform_timeout")
KINDS = {name: options[name] for name in NAMES if name in options}
if "rate" in options:
    KINDS["rate"] = lowkiq.Rate(*options["rate"], by=lambda id, payload: payload.get("key", ""))


class Jobs(Worker):
    def __init__(self):
        record("made")
        if options.get("cannot_be_made"):
            raise RuntimeError("no model")

    if options.get("is_async"):

        async def perform(self, payloads_by_id):
            await asyncio.sleep(0)
            record("loop", id(asyncio.get_running_loop()))
            self.act_all(payloads_by_id)

    else:

        def perform(self, payloads_by_id):
            self.act_all(payloads_by_id)

    def act_all(self, payloads_by_id):
        record("start", list(payloads_by_id))
        failed = {}
        for id, payloads in payloads_by_id.items():
            for payload in payloads:
                try:
                    act(id, payload)
                except (ValueError, lowkiq.Decision) as error:
                    if options.get("raises"):
                        raise
                    failed[id] = error
        if failed:
            raise PartialFailure(failed)
        record("end", list(payloads_by_id))


class Hooked(Jobs):
    def retry_in(self, retry_count):
        record("retry_in", retry_count)
        return options.get("retry_in", 0.05)

    def retries_exhausted(self, batch):
        record("exhausted", [[job.id, job.payloads, job.error] for job in batch])


class Quick(Jobs):
    def retry_in(self, retry_count):
        return 0.05


worker = {"plain": Jobs, "hooked": Hooked, "quick": Quick}[options.get("kind", "quick")]
app.worker(queue_name="jobs", isolation=options.get("isolation", "process"), **KINDS)(worker)


@app.worker(queue_name="threads", shards_count=1)
def on_a_thread(payloads_by_id):
    for id, payloads in payloads_by_id.items():
        record("thread", [id])
        if "gate" in payloads[0]:
            wait_for(payloads[0]["gate"])
        record("thread_end", [id])


if __name__ == "__main__":
    marks.append("of the node")
    sys.exit(Node(app, source=os.environ.get("TEST_SOURCE")).run())
if options.get("import_fails"):
    raise ImportError("no such library")
"""
