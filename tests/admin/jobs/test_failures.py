"""Errors by kind: those that are there now, and the ledger of when each was seen, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.jobs.failures import KEPT_SECONDS, MOST_GROUPS, ErrorGroup, named, note, read_ledger
from lowkiq.admin.jobs.previews import Previews
from lowkiq.queue import keys
from lowkiq.queue.call import redis_time
from tests.admin.conftest import fail
from tests.junk import EVIL, as_kind
from tests.queue.shard_driver import ShardDriver


@pytest.fixture
def tell(app: Lowkiq) -> Any:
    """Notes what a node has counted."""

    def tell(number: int, groups: dict[str, int], queue: str = "q", node: str = "one") -> None:
        note(app.caller, app.settings.namespace, node, number, {queue: groups})

    return tell


def ledger(app: Lowkiq, queue: str = "q") -> Any:
    return read_ledger(app.caller, app.settings.namespace, queue)


def key(app: Lowkiq, name: str) -> str:
    return f"{keys.failures(app.settings.namespace, 'q')}{name}"


def test_a_ledger_adds_up_over_flushes_and_nodes_and_a_repeated_flush_changes_nothing(app: Lowkiq, tell: Any) -> None:
    before = redis_time(app.caller)
    tell(1, {"E: #": 3, "F: é": 1})
    (first,) = [row for text, row in ledger(app).items() if text == "E: #"]
    for _ in range(3):  # its answer was lost
        tell(2, {"E: #": 4})
    tell(2, {"E: #": 5}, node="two")
    tell(1, {"E: #": 9}, queue="other")
    found = ledger(app)
    assert {text: row.total for text, row in found.items()} == {"E: #": 12, "F: é": 1}
    assert found["E: #"].first == first.first
    assert before <= found["E: #"].first <= found["E: #"].last <= redis_time(app.caller)
    assert found["E: #"].last > first.last
    assert next(iter(found)) == "E: #", "the last seen first"


def test_a_ledger_keeps_the_groups_seen_last_for_thirty_days(app: Lowkiq, tell: Any) -> None:
    redis = app.redis()
    tell(1, {"old": 1})
    for number in range(0, 2 * MOST_GROUPS, 100):
        tell(number + 2, {f"E {number + n}": 1 for n in range(100)})
    found = ledger(app)
    assert len(found) == MOST_GROUPS
    assert set(found) == {f"E {number}" for number in range(MOST_GROUPS, 2 * MOST_GROUPS)}
    assert {redis.zcard(key(app, "seen")), redis.hlen(key(app, "first")), redis.hlen(key(app, "counts"))} == {200}
    assert all(KEPT_SECONDS - 60 < redis.ttl(key(app, name)) <= KEPT_SECONDS for name in ("seen", "first", "counts"))
    assert 0 < redis.ttl(key(app, "flush:one")) <= 86_400
    redis.zadd(key(app, "seen"), {"E 300": redis_time(app.caller) - KEPT_SECONDS - 1, "E 301": 9e9})
    tell(999, {"E 302": 1})
    assert "E 300" not in ledger(app)
    assert ledger(app)["E 301"].last <= redis_time(app.caller), "a clock that was set back since"


def test_whatever_else_stands_in_a_ledger_is_skipped_and_made_room_for(app: Lowkiq, tell: Any) -> None:
    redis = app.redis()
    for name, kind in (("seen", "hash"), ("first", "zset"), ("counts", "list"), ("flush:one", "list")):
        tell(1, {"E": 1}, node="zero")
        as_kind(redis, key(app, name), kind)
        ledger(app)
        tell(1, {"E": 2})
        assert ledger(app)["E"].total >= 2, name
        redis.delete(*[key(app, name) for name in ("seen", "first", "counts", "flush:one", "flush:zero")])
    tell(2, {"E": 1})
    redis.hset(key(app, "counts"), mapping={"E": EVIL, "x": b"9" * 5_000})
    redis.hset(key(app, "first"), "E", EVIL)
    strange: dict[Any, Any] = {b"long" * 1_000: 1, EVIL: "inf", "endless": "-inf"}
    redis.zadd(key(app, "seen"), strange)
    found = ledger(app)
    assert (found["E"].first, found["E"].total) == (None, 0)
    assert not any(text.startswith("longlong") for text in found)
    assert "counts" in app.caller.met.now()[0].key or "first" in app.caller.met.now()[0].key
    tell(3, {"E": 5})
    assert ledger(app)["E"].total == 5


def test_groups_say_when_they_were_seen_where_the_ledger_knows(
    app: Lowkiq, tell: Any, shard: ShardDriver, alone: Previews
) -> None:
    fail(shard, a="E: 1", b="E: 2", c="ProcessDied")
    tell(1, {"E: #": 40})
    groups, sampled, total = alone.errors()
    assert (sampled, total) == (3, 3)
    known, unknown = groups
    assert (known.text, known.count, known.example_id in {"a", "b"}, known.total) == ("E: #", 2, True, 40)
    assert known.first_seen is not None and known.last_seen is not None
    assert unknown == ErrorGroup("ProcessDied", 1, "c", None, None, None)
    assert named([ErrorGroup("E", 1, "\udcff")])[0].example_id == "\\udcff"
    alone_of_nothing, *_ = alone.errors("morgue")
    assert alone_of_nothing == []


def test_a_traceback_comes_apart_from_the_error(app: Lowkiq, shard: ShardDriver, alone: Previews) -> None:
    text = "E: 17\n\nTraceback (most recent call last):\n  File x, line 3\n"
    fail(shard, a=text, b="E: 18")
    preview = next(job for job in alone.page("retries").jobs if job.id == "a")
    full = "Traceback (most recent call last):\n  File x, line 3\nE: 17"
    assert (preview.error, preview.traceback) == ("E: 17", full)
    (job,) = app.queries("q", 1).fetch(["a"])
    assert (job.error, job.traceback) == ("E: 17", full)
    assert [(group.text, group.count) for group in alone.errors().groups] == [("E: #", 2)]
