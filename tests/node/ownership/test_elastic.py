"""How a node learns its part, and has shards change places, by what is told in Redis."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.beats.health import BEAT_INTERVAL
from lowkiq.admin.beats.members import Member, Members
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.node.leases.lease import Lease
from lowkiq.node.node import Node
from lowkiq.node.ownership.elastic import REST, Elastic
from lowkiq.node.threads import leases_of
from tests.node.driven import acquire, runtime_of

SHARDS = 8


class Here:
    """A node of that name; `looks` counts how often its part has changed."""

    def __init__(
        self,
        app: Lowkiq,
        name: str,
        may_have: Callable[[], bool] = lambda: True,
        free_threads: Callable[[], int | None] = lambda: None,
    ) -> None:
        worker = app.workers.get("jobs") or app.worker(queue_name="jobs", shards_count=SHARDS)(lambda _: None)
        self.name, self.looks = name, 0
        self.leases: list[Lease] = leases_of(runtime_of(app, name), worker)
        self.elastic = Elastic(self.leases[0].runtime, self.leases, may_have, self._look, free_threads)

    def _look(self) -> None:
        self.looks += 1

    @property
    def part(self) -> list[int]:
        return [lease.shard.index for lease in self.leases if not lease.is_foster]

    def acquire_part(self) -> None:
        for lease in self.leases:
            if not lease.is_foster:
                acquire(lease)


def busy(node: str, loads: dict[int, float]) -> Any:
    """A heartbeat, as far as it matters here."""
    return SimpleNamespace(node=node, loads={"jobs": loads})


def test_nodes_share_and_those_that_may_have_nothing_have_no_part(app: Lowkiq) -> None:
    ready = True
    first, second = Here(app, "first"), Here(app, "second", lambda: ready)
    first.elastic()
    assert (first.part, first.looks) == (list(range(SHARDS)), 0)
    first.acquire_part()
    first.elastic()
    second.elastic()
    first.elastic()
    assert len(first.part) == len(second.part) == SHARDS // 2
    assert sorted(first.part + second.part) == list(range(SHARDS))
    assert (first.looks, second.looks) == (1, 1)
    ready = False
    second.elastic()
    first.elastic()
    assert (first.part, second.part) == (list(range(SHARDS)), [])


def test_a_node_has_its_part_by_the_threads_that_are_free_and_none_without(app: Lowkiq) -> None:
    free = app.settings.threads_per_node
    first, second = Here(app, "first"), Here(app, "second", free_threads=lambda: free)
    for node in (first, second, first):
        node.elastic()
    assert len(first.part) == len(second.part) == SHARDS // 2
    parts = []
    for now in (1, 0, app.settings.threads_per_node):
        free = now
        for node in (second, first, second):
            node.elastic()
        parts.append(len(second.part))
        assert sorted(first.part + second.part) == list(range(SHARDS))
    assert parts == [1, 0, SHARDS // 2]


def test_shards_whose_jobs_a_blocked_loop_keeps_from_starting_go_to_others(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def perform(_: object) -> None: ...

    app.worker(queue_name="jobs", shards_count=SHARDS)(perform)
    first, second = Here(app, "first"), Here(app, "second")
    for node in (first, second, first):
        node.elastic()
    first.acquire_part()
    assert len(second.part) == SHARDS // 2
    with monkeypatch.context() as patch:
        patch.setattr(LoopThread, "lag", BEAT_INTERVAL + 1)
        second.elastic()
    first.elastic()
    assert (first.part, second.part) == (list(range(SHARDS)), [])
    first.elastic.balance([busy("first", {0: 4.0}), busy("second", {})])
    second.elastic()  # once it goes on
    assert len(second.part) == SHARDS // 2


def test_the_heirs_of_a_node_are_all_others(app: Lowkiq) -> None:
    first, second = Here(app, "first"), Here(app, "second")
    first.elastic()
    first.acquire_part()
    assert first.elastic.heirs() == {}
    first.elastic()
    second.elastic()
    first.elastic()
    assert set(first.elastic.heirs().values()) == {"second"}
    assert len(first.elastic.heirs()) == SHARDS


def test_the_hottest_changes_places_with_a_cold_one_and_both_rest(app: Lowkiq) -> None:
    first, second = Here(app, "first"), Here(app, "second")
    for node in (first, second, first, second):
        node.elastic()
    for node in (first, second):
        node.acquire_part()
        node.elastic()
    first.elastic()
    mine, theirs = list(first.part), list(second.part)
    beats = [busy("first", dict.fromkeys(mine, 1.0)), busy("second", dict.fromkeys(theirs, 0.1))]
    first.elastic.balance(beats)
    for node in (first, second):
        node.elastic()
    assert len(first.part) == len(second.part) == SHARDS // 2
    assert len({*mine} - {*first.part}) == len({*theirs} - {*second.part}) == 1
    hot = next(iter({*mine} - {*first.part}))
    assert hot in second.part
    # Nothing has moved yet, and what was told is still told: nobody moves what is on its way.
    first.elastic.balance(beats)
    first.elastic()
    assert hot not in first.part and len({*mine} - {*first.part}) <= 2


def test_a_place_is_for_as_long_as_its_node_is_there(app: Lowkiq) -> None:
    first, second = Here(app, "first"), Here(app, "second")
    for node in (first, second, first):
        node.elastic()
    members = Members(app.caller, app.settings.namespace, "look")
    loads = dict.fromkeys(range(SHARDS), 1.0)
    for node in (first, second):
        node.acquire_part()
        node.elastic()
    first.elastic()
    first.elastic.balance([busy("first", loads), busy("second", {})])
    members.tell(None)
    assert {place.node for place in members.placements.values()} == {"first", "second"}
    assert all(place.at > 0 and place.load >= 0 for place in members.placements.values()) and REST
    members.leave(["second"])
    first.elastic()
    first.elastic.balance([busy("first", loads)])
    members.tell(None)
    assert {place.node for place in members.placements.values()} <= {"first"}


def test_a_node_without_the_queue_gets_none_of_it(app: Lowkiq) -> None:
    first = Here(app, "first")
    Members(app.caller, app.settings.namespace, "other").tell(Member(50, {"mail": [0]}))
    first.elastic()
    assert first.part == list(range(SHARDS))


@pytest.mark.parametrize(
    ("state", "takes"),
    [("starting", True), ("ready", True), ("quiet", False), ("retiring", False), ("draining", False)],
)
def test_a_node_that_has_asked_for_a_shard_takes_it_also_while_it_starts(app: Lowkiq, state: str, takes: bool) -> None:
    """
    It may have asked before it knew of the next node that joins, and is not ready yet when the shard comes. If it left
    the shard alone, nobody had it until that next node looks again, a second later.
    """
    (lease, *_), taken = Here(app, "first").leases, list[Lease]()
    node = Node(app, is_elastic=True)
    node.state, node._keeper = state, SimpleNamespace(take_over=taken.append)  # type: ignore[assignment]
    lease.is_foster = True
    node._take_over(lease)
    assert bool(taken) is takes
    lease.is_foster = False
    node._take_over(lease)
    assert lease in taken
