"""Redis's clock is set back: heartbeats and turns of a time to come are taken for what they are."""

from __future__ import annotations

from lowkiq.admin.history import take_turn
from lowkiq.admin.nodes import BEAT_TTL, LATE_AFTER, living_nodes
from lowkiq.queue.call import Call
from tests.web.node_health import tell_health

SECOND = 1_000_000
HOUR = 3_600 * SECOND


def beat(shard, node):
    namespace = shard.app.settings.namespace
    shard.caller.run(Call("beat", [f"{namespace}:nodes"], [node, 0], bytes))


def test_a_dead_nodes_beat_of_a_time_to_come_ages_from_the_next_beat_of_another(shard, clock):
    for node in ("dead", "alive"):
        beat(shard, node)
    clock.step(-HOUR)
    beat(shard, "alive")
    told = dict(shard.redis.zrange(f"{shard.app.settings.namespace}:nodes", 0, -1, withscores=True))
    assert told == {b"dead": clock.now / SECOND, b"alive": clock.now / SECOND}


def test_a_node_that_redis_has_not_forgotten_in_time_is_not_told_of(app):
    """With its clock set back, Redis keeps a beat for longer."""
    redis, namespace = app.redis(), app.settings.namespace
    for name in ("old", "late"):
        tell_health(app, node=name)
    now = redis.time()[0]
    redis.zadd(f"{namespace}:nodes", {"old": now - BEAT_TTL - 1, "late": now - LATE_AFTER - 2})
    assert app.nodes().late == ["late"]
    assert living_nodes(app.caller, namespace) == []


def test_a_turn_of_a_time_to_come_is_taken(app):
    key = f"{app.settings.namespace}:{{history}}"
    assert take_turn(app.caller, app.settings.namespace, "a")
    app.redis().pexpire(key, 3_600_000)  # as it is with the clock set back by an hour
    assert take_turn(app.caller, app.settings.namespace, "b")
    assert not take_turn(app.caller, app.settings.namespace, "c")
