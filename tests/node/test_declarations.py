"""What the code of nodes has to recur, while these are replaced: nobody takes away what others have, or people did."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.node.chores import declarations
from lowkiq.node.chores.declarations import EVERY, LAPSE, Declarations
from lowkiq.queue import keys
from lowkiq.queue.layouts import opened
from lowkiq.recurrence import make_rule
from lowkiq.recurring import Declared, declared
from tests.node.driven import runtime_of

SHARDS = 2
V1, V2 = {"old": "1h"}, {"old": "2h", "new": "1h"}


class Node:
    """A node, as far as its code declares what recurs."""

    def __init__(self, nodes: Nodes, name: str, code: dict[str, str]) -> None:
        runtime = dataclasses.replace(runtime_of(nodes.app), node=name)
        runtime.layouts["reports"] = nodes.layout
        rows = [nodes.declared(id, every) for id, every in code.items()]
        self._nodes, self.name, self._declared = nodes, name, Declarations(runtime, "reports", rows)
        self.again = self._declared.look()

    def look(self, after: float = EVERY) -> None:
        self._nodes.time += after
        self.again = self._declared.look()

    def stop(self) -> None:
        self._declared.leave()


class Nodes:
    """All nodes of an application, each with code of its own."""

    def __init__(self, app: Lowkiq) -> None:
        self.app, self.time = app, 1_000.0

        @app.worker(queue_name="reports", shards_count=SHARDS)
        def report(id: str, payloads: list[Any]) -> None: ...

        self.report = report
        layout = opened(app.caller, app.namespace, {"reports": SHARDS})["reports"]
        assert not isinstance(layout, Exception)
        self.layout = layout

    def declared(self, id: str, every: str) -> Declared:
        return declared(self.app, self.report, {"id": id, "payload": ""}, make_rule(every))

    def start(self, name: str, code: dict[str, str]) -> Node:
        return Node(self, name, code)

    def kill(self, *nodes: Node) -> None:
        """They say nothing any more, for as long as Redis waits for it."""
        key = keys.declared(self.app.namespace, "reports")
        for node in nodes:
            known: Any = self.app.redis().hget(key, f"n:{node.name}")
            at, _, rest = known.partition(b" ")
            self.app.redis().hset(key, f"n:{node.name}", b"%.6f %s" % (float(at) - LAPSE - 1, rest))

    def there(self) -> dict[str, str]:
        """What recurs, and how."""
        return {job.id: job.rule.words for job in self.app.recurring}

    def told(self) -> Sequence[str]:
        incidents = read_incidents(self.app.caller, self.app.namespace, kind="recurring")
        said = [incident.says.removeprefix("Recurring job ") for incident in reversed(incidents)]
        return [one for one in said if "by hand" not in one]


@pytest.fixture
def nodes(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes(app)
    monkeypatch.setattr(declarations, "clock", SimpleNamespace(monotonic=lambda: nodes.time))
    return nodes


def words(**every: str) -> dict[str, str]:
    return {id: make_rule(text).words for id, text in every.items()}


def test_newer_code_decides_and_takes_away_once_no_node_has_the_older(nodes: Nodes) -> None:
    nodes.app.recurring.set(nodes.report, "by hand", "3h")
    first = nodes.start("one", {"old": "1h", "gone": "1h"})
    assert nodes.told() == []
    second = nodes.start("two", V2)
    assert nodes.there() == words(old="2h", new="1h", gone="1h") | words(**{"by hand": "3h"})
    first.look()
    assert nodes.there()["old"] == make_rule("2h").words
    first.stop()
    second.look()
    assert nodes.there() == words(old="2h", new="1h") | words(**{"by hand": "3h"})
    assert nodes.told() == [
        f"old of reports is now {make_rule('2h').words}, as the code has it",
        "gone of reports was removed: no node's code has it any more",
    ]


def test_an_older_node_that_starts_late_takes_nothing_away(nodes: Nodes) -> None:
    nodes.start("one", V1).stop()
    nodes.start("two", V2)
    for _ in range(2):
        late = nodes.start("one", V1)
        late.look(LAPSE)
        assert nodes.there() == words(old="2h", new="1h")
        late.stop()


def test_a_group_with_other_code_takes_nothing_away(nodes: Nodes) -> None:
    crons, plain = nodes.start("crons", {"nightly": "1h"}), nodes.start("plain", {})
    for node in (plain, crons, plain):
        node.look(LAPSE)
        assert nodes.there() == words(nightly="1h")
    assert plain.again is None, "it has nothing to say any more"
    crons.look()
    assert crons.again == nodes.time + EVERY


@pytest.mark.parametrize("first", ["plain", "crons"])
def test_nothing_is_taken_away_while_all_start_again_whoever_is_first(nodes: Nodes, first: str) -> None:
    code = {"crons": {"nightly": "1h"}, "plain": {}}
    for node in [nodes.start(name, some) for name, some in code.items()]:
        node.stop()
    started = {first: nodes.start(first, code[first])}
    assert nodes.there() == words(nightly="1h")
    for name in code.keys() - {first}:
        started[name] = nodes.start(name, code[name])
    for node in started.values():
        node.look(LAPSE)
    assert nodes.there() == words(nightly="1h")


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_rollback_has_what_it_had_and_people_keep_their_pauses(nodes: Nodes, ends: str) -> None:
    nodes.start("one", V1).stop()
    newer = nodes.start("two", V2)
    nodes.app.recurring.pause(nodes.report, "new", "it is summer", who="ann")
    newer.stop() if ends == "stop" else nodes.kill(newer)
    back = nodes.start("one", V1)
    assert nodes.there() == words(old="1h", new="1h"), "who starts with known code may be the first of many"
    back.look(LAPSE)
    assert nodes.there() == words(old="1h")
    back.stop()
    nodes.start("two", V2)
    assert nodes.there() == words(old="2h", new="1h")
    paused = {job.id: job.paused and job.paused.who for job in nodes.app.recurring}
    assert paused == {"old": None, "new": "ann"}


def test_what_people_have_set_and_removed_stays_until_the_code_says_something_else(nodes: Nodes) -> None:
    nodes.start("one", V2).stop()
    nodes.app.recurring.set(nodes.report, "old", "5h", who="ann")
    nodes.app.recurring.remove(nodes.report, "new", who="ann")
    for _ in range(2):
        node = nodes.start("one", V2)
        node.look(LAPSE)
        assert nodes.there() == words(old="5h")
        node.stop()
    nodes.start("one", {"old": "3h", "new": "3h"})
    assert nodes.there() == words(old="3h", new="3h")


def test_what_somebody_set_before_the_code_had_it_stays_and_that_is_told(nodes: Nodes) -> None:
    nodes.app.recurring.set(nodes.report, "old", "5h")
    nodes.start("one", V1).stop()
    nodes.start("one", V1)
    assert nodes.there() == words(old="5h")
    assert nodes.told()[1:] == [
        f"old of reports stays as somebody has set it; in the code it is {make_rule('1h').words}"
    ]


@pytest.mark.parametrize("junk", [b"x", b"", b"nan nan", b"1 \xff\xff"])
def test_what_somebody_has_written_there_is_in_nobodys_way(nodes: Nodes, junk: bytes) -> None:
    key = keys.declared(nodes.app.namespace, "reports")
    for field in ("n:x", "d:x", "-old", "x"):
        nodes.app.redis().hset(key, field, junk)
    nodes.start("one", V1)
    nodes.app.redis().set(key, junk)
    nodes.start("one", V1).look(LAPSE)
    assert nodes.there() == words(old="1h")


def test_a_queue_of_which_nothing_recurs_costs_nothing(nodes: Nodes) -> None:
    node = nodes.start("one", {})
    assert node.again is None
    node.stop()
    assert not nodes.app.redis().exists(keys.declared(nodes.app.namespace, "reports"))


def test_of_many_releases_the_last_are_known(nodes: Nodes) -> None:
    for number in range(60):
        nodes.start("one", {f"n{number}": "1h"}).stop()
    key = keys.declared(nodes.app.namespace, "reports")
    assert len(nodes.app.redis().hkeys(key)) <= 51
    assert nodes.there() == words(n59="1h")
