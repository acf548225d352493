"""The last word is the last state: an equal payload that is pushed again has its latest place, wherever they merge."""

from __future__ import annotations

from random import Random

import pytest

from lowkiq import Lowkiq, SettingsError, current, testing
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.fewer import Fewer
from lowkiq.job import EncodedJob
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.shard import Exhausted, Snoozed
from tests.queue.reshard_world import ReshardWorld
from tests.queue.stamps import once

PAID, SENT = b"paid", b"sent"
#: The word of a job whose worker has equal="first".
FIRST = Fewer(equal="first").word_of({})
#: Rule → what becomes of paid, sent, paid.
RULES = {"": [SENT, PAID], FIRST: [PAID, SENT]}


@pytest.fixture(params=RULES, ids=["last", "first"])
def word(request):
    return request.param


def push(shard, word, *payloads, score=lambda number: ""):
    for number, payload in enumerate(payloads):
        shard.push_all(("17", payload, score(number), "", "", "", word))


def run_of(lease):
    (job,) = lease.claim()
    return job.payloads


@pytest.mark.parametrize("together", [False, True])
def test_the_last_push_is_the_last_word(shard, word, together):
    if together:
        shard.push_all(*(("17", payload, "", "", "", "", word) for payload in (PAID, SENT, PAID)))
    else:
        push(shard, word, PAID, SENT, PAID)
    assert run_of(shard.lease()) == RULES[word]


def test_so_is_the_highest_of_the_rising_scores_of_an_outbox(shard, word):
    push(shard, word, PAID, SENT, PAID, score=lambda number: 4e9 + number)
    assert run_of(shard.lease()) == RULES[word]


def test_an_old_message_that_is_delivered_again_stays_where_it_was(shard, word):
    push(shard, word, PAID, SENT, PAID, score=lambda number: [1.0, 2.0, 1.0][number])
    assert run_of(shard.lease()) == [PAID, SENT]


def test_a_state_that_flaps_counts_by_its_last_place(shard):
    push(shard, "", b"open", b"done", b"open", b"done", b"void", b"open")
    assert run_of(shard.lease()) == [b"done", b"void", b"open"]


#: Each gives back a job that was claimed, having run.
RETURNS = {
    "failed": lambda lease: lease.fail("17", delay=-100),
    "snoozed": lambda lease: lease.settle(snoozed=[Snoozed("17", -100)]),
    "released": lambda lease: lease.settle(released=["17"]),
    "the claim released": lambda lease: lease.release("claim"),
    "blocked, and retried": lambda lease: (
        lease.settle(exhausted=[Exhausted("17", "boom", "block")]), lease.driver.actions.retry(["17"])
    ),
    "its node died": lambda lease: lease.driver.lease("b", dead=["a"]),
}  # fmt: skip


@pytest.mark.parametrize("back", RETURNS.values(), ids=RETURNS)
@pytest.mark.parametrize("more", [[], [b"shipped"]], ids=["one", "several"])
def test_what_comes_back_from_a_run_is_older_than_what_was_pushed_meanwhile(shard, word, back, more):
    push(shard, word, PAID, *more)
    lease = shard.lease()
    lease.claim()
    push(shard, word, SENT, PAID)
    back(lease)
    lease.node, lease.epoch, lease.number = shard.owner("node"), shard.owner("epoch"), int(shard.owner("claim") or 0)
    expected = [*more, SENT, PAID] if word == "" else [PAID, *more, SENT]
    assert run_of(lease) == expected


@pytest.mark.parametrize("more", [[], [b"shipped"]], ids=["one", "several"])
def test_what_was_deleted_and_is_put_back_is_older_than_what_was_pushed_since(app, shard, word, more):
    actions = UndoableActions(app.caller, [shard.shard], max_id_bytes=512)
    push(shard, word, PAID, *more)
    deleted = actions.delete_and_keep("due", ["17"])
    push(shard, word, SENT, PAID)
    assert actions.undo(deleted.undo) == 1
    assert run_of(shard.lease()) == ([*more, SENT, PAID] if word == "" else [PAID, *more, SENT])


@pytest.mark.parametrize("more", [[], [b"shipped"]], ids=["one", "several"])
def test_what_is_revived_is_older_than_what_was_pushed_since(shard, word, more):
    push(shard, word, PAID, *more)
    shard.actions.bury(["17"])
    push(shard, word, SENT, PAID)
    assert shard.actions.morgue_queue_up(["17"]) == 1
    assert run_of(shard.lease()) == ([*more, SENT, PAID] if word == "" else [PAID, *more, SENT])


def test_of_equal_payloads_that_died_the_last_word_is_revived(shard):
    for payload in (PAID, SENT, PAID):
        push(shard, "", payload)
        shard.actions.bury(["17"])
    shard.actions.morgue_queue_up(["17"])
    assert run_of(shard.lease()) == [SENT, PAID]


@pytest.mark.parametrize("before", [[PAID], [PAID, b"shipped"]], ids=["one", "several"])
@pytest.mark.parametrize("since", [[PAID], [SENT, PAID]], ids=["one since", "several since"])
def test_so_it_is_while_shards_move(app, word, before, since):
    world = ReshardWorld(app, 1, Random(0))
    put(app, world.shard("17", world.layout), word, before)
    world.begin(2)
    old = world.shard("17", world.layout.old)
    while not app.redis().hget(f"{old.prefix}meta", "layout").endswith(b":moved"):
        world.move()
    put(app, world.shard("17", world.layout.own), word, since)
    world.end_move()
    merged = list(dict.fromkeys([*before, *since])) if word else list(dict.fromkeys([*before, *since][::-1]))[::-1]
    assert claimed(app, world.shard("17", world.layout)) == merged


def put(app, shard, word, payloads):
    jobs = [EncodedJob(b"17", payload, fewer=word) for payload in payloads]
    assert sum(app.caller.run(push_call(shard, jobs, once()))) == len(payloads)


def claimed(app, shard):
    owned = app.caller.run(shard.acquire("n", 60, 3))
    (job,) = app.caller.run(shard.claim("n", owned.epoch, 1, 10, 10, bytes)).jobs
    return job.payloads


# ── what a run has kept goes with its payload ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("when", ["while it runs", "while it waits"])
def test_a_checkpoint_is_of_its_payload_also_when_that_is_pushed_again(shard, word, when):
    push(shard, word, PAID)
    lease = shard.lease()
    lease.claim()
    lease.checkpoint("17", b"page 3")
    if when == "while it runs":
        push(shard, word, SENT, PAID)
    lease.fail("17", delay=-100)
    if when == "while it waits":
        push(shard, word, PAID)
    (job,) = lease.claim()
    assert job.checkpoint == b"page 3"


# ── how a worker says so ────────────────────────────────────────────────────────────────────────────────────────────


def drained(app, **options):
    seen = []

    @app.worker(queue_name="orders", **options)
    def orders(id, payloads):
        seen.append(payloads)
        if current().attempt == 1:
            orders.perform_async([{"id": id, "payload": one} for one in ("sent", "paid")])
            raise ValueError

    with testing.fake(app) as jobs:
        orders.perform_async([{"id": 17, "payload": "paid"}])
        jobs.drain("+1h")
    return seen[-1]


def test_it_is_the_worker_s_or_else_the_application_s_in_tests_of_users_too():
    assert drained(Lowkiq()) == ["sent", "paid"]
    assert drained(Lowkiq(equal="first")) == ["paid", "sent"]
    assert drained(Lowkiq(), equal="first") == ["paid", "sent"]
    assert drained(Lowkiq(equal="first"), equal="last") == ["sent", "paid"]


@pytest.mark.parametrize("value", ["frist", "lowest", 1, True])
def test_another_word_is_refused(value):
    with pytest.raises(SettingsError, match=r'equal is .*, it must be "last": .*"first"'):
        Lowkiq(equal=value)
    with pytest.raises(SettingsError, match=r"worker orders: equal is .* it must be"):
        drained(Lowkiq(), equal=value)


def test_what_was_meant_is_told():
    with pytest.raises(SettingsError, match="did you mean 'first'"):
        Lowkiq(equal="frist")
    with pytest.raises(SettingsError, match="did you mean `equal`"):
        drained(Lowkiq(), equals="first")
