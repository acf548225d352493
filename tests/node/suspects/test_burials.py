"""Jobs that deaths have buried: their middlewares and `retries_exhausted` hear of it, once, from a node that lives."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from lowkiq.codec import join_words
from lowkiq.job import shard_of
from lowkiq.node.chores import burials
from lowkiq.queue.letters import Letter, Outbox
from lowkiq.queue.shard import Shard
from tests.node.nodes import NodeProcess, Nodes
from tests.support import wait_until

ERROR = "the node that ran this job died 3 times (max_crashes)"


def suspect(nodes: Nodes, id: str, crashes: int, crowds: int) -> None:
    for shard in nodes.app.shards("jobs", 3):
        nodes.app.redis().hset(f"{shard.prefix}crashes", id, crashes)
        nodes.app.redis().hset(f"{shard.prefix}crowds", id, crowds)


def letters(nodes: Nodes) -> int:
    return sum(nodes.app.redis().zcard(f"{shard.prefix}outbox") for shard in nodes.app.shards("jobs", 3))


def poisoned(nodes: Nodes) -> NodeProcess:
    """Starts a node whose next death by that job buries it."""
    suspect(nodes, "poison", 2, 1)
    nodes.push({"id": "poison", "payload": {"kill": True}})
    return nodes.start(node={"name": "n0"}).wait_ready()


def buried(nodes: Nodes) -> None:
    wait_until(lambda: nodes.metrics().morgue_length == 1 and not letters(nodes))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_those_that_killed_their_own_process(nodes: Nodes, asynchronous: bool) -> None:
    nodes._options.update(asynchronous=asynchronous, hears=True)
    node = poisoned(nodes)
    buried(nodes)
    assert [row[2:] for row in nodes.records("exhausted")] == [[[["poison", [{"kill": True}], ERROR]]]]
    assert [row[2:] for row in nodes.records("heard")] == [[["poison"], f"ProcessDied: {ERROR}"]]
    assert len(nodes.records("start")) == 1, "it has run no more"
    assert node.pid not in {row[1] for row in nodes.records("exhausted", "heard")}, "what it does may kill"
    assert node.is_running()


def test_those_that_died_with_all_that_knew_of_them(nodes: Nodes) -> None:
    suspect(nodes, "poison", 2, 2)
    nodes.push({"id": "poison", "payload": {"gate": "go"}})
    first = nodes.start(node={"name": "n0"}, lease_ttl=60).wait_ready()
    wait_until(lambda: nodes.is_at("go"))
    assert first.logged("suspect_is_tried")[0]["alone"]
    first.kill()
    assert not nodes.records("exhausted")
    nodes.start(node={"name": "n1", "dead_nodes": ["n0"]}, lease_ttl=60).wait_ready()
    buried(nodes)
    assert [row[2:] for row in nodes.records("exhausted")] == [[[["poison", [{"gate": "go"}], ERROR]]]]
    assert len(nodes.records("start")) == 1


def test_a_call_in_which_its_node_dies_is_not_made_again(nodes: Nodes) -> None:
    nodes._options.update(exhausted={"gate": "told"})
    node = poisoned(nodes)
    wait_until(lambda: nodes.is_at("told"))
    nodes.push({"id": "stranger", "payload": {}})
    wait_until(lambda: nodes.metrics().processed == 1)
    node.kill()
    nodes.open("told")
    nodes.start(node={"name": "n1", "dead_nodes": ["n0"]}).wait_ready()
    buried(nodes)
    assert len(nodes.records("exhausted")) == len(nodes.records("start")) - 1 == 1, "neither again"


def test_a_node_that_drains_ends_after_the_call(nodes: Nodes) -> None:
    nodes._options.update(exhausted={"gate": "told", "push": [{"id": "after"}]})
    node = poisoned(nodes)
    wait_until(lambda: nodes.is_at("told"))
    node.send(signal.SIGTERM)
    wait_until(lambda: bool(node.logged("draining")))
    nodes.open("told")
    assert node.wait() == 0
    assert nodes.worker.queries.fetch(["after"]), "it came to its end"


def test_a_call_that_kills_its_process_is_said(nodes: Nodes) -> None:
    nodes._options.update(exhausted={"kill": True})
    node = poisoned(nodes)
    buried(nodes)
    (told,) = node.logged("hooks_not_called")
    assert (told["ids"], told["reason"]) == (["poison"], "killed by SIGKILL")
    assert len(nodes.records("exhausted")) == 1
    assert node.is_running()


@pytest.mark.parametrize("is_dead", [True, False])
@pytest.mark.parametrize("kind", [b"buried", b"begun"])
def test_what_a_node_has_left_the_next_one_does_unless_it_has_begun(nodes: Nodes, kind: bytes, is_dead: bool) -> None:
    """Nobody hears of what somebody has revived, or deleted, meanwhile."""
    shard, redis = nodes.app.shards("jobs", 3)[shard_of(b"left", 3)], nodes.app.redis()
    nodes.push({"id": "left", "payload": {"n": 1}, "delay": 3600})
    if is_dead:
        nodes.worker.actions.bury(["left"])
    redis.hset(f"{shard.prefix}letters", "name", join_words([b"left", kind, b"jobs", b"1", b"left"]))
    redis.zadd(f"{shard.prefix}outbox", {"name": 1})
    nodes.start().wait_ready()
    wait_until(lambda: not letters(nodes))
    assert not redis.exists(f"{shard.prefix}letters")
    told = [row[2] for row in nodes.records("exhausted")]
    assert told == ([[["left", [{"n": 1}], "moved to the morgue by hand"]]] if is_dead and kind == b"buried" else [])


class Refusing:
    """A Redis that does not answer for so many calls."""

    def __init__(self, times: int) -> None:
        self.times, self.calls = times, 0

    def run(self, call: Any) -> list[Any]:
        self.calls += 1
        if self.calls <= self.times:
            raise redis.exceptions.ConnectionError
        return []


@pytest.mark.parametrize(("times", "loses_at", "may_start"), [(2, 9, True), (9, 3, False), (0, 0, False)])
def test_that_a_call_begins_is_said_until_redis_answers_or_another_node_may_say_it(
    monkeypatch: pytest.MonkeyPatch, times: int, loses_at: int, may_start: bool
) -> None:
    monkeypatch.setattr(burials, "AGAIN", 0.001)
    caller, shard = Refusing(times), Shard("lowkiq", "jobs", 0, 3)
    outbox = Outbox(shard, "node", "7", lambda: caller.calls < loses_at)
    letter = Letter(b"name", b"1", b"left", b"buried", "jobs", 1, [b"left"])
    burial = burials.Burial(cast(Any, None), outbox, letter)
    runtime = cast(Any, SimpleNamespace(caller=caller, node="node", outage=SimpleNamespace(met=lambda _: None)))
    run = burials._Run(burial, runtime, cast(Any, None), [], lambda: True)
    assert run.may_start() is may_start
    assert caller.calls == min(times + 1, loses_at)
