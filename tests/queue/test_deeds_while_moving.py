"""What people and programs do to ids while their queue is being resharded: it is done or refused, never by half."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from lowkiq import Lowkiq, Worker, clock
from lowkiq.errors import BeingResharded
from lowkiq.queue import resharding
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import Exhausted, Failure, Outcome, Owned, Shard
from lowkiq.shared_page import DeadNode

#: What is said of ids in all kinds of places; all but the first three were never pushed.
IDS: Final = ("failed", "dead", "blocked", "held", "recurs", "tracked")
#: Steps of a move after which a deed is tried: more than it has.
STEPS: Final = 99

Deed = Callable[[Lowkiq, "type[Worker[Any]]"], Any]
DEEDS: Final[dict[str, Deed]] = {
    "delete": lambda _, worker: worker.actions.delete(["failed"]),
    "delete_dead": lambda _, worker: worker.actions.morgue_delete(["dead"]),
    "cancel": lambda _, worker: worker.actions.cancel(["failed"]),
    "kill": lambda _, worker: worker.actions.bury(["failed"]),
    "revive": lambda _, worker: worker.actions.morgue_queue_up(["dead"]),
    "retry": lambda _, worker: worker.actions.retry(["blocked"]),
    "skip": lambda _, worker: worker.actions.skip(["blocked"]),
    "perform_now": lambda _, worker: worker.actions.perform_now(["failed"]),
    "hold": lambda _, worker: worker.actions.hold(["failed"], "why"),
    "hold_anew": lambda _, worker: worker.actions.hold(["held"], "another reason"),
    "let_go": lambda _, worker: worker.actions.release(["held"]),
    "track": lambda _, worker: worker.actions.track(["failed"]),
    "untrack": lambda _, worker: worker.actions.untrack(["tracked"]),
    "set": lambda app, worker: app.recurring.set(worker, "recurs", every=10),
    "pause": lambda app, worker: app.recurring.pause(worker, "recurs"),
    "remove": lambda app, worker: app.recurring.remove(worker, "recurs"),
}


@pytest.fixture
def worker(app: Lowkiq) -> type[Worker[Any]]:
    return app.worker(queue_name="q", shards_count=2)(lambda _: None)


def fill(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    """Puts one id into each place."""
    opened(app.caller, app.settings.namespace, {"q": 2})
    worker.perform_async([{"id": id, "payload": n, "tags": [id]} for id in IDS[:3] for n in range(2)])
    for index in range(2):
        shard = Shard(app.settings.namespace, "q", index, Layout(2, 2))
        owned = app.caller.run(shard.acquire("node", 600, 9))
        assert isinstance(owned, Owned)
        claim = app.caller.run(shard.claim("node", owned.epoch, 1, 9, 9, bytes))
        ids = {job.id for job in claim.jobs}
        outcome = Outcome(
            failed=[Failure(id, 0, 3_600.0, "boom") for id in ids & {"failed"}],
            exhausted=[Exhausted(id, "boom", "bury_all") for id in ids & {"dead"}]
            + [Exhausted(id, "boom", "block") for id in ids & {"blocked"}],
        )
        app.caller.run(shard.settle("node", owned.epoch, 1, outcome))
    worker.actions.hold(["held"], "a reason")
    app.recurring.set(worker, "recurs", every=60)
    worker.actions.track(["tracked"])


def move(app: Lowkiq, count: int) -> Iterator[None]:
    """Gives the queue another number of shards, step by step."""
    caller, namespace = app.caller, app.settings.namespace
    layout = resharding.begin(caller, namespace, "q", count)
    for index in range(2):
        route = Route.of(namespace, "q", layout, index)
        owned = caller.run(route.acquire("mover", 600, 9, [DeadNode("node", ())], is_marked=False))
        assert isinstance(owned, Owned)
        for _ in resharding.steps(caller, route, "mover", owned.epoch):
            yield
        yield
    resharding.end(caller, namespace, "q", layout)


def known(app: Lowkiq) -> dict[str, Any]:
    """What the shards know of ids, but for times."""
    names = [key.decode() for key in app.redis().keys("*@2:*")]
    names = [name for name in names if not name.endswith((":meta", ":owner", ":deeds"))]
    kinds, values = app.redis().pipeline(transaction=False), app.redis().pipeline(transaction=False)
    for name in names:
        kinds.type(name)
    for name, kind in zip(names, kinds.execute(), strict=True):
        if kind == b"hash":
            (values.hgetall if name.endswith((":holds", ":recurring", ":retries")) else values.hkeys)(name)
        elif kind == b"zset":
            values.zrange(name, 0, -1)
        else:
            values.type(name)
    found = zip(names, values.execute(), strict=True)
    return {name: set(value) if isinstance(value, list) else value for name, value in found}


@pytest.mark.parametrize(("name", "count"), [*((name, 3) for name in DEEDS), ("delete", 4), ("let_go", 4)])
def test_a_deed_is_done_or_refused_whenever_it_comes(
    app: Lowkiq, worker: type[Worker[Any]], name: str, count: int
) -> None:
    """With 3 each new shard waits for both old ones."""
    fill(app, worker)
    list(move(app, count))
    DEEDS[name](app, worker)
    wanted, refused = known(app), 0
    for step in range(STEPS):
        app.redis().flushdb()
        fill(app, worker)
        moving = move(app, count)
        is_moving = all(next(moving, "over") != "over" for _ in range(step))
        try:
            DEEDS[name](app, worker)
            is_done = True
        except BeingResharded as error:
            assert "queue q is being resharded" in str(error)
            assert "try again" in str(error)
            is_done, refused = False, refused + 1
        list(moving)
        if not is_done:
            DEEDS[name](app, worker)
        assert _without_pauses_time(known(app)) == _without_pauses_time(wanted), f"after step {step}"
        if not is_moving:
            break
    assert not is_moving
    assert refused > 0


def _without_pauses_time(found: dict[str, Any]) -> dict[str, Any]:
    """A recurring job says since when it is paused."""
    return {
        name: {id: b"paused" if b"paused" in text else text for id, text in what.items()}
        if name.endswith(":recurring")
        else what
        for name, what in found.items()
    }


def test_a_batch_ends_though_the_shard_of_its_last_job_moves(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    moving = None
    with app.batch(on_done=(worker, {"id": "end"})) as batch:
        batch.push(worker, [{"id": "one"}])
        moving = move(app, 4)
        while not app.redis().keys("*@2:*:waits"):
            next(moving)
        finishing = threading.Timer(0.2, lambda: list(moving))
        finishing.start()
    finishing.join()
    (key,) = app.redis().keys("*@2:*:waits:end")
    assert app.redis().zrange(key, 0, -1) == [b"q 2 one"]


def test_a_batch_that_can_not_be_ended_says_so(app: Lowkiq, worker: type[Worker[Any]]) -> None:
    app = app.__class__(redis_url=app.settings.redis_url, namespace=app.settings.namespace, push_timeout=0.2)
    worker = app.worker(queue_name="q", shards_count=2)(lambda _: None)
    began = clock.monotonic()
    with pytest.raises(BeingResharded, match="try again"), app.batch(on_done=(worker, {"id": "end"})):
        moving = move(app, 4)
        while not app.redis().keys("*@2:*:waits"):
            next(moving)
    assert clock.monotonic() - began >= 0.2
