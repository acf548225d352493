"""Tasks of Celery's kind, on real nodes: pushed, run, retried and refused."""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowkiq.celery
from lowkiq import Bury, Discard, InvalidJob, Lowkiq, SettingsError, Snooze
from lowkiq.celery import Bound, MaxRetriesExceededError, NotSupported
from lowkiq.errors import AppNotFound
from tests.node.driven import burst


def done(app: Lowkiq, name: str = "t") -> tuple[int, int, int]:
    metrics = app.metrics()[name]
    return metrics.processed, metrics.failed, metrics.morgue_length


def test_calls_of_one_key_run_in_order_each_with_its_own_arguments(app: Lowkiq) -> None:
    ran: list[tuple[int, str, int]] = []

    @lowkiq.celery.task(key="order_id", app=app, name="t")
    def sync(order_id: int, state: str, *, n: int = 0) -> None:
        ran.append((order_id, state, n))

    sent = sync.delay(17, "paid")
    assert (sent.id, sent.pushed) == ("17", (1, 0))
    assert sync.apply_async((17,), {"state": "sent", "n": 2}).pushed == (0, 1)
    assert sync.delay(order_id=17, state="paid").pushed == (0, 1), "the same call, which merges, and is the last word"
    burst(app)
    assert ran == [(17, "sent", 2), (17, "paid", 0)]
    assert done(app)[0] == 2, "each was a run of its own"


def test_a_payload_is_the_arguments_by_name_so_that_a_worker_can_take_over_the_queue(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="order_id", app=app, name="t")
    def sync(order_id: int, /, *states: str, note: str = "", **more: int) -> None:
        ran.append((order_id, states, note, more))

    ran: list[Any] = []
    sync.delay(17, "paid", "sent", note="x", n=1)
    (job,) = sync.worker.queries.fetch([17])
    assert job.payloads == [{"order_id": 17, "states": ["paid", "sent"], "note": "x", "more": {"n": 1}}]
    burst(app)
    sync.worker.perform_async([{"id": 18, "payload": {"order_id": 18}}])
    burst(app)
    assert ran == [(17, ("paid", "sent"), "x", {"n": 1}), (18, (), "", {})]


def test_each_call_counts_without_merging(app: Lowkiq) -> None:
    ids: list[str] = []

    @lowkiq.celery.task(key="user_id", app=app, name="t", merge=False, bind=True)
    def count(self: Bound, user_id: int) -> None:
        ids.append(self.request.id)

    for _ in range(3):
        count.delay(7)
    burst(app)
    assert len(ids) == len(set(ids)) == 3


def test_a_call_that_fails_is_tried_again_before_later_ones_and_those_before_it_are_not_run_again(app: Lowkiq) -> None:
    ran: list[int] = []
    broken = {2}

    @lowkiq.celery.task(key="id", app=app, name="t", bind=True, max_retries=5)
    def step(self: Bound, id: str, n: int) -> None:
        ran.append(n)
        if n in broken:
            raise self.retry(exc=ValueError(f"no {self.request.retries}"), countdown=60)

    for n in (1, 2, 3):
        step.delay("a", n)
    before = time.time()
    burst(app)
    assert ran == [1, 2]
    (job,) = step.worker.queries.fetch(["a"])
    assert [payload["n"] for payload in job.payloads] == [2, 3]
    assert (job.retry_count, job.error) == (0, "ValueError: no 0")
    assert before + 59 < job.perform_in < time.time() + 61
    step.worker.actions.perform_now(["a"])
    burst(app)
    assert step.worker.queries.fetch(["a"])[0].error == "ValueError: no 1"
    broken.clear()
    step.worker.actions.perform_now(["a"])
    burst(app)
    assert ran == [1, 2, 2, 2, 3]
    assert done(app) == (3, 2, 0)


def until_dead(app: Lowkiq, task: Any, id: str, most: int = 10) -> int:
    """The number of runs of a job until it is in the morgue."""
    for run in range(1, most + 1):
        task.worker.actions.perform_now([id])
        burst(app)
        if task.worker.queries.morgue_fetch([id]):
            return run
    raise AssertionError("it lives")


def test_after_its_last_retry_a_call_is_buried_with_its_error_and_later_ones_go_on(app: Lowkiq) -> None:
    ran: list[int] = []

    @lowkiq.celery.task(key="id", app=app, name="t", bind=True, max_retries=2, default_retry_delay=30)
    def step(self: Bound, id: str, n: int) -> None:
        ran.append(n)
        if n == 1:
            try:
                int("down")
            except ValueError as error:
                raise self.retry(exc=error) from error

    step.delay("a", 1)
    step.delay("a", 2)
    assert until_dead(app, step, "a") == 3
    (dead,) = step.worker.queries.morgue_fetch(["a"])
    assert (dead.payloads, dead.error) == (
        [{"id": "a", "n": 1}],
        "ValueError: invalid literal for int() with base 10: 'down'",
    )
    assert ran == [1, 1, 1, 2]


def test_an_error_that_nobody_retries_is_the_end_of_its_call_as_in_celery(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t", autoretry_for=(OSError,))
    def fail(id: str) -> None:
        raise KeyError(id)

    fail.delay("a")
    burst(app)
    (dead,) = fail.worker.queries.morgue_fetch(["a"])
    assert dead.error == "KeyError: 'a'"
    assert dead.traceback
    assert "raise KeyError(id)" in dead.traceback


def test_errors_named_are_retried_by_themselves(app: Lowkiq) -> None:
    @lowkiq.celery.task(
        key="id", app=app, name="t", autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,),
        retry_backoff=10, retry_backoff_max=15, retry_jitter=False, retry_kwargs={"max_retries": 2},
    )  # fmt: skip
    def fail(id: str) -> None:
        raise FileNotFoundError(id) if id == "file" else ConnectionError(id)

    fail.delay("a")
    fail.delay("file")
    for delay in (10, 15):
        before = time.time()
        fail.worker.actions.perform_now(["a"])
        burst(app)
        due = fail.worker.queries.fetch(["a"])[0].perform_in
        assert before + delay <= due <= time.time() + delay
    assert until_dead(app, fail, "a") == 1
    assert [job.error for job in fail.worker.queries.morgue_fetch(["file"])] == ["FileNotFoundError: file"]


def test_retries_may_have_no_end_or_a_limit_of_their_own(app: Lowkiq) -> None:
    limit: list[int | None] = [None]

    @lowkiq.celery.task(key="id", app=app, name="t", bind=True, max_retries=None)
    def fail(self: Bound, id: str) -> None:
        self.retry(max_retries=limit[0], countdown=60)

    fail.delay("a")
    for _ in range(4):
        fail.worker.actions.perform_now(["a"])
        burst(app)
        limit = [2]
        if fail.worker.queries.morgue_fetch(["a"]):
            break
    (dead,) = fail.worker.queries.morgue_fetch(["a"])
    assert dead.error == "MaxRetriesExceededError: it has had its 2 retries"


@pytest.mark.parametrize(("decision", "left"), [(Discard("old"), (0, 0)), (Bury("bad"), (0, 1)), (Snooze(60), (1, 0))])
def test_a_task_may_decide_as_every_handler(app: Lowkiq, decision: Exception, left: tuple[int, int]) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t", autoretry_for=(Exception,))
    def decide(id: str) -> None:
        raise decision

    decide.delay("a")
    burst(app)
    assert (app.metrics()["t"].length, app.metrics()["t"].morgue_length) == left


def test_countdown_and_eta_say_when_and_later_calls_of_the_key_wait_for_it(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t")
    def late(id: str, n: int = 0) -> None: ...

    before = time.time()
    late.apply_async(("a",), countdown=60)
    late.delay("a", 1)
    late.apply_async(("b",), eta=datetime.datetime.fromtimestamp(before + 120, datetime.UTC))
    a, b = late.worker.queries.fetch(["a", "b"])
    assert before + 59 < a.perform_in < time.time() + 61
    assert len(a.payloads) == 2
    assert abs(b.perform_in - before - 120) < 0.01
    with pytest.raises(InvalidJob, match="has no time zone"):
        late.apply_async(("a",), eta=datetime.datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidJob, match="at and delay both"):
        late.apply_async(("a",), countdown=1, eta=datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC))


def test_a_direct_call_runs_here_and_raises_what_it_raises(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t", bind=True)
    def double(self: Bound, id: int, fails: bool = False) -> int:
        """Doubles."""
        assert (self.request.retries, self.request.called_directly, self.max_retries) == (0, True, 3)
        if fails:
            raise self.retry(exc=KeyError(id))
        return 2 * id

    assert double(4) == double.run(double, 4) == 8
    assert (double.name, double.__doc__) == ("t", "Doubles.")
    with pytest.raises(KeyError):
        double(4, fails=True)
    assert app.queues() == {}, "nothing was queued"


def test_a_call_may_wait_for_the_commit_of_django(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Callable[[], object]] = []
    monkeypatch.setattr("django.db.transaction.on_commit", waiting.append)

    @lowkiq.celery.task(key="id", app=app, name="t")
    def one(id: int) -> None: ...

    one.delay_on_commit(1)
    one.apply_async_on_commit((2,), countdown=60)
    assert app.queues() == {}
    for commit in waiting:
        commit()
    assert {job.id: job.perform_in > time.time() for job in one.worker.queries.find("*")} == {"1": False, "2": True}


def test_the_key_may_be_a_function_or_a_default(app: Lowkiq) -> None:
    @lowkiq.celery.task(key=lambda user_id, **_: f"user-{user_id}", app=app, name="t")
    def one(user_id: int, text: str) -> None: ...

    @lowkiq.celery.task(key="shop", app=app, name="u")
    def two(shop: str = "main") -> None: ...

    assert one.delay(7, text="x").id == "user-7"
    assert two.delay().id == "main"
    assert two.worker.queries.fetch(["main"])[0].payloads == [{}]


def test_what_is_no_call_is_refused_before_anything_is_written(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t")
    def one(id: Any, at: Any = None) -> None: ...

    @lowkiq.celery.task(key=lambda at, **_: at["x"], app=app, name="u")
    def two(id: Any, at: Any) -> None: ...

    with pytest.raises(TypeError, match="task t: missing a required argument: 'id'"):
        one.delay()  # type: ignore[call-arg]
    with pytest.raises(InvalidJob, match=r"key='id' gave 1\.5 \(float\)"):
        one.delay(1.5)
    with pytest.raises(InvalidJob, match="which JSON can't hold"):
        one.delay(1, datetime.date(2030, 1, 1))
    with pytest.raises(InvalidJob, match="task u: key= failed: KeyError: 'x'"):
        two.delay(1, {})
    assert app.queues() == {}


def test_a_payload_that_is_no_call_goes_to_the_morgue(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t")
    def one(id: str, at: str) -> None: ...

    other = Lowkiq(redis=app.settings.redis, redis_url=app.settings.redis_url, namespace=app.namespace)
    of_another_version = other.worker(queue_name="t")(lambda jobs: None)
    for id, payload in {"a": 5, "b": {"id": "b"}, "c": {"id": "c", "at": "", "n": 1}}.items():
        of_another_version.perform_async([{"id": id, "payload": payload}])
    burst(app)
    assert [job.error for job in one.worker.queries.morgue_fetch(["a", "b", "c"])] == [
        "TypeError: task t can't be called with 5: it takes its arguments by name",
        "TypeError: missing a required argument: 'at'",
        "TypeError: task t takes no argument n",
    ]


CALLS: dict[str, Callable[[Any], Any]] = {
    "priority": lambda task: task.apply_async((1,), priority=9),
    "queue": lambda task: task.apply_async((1,), queue="fast"),
    "expires": lambda task: task.apply_async((1,), expires=60),
    "link": lambda task: task.apply_async((1,), link=None),
    "task_id": lambda task: task.apply_async((1,), task_id="x"),
    "colour": lambda task: task.apply_async((1,), colour="red"),
    "s": lambda task: task.s(1),
    "si": lambda task: task.si(1),
    "signature": lambda task: task.signature((1,)),
    "chunks": lambda task: task.chunks([], 10),
    "apply": lambda task: task.apply((1,)),
    "update_state": lambda task: task.update_state(),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_can_t_be_promised_is_refused_by_name_before_anything_is_written(app: Lowkiq, name: str) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t")
    def one(id: int) -> None: ...

    with pytest.raises(NotSupported, match=f"`{name}`.*[:;] ."):
        CALLS[name](one)
    assert app.queues() == {}


def test_tasks_that_share_a_queue_keep_one_order_of_a_key(app: Lowkiq) -> None:
    ran: list[tuple[str, int]] = []

    @lowkiq.celery.task(key="id", app=app, queue="orders", name="sync", shards_count=3, bind=True)
    def sync(self: Bound, id: int) -> None:
        ran.append(("sync", id))
        if self.request.retries == 0 and len(ran) == 1:
            self.retry(countdown=60)

    @lowkiq.celery.task(key="order_id", app=app, queue="orders", name="ship", shared_key=True)
    def ship(order_id: int) -> None:
        ran.append(("ship", order_id))

    assert (sync.delay(1).pushed, ship.apply_async((1,), queue="orders").pushed) == ((1, 0), (0, 1))
    assert (ship.worker, ship.worker.shards_count) == (sync.worker, 3)
    burst(app)
    sync.worker.actions.perform_now([1])
    burst(app)
    assert ran == [("sync", 1), ("sync", 1), ("ship", 1)]
    with pytest.raises(TypeError, match="queue orders has no task 'buy'; it has sync, ship: import the module"):
        sync.worker().perform_one("3", [{"__task__": "buy"}])  # as another version may have pushed it


def test_a_queue_is_shared_by_tasks_that_say_so(app: Lowkiq) -> None:
    def one(id: int) -> None: ...

    @app.worker(queue_name="plain")
    def plain(jobs: dict[str, list[Any]]) -> None: ...

    lowkiq.celery.task(key="id", app=app, name="own")(one)
    lowkiq.celery.task(key="id", app=app, name="first", queue="shared")(one)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"name": "second", "queue": "own"}, "give both a queue="),
        ({"name": "second", "queue": "plain"}, "queue plain has a worker already"),
        (
            {"name": "second", "queue": "shared", "shards_count": 7},
            "shards_count of queue shared are told by the first",
        ),
        ({"name": "first", "queue": "shared"}, "in queue shared already"),
        ({"name": "own"}, "queue own has a worker already"),
    ]
    for options, told in refused:
        with pytest.raises(SettingsError, match=told):
            lowkiq.celery.task(key="id", app=app, **options)(one)


def test_results_are_refused(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t", bind=True)
    def one(self: Bound, id: int) -> None:
        with pytest.raises(NotSupported, match="merge=False"):
            self.request.id  # noqa: B018
        with pytest.raises(NotSupported, match="tries the same call again"):
            self.retry(args=(2,))  # type: ignore[arg-type]
        with pytest.raises(NotSupported, match="`queue`"):
            self.retry(queue="fast")

    sent = one.delay(1)
    for name in ("get", "status", "revoke", "ready"):
        with pytest.raises(NotSupported, match=f"`{name}`: "):
            getattr(sent, name)
    assert not hasattr(sent, "anything")
    assert not hasattr(one, "anything")
    burst(app)
    assert done(app) == (1, 0, 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "needs its key"),
        ({"key": "order"}, "key='order' is none of its arguments"),
        ({"key": 5}, "key is 5, it must be"),
        ({"routing_key": "fast"}, "`routing_key` can't be promised: a task has one queue"),
        ({"rate_limit": "10/m"}, "say rate=lowkiq.Rate"),
        ({"acks_late": False}, "acks_late is False, it can only be True"),
        ({"base": object}, "`base` can't be promised"),
        ({"max_retry_count": 3}, "a task says max_retries"),
        ({"autoretry_for": (5,)}, "autoretry_for has 5"),
        ({"retry_kwargs": {"queue": "x"}}, "retry_kwargs has queue"),
        ({"max_retries": -1}, "max_retries is -1"),
        ({"shard_count": 5}, "did you mean `shards_count`"),
        ({"shards_count": 0}, "shards_count is 0"),
        ({"name": "a b"}, "queue_name 'a b'"),
    ],
)
def test_options_that_can_t_be_are_refused(app: Lowkiq, options: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):

        @lowkiq.celery.task(**(dict[str, Any](app=app, key="id") if options else {}) | options)
        def one(id: int) -> None: ...


def test_what_is_so_anyway_may_be_said(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, acks_late=True, ignore_result=True, shards_count=2, throttle=5)
    def one(id: int) -> None: ...

    assert one.name == f"{__name__}.one"
    assert (one.worker.shards_count, one.worker.max_payloads) == (2, 1)


def test_what_is_no_plain_function_is_refused(app: Lowkiq) -> None:
    async def one(id: int) -> None: ...

    with pytest.raises(SettingsError, match="async def"):
        lowkiq.celery.task(key="id", app=app)(one)
    with pytest.raises(SettingsError, match="is no function"):
        lowkiq.celery.task(key="id", app=app)(Lowkiq)
    with pytest.raises(SettingsError, match="needs its key"):
        lowkiq.celery.task(one)  # type: ignore[call-overload]


def test_the_application_is_the_only_one_of_its_module(app: Lowkiq) -> None:
    names: dict[str, Any] = {"lowkiq": lowkiq, "__name__": "shop.tasks"}
    source = "@lowkiq.celery.task(key='id')\ndef one(id): ...\n"
    with pytest.raises(AppNotFound, match=r"module shop\.tasks has no Lowkiq application.*or say app="):
        exec(source, names)
    names["app"] = app
    exec(source, names)
    assert list(app.workers) == ["shop.tasks.one"]
    names["other"] = Lowkiq()
    with pytest.raises(AppNotFound, match="several"):
        exec(source.replace("one", "two"), names)


def test_a_task_in_a_process_of_its_own(app: Lowkiq) -> None:
    @lowkiq.celery.task(key="id", app=app, name="t", bind=True, isolation="process", perform_timeout=30)
    def one(self: Bound, id: str) -> None:
        raise self.retry(exc=ValueError("x"), countdown=60)

    one.delay("a")
    burst(app)
    assert one.worker.queries.fetch(["a"])[0].error == "ValueError: x"


def test_celery_is_not_imported() -> None:
    code = "import sys, lowkiq.celery; print('celery' in sys.modules, 'kombu' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "False"]


def test_the_error_of_a_last_retry_without_one_is_a_class_of_its_own() -> None:
    assert issubclass(MaxRetriesExceededError, lowkiq.LowkiqError)
    assert lowkiq.celery.Task.MaxRetriesExceededError is MaxRetriesExceededError


def by_order(order_id: int) -> int:
    return order_id


@pytest.mark.parametrize(
    ("first", "second"), [("id", "order_id"), ("id", by_order), (by_order, "order_id"), (by_order, lambda order_id: 1)]
)
def test_tasks_of_one_queue_with_different_keys_are_refused_unless_that_is_said(
    app: Lowkiq, first: Any, second: Any
) -> None:
    """Celery's queue= is a route; here calls of equal ids wait for each other: an export's for a webhook's."""

    def one(id: int, order_id: int = 0) -> None: ...

    def two(order_id: int) -> None: ...

    lowkiq.celery.task(key=first if first == "id" else lambda order_id, **_: order_id, app=app, queue="q")(one)
    with pytest.raises(SettingsError, match=r"task .*two has key=.*wait for each other. Leave queue= out.*shared_key"):
        lowkiq.celery.task(key=second, app=app, queue="q")(two)
    lowkiq.celery.task(key=second, app=app, queue="q", shared_key=True)(two)


def test_tasks_of_one_queue_may_have_one_key(app: Lowkiq) -> None:
    def one(order_id: int) -> None: ...

    def two(order_id: int) -> None: ...

    keys: dict[str, Any] = {"named": "order_id", "told": by_order}
    for queue, key in keys.items():
        for function in (one, two):
            lowkiq.celery.task(key=key, app=app, name=f"{queue}.{function.__name__}", queue=queue)(function)
    assert [*app.workers] == ["named", "told"]


def test_the_application_of_a_decorated_function_is_that_of_its_own_module(tmp_path: Path) -> None:
    """transaction.atomic, and any decorator of another module, was looked at in place of what it decorates."""
    (tmp_path / "guards.py").write_text(
        "import functools\ndef atomic(function):\n    @functools.wraps(function)\n"
        "    def inner(*args, **kwargs):\n        return function(*args, **kwargs)\n    return inner\n"
    )
    (tmp_path / "tasks.py").write_text(
        "import guards, lowkiq.celery\nfrom lowkiq import Lowkiq\napp = Lowkiq()\n"
        "@lowkiq.celery.task(key='order_id')\n@guards.atomic\n@guards.atomic\ndef ship(order_id): ...\n"
        "print(ship.name, list(app.workers), ship._calls.job((17,), {})['id'])\n"
    )
    found = subprocess.run([sys.executable, "tasks.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout == "__main__.ship ['__main__.ship'] 17\n", found.stderr


@pytest.mark.parametrize("queue", [None, "q"])
def test_a_payload_that_is_made_by_hand_is_checked_when_it_is_pushed(app: Lowkiq, queue: str | None) -> None:
    """It was taken, and buried at its first run; of one that recurs each hour."""
    ran: list[tuple[int, str]] = []
    options: dict[str, Any] = {"queue": queue} if queue else {}

    @lowkiq.celery.task(key="id", app=app, name="sync", **options)
    def sync(id: int, state: str = "") -> None:
        ran.append((id, state))

    refused: list[tuple[Any, str]] = [
        ("", "task sync can't be called with ''"),
        ({"state": "x"}, "missing a required argument: 'id'"),
        ({"id": 1, "sate": "x"}, "task sync takes no argument sate"),
        ([1], "task sync can't be called with"),
    ]
    for payload, told in refused:
        with pytest.raises(InvalidJob, match=told):
            sync.worker.perform_async([{"id": 1, "payload": payload}])
        with pytest.raises(InvalidJob, match=told):
            app.batch(on_done=(sync.worker, {"id": 1, "payload": payload}))
        with pytest.raises((InvalidJob, SettingsError), match=told):
            app.recurring.set(sync.worker, "x", every="1h", payload=payload)
    sync.worker.perform_async([{"id": 1, "payload": {"id": 1, "state": "by hand"}}])
    burst(app)
    assert ran == [(1, "by hand")]


def test_in_a_queue_that_several_share_a_payload_names_its_task(app: Lowkiq) -> None:
    for name in ("sync", "ship"):
        lowkiq.celery.task(key="order_id", app=app, name=name, queue="q")(by_order)
    worker = app.workers["q"]
    with pytest.raises(InvalidJob, match=r"queue q is shared by sync, ship: name one .* as \{\"__task__\": \"sync\""):
        worker.perform_async([{"id": 1, "payload": {"order_id": 1}}])
    with pytest.raises(InvalidJob, match="queue q has no task 'buy'"):
        worker.perform_async([{"id": 1, "payload": {"order_id": 1, "__task__": "buy"}}])
    with pytest.raises(InvalidJob, match="missing a required argument"):
        worker.perform_async([{"id": 1, "payload": {"__task__": "ship"}}])
    assert worker.perform_async([{"id": 1, "payload": {"__task__": "ship", "order_id": 1}}]) == (1, 0)


@pytest.mark.parametrize("queue", [None, "maint"])
def test_a_task_that_recurs_stays_a_task(app: Lowkiq, queue: str | None) -> None:
    """It was thrown away: what was left had no `delay`, another queue, 25 retries, and failed at each run."""
    ran: list[tuple[bool, int]] = []
    options: dict[str, Any] = {"queue": queue} if queue else {}

    @app.every("1h", payload={"days": 3})
    @lowkiq.celery.task(key=lambda **_: "all", app=app, name="nightly", bind=True, max_retries=2, **options)
    def nightly(self: Bound, days: int) -> None:
        ran.append((self.request.called_directly, days))

    assert (nightly.delay(1).id, nightly.worker.queue_name) == ("all", queue or "nightly")
    assert [*app.workers] == [nightly.worker.queue_name]
    burst(app)
    assert app.recurring.run_now(nightly.worker, "all").new == 1
    burst(app)
    assert ran == [(False, 1), (False, 3)]


def test_a_task_that_can_t_be_called_so_does_not_recur(app: Lowkiq) -> None:
    nightly = lowkiq.celery.task(key="order_id", app=app, name="nightly")(by_order)
    with pytest.raises(SettingsError, match=r"missing a required argument: 'order_id'; app\.every calls it with"):
        app.every("1h")(nightly)
