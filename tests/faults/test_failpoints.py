"""
A node, a producer, or what people do, is killed at each of its calls to Redis, one by one, or loses only its connection
there; of calls that only read, the first stands for all where it makes no difference. Nothing is lost, nothing runs out
of order, no more runs twice than was in hand, tags are counted as jobs have them, deletions can be undone, and an
incident is there once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from tests.faults.failpoints.tripwire import HOWS
from tests.support import ROOT, SOURCES, RedisServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

#: Calls at which each of them must have been struck: what they are there for.
WHAT_THEY_DO = {
    "node": {"register", "SCRIPT", "acquire", "claim", "settle+claim", "renew", "beat", "release", "SET+BLPOP"}
    | {"isolate", "finish", "checkpoint", "cancels", "rest"},
    "async node": {"claim", "settle+claim", "isolate", "finish", "checkpoint", "cancels", "rest"},
    "limited node": {"places", "keep_places", "rate"},
    "limited async node": {"places", "keep_places", "rate"},
    "impatient node": {"abandon"},
    "moving node": {"feed", "mark_moved", "adopt+note_step", "drop_moved+pack", "pack+feed", "end_feed+note_step"}
    | {"close_moved", "relayout", "release+renew_away", "restore_away"},
    "following node": {"relay", "receive", "ask_again", "firing", "fire", "settle+claim"},
    "following producer": {"push", "wait"},
    "producer": {"register", "SCRIPT", "push"},
    "awaiting producer": {"register", "SCRIPT", "push", "push_apart"},
    "people": {"track", "weigh", "put_away", "HSCAN", "put_back", "bury", "newer", "unblock", "note_alerts"}
    | {"note_incidents", "end_incidents", "pause", "resume", "hold", "let_go", "recur"},
}


#: The calls of the one are those of a limited node and of an async one; whoever is killed after a reply has hardly more
#: behind it than who is killed before the next call.
RARE = {"limited async node", "killed after its reply"}
#: Those that take longest: a file of their own (test_failpoints_of_nodes.py) runs beside this one.
NODES = ("node", "async node", "moving node", "following node")


def params(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.rare] if name in RARE else []) for name in names]


@pytest.mark.parametrize("how", params(HOWS))
@pytest.mark.parametrize("kind", params(kind for kind in WHAT_THEY_DO if kind not in NODES))
def test_struck_at_any_call_it_loses_nothing(redis_server: RedisServer, kind: str, how: str) -> None:
    strike(redis_server, kind, how)


def strike(redis_server: RedisServer, kind: str, how: str) -> None:
    """Strikes at each call, and looks what has become of it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.failpoints", str(redis_server.socket), kind, how, *WHAT_THEY_DO[kind]],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=1_700,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    points = [json.loads(line) for line in done.stdout.splitlines()]
    for point in points:
        assert not point["wrongs"], f"{how}, {point['call']} {point['number']}: {point['wrongs']}\n{point['log']}"
    struck = {point["call"] for point in points if point["hit"] and point["call"]}
    assert not WHAT_THEY_DO[kind] - struck, f"of these only were struck: {struck}"
