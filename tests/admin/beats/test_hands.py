"""Requests of one node end, whatever becomes of the node."""

from __future__ import annotations

import msgspec

from lowkiq import Lowkiq
from lowkiq.admin.beats.hands import HandRequest, ask, read_hand, take, tell
from lowkiq.admin.beats.health import BEAT_TTL, forget
from lowkiq.queue import keys
from lowkiq.queue.call import redis_time
from tests.web.node_health import tell_health

NODE = "host:2:y"


def read(app: Lowkiq, request: HandRequest) -> HandRequest:
    found = read_hand(app.caller, app.settings.namespace, request.id)[1]
    assert found
    return found


def test_of_a_node_that_is_gone_a_request_is_over_and_says_how_far_it_was(app: Lowkiq) -> None:
    caller, namespace = app.caller, app.settings.namespace
    tell_health(app, node=NODE, number_of_nodes=1)
    asked, doing, done = (ask(caller, namespace, NODE, "restart", "me") for _ in range(3))
    take(caller, namespace, NODE)
    tell(caller, namespace, msgspec.structs.replace(doing, state="doing", says="its supervisor was told"))
    tell(caller, namespace, msgspec.structs.replace(done, state="done", says="its successor is ready"))
    assert [read(app, one).state for one in (asked, doing, done)] == ["asked", "doing", "done"]
    beats = keys.nodes(namespace)
    app.redis().zadd(beats, {NODE: redis_time(caller) - BEAT_TTL + 5})
    assert read(app, doing).state == "doing", "it may be heard of again"
    app.redis().zadd(beats, {NODE: redis_time(caller) - BEAT_TTL - 1})
    assert [read(app, one).state for one in (asked, doing, done)] == ["gone", "gone", "done"]
    assert read(app, doing).says == (
        "the node is gone: it has ended, or was killed, before it told the outcome "
        "(the last was: its supervisor was told)"
    )
    assert "(" not in read(app, asked).says and read(app, asked).is_over
    tell_health(app, node=NODE, number_of_nodes=1)
    assert read(app, doing).state == "doing", "it was frozen"
    assert tell(caller, namespace, msgspec.structs.replace(doing, state="done"))
    forget(caller, namespace, NODE)
    assert [read(app, one).state for one in (asked, doing)] == ["gone", "done"], "it has left in an orderly way"


def test_beats_of_another_type_hide_no_answer(app: Lowkiq) -> None:
    request = ask(app.caller, app.settings.namespace, NODE, "dump", "me")
    app.redis().set(keys.nodes(app.settings.namespace), "x")
    assert read(app, request).state in {"asked", "gone"}
