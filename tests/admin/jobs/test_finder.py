"""Finder: ids over many queues, exactly and by patterns, in bounded round trips."""

from __future__ import annotations

import pytest

from lowkiq.admin.jobs import finder as finders
from lowkiq.admin.jobs.finder import Finder
from lowkiq.admin.jobs.states import state_of
from lowkiq.job import encode_id, shard_of
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver

QUEUES = {f"queue-{number:03}": 3 for number in range(200)}


@pytest.fixture
def finder(app):
    settings = app.settings
    return Finder(
        app.caller, settings.namespace, QUEUES, load_error=settings.load_error, max_id_bytes=settings.max_id_bytes
    )


@pytest.fixture
def push(app):
    def push(queue, id, **options):
        index = shard_of(encode_id(id, 512, errors="surrogateescape"), 3)
        ShardDriver(app, queue, index, 3).push(id, **options)
        return ShardDriver(app, queue, index, 3)

    return push


def everything(finder, pattern):
    cursor, found, pages = None, [], 0
    while True:
        page = finder.find(pattern, cursor)
        found, pages = found + page.jobs, pages + 1
        if page.next is None:
            return found, pages
        cursor = page.next


def test_an_exact_id_is_found_in_all_its_places(app, finder, push, monkeypatch):
    push("queue-007", "17", perform_in=FUTURE)
    dead = push("queue-150", "17")
    dead.actions.bury(["17"])
    push("queue-199", "17", perform_in=PAST).lease().claim()
    push("queue-001", "bytes\udcff *?[", perform_in=PAST)
    asked = []
    send = app.caller._server.pipeline
    monkeypatch.setattr(app.caller._server, "pipeline", lambda *given: asked.append(1) or send(*given))
    found = [(one.queue, one.job.where, state_of(one.job, PAST + 1)) for one in finder.find("17").jobs]
    assert found == [
        ("queue-007", "queue", "Scheduled"), ("queue-150", "morgue", "Morgue"), ("queue-199", "claim", "Running"),
    ]  # fmt: skip
    assert len(asked) <= 6, "round trips, of 200 queues"
    assert [one.queue for one in finder.find("bytes\udcff *?[").jobs] == ["queue-001"]
    assert finder.find("x" * 10_000).jobs == finder.find("nope").jobs == []


def test_a_pattern_is_searched_for_in_bounded_steps(app, finder, push, monkeypatch):
    many = {f"order-{number}" for number in range(60)}
    for number, id in enumerate(sorted(many)):
        push(f"queue-{number * 3:03}", id, perform_in=PAST)
    big = ShardDriver(app, "queue-020", 0, 3)
    for first in range(0, 4_000, 500):
        big.push_all(*((f"filler-{number}",) for number in range(first, first + 500)))
    push("queue-100", "order-dead").actions.bury(["order-dead"])
    found, pages = everything(finder, "order-*")
    assert {one.job.id for one in found} == many | {"order-dead"}
    assert 2 <= pages <= 4, "3,000 ids a page"
    monkeypatch.setattr(finders, "SHARDS_AT_ONCE", 100)
    monkeypatch.setattr(finders, "SHARDS_A_PAGE", 200)
    found, pages = everything(finder, "order-*")
    assert {one.job.id for one in found} == many | {"order-dead"}


@pytest.mark.parametrize("cursor", ["x", "1:due:0:", "-1:due:0:q", f"{2**64}:due:0:q", "1:claim:0:q"])
def test_what_is_no_cursor_is_refused(finder, cursor):
    with pytest.raises(ValueError, match="is no cursor of a search"):
        finder.find("a*", cursor)
