"""The restart policy, with a clock and a jitter of the test's own."""

from __future__ import annotations

import pytest

from lowkiq_supervisor.restart_policy import Action, RestartHistory, RestartMode, RestartPolicy


class Clock:
    """Time that goes on when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def history(policy: RestartPolicy | None = None) -> tuple[RestartHistory, Clock]:
    clock = Clock()
    return RestartHistory(policy or RestartPolicy(), clock=clock, spread=lambda low, high: (low + high) / 2), clock


def test_delays_double_from_half_a_second_to_thirty() -> None:
    slot, clock = history()
    delays = []
    for _ in range(9):
        clock.now += 61  # slowly enough not to be a loop
        delays.append(slot.ended(1).delay)
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_jitter_is_a_fifth_each_way() -> None:
    asked: list[tuple[float, float]] = []

    def spread(low: float, high: float) -> float:
        asked.append((low, high))
        return high

    verdict = RestartHistory(RestartPolicy(), clock=Clock(), spread=spread).ended(1)
    assert asked == [(0.8, 1.2)]
    assert verdict.delay == pytest.approx(0.6)


@pytest.mark.parametrize(("seconds", "delay"), [(60, 0.5), (59, 1)])
def test_sixty_seconds_of_being_ready_forget_the_failures_and_less_do_not(seconds: float, delay: float) -> None:
    slot, clock = history()
    slot.ended(1)
    slot.ready()
    clock.now += seconds
    assert slot.ended(1).delay == delay


def test_a_time_of_being_ready_counts_only_once() -> None:
    slot, clock = history()
    slot.ready()
    clock.now += 60
    slot.ended(1)
    clock.now += 60  # spent without being ready
    assert slot.ended(1).delay == 1


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(15, [Action.RESTART] * 4 + [Action.GIVE_UP]), (15.1, [Action.RESTART] * 20)],
)
def test_five_failures_in_sixty_seconds_are_given_up_and_in_more_are_not(
    seconds: float, expected: list[Action]
) -> None:
    slot, clock = history()
    actions = []
    for _ in expected:
        actions.append(slot.ended(1).action)
        clock.now += seconds
    assert actions == expected


def test_a_policy_that_never_gives_up_tries_for_ever_at_the_longest_delay() -> None:
    slot, _ = history(RestartPolicy(gives_up=False))
    verdicts = [slot.ended(3) for _ in range(50)]
    assert {verdict.action for verdict in verdicts} == {Action.RESTART}
    assert {verdict.delay for verdict in verdicts[6:]} == {30}


@pytest.mark.parametrize(
    ("mode", "burst", "code", "action"),
    [
        (RestartMode.ALWAYS, False, 0, Action.RESTART),
        (RestartMode.ALWAYS, False, -9, Action.RESTART),
        (RestartMode.ALWAYS, True, 0, Action.FINISH),
        (RestartMode.ALWAYS, True, 1, Action.RESTART),
        (RestartMode.ON_FAILURE, False, 0, Action.FINISH),
        (RestartMode.ON_FAILURE, False, 1, Action.RESTART),
        (RestartMode.ON_FAILURE, False, 75, Action.REPLACE),
        (RestartMode.NEVER, False, 0, Action.FINISH),
        (RestartMode.NEVER, False, 1, Action.GIVE_UP),
        (RestartMode.NEVER, True, -9, Action.GIVE_UP),
    ],
)
def test_mode_and_exit_code_decide(mode: RestartMode, burst: bool, code: int, action: Action) -> None:
    slot, _ = history(RestartPolicy(mode=mode, burst=burst))
    slot.ready()
    assert slot.ended(code).action is action


def test_a_planned_recycle_restarts_at_once_and_is_no_failure() -> None:
    slot, _ = history()
    for _ in range(10):
        slot.ready()
        verdict = slot.ended(75)
        assert (verdict.action, verdict.delay) == (Action.REPLACE, 0)
    assert slot.ended(1).delay == 0.5


def test_who_ends_so_at_boot_has_failed_like_any_other() -> None:
    """An app may say EX_TEMPFAIL where it is imported."""
    slot, _ = history()
    assert [slot.ended(75).action for _ in range(5)] == [Action.RESTART] * 4 + [Action.GIVE_UP]
