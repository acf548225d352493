"""Retry policies: how often and when a job is tried again, by its worker's `retry`, and what can be none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import structlog

from lowkiq import (
    Bury,
    Discard,
    Exponential,
    Fixed,
    Job,
    Lowkiq,
    PartialFailure,
    Polynomial,
    RetryIn,
    SettingsError,
    Worker,
)
from lowkiq.errors import ProcessDied
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Failures
from lowkiq.policies import fewest_retries, most_retries, without_limits


class Gone(KeyError):
    """A kind of KeyError."""


MAPPING: dict[Any, Any] = {
    TimeoutError: Fixed(5),
    KeyError: Bury,
    LookupError: Discard("not there"),
    OSError: Polynomial(limit=2),
}


@pytest.fixture
def fail(app: Lowkiq) -> Callable[..., Failures]:
    """Has a job of a worker with these options fail so."""

    def run(error: BaseException | str, retry_count: int = -1, **members: Any) -> Failures:
        def perform(self: Any, payloads_by_id: Any) -> None:
            raise PartialFailure({"a": error})

        worker = app.worker(type(f"Jobs{len(app.workers)}", (Worker,), {"perform": perform, **members}))
        performer = Performer(worker(), app.settings, lambda fatal: pytest.fail(str(fatal)), LoopThread())
        outcome = performer.perform([Job("a", [1, 2], (1.0, 2.0), 1.0, retry_count)])
        assert outcome
        return outcome

    return run


def delay_of(outcome: Failures) -> float:
    (row,) = outcome.failed
    return row.delay


@pytest.mark.parametrize(("retry_count", "delay"), [(0, 30), (1, 31), (2, 62), (9, 30 + 9**5), (10**6, 3.2e9)])
def test_a_polynomial_delay_grows_by_a_power(retry_count: int, delay: float) -> None:
    assert Polynomial(base=30, power=5, limit=10).delay(retry_count) == delay


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Exponential(), [15, 30, 60, 120]),
        (Exponential(1, 3), [1, 3, 9, 27]),
        (Exponential(base=10, factor=10, at_most=500), [10, 100, 500, 500]),
        (Exponential(base=10, factor=1), [10, 10, 10, 10]),
        (Exponential(base=0), [0, 0, 0, 0]),
    ],
)
def test_an_exponential_delay_grows_by_a_factor(policy: Exponential, delays: list[float]) -> None:
    assert [policy.delay(n) for n in range(4)] == delays
    assert policy.delay(10**6) == max(delays[3], policy.at_most if policy.base and policy.factor > 1 else 0)


def test_the_first_failure_waits_for_the_base(fail: Callable[..., Failures]) -> None:
    assert delay_of(fail(ValueError("no"), retry=Polynomial(40))) == 40
    assert delay_of(fail(ValueError("no"), retry_count=1, retry=Polynomial(40))) == 40 + 2**5
    assert delay_of(fail(ValueError("no"), retry_count=7, retry=Fixed(300))) == 300


@pytest.mark.parametrize("retry", [Polynomial(limit=2), Fixed(300, limit=2), {ValueError: Fixed(1, limit=2)}])
def test_a_policy_says_how_often(fail: Callable[..., Failures], retry: Any) -> None:
    assert fail(ValueError("no"), retry_count=0, retry=retry).failed
    (row,) = fail(ValueError("no"), retry_count=1, retry=retry).exhausted
    assert row == ("a", row.error, "bury")


def test_a_policy_without_a_limit_has_that_of_its_worker(fail: Callable[..., Failures]) -> None:
    assert fail(ValueError("no"), retry_count=1, max_retry_count=2, retry=Fixed(300)).exhausted
    assert fail(ValueError("no"), retry_count=0, max_retry_count=2, retry=Fixed(300)).failed


def test_a_mapping_goes_by_the_nearest_class(fail: Callable[..., Failures]) -> None:
    assert delay_of(fail(TimeoutError(), retry=MAPPING)) == 5
    assert delay_of(fail(ConnectionError("x"), retry=MAPPING)) == 30
    (row,) = fail(Gone("x"), retry=MAPPING).exhausted
    assert row.fate == "bury_all" and row.error.startswith("Gone: 'x'")
    outcome = fail(IndexError("x"), retry=MAPPING)
    assert outcome == Failures([], [], [])


def test_what_a_mapping_does_not_name_is_as_without_it(fail: Callable[..., Failures]) -> None:
    def retry_in(self: Any, retry_count: int) -> float:
        return 77.0

    for error in (ValueError("no"), "a text"):
        assert delay_of(fail(error, retry=MAPPING, retry_in=retry_in)) == 77
        assert fail(error, retry_count=0, max_retry_count=1, retry=MAPPING).exhausted


def test_what_a_job_decides_comes_first(fail: Callable[..., Failures]) -> None:
    assert delay_of(fail(RetryIn(9), retry=Fixed(300))) == 9
    error = RetryIn(9)
    error.__cause__ = KeyError("x")
    assert delay_of(fail(error, retry=MAPPING)) == 9


def test_the_limit_of_the_error_that_a_retry_came_from_holds(fail: Callable[..., Failures]) -> None:
    error = RetryIn(9)
    error.__cause__ = OSError("x")
    assert fail(error, retry_count=1, retry=MAPPING).exhausted


def test_what_a_policy_discards_is_told_with_its_error(fail: Callable[..., Failures]) -> None:
    with structlog.testing.capture_logs() as logs:
        fail(IndexError("x"), retry=MAPPING)
    (line,) = [line for line in logs if line["event"] == "jobs_discarded"]
    assert (line["reason"], line["error"]) == ("not there", "IndexError: x")


def test_what_a_policy_buries_goes_to_the_hook_whole(fail: Callable[..., Failures]) -> None:
    gone: list[Any] = []
    hook = lambda _, batch: gone.extend((job.id, job.payloads, job.error) for job in batch)  # noqa: E731
    fail(KeyError("x"), retry=MAPPING, retries_exhausted=hook)
    assert gone == [("a", [1, 2], "KeyError: 'x'")]


# ── retry_in with the error ─────────────────────────────────────────────────────────────────────────────────────────


def test_retry_in_is_offered_the_error_if_it_takes_it(fail: Callable[..., Failures]) -> None:
    def retry_in(self: Any, retry_count: int, error: BaseException | str) -> float:
        return 60 if isinstance(error, TimeoutError) else 5 if error == "a text" else 1

    assert delay_of(fail(TimeoutError(), retry_in=retry_in)) == 60
    assert delay_of(fail("a text", retry_in=retry_in)) == 5
    assert delay_of(fail(ValueError("no"), retry_in=retry_in)) == 1


def test_a_second_parameter_of_another_name_keeps_its_default(fail: Callable[..., Failures]) -> None:
    def retry_in(self: Any, retry_count: int, base: float = 8) -> float:
        return base

    assert delay_of(fail(ValueError("no"), retry_in=retry_in)) == 8


def test_an_optional_error_is_given(fail: Callable[..., Failures]) -> None:
    def retry_in(self: Any, retry_count: int, error: Any = None) -> float:
        return 3 if error else 4

    assert delay_of(fail(ValueError("no"), retry_in=retry_in)) == 3


def test_a_static_retry_in_is_offered_it_too(fail: Callable[..., Failures]) -> None:
    told = staticmethod(lambda retry_count, error: 7 if isinstance(error, ValueError) else 1)
    assert delay_of(fail(ValueError("no"), retry_in=told)) == 7


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────

REFUSED: dict[str, dict[str, Any]] = {
    "retry is 300, it must be Exponential": {"retry": 300},
    r"retry is <class .*Fixed'>, it must be Exponential": {"retry": Fixed},
    "retry has the key 'KeyError', it must be a class of exceptions": {"retry": {"KeyError": Bury}},
    r"retry has the key <class 'int'>, it must be": {"retry": {int: Bury}},
    r"retry has the key <class .*Bury'>, it must be": {"retry": {Bury: Fixed(5)}},
    r"retry has 5 for KeyError, it must be Exponential\(…\), Polynomial\(…\), Fixed\(…\), Bury or Discard": {
        "retry": {KeyError: 5}
    },
    r"has <class .*Fixed'> for KeyError, .*: say Fixed\(…\)": {"retry": {KeyError: Fixed}},
    "has RetryIn.* for KeyError, it must be": {"retry": {KeyError: RetryIn(5)}},
    "has both retry and retry_in": {"retry": Fixed(5), "retry_in": lambda self, retry_count: 5},
    r"retry_in takes \(a, b, c\): it takes \(retry_count\), or \(retry_count, error\)": {
        "retry_in": lambda self, a, b, c: 5
    },
    r"retry_in takes \(\): it takes": {"retry_in": lambda self: 5},
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_can_be_no_retry_is_refused_at_registration(app: Lowkiq, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        app.worker(type("Jobs", (Worker,), {"perform": lambda self, payloads_by_id: None, **REFUSED[text]}))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Exponential(factor=0.5), "Exponential: factor is 0.5, it must be a number from 1 to 100"),
        (lambda: Exponential(at_most=float("inf")), "Exponential: at_most is inf, it must be a number from 0"),
        (lambda: Exponential(base=True), "Exponential: base is True, it must be a number"),
        (lambda: Exponential(base=-1), "Exponential: base is -1, it must be a number from 0 to 3,200,000,000"),
        (lambda: Polynomial(power=float("nan")), "Polynomial: power is nan, it must be a number from 0 to 100"),
        (
            lambda: Exponential(limit=1.5),  # type: ignore[arg-type]
            "Exponential: limit is 1.5, it must be an integer from 0 to 1,000,000, or None",
        ),
        (
            lambda: Fixed("5"),  # type: ignore[arg-type]
            "Fixed: seconds is '5', it must be a number",
        ),
        (lambda: Fixed(5, limit=-1), "Fixed: limit is -1, it must be an integer"),
        (lambda: Fixed(5, limit=True), "Fixed: limit is True, it must be an integer"),
    ],
)
def test_numbers_that_can_be_none_are_refused(make: Any, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        make()


# ── what others know of it ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("retry", "most", "fewest"),
    [
        (None, 25, 25),
        (Fixed(5), 25, 25),
        (Fixed(5, limit=3), 3, 3),
        (Fixed(5, limit=30), 30, 25),
        ({OSError: Fixed(5)}, 25, 25),
        (MAPPING, None, 0),
        ({OSError: Fixed(5, limit=7)}, None, 7),
    ],
)
def test_pages_and_hooks_know_how_often_a_job_is_tried(retry: Any, most: int | None, fewest: int) -> None:
    assert most_retries(retry, 25) == most
    assert fewest_retries(retry, 25) <= fewest


def test_an_error_of_a_process_has_a_rule_as_well(fail: Callable[..., Failures]) -> None:
    (row,) = fail(ProcessDied("killed by SIGSEGV"), retry={ProcessDied: Bury}).exhausted
    assert row.fate == "bury_all"


# ── live ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("retry", [Polynomial(limit=2), Fixed(300, limit=2), {ValueError: Fixed(1, limit=2)}])
def test_a_live_max_retry_count_counts_in_place_of_the_limits_of_policies(app: Lowkiq, retry: Any) -> None:
    def perform(payloads_by_id: dict[str, list[Any]]) -> None:
        raise ValueError("no")

    worker = app.worker(queue_name="q", retry=retry, when_exhausted="block")(perform)
    performer = Performer(worker(), app.settings, lambda fatal: pytest.fail(str(fatal)), LoopThread())

    def retries() -> int:
        """Retries after which the worker's job is given up."""
        for retry_count in range(-1, 9):
            outcome = performer.perform([Job("a", [1], (1.0,), 1.0, retry_count)])
            assert outcome
            if outcome.exhausted:
                assert outcome.exhausted[0].fate == "block"
                return retry_count + 1
        return pytest.fail("it is tried for ever")

    assert retries() == 2
    assert performer.override({"max_retry_count": 5}) == {}
    assert (retries(), performer.live) == (5, {"max_retry_count": 5})
    performer.override({"max_retry_count": 0})
    assert retries() == 0
    performer.override({"batch_size": 3})
    assert (retries(), performer.live) == (2, {})


def test_a_live_max_retry_count_leaves_what_a_mapping_buries_or_discards() -> None:
    assert without_limits(MAPPING) == {**MAPPING, OSError: Polynomial()}
    assert without_limits(None) is None
    assert fewest_retries(without_limits({KeyError: Bury}), 5) == 0
