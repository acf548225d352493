"""Live settings: what is set is what is read, and what somebody else has written harms nobody."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq import Lowkiq, SettingsError, Worker
from lowkiq.admin.live import read_live
from lowkiq.queue import keys


@pytest.fixture
def work(app: Lowkiq) -> type[Worker]:
    return app.worker(queue_name="q", shards_count=2)(lambda _: None)


def test_what_is_set_is_read_with_who_and_when(work: type[Worker]) -> None:
    work.actions.set(concurrency=10, perform_timeout=None, who="ann")
    work.actions.set(batch_size=50, concurrency=5, who="bob")
    found = work.queries.settings()
    assert {name: (one.value, one.who) for name, one in found.items()} == {
        "concurrency": (5, "bob"), "perform_timeout": (None, "ann"), "batch_size": (50, "bob"),
    }  # fmt: skip
    assert all(one.at > 1e9 for one in found.values())
    assert work.actions.unset("concurrency", "max_retry_count") == 1
    assert work.queries.settings().keys() == {"perform_timeout", "batch_size"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("concurency", 1, "did you mean `concurrency`?"),
        ("shards_count", 1, "unknown live setting `shards_count`"),
        ("concurrency", 0, "from 1 to 1,000"),
        ("concurrency", True, "must be an integer"),
        ("batch_size", None, "must be an integer"),
        ("perform_timeout", 0, "a number of seconds above 0"),
        ("weight", 0, "from 1 to 1,000"),
        ("weight", 1_001, "from 1 to 1,000"),
        ("weight", 1.5, "must be an integer"),
        ("log_level", "loud", "one of debug, info, warning, error"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_set(work: type[Worker], name: str, value: object, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        work.actions.set(who="ann", **dict[str, Any]({"max_retry_count": 3, name: value}))
    assert work.queries.settings() == {}


def test_what_somebody_else_has_written_is_left_out_and_told_of(app: Lowkiq, work: type[Worker]) -> None:
    key = keys.live_settings(app.settings.namespace)
    work.actions.set(concurrency=10)
    junk: dict[Any, Any] = {
        "q batch_size": "{",
        "q max_retry_count": '{"value": -1}',
        "nonsense": "1",
        b"\xff concurrency": "1",
    }
    app.redis().hset(key, mapping=junk)
    assert {name: one.value for name, one in work.queries.settings().items()} == {"concurrency": 10}
    assert len(app.caller.met.now()) == 4
    app.redis().delete(key)
    app.redis().lpush(key, "x")
    assert read_live(app.caller, app.settings.namespace) == {}
