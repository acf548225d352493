"""Rounds through what shards hold, page by page."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from lowkiq.errors import Fenced
from lowkiq.node.chores.rounds import TOGETHER, Rounds


class Hold:
    """A lease."""

    shard = None

    def __init__(self, epoch: str | None = "7") -> None:
        self.epoch = epoch


class Pages:
    """Three pages of each shard."""

    def __init__(self) -> None:
        self.asked: list[tuple[Hold, bytes]] = []
        self.error: Exception | None = None

    def __call__(self, lease: Hold, epoch: str, place: bytes) -> bytes:
        if self.error:
            raise self.error
        self.asked.append((lease, place))
        return {b"0": b"1", b"1": b"2", b"2": b"0"}[place]


def test_a_round_goes_through_all_and_is_not_begun_again_too_soon():
    pages, lease = Pages(), Hold()
    rounds = Rounds(pages, 60.0)
    for now in (0.0, 1.0, 59.0):
        rounds.begin([lease], now)
        while rounds.has_more:
            rounds.go_on()
    assert pages.asked == [(lease, b"0"), (lease, b"1"), (lease, b"2")]
    rounds.begin([lease], 60.0)
    assert rounds.has_more


def test_each_shard_has_its_turn():
    pages, leases = Pages(), [Hold() for _ in range(TOGETHER + 3)]
    rounds = Rounds(pages, 60.0)
    rounds.begin(leases, 0.0)
    assert rounds.go_on() == set(leases[:TOGETHER])
    rounds.go_on()
    assert [lease for lease, place in pages.asked if place == b"0"] == leases


def test_a_page_that_redis_did_not_answer_is_asked_for_again():
    pages, lease = Pages(), Hold()
    rounds = Rounds(pages, 60.0)
    rounds.begin([lease], 0.0)
    pages.error = RedisConnectionError()
    with pytest.raises(RedisConnectionError):
        rounds.go_on()
    assert rounds.has_more
    pages.error = None
    rounds.go_on()
    assert pages.asked == [(lease, b"0")]


@pytest.mark.parametrize("epoch", [None, "7"])
def test_a_round_ends_with_the_lease(epoch):
    pages = Pages()
    pages.error = Fenced("another node's")
    rounds = Rounds(pages, 60.0)
    rounds.begin([Hold(epoch)], 0.0)
    rounds.go_on()
    assert not rounds.has_more
