"""Layouts: a newer Lowkiq's data is safe from an older one, and what is only looked at may have more in it."""

from __future__ import annotations

import json
import re

import pytest

from lowkiq import NewerLayout, PushFailed, ShardsCountMismatch
from lowkiq.admin.beats.health import read_health
from lowkiq.admin.jobs import bulks
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.past.history import read_earlier, read_history
from lowkiq.errors import Fenced, LowkiqError
from lowkiq.queue import keys, scripts
from lowkiq.queue.call import Call
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.version import VERSION
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver
from tests.web.node_health import tell_health

REFUSAL = f"^queue q has layout 3, this Lowkiq {VERSION} writes layout 2: upgrade it$"


@pytest.fixture
def namespace(app):
    return app.settings.namespace


@pytest.fixture
def newer_shard(app, monkeypatch):
    """The same shard as a Lowkiq sees it that writes layout 3."""
    with monkeypatch.context() as patch:
        patch.setattr(keys, "LAYOUT_VERSION", 3)
        return ShardDriver(app)


@pytest.fixture
def moved(shard):
    """A shard with a job queued, one that failed, one in the morgue and one later; all moved to layout 3."""
    shard.push("queued", perform_in=FUTURE)
    for id in ("failed", "dead"):
        shard.push(id, perform_in=PAST)
    lease = shard.lease("node")
    lease.claim()
    lease.settle(failed=[("failed", 0, 60.0, "boom")], exhausted=[("dead", "boom", "bury")])
    shard.redis.hset(shard.key("meta"), "layout", "3:1")
    return lease


def test_a_layout_names_its_version():
    assert Layout(2, 24).text == "2:24"
    assert Layout.parse(b"2:24") == Layout(2, 24)


def test_a_later_layout_may_say_more():
    assert Layout.parse(b"3:24:by-month") == Layout(3, 24)


WRITES = {
    "push": lambda lease: lease.driver.push("b"),
    "acquire": lambda lease: lease.driver.try_acquire("other", dead=["node"]),
    "acquire as the owner": lambda lease: lease.driver.try_acquire("node"),
    "claim": lambda lease: lease.claim(),
    "revive": lambda lease: lease.driver.actions.morgue_queue_up(["dead"]),
    "revive all": lambda lease: lease.driver.actions.morgue_queue_up_all_jobs(),
    "bury": lambda lease: lease.driver.actions.bury(["queued"]),
    "bury the failed": lambda lease: lease.driver.actions.kill_all_failed_jobs(),
    "drop": lambda lease: lease.driver.actions.delete(["queued"]),
    "drop the failed": lambda lease: lease.driver.actions.delete_all_failed_jobs(),
    "drop of the morgue": lambda lease: lease.driver.actions.morgue_delete_all_jobs(),
    "perform_now": lambda lease: lease.driver.actions.perform_now(["queued"]),
    "perform all now": lambda lease: lease.driver.actions.perform_all_jobs_now(),
    "cancel": lambda lease: lease.driver.actions.cancel(["queued"]),
}


@pytest.mark.parametrize("write", WRITES)
def test_an_older_writer_is_refused_and_changes_nothing(moved, write):
    before = moved.driver.dump()
    with pytest.raises(NewerLayout, match=REFUSAL):
        WRITES[write](moved)
    assert moved.driver.dump() == before


@pytest.mark.parametrize("write", sorted(WRITES.keys() - {"push", "acquire", "acquire as the owner", "claim"}))
def test_operators_with_the_wrong_shards_count_change_nothing(app, moved, write):
    """I8, for them too."""
    moved.driver.redis.hset(moved.driver.key("meta"), "layout", "2:1")
    before = moved.driver.dump()
    moved.driver = ShardDriver(app, shards_count=2)
    with pytest.raises(ShardsCountMismatch, match="set shards_count = 1"):
        WRITES[write](moved)
    assert moved.driver.dump() == before


def test_layouts_are_compared_as_numbers(shard):
    shard.push("a")
    shard.redis.hset(shard.key("meta"), "layout", "10:1")
    with pytest.raises(NewerLayout, match="queue q has layout 10,"):
        shard.push("b")


def test_a_queue_of_any_name_is_named(app):
    shard = ShardDriver(app, queue="a.b-c_d")
    shard.push("a")
    shard.redis.hset(shard.key("meta"), "layout", "3:1")
    with pytest.raises(NewerLayout, match=r"^queue a\.b-c_d has layout 3,"):
        shard.push("b")


def test_a_lease_does_not_outlive_the_move_of_its_shard(shard, newer_shard):
    """A shard changes its layout only when a newer node acquires it; here the move is played."""
    shard.push_all(*((id, b"p", 1.0, PAST) for id in "abc"))
    old = shard.lease("old", ttl=0.001)
    old.claim()
    shard.redis.hset(shard.key("meta"), "layout", "3:1")
    assert newer_shard.try_acquire("new", dead=["old"]).restored == 3
    before = shard.dump()
    for settle in (lambda: old.ack("a"), lambda: old.fail("b"), lambda: old.exhaust("c"), lambda: old.spoil("a", b"p")):
        with pytest.raises(Fenced):
            settle()
    for give_back in (lambda: old.release("claim"), lambda: old.release("lease"), old.abandon):
        with pytest.raises(Fenced):
            give_back()
    assert not old.renew()
    assert shard.dump() == before


def test_a_newer_lowkiq_says_so_of_a_new_shard(newer_shard, shard):
    newer_shard.push("a")
    assert shard.redis.hget(shard.key("meta"), "layout") == b"3:1"
    with pytest.raises(NewerLayout):
        shard.push("b")
    assert newer_shard.push("b") == (1, 0)


#: What may write into a shard without looking at its layout: only its owner can.
FENCED = {
    "settle", "finish", "relay", "ask_again", "look_at_parked",
    "fire", "rest", "isolate", "checkpoint", "release", "abandon", "renew", "renew_away", "restore_away",
}  # fmt: skip
#: What only reads shards.
READING = {"peek", "firing", "cancels", "stats", "fetch", "heads", "lengths", "weigh", "newer", "home"}
#: What writes only that somebody listens, which every layout leaves alone.
LISTENING = {"watch"}
#: What is of shards, by its contract.
OF_SHARDS = {name for name, script in scripts.load(flags=False).items() if "shard prefix" in script.source}
#: Where scripts begin, behind their functions. A push of one job and a claim of compact records have ways of their own.
BEGIN = "\nlocal P = KEYS[1]\n"
BEGINS = {
    "claim": ("local P, number", "local P, node, epoch"),
    "close_moved": ("local refusal = fence_mover",),
    "end_feed": ("local refusal = check_feeder",),
    "lay_out": ("local P, id, kept",),
    "feed": ("local P, old, epoch",),
    "adopt": ("local P, what",),
    "drop_moved": ("local P, what",),
    "note_step": ("local step = ARGV",),
    "push": ("if #ARGV == 6", "local function push_into(P"),
    "receive": ("local P, WORDS",),
    "wait": ("local P, id",),
    "recur": ("local P, id",),
    "put_away": ("local P, which, kept",),
    "put_back": ("local P, kept",),
    "push_apart": ("local function push_plain(P",),
}
#: How it looks at the layout.
LOOKING = re.compile(r"= check_(?:layout|whole)\(P, |meta\[1\] == ARGV\[[14]\] and|meta\[1\] ~= ARGV\[1\] or")
#: Commands that write.
WRITING = re.compile(
    r"redis\.call\('(?:[HZ](?!GET|MGET|MSCORE|LEN|EXISTS|KEYS|CARD|RANGE|SCORE|STRLEN)\w+|UNLINK|RENAME)"
)


@pytest.mark.parametrize("name", sorted(OF_SHARDS - FENCED - READING - LISTENING))
def test_scripts_that_write_into_a_shard_look_at_its_layout_first(name):
    source = scripts.load(flags=False)[name].source
    for begins in BEGINS.get(name, (BEGIN,)):
        body = source[source.index(begins) :]
        checked = LOOKING.search(body)
        writes = WRITING.search(body)
        assert checked and (writes is None or checked.start() < writes.start())


def test_an_older_one_does_not_open_a_newer_queue(app, namespace):
    app.redis().hset(keys.queues(namespace), "q", "3:5")
    with pytest.raises(NewerLayout, match=REFUSAL):
        raise opened(app.caller, namespace, {"q": 5})["q"]
    assert app.redis().hgetall(keys.queues(namespace)) == {b"q": b"3:5"}


def test_a_push_to_a_newer_queue_is_refused_and_writes_nothing(app, namespace):
    app.redis().hset(keys.queues(namespace), "q", "3:5")
    worker = app.worker(queue_name="q")(lambda payloads_by_id: None)
    with pytest.raises(NewerLayout, match=REFUSAL) as caught:
        worker.perform_async([{"id": "a"}])
    assert isinstance(caught.value, LowkiqError) and not isinstance(caught.value, PushFailed)
    assert app.redis().keys(f"{namespace}:*") == [keys.queues(namespace).encode()]


def test_a_queue_is_moved_while_its_producer_lives(app, namespace):
    worker = app.worker(queue_name="q", shards_count=1)(lambda payloads_by_id: None)
    worker.perform_async([{"id": "a"}])
    shard = ShardDriver(app)
    shard.redis.hset(shard.key("meta"), "layout", "3:1")
    before = shard.dump()
    with pytest.raises(NewerLayout, match=REFUSAL):
        worker.perform_async([{"id": "b"}])
    assert shard.dump() == before


def test_a_queue_is_followed_whatever_number_of_shards_code_begins_with(app, namespace):
    app.redis().hset(keys.queues(namespace), "q", "2:5")
    assert opened(app.caller, namespace, {"q": 6}) == {"q": Layout(2, 5)}
    assert app.redis().hget(keys.queues(namespace), "q") == b"2:5"


def test_newer_queues_are_known_with_their_shards(app, namespace):
    app.redis().hset(keys.queues(namespace), mapping={"new": "3:5", "old": "2:3"})
    assert app.queues() == {"new": 5, "old": 3}
    assert app.metrics()["new"].length == 0


def add_field(app, key):
    told = json.loads(app.redis().get(key))
    app.redis().set(key, json.dumps(told | {"of_a_newer_lowkiq": {"x": [1]}}))


def test_heartbeats_may_have_more_fields(app, namespace):
    tell_health(app)
    add_field(app, keys.node(namespace, "host:1:abc"))
    (node,) = read_health(app.caller, namespace)
    assert node.processed == 3


def test_bulks_may_have_more_fields(app, namespace):
    bulk = bulks.new_bulk(app.caller, namespace, "q", "delete", Match("due"), 10)
    add_field(app, keys.bulk(namespace, bulk.id))
    assert bulks.read_bulk(app.caller, namespace, bulk.id).total == 10


def test_history_may_have_more_columns(app, namespace):
    series = f"{keys.history(namespace, 'q')}5m"
    for at in range(3):
        app.redis().rpush(series, f"{app.redis().time()[0] - at} 1 2 3 4 5.5 6 7 8 9 10 eleven")
    assert [point.merged for point in read_history(app.caller, namespace, "q", "5m")] == [9, 9, 9]
    assert read_earlier(app.caller, namespace, ["q"])["q"].lag == 5.5


def test_columns_of_a_newer_lowkiq_stay_when_an_older_one_adds_its_sample(app, namespace):
    series = keys.history(namespace, "q")
    now = app.redis().time()[0]
    step = 10**9
    app.redis().rpush(f"{series}x", f"{now // step * step} 9 9 9 9 9 1 1 1 1 10 eleven")
    app.caller.run(Call("record", [series], [1, "x", step, 5, "1 1 1 1 1 2 2 2 2"], bool))
    (record,) = app.redis().lrange(f"{series}x", 0, -1)
    assert record.split()[1:] == b"9 9 9 9 9 2 2 2 2 10 eleven".split()
