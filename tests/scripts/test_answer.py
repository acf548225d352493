"""answer: the claim that waits behind an idle thread's bell."""

from __future__ import annotations

from itertools import count

import pytest

from lowkiq.store.shard import answer
from tests.scripts.shard_driver import FUTURE, ShardDriver


@pytest.fixture
def leases(app):
    """Three idle shards of one node."""
    leases = [ShardDriver(app, index=index, shards_count=3).lease() for index in range(3)]
    for lease in leases:
        lease.claim()
    return leases


def ask(leases, **changed):
    """The positions and ids of what is claimed; `changed` says which lease asks with another number."""
    calls = [
        lease.driver.shard.claim(lease.node, lease.epoch, changed.get(f"_{n}", lease.number + 1), 10, 10, bytes)
        for n, lease in enumerate(leases)
    ]
    result = leases[0].driver.caller.run(answer(calls))
    return result and (result[0], [job.id for job in result[1].jobs])


def test_nothing_is_claimed_when_nothing_was_pushed(leases):
    before = leases[0].driver.dump()
    assert ask(leases) is None
    assert leases[0].driver.dump() == before


def test_a_push_for_later_is_claimed_when_it_is_due(leases):
    leases[1].driver.push("a", perform_in=FUTURE)
    assert ask(leases) is None


@pytest.mark.parametrize("rung", [0, 1, 2])
def test_the_shard_that_was_rung_is_claimed_and_no_other(leases, rung):
    leases[rung].driver.push("a")
    assert ask(leases) == (rung, ["a"])
    assert [set(lease.driver.claimed()) for lease in leases] == [{"a"} if n == rung else set() for n in range(3)]
    assert [lease.driver.owner("claim") for lease in leases] == ["2" if n == rung else "1" for n in range(3)]


def test_of_several_the_first_is_claimed_and_the_rest_with_the_next(leases):
    for lease in reversed(leases):
        lease.driver.push(f"of {lease.driver.shard.index}")
    numbers = count(2)
    for position in range(3):
        number = next(numbers)
        assert ask(leases, _0=number, _1=number, _2=number) == (position, [f"of {position}"])
        leases[position].settle(number, rest="ack")


@pytest.mark.parametrize("why", ["fenced", "stale", "unsettled"])
def test_one_that_is_refused_is_passed_over(leases, why):
    first, second, _ = leases
    first.driver.push("a")
    second.driver.push("b")
    if why == "fenced":
        first.driver.lease("b", dead=[first.node])
    elif why == "unsettled":
        first.claim()
    before = first.driver.jobs()
    assert ask(leases, **({"_0": 1} if why == "stale" else {})) == (1, ["b"])
    after = second.driver.jobs()
    assert {key: after.get(key) for key in before if b":0}" in key} == {
        key: value for key, value in before.items() if b":0}" in key
    }


def test_one_that_was_given_back_since_is_not_claimed(leases):
    """The lease keeper gives a shard away while the claim waits: the number that it names covers that claim."""
    leases[0].release("claim", number=2)
    leases[0].driver.push("a")
    assert ask(leases) is None
    assert set(leases[0].driver.queued()) == {"a"}
