"""What a script does is bounded by what it is asked for, not by what its shard holds."""

from __future__ import annotations

import pytest

from lowkiq.admin.jobs.actions import CHUNK, as_list
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.job import EncodedJob
from lowkiq.queue import resharding
from lowkiq.queue.call import Call, chunked
from lowkiq.queue.layouts import opened
from lowkiq.queue.letters import PAGE, ask_again
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import PARKED, Owned
from tests import mutants
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver
from tests.queue.stamps import once
from tests.queue.touched import count_in_scripts, touched

FEW, MANY = 100, 1_000


@pytest.fixture
def counted(own_app, monkeypatch):
    """A shard whose scripts count what they touch."""
    count_in_scripts(monkeypatch)
    return ShardDriver(own_app)


def hold_parked(shard: ShardDriver, count: int) -> None:
    """So many held ids, each parked by a claim that has met it."""
    ids = [f"held-{n}" for n in range(count)]
    shard.actions.hold(ids)
    shard.push_all(*((id, b"p", 1.0, PAST) for id in ids))
    lease = shard.lease("before")
    while shard.redis.hlen(shard.key("behind")) != count:
        lease.claim(limit=1_000)
    lease.release()


@pytest.mark.parametrize("is_again", [False, True], ids=["anew", "again"])
def test_to_acquire_a_shard_leaves_what_is_parked_alone(counted, is_again):
    """The lease of a shard with a million ids that are held, or wait for others, is taken as soon as any other."""
    took = []
    for count in (FEW, MANY):
        counted.redis.flushall()
        hold_parked(counted, count)
        if is_again:
            counted.lease("a")
        call = counted.shard.acquire("a", 60, 3)
        took.append(touched(counted.redis, counted.caller, call))
        assert isinstance(counted.try_acquire("a"), Owned)
        assert counted.redis.hlen(counted.key("behind")) == count
    assert took[1] <= took[0] + 5


@pytest.mark.parametrize("why", ["held", "throttled", "running"])
def test_a_claim_of_one_looks_past_many_that_may_not_start(shard, why):
    """Slow jobs are claimed one at a time: a free id must not wait for a round trip for each that is passed by."""
    count = 3_000 if why != "running" else 900
    ids = [f"id-{n}" for n in range(count)]
    if why == "held":
        shard.actions.hold(ids)
    lease = shard.lease()
    if why == "running":
        shard.push_all(*((id, b"1", 1.0, PAST) for id in ids))
        assert len(lease.claim()) == count
    if why == "throttled":
        shard.redis.zadd(shard.key("spaced"), dict.fromkeys(ids, FUTURE))
    for some in chunked(ids, 1_000):
        shard.push_all(*((id, b"2", 1.0, PAST) for id in some))
    shard.push("free", b"2", 1.0, PAST + 1)
    claims = 0
    while not (taken := lease.claim_beside(limit=1)):
        claims += 1
        assert claims <= count / 500
    assert [job.id for job in taken] == ["free"]


def test_a_claim_that_does_not_look_on_is_found_out(own_app, monkeypatch):
    mutants.replace("passing.lua", "looked >= MOST", "true", monkeypatch)
    with pytest.raises(AssertionError):
        test_a_claim_of_one_looks_past_many_that_may_not_start(ShardDriver(own_app), "held")


def wait_for_many(shard: ShardDriver, count: int, *, ids: int = 1) -> None:
    """So many ids wait for so many others each."""
    for n in range(ids):
        shard.push(f"report-{n}")
        for first in range(0, count, 100):
            others = [f"q 1 step-{number}" for number in range(first, min(first + 100, count))]
            after = "".join(f"{len(name)}:{name}" for name in others)
            job = EncodedJob(f"report-{n}".encode(), b"p", after=after)
            shard.caller.run(push_call(shard.shard, [job], once()))
    shard.redis.unlink(shard.key("outbox"), shard.key("letters"))


def ask_all(shard: ShardDriver, seconds: float) -> int:
    """Asks again, from end to end; how many letters that has written."""
    lease, place, calls = shard.lease("a", dead=["a"]), b"0", 0
    while calls == 0 or place != b"0":
        place = shard.caller.run(ask_again(shard.shard, "a", lease.epoch, place, seconds))
        calls += 1
        assert calls < 1_000
    asked = int(shard.redis.zcard(shard.key("outbox")))
    shard.redis.unlink(shard.key("outbox"), shard.key("letters"))
    return asked


@pytest.mark.parametrize(("ids", "names"), [(1, 5 * PAGE), (7, PAGE), (1, PAGE), (150, 2)])
def test_all_that_is_waited_for_is_asked_for_again(shard, clock, ids, names):
    wait_for_many(shard, names, ids=ids)
    clock.step(60e6)
    assert ask_all(shard, 59.0) == ids * names


def test_who_has_waited_for_long_asks_less_often(shard, clock):
    wait_for_many(shard, 3)
    minutes = []
    for minute in range(1, 241):
        clock.step(60e6)
        if ask_all(shard, 59.0):
            minutes.append(minute)
    assert minutes[:4] == [1, 2, 3, 5]
    assert len(minutes) < 20
    assert minutes[-1] - minutes[-2] == 60


def test_what_is_parked_is_looked_at_in_pages(counted):
    """Also where all of it was left behind a claim that somebody has removed."""
    shard = counted
    for count in (5 * PARKED, 50 * PARKED):
        shard.redis.flushall()
        shard.lease("before").release()
        ids = [f"{n}" for n in range(count)]
        shard.redis.hset(shard.key("payloads"), mapping=dict.fromkeys(ids, "1:p"))
        shard.redis.hset(shard.key("behind"), mapping=dict.fromkeys(ids, "1"))
        shard.redis.zadd(shard.key("due"), dict.fromkeys(ids, float("inf")))
        owned = shard.try_acquire("a")
        assert isinstance(owned, Owned)
        assert owned.has_parked
        place, pages = b"0", 0
        while pages == 0 or place != b"0":
            call = shard.shard.look_at_parked("a", owned.epoch, place)
            assert touched(shard.redis, shard.caller, call) < 30 * PARKED
            place = shard.caller.run(shard.shard.look_at_parked("a", owned.epoch, place))
            pages += 1
        assert shard.redis.zcount(shard.key("due"), "-inf", 1) == count


@pytest.mark.parametrize("what", ["after", "waited for"])
def test_ids_that_wait_move_like_others(app, what):
    """Each with the last of what it waits for; by chance, a million took a hundred times as many steps."""
    shard, count = ShardDriver(app), 600
    opened(app.caller, app.settings.namespace, {"q": 1})
    shard.lease("a").release()
    ids = [f"id-{n}" for n in range(count)]
    shard.push_all(*((id, b"p") for id in ids))
    index = "waits" if what == "after" else "waiters"
    if what == "after":
        shard.redis.hset(shard.key("waits"), mapping=dict.fromkeys(ids, "1 3"))
    else:
        shard.redis.zadd(shard.key("waiters"), dict.fromkeys(ids, 1.0))
    for id in ids:
        shard.redis.zadd(shard.key(f"{index}:{id}"), {f"other 1 {n}": 1.0 for n in range(3)})
    layout = resharding.begin(app.caller, app.settings.namespace, "q", 2)
    route = Route.of(app.settings.namespace, "q", layout, 0)
    mover = app.caller.run(route.acquire("mover", 60, 3, [], is_marked=False))
    assert isinstance(mover, Owned)
    assert len(list(resharding.steps(app.caller, route, "mover", mover.epoch))) < 30
    moved = [ShardDriver(app, index=n, shards_count=layout.own) for n in range(2)]
    known = [one.redis.zcard(one.key(f"{index}:{id}")) for id in ids for one in moved]
    assert sorted(known) == [0] * count + [3] * count


@pytest.mark.parametrize("place", ["due", "morgue"])
@pytest.mark.parametrize("here", [2, 3_000])
def test_what_is_deleted_comes_back_in_pages(counted, place, here):
    """Of an id with a million payloads, too, of which as many were pushed since."""
    shard = counted
    actions = UndoableActions(shard.caller, [shard.shard], max_id_bytes=400)

    def push(first: int, count: int) -> None:
        for n in range(first, first + count, 500):
            shard.push_payloads("hot", min(500, first + count - n), n)
        if place == "morgue":
            actions.act("bury", "due", ["hot"])

    push(0, 4_000)
    undo = actions.delete_and_keep(place, ["hot"]).undo
    assert undo is not None
    push(3_999, here)  # of which one is there
    words = [shard.shard.layout, undo, "hot"]
    assert touched(shard.redis, shard.caller, Call("put_back", [shard.shard.prefix], words, as_list)) < 8_000
    assert actions.undo(undo) == (here > 1_000)
    kept = shard.morgue() if place == "morgue" else shard.queued()
    assert len(kept["hot"].payloads) == 4_000 + here - 1
    assert not [name for name in shard.names() if "undo" in name]


def test_a_claim_of_a_hot_id_comes_back_to_many(counted):
    took = []
    for count in (FEW, MANY):
        counted.redis.flushall()
        counted.push_payloads("hot", 10 * count)
        lease = counted.lease()
        assert len(lease.claim(max_payloads=20)[0].payloads) == 20
        call = counted.shard.release("a", lease.epoch, lease.number, "claim")
        took.append(touched(counted.redis, counted.caller, call))
    assert took[1] <= took[0] + 5


def test_the_dead_that_are_behind_newer_are_looked_for_in_pages(shard):
    sent = []
    command = shard.caller.command
    shard.redis.zadd(shard.key("morgue"), {f"{n}": n for n in range(250)})
    shard.caller.command = lambda *words: sent.append(words) or command(*words)
    assert shard.actions.all_behind_newer() == 0
    asked = [words[2:] for words in sent if words[0] == "ZRANGE"]
    assert asked == [(at, at + CHUNK - 1) for at in range(0, 250 + CHUNK, CHUNK)]
