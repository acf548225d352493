"""Each script, on shards that hold few and many ids of each kind: what it touches is the same."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.full_shard import FullShard
from benchmarks.script_walk import walk
from lowkiq.queue import scripts
from lowkiq.queue.call import Call
from tests.queue.touched import KEY, count_in_scripts

#: Ids of each kind: more than any batch, and more than Redis keeps in flat lists, which it gives whole.
FEW, MANY = 1_200, 3_600
#: By how much what a script touches may differ, as a share of it, and beside that: a page of a scan is about so many.
SLACK, BESIDE = 1.3, 60


def touched_by_script(app: Any, count: int) -> dict[str, int]:
    """The most that a call of each touches."""
    app.redis().flushall()
    full = FullShard(app, "q", count)
    most: dict[str, int] = {}

    def run(call: Call[Any]) -> Any:
        full.redis.unlink(KEY)
        result = app.caller.run(call)
        most[call.script] = max(most.get(call.script, 0), int(full.redis.get(KEY) or 0))
        return result

    walk(full, run)
    return most


@pytest.mark.timeout(300)
def test_what_a_script_touches_does_not_rise_with_what_its_shard_holds(own_app, monkeypatch):
    count_in_scripts(monkeypatch)
    few, many = (touched_by_script(own_app, count) for count in (FEW, MANY))
    assert few.keys() == scripts.load(flags=False).keys(), "a new script gets its place in benchmarks/script_walk.py"
    assert {name: (few[name], many[name]) for name in few if many[name] > SLACK * few[name] + BESIDE} == {}
