"""Nothing that is stored, and no code of the user's, ends a thread of the node's own: it is told, and others go on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import redis
from structlog.testing import capture_logs

from lowkiq import Lowkiq
from lowkiq.admin.live import set_live
from lowkiq.node.chores.clockwork import Clockwork
from lowkiq.node.doorbell import Doorbell
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.live_settings import LiveSettings
from lowkiq.node.mishaps import LastingThread, Mishaps
from lowkiq.node.ownership.following import Following
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.node.schedulers import Lag, Watched
from lowkiq.node.threads import leases_of
from lowkiq.queue.bell import LocalBell
from lowkiq.queue.call import Call, UnreadableReply
from lowkiq.queue.keys import Layout
from lowkiq.recurrence import Rule
from tests.node.driven import acquire, burst, pool_of, runtime_of
from tests.support import wait_until


class Hasty(BaseException):
    """What a library of the user's may raise."""


ERRORS = [RuntimeError("a rotated key"), ZeroDivisionError(), Hasty("no Exception"), SystemExit(3), StopIteration()]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error.with_traceback(None)

    return fail


def mishaps_of(runtime: Runtime) -> list[str]:
    return [new.says for _, new in runtime.incidents._waiting if new.kind == "mishap"]


# ── entries that recur ──────────────────────────────────────────────────────────────────────────────────────────────


class Recurring:
    """One good entry, and one that can't be fired, both due."""

    def __init__(self, app: Lowkiq) -> None:
        self.app, self.ran = app, list[Any]()
        self.redis: Any = app.redis()

        @app.worker(queue_name="q", shards_count=1)
        def q(id: str, payloads: list[Any]) -> None:
            self.ran.append((id, len(payloads)))

        self.q = q
        for id in ("bad", "good"):
            app.recurring.set(q, id, "1h", payload={"of": id}, missed="all", backlog=1)
        (self.shard,) = app.shards("q", 1)

    def change(self, **fields: Any) -> None:
        """Writes into the bad entry what its rule is, as anybody may."""
        key = f"{self.shard.prefix}recurring"
        entry = msgspec.msgpack.decode(self.redis.hget(key, "bad"))
        entry["rule"].update(fields)
        self.redis.hset(key, "bad", msgspec.msgpack.encode(entry))

    def run(self) -> list[Any]:
        for id in ("bad", "good"):
            self.redis.zadd(f"{self.shard.prefix}recurs", {id: self.redis.time()[0] - 1})
        with capture_logs() as logged:
            burst(self.app)
        assert self.ran == [("good", 1)]
        at = self.redis.zscore(f"{self.shard.prefix}recurs", "bad")
        assert 3_500 < at - self.redis.time()[0] < 3_700  # it is tried again
        return [line for line in logged if line["event"] == "recurring_unreadable"]


@each_error
@pytest.mark.parametrize("what", ["load_payload", "dump_payload"])
def test_an_entry_whose_payload_the_codec_cannot_take_is_told_and_others_are_fired(
    make_app: Callable[..., Lowkiq], error: BaseException, what: str
) -> None:
    is_bad = threading.Event()

    def load(data: bytes) -> Any:
        if is_bad.is_set() and what == "load_payload" and b"bad" in data:
            raise error.with_traceback(None)
        return msgspec.json.decode(data)

    def dump(payload: Any) -> bytes:
        if is_bad.is_set() and what == "dump_payload" and payload["of"] == "bad":
            raise error
        return msgspec.json.encode(payload)

    recurring = Recurring(make_app(load_payload=load, dump_payload=dump))
    is_bad.set()
    (line,) = recurring.run()
    assert (line["id"], line["queue"]) == ("bad", "q")
    assert "tried again in an hour" in line["advice"]


@pytest.mark.parametrize(
    "rule",
    [
        {"every": "0 6 * * X"}, {"every": "0 0 31 2 *"}, {"every": 0}, {"every": -60}, {"every": 1e-320},
        {"every": 5e-324, "backlog": 10**12}, {"every": "* * * * *", "tz": "No/Where"},
        {"every": {"a": 1}}, {"missed": "none"}, {"backlog": "many"},
    ],
    ids=str,
)  # fmt: skip
def test_an_entry_whose_rule_is_none_is_told_and_others_are_fired(app: Lowkiq, rule: dict[str, Any]) -> None:
    recurring = Recurring(app)
    recurring.change(**rule)
    (line,) = recurring.run()
    assert line["id"] == "bad"


def test_a_rule_that_somebody_wrote_makes_up_for_a_thousand_runs_at_most() -> None:
    assert len(Rule(0.001, missed="all", backlog=10**12).due(1e9, 1e9 + 1e6)) == 1_000


# ── rings, live settings, layouts, leases ───────────────────────────────────────────────────────────────────────────


RINGS = [
    b"", b" ", b"place", b"place ", b"place x y", b"place lowkiq:{q} nan", b"wanted", b"cancel nothing", b"hand ",
    b"\xff\xfe", b"9" * 5_000,
]  # fmt: skip


class Rung:
    """A doorbell that hears what a test publishes."""

    def __init__(self, app: Lowkiq) -> None:
        q, ended = app.worker(queue_name="q", shards_count=1)(lambda batch: None), list[BaseException]()
        self.runtime = runtime_of(app, fatal=ended.append)
        self.ended = ended
        (self.lease,) = leases_of(self.runtime, q)
        self.pool = pool_of(self.runtime, self.lease)
        self.bell = Doorbell(self.runtime, {self.lease: self.pool}, {b"cancel": failing(Hasty("of a hook"))})


@pytest.fixture
def rung(app: Lowkiq) -> Iterator[Rung]:
    rung = Rung(app)
    yield rung
    rung.bell.stop()


@pytest.mark.parametrize("ring", [*RINGS, *(b"%b " + junk for junk in (b"soon", b"nan", b"inf", b"-inf", b"1e999"))])
def test_a_ring_that_says_nothing_ends_no_doorbell(rung: Rung, ring: bytes) -> None:
    prefix = rung.lease.shard.prefix.encode()
    rung.bell._ring(ring.replace(b"%b", prefix))
    rung.pool.wake(rung.lease, 0.0)
    assert rung.pool.pick(1e9) is rung.lease
    assert rung.lease.due_at == float("inf")


def test_a_thread_goes_on_after_whatever_its_round_has_met(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowkiq.node.mishaps.AGAIN_FROM", 0.01)
    met: list[int] = []

    def listen() -> None:
        met.append(1)
        raise Hasty("of a hook")

    monkeypatch.setattr(rung.bell, "_listen", listen)
    rung.bell.start()
    wait_until(lambda: len(met) > 2)
    assert rung.bell.is_alive()
    assert (rung.ended, len(mishaps_of(rung.runtime))) == ([], 1)


def test_options_that_one_queue_cannot_follow_keep_no_other_from_its_own(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [app.worker(queue_name=name, shards_count=1)(lambda batch: None) for name in ("a", "b")]
    runtime = runtime_of(app)
    leases = [leases_of(runtime, worker)[0] for worker in workers]
    live = LiveSettings(runtime, leases)
    for name in ("a", "b"):
        set_live(app.caller, app.namespace, name, {"batch_size": 7}, "ann")
    monkeypatch.setattr(leases[0].performer, "override", failing(RuntimeError("a newer option")))
    with capture_logs() as logged:
        live()
        live()
    assert leases[1].performer.worker.batch_size == 7
    assert [line["queue"] for line in logged if line["event"] == "settings_failed"] == ["a"]
    monkeypatch.undo()
    live()
    assert leases[0].performer.worker.batch_size == 7


@each_error
def test_a_splitter_that_fails_later_leaves_new_shards_to_others_until_it_works(
    make_app: Callable[..., Lowkiq], error: BaseException
) -> None:
    works = threading.Event()

    def build(*_: int) -> Callable[[Any], Any]:
        return (lambda shards: [shards]) if works.is_set() else failing(error)

    app = make_app(build_splitter=build)
    q = app.worker(queue_name="q", shards_count=1)(lambda batch: None)
    runtime = runtime_of(app)
    runtime.layouts["q"] = Layout(2, 1)
    leases = leases_of(runtime, q)
    pools = dict.fromkeys(leases, pool_of(runtime, *leases))
    following = Following(runtime, pools, [], lambda: None)
    layouts = {"q": Layout(2, 3, 2)}
    following(layouts)
    fresh = [lease for lease in pools if lease not in leases]
    assert len(fresh) == 3
    assert all(lease.is_foster for lease in fresh)
    assert len(mishaps_of(runtime)) == 1
    works.set()
    following(layouts)
    assert not any(lease.is_foster for lease in fresh)


class Keeper:
    def __init__(self, app: Lowkiq, lease_ttl: float) -> None:
        self.ended: list[BaseException] = []
        worker = app.worker(queue_name="q", shards_count=1)(lambda batch: None)
        self.runtime = runtime_of(app, fatal=self.ended.append)
        (self.lease,) = leases_of(self.runtime, worker)
        self.keeper = LeaseKeeper(self.runtime, {self.lease: pool_of(self.runtime, self.lease)}, [])


def test_a_round_of_the_lease_keeper_that_fails_is_followed_by_others_and_a_node_that_keeps_failing_ends(
    make_app: Callable[..., Lowkiq], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowkiq.node.lease_keeper.ACQUIRE_INTERVAL", 0.01)
    kept = Keeper(make_app(lease_ttl=1.0), 1.0)
    monkeypatch.setattr(kept.runtime.places_of("q"), "keep", lambda _: [])
    whole, fails = kept.keeper._round, [True, True, False]

    def sometimes() -> None:
        if fails.pop(0) if fails else False:
            raise ZeroDivisionError
        whole()

    monkeypatch.setattr(kept.keeper, "_round", sometimes)
    kept.keeper.start()
    wait_until(lambda: kept.lease.epoch)
    assert kept.ended == []
    monkeypatch.setattr(kept.keeper, "_round", failing(ZeroDivisionError()))
    wait_until(lambda: kept.ended)
    assert isinstance(kept.ended[0], ZeroDivisionError)


def test_a_shard_that_refuses_its_owner_keeps_no_other_from_being_acquired(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [app.worker(queue_name=name, shards_count=1)(lambda batch: None) for name in ("a", "b")]
    runtime = runtime_of(app)
    leases = [leases_of(runtime, worker)[0] for worker in workers]
    keeper = LeaseKeeper(runtime, {lease: pool_of(runtime, lease) for lease in leases}, [])
    junk = leases[0].acquire_call([])._replace(parse=failing(ValueError("junk")))
    monkeypatch.setattr(leases[0], "acquire_call", lambda _: junk)
    with contextlib.suppress(redis.RedisError):
        keeper._acquire(leases, 0.0)
    assert leases[1].epoch


def test_a_reply_that_cannot_be_parsed_stands_for_its_own_call_only(app: Lowkiq) -> None:
    app.worker(queue_name="q", shards_count=1)(lambda batch: None)
    (shard,) = app.shards("q", 1)
    good = shard.acquire("one", 60, 3)
    bad: Call[Any] = Call(good.script, good.keys, good.arguments, lambda _: float("<b>"))
    result, owned = app.caller.run_all([bad, good])
    assert isinstance(result, UnreadableReply)
    assert shard.prefix in str(result)
    assert owned.epoch


# ── schedulers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def scheduler_that(fails: str, gives: Callable[..., Any]) -> Any:
    own: Lag[Any] = Lag()
    made = SimpleNamespace(note=own.note, pick=own.pick, next_due_at=own.next_due_at)
    setattr(made, fails, gives)
    return made


ODD = [lambda *_: "shard 7", lambda *_: float("nan")]


@pytest.mark.parametrize(
    ("fails", "gives"),
    [
        (fails, gives)
        for fails in ("note", "pick", "next_due_at")
        for gives in (*map(failing, ERRORS), *(ODD if fails != "note" else ()))
    ],
)
def test_a_scheduler_that_fails_gives_way_to_lag(app: Lowkiq, fails: str, gives: Callable[..., Any]) -> None:
    worker = app.worker(queue_name="q", shards_count=2)(lambda batch: None)
    runtime, met = runtime_of(app), list[BaseException]()
    leases = [acquire(lease) for lease in leases_of(runtime, worker)]
    pool = Pool(leases, Watched(scheduler_that(fails, gives), met.append), LocalBell(), runtime)
    for at, lease in enumerate(reversed(leases)):
        pool.wake(lease, float(at))
    assert pool._next_look() <= 0.0
    assert [pool.pick(9.0), pool.pick(9.0), pool.pick(9.0)] == [leases[1], leases[0], None]
    assert len(met) == 1


# ── hooks of jobs ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [*ERRORS, KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_a_payload_that_cannot_be_loaded_is_set_aside_and_others_run(
    make_app: Callable[..., Lowkiq], error: BaseException
) -> None:
    is_over = threading.Event()

    def load(data: bytes) -> Any:
        if b"bad" in data and not is_over.is_set():
            raise error
        return msgspec.json.decode(data)

    app, ran = make_app(load_payload=load), list[str]()

    @app.worker(queue_name="q", shards_count=1)
    def q(id: str, payloads: list[Any]) -> None:
        ran.append(id)

    app.push(q, [{"id": "a", "payload": "bad"}, {"id": "b", "payload": "good"}])
    burst(app)
    assert ran == ["b"]
    is_over.set()
    (job,) = q.queries.morgue_fetch(["a"])
    assert type(error).__name__ in (job.error or "")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


@pytest.mark.parametrize("setting", ["format_error", "dump_error", None])
@each_error
def test_an_error_that_nobody_can_tell_of_fails_its_job_and_no_more(
    make_app: Callable[..., Lowkiq], error: BaseException, setting: str | None
) -> None:
    app, ran = make_app(**({setting: failing(error)} if setting else {})), list[str]()

    @app.worker(queue_name="q", shards_count=1, max_retry_count=0)
    def q(id: str, payloads: list[Any]) -> None:
        ran.append(id)
        if id == "a":
            raise Unspeakable

    app.push(q, [{"id": "a"}, {"id": "b"}])
    burst(app)
    assert sorted(ran) == ["a", "b"]
    assert q.queries.morgue_fetch(["a"])


def test_hooks_of_the_node_that_raise_what_is_no_exception_change_nothing(make_app: Callable[..., Lowkiq]) -> None:
    app, ran = make_app(node_started=failing(SystemExit(3))), list[str]()

    @app.worker(queue_name="q", shards_count=1)
    def q(id: str, payloads: list[Any]) -> None:
        ran.append(id)

    app.push(q, [{"id": "a"}])
    burst(app)
    assert ran == ["a"]


# ── what is told ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_is_told_once_and_another_at_once(app: Lowkiq) -> None:
    runtime = runtime_of(app)
    with capture_logs() as logged:
        for number in range(3):
            runtime.mishaps.met("odd", ValueError(str(number)), "mend it", queue="q")
        runtime.mishaps.met("odd", Unspeakable(), "mend it", queue="q")
        runtime.mishaps.met("odd", ValueError("x"), "mend it", queue="r \x1b[31m")
    assert [(line["queue"], line["error"].split(":")[0].split(" ")[0]) for line in logged] == [
        ("q", "ValueError"), ("q", "Unspeakable"), ("r \\x1b[31m", "ValueError"),
    ]  # fmt: skip
    assert mishaps_of(runtime)[0] == "odd, queue q: ValueError: 0: mend it"


def test_a_lasting_thread_ends_when_its_work_does(app: Lowkiq) -> None:
    class Once(LastingThread):
        def _work(self) -> None:
            done.append(1)

    done: list[int] = []
    thread = Once("once", Mishaps(runtime_of(app).incidents))
    thread.start()
    thread.join(60)
    assert done == [1]


def test_a_clockwork_whose_declarations_fail_goes_on(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    app.worker(queue_name="q", shards_count=1)(lambda batch: None)
    runtime = runtime_of(app)
    runtime.layouts["q"] = Layout(2, 1)
    monkeypatch.setattr("lowkiq.node.chores.declarations.Declarations.look", failing(Hasty("of a codec")))
    clockwork = Clockwork(runtime, [])
    clockwork.start()
    wait_until(lambda: mishaps_of(runtime))
    assert clockwork.is_alive()
    clockwork.stop()
    clockwork.join(60)
