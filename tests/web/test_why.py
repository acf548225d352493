"""Why a job does not run: each reason, as Redis and heartbeats make it, is the same on all faces that tell it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq, Rate
from lowkiq.admin.beats.health import ThreadHealth
from lowkiq.admin.jobs.finder import Finder
from lowkiq.admin.resharding import reshard
from lowkiq.admin.why.reading import Reader, read_around
from lowkiq.admin.why.reasons import CODES
from lowkiq.cli import find as find_command
from lowkiq.cli import opening
from lowkiq.options import LIVE, OF_WORKERS
from lowkiq.queue import keys
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.rates import Unit, rate_call
from lowkiq.queue.shard import Exhausted
from tests.support import wait_until
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health
from tests.web.reading import read

NODE = "host:1:abc"
LATER = 4e9


def beat(app: Lowkiq, **facts: Any) -> None:
    tell_health(app, **{"number_of_nodes": 1, "queues": ["q"], "waited_for": {}} | facts)


def runs(*ids: str, queue: str = "q", shard: int = 0, seconds: float = 12.0) -> ThreadHealth:
    return ThreadHealth(name="t", worker="W", queue=queue, shard=shard, ids=list(ids), jobs=len(ids), seconds=seconds)


IDLE = ThreadHealth(name="idle")


def due(app: Lowkiq, owner: str | None = NODE, **facts: Any) -> Any:
    """A due job "1", in a shard that a node has."""
    driver = open_queue(app)
    driver.push("1")
    if owner:
        driver.lease(owner, ttl=300)
    beat(app, **{"threads": [IDLE]} | facts)
    return driver


def paused(app: Lowkiq) -> None:
    due(app, None).actions.pause("stock-taking", who="ann")


def held(app: Lowkiq) -> None:
    due(app).actions.hold(["1"], "look first", who="ann")


def waits(app: Lowkiq) -> None:
    work = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    app.push(work, [{"id": "2", "perform_in": LATER}])
    app.push(work, [{"id": "1", "after": [(work, "2")]}])


def blocked(app: Lowkiq) -> None:
    owner = due(app, None).lease(NODE, ttl=300)
    owner.claim()
    owner.settle(exhausted=[Exhausted("1", "ValueError: no", "block")])


def own_run(app: Lowkiq) -> None:
    driver = due(app, None, threads=[runs("1")])
    driver.lease(NODE, ttl=300).claim()
    driver.push("1", payload=b"2")


def rate(by: str, at: float = 0.0) -> Callable[[Lowkiq], None]:
    def make(app: Lowkiq) -> None:
        rate = Rate(1, per=900, by=(lambda *_: "") if by else None)
        units = [
            Unit(key, id) for key, id in ((by, "0"), ("else", "9"), ("else", "8"), (by, "2"), (by, "3"), (by, "1"))
        ]
        told = app.caller.run(rate_call(app.settings.namespace, "q", rate, units, most=1))
        open_queue(app).push("1", perform_in=told.answers[-1].at + 0.02)

    return make


def throttle(app: Lowkiq) -> None:
    driver = open_queue(app)
    driver.push_all(("1", b"p", "", "", "", "", "::600:"))
    owner = driver.lease(NODE, ttl=300)
    owner.claim()
    owner.ack("1")
    driver.push_all(("1", b"p", "", "", "", "", "::600:"))


def debounce(app: Lowkiq) -> None:
    open_queue(app).push_all(("1", b"p", "", "", "", "", "600:900::"))


def suspect(perform_in: float | str) -> Callable[[Lowkiq], None]:
    def make(app: Lowkiq) -> None:
        driver = open_queue(app)
        driver.push("1", perform_in=perform_in)
        driver.lease(NODE, ttl=300)
        driver.redis.hset(driver.key("crashes"), "1", 1)
        driver.redis.hset(driver.key("crowds"), "1", 2)
        beat(app, threads=[IDLE])

    return make


def failed(app: Lowkiq) -> None:
    owner = due(app, None).lease(NODE, ttl=300)
    owner.claim()
    owner.fail("1", retry_count=2, delay=600)


def max_running(app: Lowkiq) -> None:
    due(app)
    places = QueuePlaces(app.settings.namespace, "q", "other:2:x", 300)
    app.caller.run(places.take(1, [places.name(1)]))


def resharded(app: Lowkiq) -> None:
    due(app)
    app.redis().hset(keys.queues(app.settings.namespace), "q", "2:1")
    reshard(app.caller, app.settings.namespace, "q", 2)


def late(app: Lowkiq) -> None:
    due(app)
    app.redis().zincrby(keys.nodes(app.settings.namespace), -14.0, NODE)


def moving(app: Lowkiq) -> None:
    due(app, owned={"q": [0]}, is_elastic=True, started_at=1.0)
    beat(app, node="b:2:x", node_number=1, is_elastic=True, owned={}, waited_for={NODE: {"q": [0]}})


def concurrency(app: Lowkiq) -> None:
    app.worker(queue_name="q", shards_count=1, concurrency=1)(lambda _: None)
    due(app, threads=[runs("0"), IDLE])


def event_loop(app: Lowkiq) -> None:
    @app.worker(queue_name="q", shards_count=1)
    async def act(payloads_by_id: dict[str, list[Any]]) -> None: ...

    due(app, threads=[], tasks=1, loop_lag=9.0)


def fair_turn(app: Lowkiq) -> None:
    driver = open_queue(app)
    driver.push_all(*((id, b"p", "", 1e9 + n, "", id[0]) for n, id in enumerate(("a1", "b1", "a2"))))
    driver.push_all(("1", b"p", "", 1e9 + 9, "", "a"))
    driver.lease(NODE, ttl=300)
    beat(app, threads=[IDLE])


def ahead(app: Lowkiq) -> None:
    due(app).push("0", perform_in=10.0)


def running(app: Lowkiq) -> None:
    due(app, None, threads=[runs("1")]).lease(NODE, ttl=300).claim()


def lost(app: Lowkiq) -> None:
    driver = due(app, None)
    driver.lease(NODE, ttl=300).claim()
    driver.redis.hset(driver.key("owner"), "until", 1)


def dead(app: Lowkiq) -> None:
    owner = due(app, None).lease(NODE, ttl=300)
    owner.claim()
    owner.exhaust("1")


def full(load: float) -> dict[str, Any]:
    """A node of two threads that keeps them busy with another queue, though one was between two jobs at its beat."""
    return {"threads": [runs("7", queue="erp", shard=3), IDLE], "loads": {"erp": {3: load}}, "is_elastic": True}


#: A reason, what makes it, and words of its sentence.
TABLE: list[tuple[str, Callable[[Lowkiq], Any], str]] = [
    ("paused", paused, "its queue is paused by ann: stock-taking, 0 s ago"),
    ("held", held, "Held by ann: look first, for 0 s so far"),
    ("waits", waits, "Waits for 1 of 1 job: q 2, for 0 s so far"),
    ("blocked", blocked, "until somebody retries it"),
    ("own run", own_run, "Waits for its own run: its id runs, for 12 s so far"),
    ("rate", rate(""), "Waits for the rate of its queue, until 2"),
    ("rate", rate("acme"), "2 jobs are before it in the line"),
    ("throttle", throttle, "Waits for its throttle, until 2"),
    ("debounce", debounce, "Waits for pushes to pause (debounce), until 2"),
    ("suspect", suspect(""), "nodes have died with it in hand, so it is tried alone"),
    ("suspect", suspect(LATER), "until 2096-10-02 07:06:40 UTC"),
    ("retry", failed, "it failed 3 times and tries again then"),
    ("scheduled", lambda app: open_queue(app).push("1", perform_in=LATER), "it was pushed for then"),
    ("max_running", max_running, "its max_running is reached: 1 of 1 running (max_running): other:2:x 1"),
    ("reshard", resharded, "is being moved: the queue goes from 1 to 2 shards"),
    ("late", late, "node 0, which has shard 0, has not been heard of for 14 s; another node takes it when the lease"),
    ("quiet", lambda app: due(app, state="quiet"), "node 0, which has shard 0, is quiet: it takes no new jobs"),
    ("retiring", lambda app: due(app, state="retiring"), "ends, and takes no new jobs: it goes to another node"),
    ("moving", moving, "shard 0 moves: it goes to node 1 on host between two claims"),
    ("refused", lambda app: due(app, None, refused={"q": "two shards"}, owned={}),
     "nodes leave its queue alone: two shards"),
    ("no node", lambda app: due(app, None, queues=["r"], owned={}),
     "none has had it so far; no node that is there runs this queue"),
    ("redis", lambda app: due(app, redis_error="ResponseError: no"), "shard 0, can't use Redis: ResponseError: no"),
    ("event loop", event_loop, "the event loop of node 0 is blocked, for 9 s so far"),
    ("concurrency", concurrency, "shard 0 runs one batch at a time (concurrency): 0 for 12 s"),
    ("threads", lambda app: due(app, threads=[runs("7", queue="erp"), runs("8")]),
     "it is the first, and all 2 threads of node 0 are busy: erp has 1 and q has 1"),
    ("threads", lambda app: due(app, **full(1.9)), "all 2 threads of node 0 are busy: erp has 2"),
    ("fair turn", fair_turn, "2 jobs of a are before it, and its tenant takes turns with 1 other in shard 0"),
    ("ahead", ahead, "1 job is before it in shard 0 of node 0"),
    ("ahead", lambda app: due(app, threads=[runs("7"), IDLE]), "in shard 0, which has been at 7 for 12 s"),
    ("next", due, "it is the first in shard 0 of node 0"),
    ("runs", running, "Performed by node 0, thread t, for 12 s so far"),
    ("lost", lost, "In the hands of node 0, whose lease has run out"),
    ("morgue", dead, "nothing runs it until somebody revives it"),
]  # fmt: skip

#: Options of a worker, and live ones, by which a job may have to wait → the reason that says so.
DELAYS = {
    "concurrency": "concurrency", "max_running": "max_running", "max_retry_count": "morgue", "retry": "retry",
    "when_exhausted": "blocked", "debounce": "debounce", "throttle": "throttle", "rate": "rate", "fair_by": "fair turn",
    "shards_count": "reshard", "weight": "threads", "batch_size": "ahead",
}  # fmt: skip
#: Those by which none that is queued waits.
HARMLESS = {
    "queue_name", "perform_timeout", "max_payloads", "keep", "equal", "isolation", "id", "score", "pushes", "log_level",
}  # fmt: skip


class Faces:
    """All that tell why a job does not run."""

    def __init__(self, app: Lowkiq, browser: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self._app, self._browser, self._monkeypatch, self._capsys = app, browser, monkeypatch, capsys

    def tell(self) -> dict[str, dict[str, str]]:
        """Face → what it says of job 1, where it is queued or else where it is."""
        job = self._read("/api/v1/queues/q/job?id=1")["places"][0]["why"]
        found = self._read("/api/v1/search?q=1")["jobs"][0]
        return {"API": job, "search": found["why"] | {"state": found["state"]}, "find": self._find()}

    def _read(self, path: str) -> Any:
        """A view on a busy machine may say that Redis is too slow."""
        return wait_until(lambda: (reply := self._browser.get(path)).status_code == 200 and reply.json())

    def _find(self) -> dict[str, str]:
        @contextlib.contextmanager
        def opened(_: object) -> Iterator[Lowkiq]:
            yield self._app

        self._monkeypatch.setattr(opening, "opened_app", opened)
        self._capsys.readouterr()
        context: Any = SimpleNamespace(obj=None)
        find_command.find(context, id="1", as_json=True)
        row = json.loads(self._capsys.readouterr().out)[0]
        return {"code": row["code"], "says": row["why"], "state": row["state"]}


def without_times(text: str) -> str:
    """A second may pass between two looks; and a page has elements within its sentences."""
    return re.sub(r"\s", "", re.sub(r"((\d+|\d+\.\d) (d|h|min|s)\b ?)+|\d\d:\d\d:\d\d UTC", "#", text))


@pytest.mark.parametrize(("code", "make", "words"), TABLE, ids=[f"{row[0]}-{n}" for n, row in enumerate(TABLE)])
def test_each_reason_is_the_same_on_all_faces(
    app: Lowkiq, make_web: Any, browse: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any,
    code: str, make: Callable[[Lowkiq], Any], words: str,
) -> None:  # fmt: skip
    make(app)
    browser = browse(make_web())
    told = Faces(app, browser, monkeypatch, capsys).tell()
    assert {face: said["code"] for face, said in told.items()} == dict.fromkeys(told, code), told
    assert without_times(words) in without_times(told["API"]["says"]), told
    assert len({without_times(said["says"]) for said in told.values()}) == 1, told
    wait_until(lambda: browser.get("/queues/q/job?id=1").status_code == 200)
    page = read(browser, "/queues/q/job?id=1")
    assert without_times(told["API"]["says"]) in without_times(page.text)
    (state,) = {said["state"] for said in told.values()}
    assert re.search(rf'<h2 id="place-\w+">{state}</h2>', page.source)


def test_each_reason_has_a_row_and_each_option_that_can_delay_a_job_has_a_reason() -> None:
    assert {code for code, _, _ in TABLE} == CODES.keys()
    assert DELAYS.keys() | HARMLESS == {*OF_WORKERS, *LIVE}, "say by which reason a job waits that waits by this option"
    assert not DELAYS.keys() & HARMLESS and set(DELAYS.values()) <= CODES.keys()


@pytest.mark.parametrize("make", ["held", "rated", "tenants"])
def test_the_reasons_of_many_jobs_take_as_many_round_trips_as_that_of_one(
    app: Lowkiq, make: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, ids = open_queue(app), [f"{number:02}" for number in range(20)]
    if make == "rated":
        call = rate_call(app.settings.namespace, "q", Rate(1, per=900), [Unit("", id) for id in ids], most=1)
        for id, answer in zip(ids, app.caller.run(call).answers, strict=True):
            driver.push(id, perform_in=answer.at + 0.02)
    else:
        driver.push_all(*((id, b"p", "", 1e9 + int(id), "", f"t{id[1]}") for id in ids))
    if make == "held":
        driver.actions.hold(ids[:10], "look first")
        driver.actions.hold(ids[10:], who="ann")
    layouts: dict[str, int | keys.Layout] = {"q": 1}
    settings = app.settings
    finder = Finder(app.caller, settings.namespace, layouts, load_error=str, max_id_bytes=512)
    reader = Reader(app.caller, settings.namespace, read_around(app.caller, settings.namespace, layouts), {})
    found = [(one.queue, one.job) for id in ids for one in finder.find(id).jobs]
    trips: list[int] = []
    send = app.caller._server.pipeline
    monkeypatch.setattr(app.caller._server, "pipeline", lambda *given: trips.append(1) or send(*given))
    each, counts = [], set()
    for one in found:
        trips.clear()
        each += reader.reasons([one])
        counts.add(len(trips))
    trips.clear()
    together = reader.reasons(found)
    assert len(together) == 20 and len(trips) <= max(counts)
    told, one_by_one = ([(one.code, without_times(one.says)) for one in some[1:]] for some in (together, each))
    assert told == one_by_one, "the first may have become due meanwhile"
    assert {code for code, _ in told} == {{"held": "held", "rated": "rate", "tenants": "no node"}[make]}
