"""A queue is resharded through the API, as far as that only begins it."""

from __future__ import annotations

from lowkiq.admin.past.incidents import read_incidents
from lowkiq.admin.resharding import read_layout
from lowkiq.queue import keys


def know(app) -> int:
    """Makes the queue known, as a push does."""
    app.redis().hset(keys.queues(app.settings.namespace), "q", "2:1")
    return 1


def test_a_reshard_is_begun_and_told_of(api, app, failed):
    before = know(app)
    assert api.get("queues/q/reshard") == {"reshard": None}
    told = api.post("queues/q/reshard", {"shards": before + 2})["reshard"]
    assert (told["before"], told["shards"], told["percent"], told["is_over"]) == (before, before + 2, 0, False)
    assert told["left"] > 0 and told["who"] == "anyone at 127.0.0.1"
    assert api.get("queues/q/reshard")["reshard"]["began_at"] == told["began_at"]
    layout = read_layout(app.caller, app.settings.namespace, "q")
    assert layout is not None and layout.is_moving
    (found,) = read_incidents(app.caller, app.settings.namespace, kind="reshard")
    assert found.queue == "q"


def test_another_one_is_refused_meanwhile_and_so_is_what_can_not_be(api, app, failed):
    know(app)
    assert "no queue 'no'" in api.post("queues/no/reshard", {"shards": 5}, 404)["error"]
    assert "no queue 'no'" in api.get("queues/no/reshard", 404)["error"]
    for wrong in (0, 65_537, "many"):
        assert "shards" in api.post("queues/q/reshard", {"shards": wrong}, 400)["error"]
    api.post("queues/q/reshard", {"shards": 8})
    assert "wait until that is over" in api.post("queues/q/reshard", {"shards": 9}, 409)["error"]
