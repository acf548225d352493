"""A worker's options and defaults, and what is said of those that can't be used."""

from __future__ import annotations

import asyncio
import functools
import math
import queue
import re
from typing import Any, get_args, get_type_hints

import pytest

from lowkiq import Lowkiq, LowkiqError, PartialFailure, Pushed, SettingsError, Worker
from lowkiq.errors import unknown_option
from lowkiq.options import OF_WORKERS, WorkerOptions


def work(payloads_by_id: dict[str, list[Any]]) -> None:
    """Does nothing."""


def test_each_option_is_an_attribute_of_a_worker_of_its_type_and_with_a_default_that_it_may_have() -> None:
    rows = get_type_hints(WorkerOptions)
    declared = {name: get_args(kind)[0] for name, kind in get_type_hints(Worker).items() if name in rows}
    assert declared == {name: kind for name, kind in rows.items() if name not in {"id", "score"}}
    for name, option in OF_WORKERS.items():
        if name != "queue_name":  # that of the class
            option(name, getattr(Worker, name))


def test_the_queue_is_named_after_the_class_or_the_function(app: Lowkiq) -> None:
    @app.worker
    class OrderSync(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None: ...

    function = app.worker(work)
    assert (OrderSync.queue_name, function.queue_name) == ("OrderSync", "work")
    assert list(app.workers) == ["OrderSync", "work"]
    assert (function.__name__, function.__doc__) == ("work", "Does nothing.")


def test_the_defaults_are_the_original_s(app: Lowkiq) -> None:
    worker = app.worker(work)
    assert (worker.shards_count, worker.batch_size, worker.max_retry_count) == (5, 1, 25)


def test_options_given_to_the_decorator_win_over_those_of_the_class(app: Lowkiq) -> None:
    @app.worker(batch_size=7, queue_name="q")
    class Jobs(Worker):
        batch_size = 3
        max_retry_count = 0

        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None: ...

    assert (Jobs.queue_name, Jobs.batch_size, Jobs.max_retry_count) == ("q", 7, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard_count": 2}, "unknown option of a worker `shard_count`, did you mean `shards_count`?"),
        ({"tries": 2}, "unknown option of a worker `tries`, known are: batch_size, concurrency, debounce, equal"),
        ({"concurrency": 0}, "worker work: concurrency is 0, it must be an integer from 1 to 1,000"),
        ({"concurrency": "all"}, "worker work: concurrency is 'all', it must be an integer"),
        ({"shards_count": 0}, "worker work: shards_count is 0, it must be an integer from 1 to 65,536"),
        ({"batch_size": "5"}, "worker work: batch_size is '5', it must be an integer from 1 to 1,000"),
        ({"batch_size": 1001}, "worker work: batch_size is 1001"),
        ({"batch_size": True}, "worker work: batch_size is True"),
        ({"max_retry_count": -1}, "worker work: max_retry_count is -1, it must be an integer from 0"),
        ({"queue_name": "."}, "worker work: queue_name '.' is a step in a path"),
        ({"queue_name": ".."}, "worker work: queue_name '..' is a step in a path"),
        ({"queue_name": "a b"}, "worker work: queue_name 'a b' must match [A-Za-z0-9_.-]+; set one"),
        ({"queue_name": "a:b"}, "queue_name 'a:b' must match"),
        ({"queue_name": "{a}"}, "queue_name '{a}' must match"),
        ({"queue_name": "ends\n"}, "must match"),
        ({"queue_name": 5}, "queue_name 5 must match"),
        ({"perform_timeout": 0}, "worker work: perform_timeout is 0, it must be a number of seconds above 0 and up to"),
        ({"perform_timeout": 86_401}, "perform_timeout is 86401, it must be"),
        ({"perform_timeout": math.nan}, "perform_timeout is nan, it must be"),
        ({"perform_timeout": "30"}, "perform_timeout is '30', it must be a number of seconds above 0 and up to 86,400"),
        ({"perform_timeout": True}, "perform_timeout is True, it must be"),
        ({"isolation": "fork"}, 'worker work: isolation is \'fork\', it must be "thread", "process" or "spawn"'),
        ({"isolation": ["thread"]}, 'isolation is [\'thread\'], it must be "thread", "process" or "spawn"'),
        ({"pushes": {}}, 'worker work: pushes is {}, it must be "now" or "on_success"'),
        ({"fair_by": 3}, "worker work: fair_by is 3: it must be a function of an id and a payload"),
        ({"id": "order_id"}, "worker work: id is 'order_id': it must be a function of a payload, such as `lambda"),
        ({"id": lambda: 1}, "worker work: id can't be called with a payload (too many positional arguments)"),
        ({"score": lambda change, other: 1}, "worker work: score can't be called with a payload (missing a required"),
        ({"id": asyncio.sleep}, "worker work: id is <function sleep"),
    ],
)
def test_an_option_that_can_t_be_used_is_refused(app: Lowkiq, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        app.worker(**options)(work)
    assert message in str(caught.value)
    assert app.workers == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("shard_count", "shards_count"), ("batchsize", "batch_size"), ("max_retries_count", "max_retry_count")],
)
def test_a_misspelt_option_of_a_class_is_refused(app: Lowkiq, name: str, meant: str) -> None:
    worker = type("Jobs", (Worker,), {name: 3, "perform": lambda self, batch: None})
    with pytest.raises(SettingsError, match=f"worker Jobs: unknown option `{name}`, did you mean `{meant}`"):
        app.worker(worker)


def test_attributes_of_the_user_s_own_are_left_alone(app: Lowkiq) -> None:
    members: dict[str, Any] = {
        "scores": 1,
        "client": None,
        "size": 1,
        "_timeout": 3,
        "queue": queue.Queue(),
        "unique": property(id),
    }
    app.worker(type("Jobs", (Worker,), members | {"retries": lambda self: 3, "perform": lambda self, _: None}))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("max_retries", 3, "did you mean `max_retry_count`?"),
        ("max_attempts", 3, "did you mean `max_retry_count`, which is one less?"),
        ("queue", "mail", "did you mean `queue_name`?"),
        ("timeout", 30, "did you mean `perform_timeout`?"),
        ("soft_time_limit", None, "did you mean `perform_timeout`?"),
        ("autoretry_for", (ValueError,), "did you mean `retry`?"),
        ("rate_limit", "10/m", "did you mean `rate`?"),
        ("priority", 5, "--queues NAME=8"),
        ("countdown", 5, 'a push says when: {"id": 17, "delay": 60}'),
        ("ignore_result", True, "results are not kept"),
    ],
)
@pytest.mark.parametrize("where", ["decorator", "class", "base", "mixin"])
def test_an_option_of_another_job_processor_is_refused_with_what_it_is_here(
    app: Lowkiq, where: str, name: str, value: Any, told: str
) -> None:
    """A class took it for an attribute of the user's own, and ran with its defaults."""
    own = {name: value, "perform": lambda self, batch: None}
    bases = {"class": (Worker,), "base": (type("Base", (Worker,), own),), "mixin": (type("Mixin", (), own), Worker)}
    label = "unknown option of a worker" if where == "decorator" else "worker Jobs: unknown option"
    with pytest.raises(SettingsError, match=re.escape(f"{label} `{name}`, ") + f".*{re.escape(told)}"):
        if where == "decorator":
            app.worker(**{name: value})
        else:
            app.worker(type("Jobs", bases[where], own if where == "class" else {}))
    assert not app.workers


def test_a_queue_has_one_worker(app: Lowkiq) -> None:
    app.worker(queue_name="mail")(work)
    with pytest.raises(SettingsError, match=r'give work a queue_name, as in .*"mail_2"\). The other is .*\.work$'):
        app.worker(queue_name="mail")(work)


@pytest.mark.parametrize("target", [5, "jobs.work", object, Lowkiq, [].append, functools.partial, list[int]])
def test_what_is_no_worker_is_refused(app: Lowkiq, target: Any) -> None:
    with pytest.raises(SettingsError, match=r"is no worker: it must be a subclass of lowkiq.Worker, or a function"):
        app.worker(target)


def test_a_lambda_needs_a_queue_name(app: Lowkiq) -> None:
    with pytest.raises(SettingsError, match=r"queue_name '<lambda>' must match .*; set one"):
        app.worker(lambda batch: None)
    assert app.worker(queue_name="ok")(lambda batch: None).queue_name == "ok"


def test_a_worker_that_is_not_registered_says_so() -> None:
    class Jobs(Worker):
        pass

    for use in (lambda: Jobs.perform_async([]), lambda: Jobs.queries, lambda: Jobs.actions):
        with pytest.raises(LowkiqError, match=r"Jobs is not registered: put @app.worker above it"):
            use()


def test_perform_async_can_be_overridden_to_derive_what_a_job_needs(app: Lowkiq) -> None:
    @app.worker
    class Orders(Worker):
        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None: ...

        @classmethod
        def perform_async(cls, orders: Any) -> Pushed:
            return super().perform_async([{"id": order["number"], "payload": order, "score": 7} for order in orders])

    assert Orders.perform_async([{"number": 3}]) == Pushed(new=1, merged=0)
    (job,) = Orders.queries.fetch([3])
    assert (job.id, job.payloads, job.scores) == ("3", [{"number": 3}], (7.0,))


@pytest.mark.parametrize("retry_count", [0, 1, 2, 5, 24])
def test_retry_in_is_the_fourth_power_and_15_and_a_jitter_of_30_a_try(retry_count: int) -> None:
    times = {Worker().retry_in(retry_count) for _ in range(2_000)}
    lowest = retry_count**4 + 15
    assert times <= {lowest + step * (retry_count + 1) for step in range(30)}
    assert {lowest, lowest + 29 * (retry_count + 1)} <= times


def test_a_partial_failure_names_its_ids() -> None:
    error = PartialFailure({"a": ValueError("x"), "b": "text"})
    assert str(error) == "2 of the batch failed: 'a', 'b'"
    assert str(error.errors["a"]) == "x"
    assert len(str(PartialFailure(dict.fromkeys(map(str, range(1_000)), "x")))) < 200


def test_an_unknown_option_comes_with_the_closest_known_one() -> None:
    assert "did you mean `alpha`?" in str(unknown_option("option", "alhpa", ["beta", "alpha"]))
    assert "known are: alpha, beta" in str(unknown_option("option", "zzz", ["beta", "alpha"]))
