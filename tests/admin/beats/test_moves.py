"""Moves: one incident for each change of who has which shards, whoever notes it, and whoever dies meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lowkiq import Lowkiq
from lowkiq.admin.beats import moves as module
from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.beats.members import Members, Placement
from lowkiq.admin.beats.moves import Moves
from lowkiq.admin.past.incidents import Incident, read_incidents
from lowkiq.queue import keys
from tests.admin.alerts.test_list import node


def sharing(name: str, *shards: int, waits: bool = False, **facts: Any) -> NodeHealth:
    host, _, number = name.partition("-")
    waited_for = {"": {"q": [99]}} if waits else {}
    return node(
        node=name, host=host, node_number=int(number), owned={"q": list(shards)}, is_elastic=True,
        waited_for=waited_for, **facts,
    )  # fmt: skip


class Looks:
    """Looks of nodes that take turns."""

    def __init__(self, app: Lowkiq) -> None:
        self.app, self.namespace = app, app.settings.namespace

    def __call__(self, *nodes: NodeHealth) -> list[Incident]:
        """A node's look at these; returns all incidents, the newest first."""
        Moves(self.app.caller, self.namespace)(nodes)
        return read_incidents(self.app.caller, self.namespace, kind="moved")

    def says(self, *nodes: NodeHealth) -> list[str]:
        return [incident.says for incident in self(*nodes)]


@pytest.fixture
def look(app: Lowkiq) -> Looks:
    return Looks(app)


def test_a_join_is_one_incident_once_all_have_what_is_theirs(look: Looks) -> None:
    assert look(sharing("a-0", 0, 1, 2, 3)) == []
    assert look(sharing("a-0", 0, 1, 2, 3), sharing("b-0", waits=True)) == []
    assert look(sharing("a-0", 1, 2, 3), sharing("b-0", 0, waits=True)) == []
    (found,) = look(sharing("a-0", 2, 3), sharing("b-0", 0, 1))
    assert found.says == "Node 0 on b joined: 2 shards moved from node 0 on a to node 0 on b (2)"
    assert found.severity == "note"
    assert look(sharing("a-0", 2, 3), sharing("b-0", 0, 1)) == [found], "it is told once"


def test_a_leave_says_goodbye_and_a_machine_that_vanishes_does_not(look: Looks) -> None:
    first, second, third = sharing("a-0", 0, 1), sharing("b-0", 2, 3), sharing("c-0", 4, 5)
    look(first, second, third)
    (left,) = look(sharing("a-0", 0, 1, 2), sharing("c-0", 3, 4, 5))
    assert left.says == "Node 0 on b left: 2 shards moved from node 0 on b to node 0 on a (1) and node 0 on c (1)"
    look.app.redis().zadd(keys.nodes(look.namespace), {"c-0": 1.0})  # of its heartbeat nobody has taken leave
    vanished, _ = look(sharing("a-0", *range(6)))
    assert vanished.severity == "warn"
    assert vanished.says.startswith(
        "Node 0 on c went away without saying goodbye: 3 shards moved from node 0 on c to node 0 on a (3)"
    )


def test_shards_of_a_late_node_are_its_until_another_has_them(look: Looks) -> None:
    look(sharing("a-0", 0), sharing("b-0", 1))
    assert look(sharing("a-0", 0), sharing("b-0", 1, beat_age=14.0)) == []
    (found,) = look(sharing("a-0", 0, 1), sharing("b-0", 1, beat_age=19.0))
    assert found.says.startswith("Node 0 on b went away without saying goodbye: 1 shard moved")
    assert len(look(sharing("a-0", 0, 1))) == 1


def test_a_successor_of_the_same_number_replaces_its_node(look: Looks) -> None:
    look(sharing("a-0", 0, 1))
    (found,) = look(msgspec.structs.replace(sharing("a-0", 0, 1), node="a-0-new", pid=2))
    assert found.says.startswith(
        "Node 0 (process 1) on a was replaced: 2 shards moved from node 0 (process 1) on a to "
    )


def test_many_nodes_are_one_bounded_sentence(look: Looks) -> None:
    before = [sharing(f"{'h' * 60}{number}-0", *range(number * 8, number * 8 + 8)) for number in range(40)]
    look(*before)
    after = [sharing(f"{'g' * 60}{number}-0", *range(number * 4, number * 4 + 4)) for number in range(80)]
    (found,) = look(*after)
    assert "80 nodes on" in found.says and "40 nodes on" in found.says
    assert "320 shards moved" in found.says[:500]


def test_a_change_that_is_not_over_is_told_after_a_minute(look: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    look(sharing("a-0", 0, 1))
    waiting = sharing("a-0", 1), sharing("b-0", 0, waits=True)
    assert look(*waiting) == look(*waiting) == []
    monkeypatch.setattr(module, "LONGEST", 0.0)
    (found,) = look(*waiting)
    assert found.says.endswith("; others are still to move")


def test_what_moves_back_before_it_was_told_is_nothing(look: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    look(sharing("a-0", 0, 1))
    look(sharing("a-0", 1), sharing("b-0", 0, waits=True))
    assert look(sharing("a-0", 0, 1)) == []
    monkeypatch.setattr(module, "LONGEST", 0.0)
    assert look(sharing("a-0", 1), sharing("b-0", 0, waits=True)) == [], "its minute begins anew"


def test_what_moves_for_its_load_is_told_as_that(look: Looks) -> None:
    look(sharing("a-0", 0, 1), sharing("b-0", 2, 3))
    members = Members(look.app.caller, look.namespace, "a-0")
    members.give({("q", 0): Placement("b-0", 1.0, 0.9), ("q", 2): Placement("a-0", 1.0, 0.0)}, [])
    assert look(sharing("a-0", 1, 2), sharing("b-0", 0, 3)) == []
    (found,) = look(sharing("a-0", 2), sharing("b-0", 0, 1, 3))
    assert found.says == "Nodes share anew: 1 shard moved from node 0 on a to node 0 on b (1)"


def test_a_node_that_dies_after_it_has_noted_leaves_one_incident(look: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    look(sharing("a-0", 0, 1))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Moves, "_tell", die)
        look(sharing("a-0", 0), sharing("b-0", 1))
    assert len(look(sharing("a-0", 0), sharing("b-0", 1))) == 1
    assert len(look(sharing("a-0", 0), sharing("b-0", 1))) == 1


def test_numbered_nodes_are_not_looked_at(look: Looks) -> None:
    assert look(node(owned={"q": [0, 1]})) == []
    assert look(node(owned={"q": [0]})) == []
    assert not look.app.redis().exists(keys.parts(look.namespace))


@pytest.mark.parametrize("text", [b"", b"\xff", b"{}", b'{"at":1,"since":null,"parts":{"a":3}}', b"[" * 1000])
def test_what_somebody_else_has_written_there_is_written_anew(look: Looks, text: bytes) -> None:
    look.app.redis().set(keys.parts(look.namespace), text)
    assert look(sharing("a-0", 0)) == []
    assert len(look(sharing("b-0", 0))) == 1


def test_a_list_there_is_written_anew(look: Looks) -> None:
    look.app.redis().rpush(keys.parts(look.namespace), "x")
    look(sharing("a-0", 0))
    assert len(look(sharing("b-0", 0))) == 1
