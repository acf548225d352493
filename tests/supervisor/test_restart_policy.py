"""The restart policy, with a clock and a jitter of the test's own."""

from __future__ import annotations

import signal

import pytest

from lowkiq_supervisor.restart_policy import WORDS, Action, End, Kind, RestartHistory, RestartMode, RestartPolicy

ALWAYS, ON_FAILURE, NEVER = RestartMode.ALWAYS, RestartMode.ON_FAILURE, RestartMode.NEVER


class Clock:
    """Time that goes on when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def history(policy: RestartPolicy | None = None) -> tuple[RestartHistory, Clock]:
    clock = Clock()
    return RestartHistory(policy or RestartPolicy(), clock=clock, spread=lambda low, high: (low + high) / 2), clock


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (End(2), Kind.REFUSED),
        (End(3), Kind.REFUSED),
        (End(1), Kind.BOOT),
        (End(0), Kind.BOOT),
        (End(75), Kind.BOOT),  # an app may say EX_TEMPFAIL where it is imported
        (End(-signal.SIGSEGV), Kind.BOOT),
        (End(-signal.SIGABRT, is_ours=True), Kind.BOOT),
        (End(-signal.SIGKILL, is_ours=True), Kind.BOOT),
        (End(-signal.SIGKILL), Kind.KILLED),
        (End(-signal.SIGTERM, ready_for=5), Kind.KILLED),
        (End(-signal.SIGSEGV, ready_for=5), Kind.CRASH),
        (End(-signal.SIGKILL, ready_for=5, is_ours=True), Kind.CRASH),
        (End(3, ready_for=5), Kind.CRASH),
        (End(0, ready_for=5), Kind.KILLED),
        (End(130, ready_for=5), Kind.KILLED),
        (End(75, ready_for=5), Kind.RECYCLED),
        (End(-signal.SIGSEGV, ran_jobs=True), Kind.JOB),  # before it could say that it was ready
        (End(3, ran_jobs=True), Kind.JOB),
        (End(-signal.SIGKILL, ready_for=5, ran_jobs=True), Kind.JOB),
        (End(-signal.SIGABRT, ready_for=5, ran_jobs=True, is_ours=True), Kind.JOB),
        (End(75, ready_for=5, ran_jobs=True), Kind.RECYCLED),
    ],
)
def test_the_kind_of_an_end(end: End, kind: Kind) -> None:
    assert RestartPolicy().kind(end) is kind
    assert WORDS[kind]


@pytest.mark.parametrize(
    ("mode", "burst", "code", "action"),
    [
        (ALWAYS, False, 0, Action.RESTART),
        (ALWAYS, False, -9, Action.RESTART),
        (ALWAYS, True, 0, Action.FINISH),
        (ALWAYS, True, 1, Action.RESTART),
        (ON_FAILURE, False, 0, Action.FINISH),
        (ON_FAILURE, False, 1, Action.RESTART),
        (ON_FAILURE, False, 75, Action.REPLACE),
        (NEVER, False, 0, Action.FINISH),
        (NEVER, False, 1, Action.GIVE_UP),
        (NEVER, False, 75, Action.GIVE_UP),
        (NEVER, True, -9, Action.GIVE_UP),
    ],
)
def test_mode_and_exit_code_decide(mode: RestartMode, burst: bool, code: int, action: Action) -> None:
    slot, _ = history(RestartPolicy(mode=mode, burst=burst))
    assert slot.ended(End(code, ready_for=1)).action is action


@pytest.mark.parametrize(
    ("end", "delays"),
    [
        (End(1), [0.5, 1, 2, 4, 8, 16, 30, 30, 30]),
        (End(3), [0.5, 1, 2, 4, 8, 16, 30, 30, 30]),
        (End(1, ready_for=5), [0.5, 1, 2, 4, 8, 16, 30, 30, 30]),
        (End(-11, ran_jobs=True), [0.1, 0.5, 1, 2, 2]),
        (End(-9, ready_for=5), [0.1, 0.5, 1, 2, 2]),
    ],
)
def test_delays_double_up_to_the_longest_of_their_kind_and_go_on_for_ever(end: End, delays: list[float]) -> None:
    slot, _ = history()
    verdicts = [slot.ended(end) for _ in range(50)]
    assert {verdict.action for verdict in verdicts} == {Action.RESTART}
    assert [verdict.delay for verdict in verdicts][: len(delays)] == delays
    assert {verdict.delay for verdict in verdicts[len(delays) :]} == {delays[-1]}


def test_kills_from_outside_do_not_delay_what_comes_after_a_crash() -> None:
    slot, _ = history()
    for _ in range(10):
        slot.ended(End(-9, ready_for=5))
    assert slot.ended(End(1, ready_for=5)).delay == 0.5
    assert slot.failures == 11


def test_jitter_is_a_fifth_each_way() -> None:
    asked: list[tuple[float, float]] = []

    def spread(low: float, high: float) -> float:
        asked.append((low, high))
        return high

    verdict = RestartHistory(RestartPolicy(), clock=Clock(), spread=spread).ended(End(1))
    assert asked == [(0.8, 1.2)]
    assert verdict.delay == pytest.approx(0.6)


@pytest.mark.parametrize(("seconds", "delay"), [(60, 0.5), (59, 1)])
def test_sixty_seconds_of_being_ready_forget_the_failures_and_less_do_not(seconds: float, delay: float) -> None:
    slot, _ = history()
    slot.ended(End(1, ready_for=1))
    assert slot.ended(End(1, ready_for=seconds)).delay == delay


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(15, [Action.RESTART] * 4 + [Action.GIVE_UP]), (15.1, [Action.RESTART] * 20)],
)
def test_with_strict_five_failures_in_sixty_seconds_are_given_up_and_in_more_are_not(
    seconds: float, expected: list[Action]
) -> None:
    slot, clock = history(RestartPolicy(strict=True))
    actions = []
    for _ in expected:
        actions.append(slot.ended(End(1)).action)
        clock.now += seconds
    assert actions == expected


def test_a_planned_recycle_restarts_at_once_and_is_no_failure() -> None:
    slot, _ = history(RestartPolicy(strict=True))
    for _ in range(10):
        verdict = slot.ended(End(75, ready_for=1))
        assert (verdict.action, verdict.delay) == (Action.REPLACE, 0)
    assert slot.ended(End(1)).delay == 0.5


def test_a_person_who_asks_for_it_begins_anew() -> None:
    slot, _ = history()
    for _ in range(9):
        slot.ended(End(1))
    slot.forget()
    assert slot.ended(End(1)).delay == 0.5


def test_a_person_who_asks_for_it_begins_anew_with_strict_too() -> None:
    slot, _ = history(RestartPolicy(strict=True))
    for _ in range(4):
        slot.ended(End(1))
    slot.forget()
    assert slot.ended(End(1)).action is Action.RESTART
