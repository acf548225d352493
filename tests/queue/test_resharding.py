"""Resharding: whatever happens meanwhile, and wherever a mover dies, nothing is lost and each id keeps its order."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from lowkiq import Debounce, Lowkiq
from lowkiq.errors import BeingResharded, Fenced, Moved, Paused, SettingsError, ShardsCountMismatch
from lowkiq.job import EncodedJob, Pushed
from lowkiq.queue import letters, resharding
from lowkiq.queue.call import Caller
from lowkiq.queue.keys import Layout
from lowkiq.queue.push import Producer
from lowkiq.queue.push_calls import push_apart_call, push_call
from lowkiq.queue.resharding import Reach, Route
from lowkiq.queue.shard import Exhausted, Failure, Outcome, Owned, Shard
from lowkiq.shared_page import DeadNode
from tests import mutants
from tests.pairs.rig import dump, restore
from tests.queue.model.virtual_clock import VirtualClock
from tests.queue.reshard_world import IDS, KEPT, QUEUE, Node, ReshardWorld
from tests.queue.shard_driver import ShardDriver
from tests.queue.stamps import once

#: Of a shard to which nothing was pushed.
START = Reach(0, 0)
#: What happens, and how often.
HAPPENINGS = [
    *(*3 * ["push"], "push_as_before", *2 * ["claim"], "steal", *2 * ["move"], "kill_mover", "wake_ghost"),
    *("leave", "settle_away"),
]


def history(app, seed: int, counts: tuple[int, ...]) -> ReshardWorld:
    random = Random(seed)
    world = ReshardWorld(app, counts[0], random)
    for count in counts[1:]:
        for number in range(120):
            if number == 20:
                world.begin(count)
            getattr(world, random.choice(HAPPENINGS))()
        world.end_move()
        for _ in range(10):
            world.wake_ghost()
    world.work_off()
    return world


COUNTS = [(1, 2), (2, 1), (2, 3), (3, 2), (2, 4, 2), (1, 3, 1), (5, 12)]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_and_each_id_keeps_its_order(app, counts, seed):
    check(history(app, seed, counts))


def check(world: ReshardWorld) -> None:
    for id, payloads in world.pushed.items():
        performed, dead = world.performed.get(id, []), world.deaths.get(id, [])
        if id in KEPT:
            assert sorted({*performed, *dead}) == sorted([*performed, *dead])
            assert {*performed, *dead} <= {*payloads}
            assert max([*performed, *dead]) == payloads[-1], id
        else:
            assert sorted([*performed, *dead]) == payloads, id
        assert performed == sorted(performed), id
        assert world.epochs[id] == sorted(world.epochs[id]), f"{id}: a token has fallen"
    for shard in world.shards():
        look = ShardDriver(world.app, QUEUE, shard.index, world.layout).look()
        assert not look.lanes(), "nothing is queued"


# ── all that a shard may hold, and a death at each call of its mover ────────────────────────────────────────────────


class Strike(Exception):
    """The mover dies."""


class StruckCaller(Caller):
    """Fails at one of its calls: before it is sent, or when it has taken effect and nobody hears of it."""

    def __init__(self, caller: Caller, *, is_late: bool) -> None:
        super().__init__(caller.client)
        self.left, self._is_late = 0, is_late
        plain = self.command

        def command(*words: Any) -> Any:
            return self._struck(lambda: plain(*words))

        self.command = command

    def run_all(self, calls, replicas=None):
        return self._struck(lambda: super(StruckCaller, self).run_all(calls, replicas))

    def read(self, commands, otherwise):
        return self._struck(lambda: super(StruckCaller, self).read(commands, otherwise))

    def _struck(self, send):
        self.left -= 1
        is_struck = self.left == 0
        if is_struck and not self._is_late:
            raise Strike
        result = send()
        if is_struck:
            raise Strike
        return result


def fill(world: ReshardWorld) -> None:
    """Puts all kinds of jobs into the queue."""
    worker = world.app.worker(
        queue_name=QUEUE, shards_count=world.layout.shards_count, fair_by=lambda name, _: f"tenant-{len(name)}"
    )(lambda _: None)
    ids = [f"id-{number}" for number in range(24)]
    rows: list[Any] = [{"id": id, "payload": id, "tags": ["eu", id]} for id in ids[:8]]
    rows += [{"id": id, "payload": n, "score": n} for id in ids[4:16] for n in range(3)]
    rows += [{"id": id, "payload": 1, "perform_in": 4e9 + number} for number, id in enumerate(ids[16:])]
    rows += [{"id": f"fewer-{n}", "debounce": Debounce(5e8, at_most=6e8), "keep": "last"} for n in range(6)]
    rows += [{"id": f"spaced-{n}", "throttle": 5e8, "score": -1} for n in range(6)]
    worker.actions.track(["id-0", "id-9", "never pushed"])
    worker.perform_async(rows)
    for shard in world.shards():
        world._acquire(shard)
        node = world.nodes[shard.prefix]
        claim = world.caller.run(shard.claim(node.name, node.epoch, 1, 8, 2, bytes))
        ids_of = [job.id for job in claim.jobs]
        world.caller.run_all([shard.checkpoint(node.name, node.epoch, 1, ids_of[0], b"half of it")] if ids_of else [])
        outcome = Outcome(
            failed=[Failure(id, 1, 3600.0, "boom") for id in ids_of[:2]],
            exhausted=[
                *(Exhausted(id, "dead") for id in ids_of[2:4]),
                *(Exhausted(id, "who knows", "block") for id in ids_of[4:5]),
            ],
            rest="release",
        )
        world.caller.run(shard.settle(node.name, node.epoch, 1, outcome))
        # Nodes have died while these ran.
        for heir in ("heir", "its heir"):
            world.caller.run(shard.claim(node.name, node.epoch, 2, 50, 100, bytes))
            owned = world.caller.run(shard.acquire(heir, 600, 9, [DeadNode(node.name)]))
            node = world.nodes[shard.prefix] = Node(shard, heir, owned.epoch)
    worker.actions.hold(["id-20", *ids[8:12], "never pushed"], reason="a customer called")
    for shard in world.shards():  # parks what is held
        node = world.nodes.pop(shard.prefix)
        world.caller.run(shard.claim(node.name, node.epoch, 3, 100, 2, bytes))
        world.caller.run(shard.release(node.name, node.epoch, 3, "claim"))
        # It leaves while some of them run, of which one is to stop, and to two more has come since.
        running = [job.id for job in world.caller.run(shard.claim(node.name, node.epoch, 4, 4, 2, bytes)).jobs]
        worker.actions.cancel(running[:1])
        worker.perform_async([{"id": id, "payload": "later"} for id in running[1:3]])
        world.caller.run(shard.release(node.name, node.epoch, 4, "lease", 600, [4]))


HASHES = ("crashes", "crowds", "checkpoints", "holds", "tracks", "behind", "rules", "debounced", "tenants")


def held_by(world: ReshardWorld, layout: Layout) -> dict[str, Any]:
    """All that the shards of a layout hold together."""
    found: dict[str, Any] = {}
    for index in range(layout.shards_count):
        look = ShardDriver(world.app, QUEUE, index, layout).look()
        due = look.zset("due")
        rows: dict[str, dict[Any, Any]] = {
            "queued": look.queued(),
            "morgue": look.morgue(),
            "claimed": look.claimed(),
            "cancels": dict.fromkeys(look.hash("cancels")),
            "away": {id: name[0] for name, claim in look.claims().items() if name in look.away() for id in claim},
            "errors": look.errors(),
            **{name: look.hash(name) for name in HASHES},
            **{name: look.zset(name) for name in ("held", "blocked", "spaced")},
            # Hints of ids that were parked since are wrong, and need not move.
            "lanes": {id: lane for lane, ids in look.lanes().items() for id, at in ids.items() if due[id] == at},
            "notes": {name: row for name, (_, row) in look.keys.items() if name.startswith("tracked")},
        }
        for name, some in rows.items():
            assert not found.setdefault(name, {}).keys() & some.keys(), "an id is in one shard"
            found[name] |= some
        for tag, count in look.zset("tag_counts").items():
            counts = found.setdefault("tag_counts", {})
            counts[tag] = counts.get(tag, 0) + count
    return found


def counters(world: ReshardWorld) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for shard in world.shards():
        for name in (b"pushed", b"processed", b"failed", b"merged"):
            found[name] = found.get(name, 0) + int(world.caller.command("HGET", shard.prefix + "meta", name) or 0)
    return found


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 2)])
def test_wherever_its_mover_dies_all_comes_over_as_it_was(app, monkeypatch, counts, is_late):
    move_with_deaths(app, monkeypatch, counts, is_late=is_late)


def move_with_deaths(app, monkeypatch, counts, *, is_late) -> None:
    monkeypatch.setattr(resharding, "ROWS", 5)
    monkeypatch.setattr(resharding.Route.pack, "__defaults__", (5,))
    world = ReshardWorld(app, counts[0], Random(1))
    old = world.layout
    fill(world)
    before, counted = held_by(world, old), counters(world)
    assert [name for name, rows in before.items() if not rows] == []
    world.begin(counts[1])
    plain, at, strikes = world.caller, 0, 0
    struck = world.caller = StruckCaller(plain, is_late=is_late)
    while world.layout.is_moving:
        at += 1
        assert at < 1_000, "it does not end"
        world.caller, struck.left = struck, at % 13 + 1
        try:
            world.end_move()
        except Strike:
            strikes += 1
            world.steps = None
        finally:
            world.caller = plain
            world.layout = world.known()
    assert strikes > 20
    assert held_by(world, world.layout) == before
    assert counters(world) == counted
    for index in range(old.shards_count):
        left = ShardDriver(app, QUEUE, index, old).look().keys
        assert set(left) - {"deeds"} == {"meta"}, "it sends on, and no more; what people did to it lapses"
    for index in range(world.layout.shards_count):
        assert not {"fed", "feeders"} & ShardDriver(app, QUEUE, index, world.layout).look().keys.keys()


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 2)])
def test_a_failover_at_any_step_loses_nothing_that_was_there_before(app, monkeypatch, counts, lost):
    move_with_failovers(app, monkeypatch, counts, lost)


def filled(app, monkeypatch, counts) -> tuple[ReshardWorld, Callable[[], None]]:
    """A queue that is moved in small steps, and what checks that all of it has come."""
    monkeypatch.setattr(resharding, "ROWS", 5)
    monkeypatch.setattr(resharding.Route.pack, "__defaults__", (5,))
    world = ReshardWorld(app, counts[0], Random(1))
    old = world.layout
    fill(world)
    before, counted = held_by(world, old), counters(world)
    world.begin(counts[1])

    def check_all_has_come() -> None:
        assert not world.layout.is_moving, "it does not end"
        assert held_by(world, world.layout) == before
        assert counters(world) == counted

    return world, check_all_has_come


def move_with_failovers(app, monkeypatch, counts, lost) -> None:
    """Each few steps Redis goes on with what it had that many steps before; the mover does not hear of it."""
    world, check_all_has_come = filled(app, monkeypatch, counts)
    for step in range(5_000):
        if not world.layout.is_moving:
            break
        if step % 7 == 0:
            there = dump(world.app.redis())
        world.move()
        if step % 7 == lost - 1 and step // 7 % 3:  # and now and then none
            restore(world.app.redis(), there)
            world.layout = world.known()
    check_all_has_come()


#: Steps of a move of one shard into two, and of three into two, after which a server fails over: the last ones.
LAST_STEPS = {(1, 2): range(106, 120), (3, 2): range(172, 184)}


@pytest.mark.parametrize("lost", [1, 3, 5])
@pytest.mark.parametrize("counts", LAST_STEPS)
def test_the_server_of_the_old_shards_may_fail_over_alone(app, monkeypatch, counts, lost):
    for step in LAST_STEPS[counts]:
        app.redis().flushdb()
        app.workers.clear()
        move_while_a_server_goes_back(app, monkeypatch, counts, step, lost)


def move_while_a_server_goes_back(app, monkeypatch, counts, at: int, lost: int) -> None:
    """It has again what it had some steps before; the new shards are on another one."""
    world, check_all_has_come = filled(app, monkeypatch, counts)
    for step in range(at + 1):
        if step == at + 1 - lost:
            there = dump(world.app.redis())
        world.move()
    restore_some(app, there, b"{q:")
    world.layout = world.known()
    world.end_move()
    check_all_has_come()


def restore_some(app, there: list[Any], of: bytes) -> None:
    """The keys that have that in their names."""
    client = app.redis()
    if gone := [key for key in client.keys("*") if of in key]:
        client.delete(*gone)
    for key, value, ttl in zip(there[::3], there[1::3], there[2::3], strict=True):
        if of in key:
            client.restore(key, ttl, value)


def test_what_is_pushed_to_an_old_shard_whose_mark_is_lost_comes_once_more(app):
    """All had come from it, by what the new one knows; a mover of then, that was thought dead, changes nothing."""
    push_where_the_mark_is_lost(app)


def push_where_the_mark_is_lost(app) -> None:
    world = ReshardWorld(app, 1, Random(1))
    world.push()
    world.begin(2)
    there = dump(app.redis())
    late = Route.of(world.namespace, QUEUE, world.layout, 0)
    while resharding.unfinished(world.caller, world.namespace, QUEUE, world.layout):
        world.move()
    restore_some(app, there, b"{q:")
    nothing = resharding.Mark(False, 0, START, b"", b"")
    told = world.caller.run_all(late.feed("7", nothing, START))
    assert [type(one) for one in told] == [Fenced] * 2
    for id in IDS:
        world._push(id, world.first)
    world.end_move()
    world.work_off()
    for id, payloads in world.pushed.items():
        assert set(payloads) <= {*world.performed.get(id, []), *world.deaths.get(id, [])}, id


def fail_over(app: Lowkiq, there: list[Any]) -> None:
    """Redis goes on with what a replica has had; whoever had a connection hears that it is closed."""
    restore(app.redis(), there)
    app.redis().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    app.caller.command("PING")


def mark_all(world: ReshardWorld) -> None:
    """Moves until all old shards send pushes on."""
    for index in range(world.layout.old_count):
        route = Route.of(world.namespace, QUEUE, world.layout, index)
        owned = world.caller.run(route.acquire("mover", 60, 3, [], is_marked=False))
        for _ in resharding.steps(world.caller, route, "mover", owned.epoch):
            if world.caller.run(route.set_mark("mover", owned.epoch)).is_marked:
                break


def sends(app: Lowkiq, by: str) -> Callable[[bytes], None]:
    """Who has jobs come to their shards, and remembers which have moved."""
    if by == "push":
        producer = Producer(app.caller, app.settings.namespace, QUEUE, 1)
        return lambda payload: producer.push([EncodedJob(b"a", payload, "", "")]) and None
    homes = letters.Homes(app.caller, app.settings.namespace)

    def send(payload: bytes) -> None:
        while True:
            shard = homes.shard_of(letters.Letter(b"", b"", b"", b"push", QUEUE, 1, [b"a"]))
            (result,) = app.caller.run_all([push_call(shard, [EncodedJob(b"a", payload, "", "")], once())])
            if not isinstance(result, Moved):
                return
            homes.sent_on(QUEUE, shard.prefix)

    return send


@pytest.mark.parametrize("what", ["the mark", "the reshard"])
@pytest.mark.parametrize("by", ["push", "letter"])
def test_who_was_sent_on_asks_again_once_a_failover_may_have_lost_that(app, by, what):
    world = ReshardWorld(app, 1, Random(1))
    send = sends(app, by)
    send(b"1")
    there = dump(app.redis())
    world.begin(2)
    if what == "the mark":
        there = dump(app.redis())
    mark_all(world)
    send(b"2")
    fail_over(app, there)
    send(b"3")
    old = Shard(world.namespace, QUEUE, 0, world.layout.old)
    assert b"3" in app.redis().zrange(f"{old.prefix}payloads:a", 0, -1), "it went past what has not moved"


def test_a_mover_that_has_not_heard_that_its_reshard_is_lost_touches_nothing(app):
    world = ReshardWorld(app, 1, Random(1))
    world.push()
    there = dump(app.redis())
    world.begin(2)
    restore(app.redis(), there)
    route = Route.of(world.namespace, QUEUE, world.layout, 0)
    owned = world.caller.run(route.acquire("mover", 60, 3, [], is_marked=False))
    with pytest.raises(Fenced, match="queue q is not being resharded to 2 shards, or not any more"):
        next(resharding.steps(world.caller, route, "mover", owned.epoch))
    world.layout = world.first
    world.push()
    assert isinstance(world.caller.run(world.shards()[0].acquire("node", 60, 3)), Owned), "it has given it back"
    assert not app.redis().keys("*q@2*")


#: What there is of a lost reshard where the next one begins.
LOST = ["fed", "acquired", "and something has come", "by a later mover", "whole"]


@pytest.mark.parametrize("so", LOST)
def test_a_lost_reshard_is_in_nobodys_way_or_goes_first(app, so):
    begin_after_a_lost_one(app, so)


def begin_after_a_lost_one(app, so: str) -> None:
    """Its mover, or an owner, goes on for a moment after the failover; the next reshard is to another number."""
    world = ReshardWorld(app, 1, Random(1))
    world.push()
    there = dump(app.redis())
    world.begin(2)
    lost, nothing = Route.of(world.namespace, QUEUE, world.layout, 0), [None] * len(resharding.COUNTERS)
    restore(app.redis(), there)
    if so == "acquired":
        assert isinstance(world.caller.run(lost.new[0].acquire("node-lost", 60, 3)), Owned)
    else:
        epoch = str(10**17) if so == "by a later mover" else "7"
        world.caller.run_all(lost.feed(epoch, resharding.Mark(False, 0, START, b"", b""), START))
    if so == "and something has come":
        (result,) = world.caller.run_all([push_call(lost.new[0], [EncodedJob(b"id-1", b"1", "", "")], once())])
        assert not isinstance(result, Exception)
        world.pushed.setdefault("id-1", []).append(b"1")
    if so == "whole":
        world.caller.run_all(lost.end_feed(epoch, nothing))
    world.layout = world.first
    world.begin(3)
    if so not in {"fed", "acquired"}:
        with pytest.raises(ShardsCountMismatch):
            world.end_move()
        first = resharding.give_way(world.caller, world.namespace, QUEUE, world.layout)
        assert first == world.known() == Layout(2, 2, 2, 1, 1)
        if so != "and something has come":  # which then goes on where that one was
            return
        world.layout, world.steps, world.route = first, None, None
    world.end_move()
    world.work_off()
    check(world)


@pytest.mark.parametrize("text", ["junk", "9:7", "2:7", ""])
def test_what_is_no_layout_of_a_lost_reshard_is_in_nobodys_way(app, text):
    """What somebody has written there, and what a newer Lowkiq has."""
    world = ReshardWorld(app, 1, Random(1))
    for shard in world.shards():
        app.redis().hset(f"{shard.prefix}meta", "layout", text)
    world.begin(3)
    for shard in world.shards():
        app.redis().hset(f"{shard.prefix}meta", "layout", text)
    assert resharding.give_way(world.caller, world.namespace, QUEUE, world.layout) is None
    assert world.known() == world.layout


def test_none_gives_way_that_has_moved_some(app):
    world = ReshardWorld(app, 1, Random(1))
    world.push()
    world.begin(3)
    world.end_move()
    moving = world.known()._replace(old_count=1, old_generation=1)
    app.redis().hset(f"{world.namespace}:queues", QUEUE, moving.text)
    app.redis().hset(f"{world.shards()[0].prefix}meta", "layout", "2:2:2")
    assert resharding.give_way(world.caller, world.namespace, QUEUE, moving) is None


def test_a_lost_reshard_by_which_shards_have_moved_goes_on(app):
    """On Cluster the server that has lost it need not be that of the shards."""
    world = ReshardWorld(app, 2, Random(1))
    for _ in range(9):
        world.push()
    there = app.redis().hget(f"{world.namespace}:queues", QUEUE)
    world.begin(5)
    while not any(b":moved" in (app.redis().hget(f"{shard.prefix}meta", "layout") or b"") for shard in world.shards()):
        world.move()
    app.redis().hset(f"{world.namespace}:queues", QUEUE, there)
    with pytest.raises(BeingResharded, match="from 2 to 5 shards"):
        world.begin(3)
    assert world.known().is_moving
    world.end_move()
    world.work_off()
    check(world)


def test_what_is_pushed_meanwhile_merges_as_it_would_have(app):
    merge_meanwhile(app)


def merge_meanwhile(app) -> None:
    """A debounce waits on, as long as it may, one payload of those is kept, and the last tenant counts."""
    world = ReshardWorld(app, 1, Random(1))
    old = world.shards()[0]
    rows = {
        b"waits": "500.0:900.0::",
        b"waits long": "500.0:501.0::",
        b"kept": ":::last",
        b"kept now": "",
        b"plain": "",
    }
    now = float(world.caller.command("TIME")[0])
    for id, word in rows.items():
        world.caller.run(push_call(old, [EncodedJob(id, b"1", "", "", "", "before", word)], once()))
    world.begin(2)
    while not bytes(world.caller.command("HGET", old.prefix + "meta", "layout")).endswith(b":moved"):
        assert world.move()
    # What was pushed before lies back so far.
    for id in (b"waits", b"waits long"):
        due, latest = world.caller.command("HGET", old.prefix + "debounced", id).split()
        earlier = [b"%.6f" % (float(text) - 100) for text in (due, latest)]
        world.caller.command("ZADD", old.prefix + "due", earlier[0], id)
        world.caller.command("HSET", old.prefix + "debounced", id, b" ".join(earlier))
    new = {id: world.shard(id.decode(), world.layout.own) for id in rows}
    for id, word in (rows | {b"kept now": ":::last"}).items():
        world.caller.run(push_call(new[id], [EncodedJob(id, b"2", "", "", "", "after", word)], once()))
    world.end_move()
    looks = {id: ShardDriver(app, QUEUE, shard.index, world.layout).look() for id, shard in new.items()}
    found = {id.decode(): look.queued()[id.decode()] for id, look in looks.items()}
    assert found["waits"].perform_in == pytest.approx(now + 500, abs=30)
    assert found["waits long"].perform_in == pytest.approx(now + 401, abs=30)
    payloads = {id: sorted(job.payloads, key=job.payloads.__getitem__) for id, job in found.items()}
    assert payloads == {"waits": [b"1", b"2"], "waits long": [b"1", b"2"], "kept": [b"2"], "kept now": [b"2"],
                        "plain": [b"1", b"2"]}  # fmt: skip
    for id, look in looks.items():
        assert look.hash("tenants")[id.decode()] == b"after"
        assert look.lanes()["after"][id.decode()] == found[id.decode()].perform_in


def pushed_alone(world: ReshardWorld, clock: VirtualClock) -> None:
    """Later than the scores of the new shard are ahead of the clock: then a push takes the quick way."""
    clock.step(10 * resharding.MARGIN)
    world.caller.run(push_call(world.shard("id-0", world.layout.own), [EncodedJob(b"id-0", b"3")], once()))


def pushed_with_others(world: ReshardWorld, clock: VirtualClock) -> None:
    jobs = [EncodedJob(id, b"3") for id in (b"id-0", b"id-1")]
    world.caller.run(push_call(world.shard("id-0", world.layout.own), jobs, once()))


def pushed_apart(world: ReshardWorld, clock: VirtualClock) -> None:
    world.caller.run(push_apart_call([(world.shard("id-0", world.layout.own), [EncodedJob(b"id-0", b"3")])], once()))


def pushed_twice(world: ReshardWorld, clock: VirtualClock) -> None:
    pushed_alone(world, clock)
    clock.step(1)
    world.caller.run(push_call(world.shard("id-0", world.layout.own), [EncodedJob(b"id-0", b"4")], once()))


@pytest.mark.parametrize("push", [pushed_alone, pushed_with_others, pushed_apart, pushed_twice])
@pytest.mark.parametrize("rows", [1, 1_000])
def test_a_push_between_an_ids_payloads_and_the_id_takes_nothing_away(app, clock, monkeypatch, push, rows):
    """Several payloads come before their id. What was acknowledged is lost if a push takes the id for a new one."""
    monkeypatch.setattr(Route.pack, "__defaults__", (rows,))
    world = ReshardWorld(app, 1, Random(1))
    for payload in (b"1", b"2"):
        world.caller.run(push_call(world.shard("id-0", world.layout), [EncodedJob(b"id-0", payload)], once()))
    world.begin(2)
    shard, is_pushed = world.shard("id-0", world.layout.own), False
    while world.move():
        if not is_pushed and app.redis().exists(f"{shard.prefix}payloads:id-0"):
            push(world, clock)
            is_pushed = True
    assert is_pushed
    world.end_move()
    clock.step(10 * resharding.MARGIN)
    job = ShardDriver(app, QUEUE, shard.index, world.layout).queued()["id-0"]
    order = sorted(job.payloads, key=job.payloads.__getitem__)
    assert order == [b"1", b"2", b"3", b"4"][: 4 if push is pushed_twice else 3]


def test_a_pause_moves_and_ends_wherever_it_is(app):
    pause_meanwhile(app)


def pause_meanwhile(app) -> None:
    """The mover was to tell of a pause that has ended before it came to that; then of one that ends once it has."""
    world = ReshardWorld(app, 1, Random(1))
    actions = app.worker(queue_name=QUEUE, shards_count=1)(lambda _: None).actions
    world.push()
    actions.pause("stock-taking")
    world.begin(2)
    (old,), new = world.shards()[:1], world.shards()[1:]

    def paused() -> list[bool]:
        return [bool(world.caller.command("EXISTS", shard.prefix + "paused")) for shard in new]

    assert world._take_up() and world.steps is not None
    next(world.steps)  # it has looked
    assert actions.resume() == 1
    next(world.steps)  # it has told what it saw, and finds that it is so no more
    assert paused() == [True, True]
    assert not bytes(world.caller.command("HGET", old.prefix + "meta", "layout")).endswith(b":moved")
    next(world.steps)
    assert paused() == [False, False]
    world.end_move()
    assert paused() == [False, False]

    actions.pause("stock-taking once more")
    world.begin(3)
    old, new = world.shards()[0], world.shards()[2:]
    while not bytes(world.caller.command("HGET", old.prefix + "meta", "layout")).endswith(b":moved"):
        assert world.move()
    assert paused() == [True, True, True]
    world.kill_mover()
    assert actions.resume() == 4  # of the one that has moved it is of no account
    world.end_move()
    assert paused() == [False, False, False]


KINDS: dict[int, dict[str, Any]] = {
    2: {},
    3: {"tenant": "eu"},
    4: {"score": 5.0},
    5: {"tags": "a\nb"},
    6: {"tags": "a", "tenant": "eu"},
    7: {"fewer": ":::last"},
}


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize("width", KINDS)
def test_what_a_shard_sends_on_arrives_as_it_was_pushed(app, width, several):
    """A producer that has slept pushes to old shards, some at a time."""
    jobs = [EncodedJob(b"%d" % number, b"1", "", "") for number in range(20)]
    for job in jobs[-1:]:
        for name, value in KINDS[width].items():
            setattr(job, name, value)
    world = ReshardWorld(app, several, Random(1))
    producers = [Producer(app.caller, world.namespace, QUEUE, several) for _ in range(2)]
    for producer in producers:
        producer.register()
    world.begin(3)
    producers[0].push(jobs)
    world.end_move()
    before = [ShardDriver(app, QUEUE, index, world.layout).look() for index in range(3)]
    for look, shard in zip(before, world.shards(), strict=True):
        for name in look.keys:
            if name != "meta":
                app.caller.command("UNLINK", shard.prefix + name)
    assert producers[1].push(jobs) == Pushed(20, 0)
    after = [ShardDriver(app, QUEUE, index, world.layout).look() for index in range(3)]
    for now, then in zip(after, before, strict=True):
        found, known = (
            {id: (one.payloads.keys(), one.tags) for id, one in look.queued().items()} for look in (now, then)
        )
        assert found == known
        for name in ("tenants", "rules"):
            assert now.hash(name) == then.hash(name)
        assert now.lanes().keys() == then.lanes().keys()


# ── safeguards that are taken out ───────────────────────────────────────────────────────────────────────────────────

MUTANTS = {
    "claims_while_fed": ("claim.lua", "P .. 'paused', P .. 'feeders') > 0", "P .. 'paused') > 0"),
    "adopts_what_comes_late": ("moving.lua", "if known ~= epoch then", "if false then"),
    "fed_by_whoever_comes_late": ("feed.lua", "if tonumber(fed or -1) >= epoch or", "if false and"),
    "merge_overwrites": ("adopt.lua", "payloads_add(payloads, id, split(record))",
                         "redis.call('HSET', payloads, id, record)"),
    "drops_whole_zsets": ("drop_moved.lua", "dropped + redis.call('ZREM', P .. index .. ':' .. id, member)",
                          "dropped + redis.call('UNLINK', P .. index .. ':' .. id)"),
    "restores_what_moves": ("acquire.lua", "local is_moved = string.sub(known_layout or '', -6) == ':moved'",
                            "local is_moved = false"),
    "counts_twice": ("end_feed.lua", "if redis.call('HSET', P .. 'fed', old, epoch) == 1 then",
                     "if redis.call('HSET', P .. 'fed', old, epoch) then"),
    "forgets_the_morgue": ("pack.lua", " or pack_jobs('morgue', 'morgue:payloads')", ""),
    "forgets_rules": ("sides.lua", "{'rules', 'hash', hinders = 'claim settle parting acquire'}, ", ""),
    "forgets_throttles": ("sides.lua", "{'spaced', 'zset', hinders = 'claim finish'}, ", ""),
    "forgets_tenants": ("sides.lua", ", {'tenants', 'hash', hinders = 'settle parting acquire'}", ""),
    "forgets_lanes": ("adopt.lua", "  if due then hint(P, id, due) end\n", ""),
    "ends_a_debounce": ("sides.lua", ", {'debounced', 'hash', hinders = 'claim acquire'}", ""),
    "moves_a_debounce_for_ever": ("adopt.lua", "at = tonumber(moved) < tonumber(latest) and moved or latest",
                                  "at = moved"),
    "keeps_both": ("adopt.lua", "        keep_by_rule(id)\n", ""),
    "keeps_both_by_an_old_rule": ("adopt.lua", "    keep_by_rule(id)\n  end,", "  end,"),
    "pause_for_ever": ("mark_moved.lua", " and paused == ARGV[5]", ""),
    "pause_told_again": ("feed.lua", "if pause == '-' then return 1 end", "if pause == '-' then pause = 'x' end"),
    "pause_that_ends_there_only": ("feed.lua", "if told and told ~= pause and", "if false and"),
    "tokens_fall": ("end_feed.lua", "> tonumber(highest) then", "< 0 then"),
    "leaves_lanes": ("drop_moved.lua", "do drop_hint(P, id) end", "do end"),
    "forgets_what_runs": ("pack.lua", "pack_claims() or pack_jobs('due'", "pack_jobs('due'"),
    "what_runs_twice": ("adopt.lua", "if not in_claims[name][id] then redis", "if true then redis"),
    "what_runs_and_is_not_dropped": ("drop_moved.lua", "      end_claim(P, claim)\n", ""),
    "settles_what_moves": ("away.lua", "if moved_to then return", "if false then return"),
    "settles_what_comes": (
        "away.lua", "if from and redis.call('HEXISTS', P .. 'feeders', from) == 1 then", "if false then"),
    "runs_and_is_cancelled_no_more": ("adopt.lua", "if is_cancelled == '1' then redis", "if false then redis"),
    "runs_and_lost_its_tags": ("sides.lua", "{'claimed_tags', 'hash', hinders = 'settle parting acquire'}, ", ""),
    "drops_what_is_lost": (
        "moving.lua", "if step and redis.call('HGET', P .. 'owner', 'step') ~= epoch .. ':' .. step then",
        "if false then"),
    "lost_feeders_stay": ("feed.lua", "forget_lost_feeders(P, ARGV[1], epoch)\n", "\n"),
    "forgets_what_has_come": ("moving.lua", " or holds_anything(P) then return end", " then return end"),
    "never_comes_again": (
        "feed.lua", "if is_whole and ARGV[8] == '-' then return 0 end", "if is_whole then return 1 end"),
    "comes_again_for_a_late_one": ("feed.lua", "if tonumber(last) >= epoch then", "if false then"),
    "waits_in_vain": ("feed.lua", "  redis.call('HSET', P .. 'feeders', old, '0')\n", ""),
    "forgets_what_is_whole": ("moving.lua", "known == layout or whole or", "known == layout or"),
    "forgets_a_later_mover": ("moving.lua", "if tonumber(feeders[i]) >= epoch then return end", ""),
    "mark_without_fence": ("moving.lua", "if refusal then return refusal end\n  if string.sub", "if string.sub"),
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_out(app, monkeypatch, name):
    file, safeguard, instead = MUTANTS[name]
    mutants.replace(file, safeguard, instead, monkeypatch)
    tries = [lambda: merge_meanwhile(app), lambda: pause_meanwhile(app)]
    tries += [lambda: push_where_the_mark_is_lost(app)]
    tries += [lambda lost=lost: move_while_a_server_goes_back(app, monkeypatch, (1, 2), 116, lost) for lost in (3, 5)]
    tries += [lambda so=so: begin_after_a_lost_one(app, so) for so in LOST]
    tries += [lambda late=late: move_with_deaths(app, monkeypatch, (2, 3), is_late=late) for late in (True, False)]
    tries += [lambda lost=lost: move_with_failovers(app, monkeypatch, (2, 3), lost) for lost in (1, 2, 3)]
    tries += [lambda seed=seed: check(history(app, seed, COUNTS[seed % len(COUNTS)])) for seed in range(200)]
    mutants.find_out(tries, app.redis().flushdb)


# ── a new shard ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_shard_is_not_claimed_from_until_all_old_ones_have_come(app):
    """Whatever way a claim goes: a shard that holds one plain job has a quick one."""
    world = ReshardWorld(app, 2, Random(1))
    world.begin(3)
    first, second = (resharding.Route.of(world.namespace, QUEUE, world.layout, index) for index in (0, 1))
    shard = first.new[0]
    nothing = resharding.Mark(False, 0, START, b"", b"")
    world.caller.run_all([*first.feed("1", nothing, START), *second.feed("1", nothing, START)])
    owned = world.caller.run(shard.acquire("node", 60, 3))
    world.caller.run(push_call(shard, [EncodedJob(b"a", b"1", "", "")], once()))
    claim = shard.claim("node", owned.epoch, 1, 10, 10, bytes)
    for route in (first, second):
        with pytest.raises(Paused):
            world.caller.run(claim)
        world.caller.run_all(route.end_feed("1", [None] * len(resharding.COUNTERS)))
    assert [job.id for job in world.caller.run(claim).jobs] == ["a"]


def test_scores_go_on_behind_those_of_the_old_shard(app):
    """Redis's clock may be behind where the new shard is."""
    world = ReshardWorld(app, 1, Random(1))
    world.push()
    old = world.shards()[0]
    ahead = int(world.caller.command("HGET", old.prefix + "meta", "last_score")) + 300_000
    world.caller.command("HSET", old.prefix + "meta", "last_score", ahead)
    world.begin(2)
    world.end_move()
    for shard in world.shards():
        assert int(world.caller.command("HGET", shard.prefix + "meta", "last_score")) >= ahead


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (0, "can't have 0 shards: from 1 to 65,536"),
        (65_537, "can't have 65537 shards"),
        (True, "can't have True shards"),
        (1_048_573, "can't have 1048573 shards"),
    ],
)
def test_a_number_that_a_queue_can_not_have_is_refused(app, count, says):
    world = ReshardWorld(app, 2, Random(1))
    with pytest.raises(SettingsError, match=says):
        world.begin(count)
    assert world.known() == Layout(2, 2)


def test_a_number_by_which_too_many_would_wait_is_refused(app):
    world = ReshardWorld(app, 1_000, Random(1))
    with pytest.raises(SettingsError, match="choose a multiple of 1000, or one that divides it"):
        world.begin(1_049)
    world.begin(2_000)


def test_another_number_is_refused_until_it_is_over_and_the_same_one_changes_nothing(app):
    world = ReshardWorld(app, 2, Random(1))
    world.begin(4)
    before = world.layout
    world.begin(4)
    assert world.layout == before
    with pytest.raises(BeingResharded, match="from 2 to 4 shards: wait until that is over, then reshard it to 5"):
        world.begin(5)
    world.end_move()
    world.begin(4)
    assert world.layout == Layout(2, 4, 2)


def test_an_unknown_queue_is_refused(app):
    with pytest.raises(SettingsError, match="Redis knows no queue other"):
        resharding.begin(app.caller, app.settings.namespace, "other", 5)
