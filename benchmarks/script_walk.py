"""Every script, with an ordinary batch of what it is for, on a shard that holds very many ids of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Final

from benchmarks.full_shard import NODE, FullShard
from lowkiq.admin.jobs.deeds import MERGE
from lowkiq.job import EncodedJob
from lowkiq.queue import keys, resharding
from lowkiq.queue.call import Call
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.push_calls import push_apart_call, push_call
from lowkiq.queue.rates import Unit, rate_call
from lowkiq.queue.resharding import Reach, Route
from lowkiq.queue.senders import Stamp
from lowkiq.queue.shard import Owned, peek, renew, renew_away
from lowkiq.rate import Rate

#: Names that are asked for, letters and jobs of a push, or of a claim, at a time.
BATCH: Final = 100
#: Microseconds by which no push is late.
NEVER_LATE: Final = 9_000_000_000_000_000
#: Steps of a reshard that are walked: a larger shard has more of the same.
STEPS: Final = 400
UNDO: Final = "0" * 16

Run = Callable[[Call[Any]], Any]
_numbers = count()


def walk(full: FullShard, run: Run) -> None:
    """Runs all of them; `run` raises what is refused."""
    for part in (of_people, of_readers, of_producers, of_owners, of_letters, of_claims, of_others, of_a_lease):
        for call in part(full):
            run(call)


def _stamp() -> Stamp:
    return Stamp(b"~walk-%d" % next(_numbers), NEVER_LATE)


def of_people(full: FullShard) -> Iterator[Call[Any]]:
    """What people do to jobs."""
    for kind in ("due", "parked", "waits", "tagged", "asked"):
        yield full.call("hold", "{}", *full.ids(kind))
        yield full.call("let_go", *full.ids(kind))
    for kind in ("later", "failed", "parked", "blocked"):
        yield full.call("perform_now", *full.ids(kind))
    yield full.call("stop_waiting", *full.ids("waits"))
    yield full.call("unblock", "skip", *full.ids("blocked"))
    yield full.call("cancel", *full.ids("due"))
    yield full.call("drop", "queue", *full.ids("later"))
    for name, where in (("0", "queue"), ("1", "morgue")):
        yield full.call("put_away", where, name * 16, 60, "hot", *full.ids("dead" if where == "morgue" else "failed"))
        yield push_call(full.shard, [EncodedJob(b"hot", b"%d" % n, float(n)) for n in range(3)], _stamp())
        yield full.call("put_back", name * 16, "hot", *full.ids("dead" if where == "morgue" else "failed"))
    yield full.call("lay_out", UNDO, 60, "laid", "queue", "1.0", "", "", "1.0", "p")
    yield full.call("bury", MERGE, "any", "hot", *full.ids("tagged"))
    yield full.call("revive", MERGE, "hot", *full.ids("tagged"))
    yield full.call("track", 1, full.count + BATCH, *full.ids("due"))
    yield full.call("track", 0, full.count + BATCH, *full.ids("due"))
    yield full.call("pause", "{}")
    yield full.owners("rest", 0, "")
    yield full.call("resume")


def of_readers(full: FullShard) -> Iterator[Call[Any]]:
    """What people and nodes see."""
    of = [full.prefix]

    def read(script: str, *words: Any) -> Call[Any]:
        return Call(script, of, words, lambda reply: reply)

    yield read("stats")
    yield read("watch", 1, "")
    for where, kind in (
        ("queue", "due"),
        ("queue", "waits"),
        ("queue", "blocked"),
        ("morgue", "dead"),
        ("claim", "due"),
    ):
        yield read("fetch", where, 10, 200, "hot", *full.ids(kind))
    for index in ("due", "morgue"):
        yield read("heads", index, "ZRANGEBYSCORE", "-inf", "+inf", 0)
        yield read("lengths", "ZCARD", index)
        yield read("weigh", "queue" if index == "due" else "morgue", "hot", *full.ids("dead"))
    yield read("newer", *full.ids("dead"))
    yield read("home", "due-0")
    yield peek([full.shard])


def of_producers(full: FullShard) -> Iterator[Call[Any]]:
    """Pushes: plain, of ids of each kind, and of what waits for others."""
    yield push_call(full.shard, [EncodedJob(b"new-%d" % n, b"p", "", "", "", "", "") for n in range(BATCH)], _stamp())
    for kind in ("due", "parked", "waits", "blocked", "failed", "throttled", "dead"):
        ids = [id.encode() for id in full.ids(kind)]
        yield push_call(full.shard, [EncodedJob(id, b"again", "", "", "", "", "") for id in ids], _stamp())
    yield push_apart_call([(full.shard, [EncodedJob(b"apart", b"p", "", "", "", "", "")])], _stamp())
    after = "".join(f"{len(name)}:{name}" for name in (f"q 1 other-{n}" for n in range(BATCH)))
    job = EncodedJob(b"report", b"p", "", "", "", "", "", after)
    yield push_call(full.shard, [job], _stamp())
    yield full.call("wait", "report", 0, *(f"q 1 more-{n}" for n in range(BATCH)))


def of_owners(full: FullShard) -> Iterator[Call[Any]]:
    """What an owner does beside its claims."""
    yield renew([full.shard], NODE, [full.epoch], 3_600)
    yield renew_away([(full.shard, full.epoch, 1)], NODE, 3_600)
    yield full.owners("restore_away", 3)
    for place in ("0", "1"):
        yield full.owners("look_at_parked", full.shard.layout, place, 200)
        yield full.owners("ask_again", full.shard.layout, place, 0, BATCH)
    yield Call("firing", [full.prefix], [BATCH], lambda reply: reply)
    entries = [word for id in full.ids("recurs") for word in (id, "1500000000", "4000000000", 1, "", "", "p", "1.0")]
    yield full.owners("fire", full.shard.layout, *entries)
    yield full.call("recur", "recurs-0", "entry", "other", "1.0")


def of_letters(full: FullShard) -> Iterator[Call[Any]]:
    """What is taken from shard to shard."""
    yield full.owners("relay", "-inf", BATCH, 1 << 20)
    yield full.owners("relay", "-inf", BATCH, 1 << 20, *(word for id in full.ids("letter") for word in (id, "")))
    blank = [""] * 7
    for kind in ("push", "forget"):
        words = [word for n in range(50) for word in (f"q:0:{n}", kind, f"received-{n}", "p", *blank[:6])]
        yield _receive(full, *words)
    asks = [word for id in full.ids("asked", 50) for word in ("q:0:1", "ask", id, "q 1 1 1 y", *blank[:6])]
    yield _receive(full, *asks)
    told = [word for id in full.ids("waits", 50) for word in ("q:0:1", "told", id, "1", "q 1 step", *blank[:5])]
    yield _receive(full, *told)


def _receive(full: FullShard, *letters: str) -> Call[Any]:
    return full.call("receive", "q:0", "1", next(_numbers), *letters)


def of_claims(full: FullShard) -> Iterator[Call[Any]]:
    """Claims of few and of some, and what becomes of their jobs."""
    shard, epoch = full.shard, full.epoch
    yield shard.claim(NODE, epoch, 1, BATCH, 1_000, bytes)
    yield shard.claim(NODE, epoch, 2, 1, 1_000, bytes, known=(1,))
    for id in ("due-200", "tagged-1"):
        yield full.owners("checkpoint", 1, id, "value")
        yield full.owners("isolate", 1, id, 1)
        yield full.owners("isolate", 1, id, 0)
    yield Call("cancels", [full.prefix], [epoch, 1], list)
    yield full.owners("settle", 2, "ack", 1, 0, 0, 0, 0, 0, 0)
    yield full.owners("finish", 2, 3)
    yield full.owners("release", 1, "claim")
    yield shard.claim(NODE, epoch, 4, BATCH, 1_000, bytes)
    yield full.owners("settle", 4, "release", 1, 0, 0, 0, 0, 0, 0)


def of_a_lease(full: FullShard) -> Iterator[Call[Any]]:
    """The lease, with some jobs in hand; and the shard as one that is moved."""
    yield full.shard.claim(NODE, full.epoch, 5, BATCH, 1_000, bytes)
    yield full.shard.abandon(NODE, full.epoch)
    yield full.shard.acquire(NODE, 3_600, 3)
    yield full.shard.acquire(NODE, 3_600, 3)
    yield from of_a_reshard(full)


def of_a_reshard(full: FullShard) -> Iterator[Call[Any]]:
    """Its first steps, as a mover takes them, and the last."""
    app, queue = full.app, full.shard.queue
    layout = resharding.begin(full.caller, app.settings.namespace, queue, 2)
    yield Call("relayout", [keys.queues(app.settings.namespace)], [queue, layout.text, layout.text], bytes)
    owner = full.caller.command("HMGET", full.prefix + "owner", "node", "epoch")
    yield full.shard.release(owner[0], owner[1].decode(), 0, "lease")
    route = Route.of(app.settings.namespace, queue, layout, 0)
    mover = full.caller.run(route.acquire("mover", 3_600, 3, [], is_marked=False))
    assert isinstance(mover, Owned)
    epoch = mover.epoch
    mark = full.caller.run(route.set_mark("mover", epoch))
    reach = Reach(*(max(number, mark.now) + 10**9 for number in mark.reach))
    yield from route.feed(epoch, mark, reach)
    yield route.set_mark("mover", epoch, reach, mark.paused)
    for _ in range(STEPS):
        pack = route.pack("mover", epoch)
        yield pack
        chunk = full.caller.run(pack)
        if chunk is None:
            break
        yield from route.adopt(epoch, chunk, [1] * len(route.new))
        yield route.note("mover", epoch, 1)
        yield route.drop("mover", epoch, 1, chunk)
    yield from route.end_feed(epoch, [b"1"] * len(resharding.COUNTERS))
    yield route.close("mover", epoch, 1)


def of_others(full: FullShard) -> Iterator[Call[Any]]:
    """Scripts of no shard, on what is kept of a queue or of the nodes."""
    space, queue = full.app.settings.namespace, full.shard.queue
    yield Call("register", [keys.queues(space)], [queue, full.shard.layout, ""], bytes)
    units = [Unit("key", id) for id in full.ids("later", 50)]
    yield rate_call(space, queue, Rate(10, 60.0), units, most=1)
    places = QueuePlaces(space, queue, NODE, 60)
    yield places.take(10, [places.name(1)])
    yield places.keep(10, [places.name(1)])
    for script, names, words in _of_nodes(space, queue):
        yield Call(script, list(names), list(words), lambda reply: reply)


def _of_nodes(space: str, queue: str) -> Iterator[tuple[str, Iterable[str], Iterable[Any]]]:
    log = (keys.incidents(space), keys.incidents_said(space), keys.incidents_ends(space))
    members = [keys.members(space), *(f"{keys.members(space)}:{what}" for what in ("said", "version", "placements"))]
    hand, hands = keys.hand(space, UNDO), keys.hands_of(space, NODE)
    bell = keys.doorbell(space, NODE)
    yield "note_incidents", log, [1_000, 86_400, *(w for n in range(BATCH) for w in (f"key-{n}", "", "said"))]
    yield "end_incidents", log[::2], [w for n in range(BATCH) for w in (f"key-{n}", "")]
    yield "incidents", log, ["", "+inf", BATCH, 1_000]
    yield "note_alerts", [keys.alerts(space)], [1_000, 60, 3_600, *(w for n in range(BATCH) for w in (f"a-{n}", ""))]
    yield "note_failures", [keys.failures(space, queue)], [NODE, 1, 100, 86_400, 60, *("text", 1)]
    yield "members", members, [NODE, "said", 60, ""]
    yield "placements", members[2:], [0, "q:0", "{}"]
    yield "beat", [keys.nodes(space)], [NODE, 0, 60, 100]
    yield "ask_hand", [hands, hand], ['{"id":"0"', 60, 60, 10, bell, "hand"]
    yield "take_hands", [hands], [10, 1_000]
    yield "tell_hand", [hand], ['{"id":"0"', 60, '"state":"done"']
    yield "keep_dump", [keys.dumps(space)], [UNDO, '{"id":"0"', "text", 20, 60]
    yield "end_session", [keys.ended_sessions(space)], ["nonce", 60, 1_000]
    yield "version", [keys.version(space, "g")], ["", 100, "1"]
    yield "declare", [keys.declared(space, queue)], [NODE, "1234", b"\x90", 60]
    yield "turn", [keys.history_turn(space)], [NODE, 1_000]
    yield "record", [keys.history(space, queue)], [1, "hour", 60, 60, "1 1 1 1 1 1 1 1 1"]
    yield (
        "add_times",
        [keys.added(space, NODE), keys.times(space, queue)],
        [1, 60, 60, 4_096, 100, "1 1 1 0 1|1 1 1 0 1"],
    )
